"""SharedRunner: runs one request on whichever device gets it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.blob import Blob
from polydevice.dtype import Array
from polydevice.errors import (
    BlobError,
    InferCancelledError,
    InferenceError,
    InferTimeoutError,
    PolydeviceError,
)
from polydevice.profiling import LayerCount
from polydevice.remote import Copies
from polydevice.runtime.runner import Runner
from polydevice.runtime.variable import RequestVariable
from polydevice_auto.member import Member

if TYPE_CHECKING:
    from polydevice_auto.executable import SharedExecutable

_OF_THE_REQUEST = (BlobError, InferCancelledError, InferTimeoutError)
"""What would be the same on any device."""


class _Part:
    """The request's counterpart on one device, and which memory it was given."""

    def __init__(self, member: Member) -> None:
        self.request = member.executable.create_infer_request()
        self.request.runner.is_part = True
        self.member = member
        self._streams = member.executable.streams
        self._inputs: dict[str, Blob] = {}
        self._outputs: dict[str, Blob] = {}

    def infer(
        self, blobs: dict[str, Blob], outputs: dict[str, Blob], slot: int
    ) -> dict[str, Array]:
        watch = self.member.watch
        changed = {n: blob for n, blob in blobs.items() if self._inputs.get(n) is not blob}

        def infer(stream: int) -> dict[str, Array]:
            return self.request.infer(changed or None, stream=stream % self._streams)

        if watch is None:
            self._write_to(outputs)
            results = infer(slot)
        elif slot == self.member.slots:  # beyond them there are no threads
            results = infer(slot)
        else:
            results = watch.run(infer, self.member.seconds)
        self._inputs.update(changed)
        return results

    def _write_to(self, outputs: dict[str, Blob]) -> None:
        for name, blob in outputs.items():
            if self._outputs.get(name) is not blob:
                self.request.set_blob(name, blob, "output")
                self._outputs[name] = blob


class SharedRunner(Runner):
    """One inference on one device; a request of its own on each device that ever ran it.

    Inputs are used in place by every device. Outputs lie where the user set memory, else where the
    device that ran last left them. A network with variables keeps a request on one device.
    """

    executable: SharedExecutable

    def __init__(self, executable: SharedExecutable) -> None:
        """Make nothing yet, except where variables are kept."""
        super().__init__(executable)
        self._parts: dict[Member, _Part] = {}
        self._left: dict[str, Blob] = {}  # outputs that lie where a device left them
        self._last: _Part | None = None
        self._pinned = executable.schedule.pin() if executable.has_variables else None
        if self._pinned is not None:
            self._last = self._parts[self._pinned] = _Part(self._pinned)

    def variables(self) -> Sequence[RequestVariable]:
        """Return the variables, which are those of the one device that runs this request."""
        return self._last.request.runner.variables() if self._pinned and self._last else ()

    @property
    def copies(self) -> Copies:
        """What the last inference copied between host and device, and within the device."""
        return self._last.request.copies if self._last else Copies()

    def written(self) -> list[Array]:
        """Return the outputs of all devices: the user may have got any of them."""
        parts = (part.request.runner.written() for part in self._parts.values())
        return [*super().written(), *(array for arrays in parts for array in arrays)]

    def run(self, stream: int) -> None:
        """Run on a device; where that fails, on another, and then take the first one out."""
        schedule = self.executable.schedule
        failed: dict[Member, PolydeviceError] = {}
        while True:
            member, slot = self._next(failed)
            start, seconds = time.perf_counter(), None
            try:
                self._run_on(member, slot)
                seconds = time.perf_counter() - start
                break
            except _OF_THE_REQUEST:
                raise
            except PolydeviceError as error:
                if self._pinned is not None:
                    raise
                failed[member] = error
                if self._parts[member].request.is_busy:  # left behind, in a thread that hangs
                    self.leave(member)
            finally:
                schedule.give_back(member, slot, seconds)
                self.executable.ran(self, member)
        schedule.take_out(failed)

    def _next(self, failed: dict[Member, PolydeviceError]) -> tuple[Member, int]:
        """Take a device; where this request's time is over, those that hang are taken out first."""
        schedule = self.executable.schedule
        last = self._last.member if self._last is not None else None
        try:
            return schedule.take(self._pinned, failed, last)
        except _OF_THE_REQUEST:
            hanging = {m: error for m, error in failed.items() if m.watch and m.watch.left}
            if schedule.has_others(hanging):
                schedule.take_out(hanging)
            raise

    def _run_on(self, member: Member, slot: int) -> None:
        part = self._parts.get(member)
        if part is None:
            part = self._parts[member] = _Part(member)
        network = self.executable
        inputs = {name: self.blob(name) for name in network.inputs}
        outputs = {
            name: blob
            for name, port in network.outputs.items()
            if (blob := self.blobs.get(port.key)) is not None
            and blob is not self._left.get(port.key)
        }
        results = part.infer(inputs, outputs, slot)
        for name, port in network.outputs.items():
            held, result = self.blobs.get(port.key), results[name]
            if held is not None and held.array is result:
                continue
            if held is not None and port.key in self.given:
                self.check_memory(port.key, result.shape)
                np.copyto(held.array, result)  # where nobody who was left behind writes
                continue
            self.give(port.key, result)
            self._left[port.key] = self.blobs[port.key]
        self._last = part

    def holds(self, member: Member) -> bool:
        """Whether the request has something on a device."""
        return member in self._parts

    def leave(self, member: Member) -> None:
        """Let go of what the request holds on a device that gets no more requests."""
        self._parts.pop(member, None)

    def counts(self) -> list[LayerCount]:
        """Return the counters of the last inference, or of the preferred device before one."""
        if self._last is None:
            raise InferenceError(f"no counters: {self.executable.device} has not inferred yet")
        return self._last.request.runner.counts()

    def release(self) -> None:
        """Let go of what there is on the devices."""
        self._parts.clear()
