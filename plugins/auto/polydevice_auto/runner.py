"""SharedRunner: runs one request on whichever device gets it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.blob import Blob
from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.errors import InferenceError, PolydeviceError
from polydevice.profiling import LayerCount
from polydevice.remote import Copies
from polydevice.runtime.executor import is_stream_thread
from polydevice.runtime.runner import Runner
from polydevice.runtime.variable import RequestVariable
from polydevice_auto.attempt import Attempt, holds_slot
from polydevice_auto.member import Member
from polydevice_auto.part import Part

if TYPE_CHECKING:
    from polydevice_auto.executable import SharedExecutable

LOOK_SECONDS = 0.05
"""How long a request waits for a device before it looks whether it was cancelled."""


class SharedRunner(Runner):
    """One inference on one device; a request of its own on each device that ever ran it.

    Inputs are used in place by every device. Outputs lie where the user set memory, else where the
    device that ran last left them. A network with variables keeps a request on one device.

    Attributes:
        pinned: the device that the request stays on; None for any.
        attempt: the asynchronous inference that waits or runs.
    """

    executable: SharedExecutable

    def __init__(self, executable: SharedExecutable) -> None:
        """Make nothing yet, except where variables are kept."""
        super().__init__(executable)
        self._parts: dict[Member, Part] = {}
        self._left: dict[str, Blob] = {}  # outputs that lie where a device left them
        self._last: Part | None = None
        self.attempt: Attempt | None = None
        self.pinned = executable.schedule.pin() if executable.has_variables else None
        if self.pinned is not None:
            self._last = self._parts[self.pinned] = Part(self.pinned)

    @property
    def last(self) -> Member | None:
        """The device that ran the last inference."""
        return None if self._last is None else self._last.member

    def variables(self) -> Sequence[RequestVariable]:
        """Return the variables, which are those of the one device that runs this request."""
        return self._last.request.runner.variables() if self.pinned and self._last else ()

    @property
    def copies(self) -> Copies:
        """What the last inference copied between host and device, and within the device."""
        return self._last.request.copies if self._last else Copies()

    def written(self) -> list[Array]:
        """Return the outputs of all devices: the user may have got any of them."""
        parts = (part.request.runner.written() for part in self._parts.values())
        return [*super().written(), *(array for arrays in parts for array in arrays)]

    def start(self, end: Callable[[BaseException | None], None]) -> bool:
        """Run in a thread of the device that gets it, which calls back as well."""
        self.attempt = Attempt(self, end, waits=True)
        try:
            self.attempt.go()
        except PolydeviceError:  # a stream raises it
            self.attempt = None
            return False
        return True

    def withdraw(self) -> bool:
        """Forget an asynchronous inference that waits for a device."""
        attempt = self.attempt
        if attempt is None or not attempt.withdraw():
            return False
        self.attempt = None
        return True

    def run(self, stream: int) -> None:
        """Run on a device; where that fails, on another, and then take the first one out."""
        outcome: list[BaseException | None] = []
        ended = threading.Lock()  # an event takes three times as long
        ended.acquire()

        def end(error: BaseException | None) -> None:
            outcome.append(error)
            ended.release()

        waits = is_stream_thread() and not holds_slot()
        attempt = Attempt(self, end, waits=waits)
        attempt.go()
        try:
            while not ended.acquire(timeout=LOOK_SECONDS if waits else -1):
                self._look(attempt)
        except PolydeviceError:  # it was forgotten
            raise
        except BaseException:  # Ctrl-C: what still runs would write over what comes next
            if not attempt.withdraw():
                attempt.bounds.cancel("the inference was interrupted")
                ended.acquire()
            raise
        if (error := outcome[0]) is not None:
            raise error

    def _look(self, attempt: Attempt) -> None:
        """Wait no longer for a device where the time is over; one that runs it looks itself."""
        try:
            current_bounds().check()
        except PolydeviceError:
            if attempt.withdraw():
                raise

    def compute(self, member: Member, stream: int) -> tuple[Part, dict[str, Array]]:
        """Compute on a device; changes nothing else, since who does may be left behind.

        Returns:
            What computed, and name → output.
        """
        part = self._parts.get(member) or Part(member)
        network = self.executable
        inputs = {name: self.blob(name) for name in network.inputs}
        outputs = {
            name: blob
            for name, port in network.outputs.items()
            if (blob := self.blobs.get(port.key)) is not None
            and blob is not self._left.get(port.key)
        }
        return part, part.infer(inputs, outputs, stream)

    def keep_results(self, part: Part, results: dict[str, Array]) -> None:
        """Let the outputs be what a device computed."""
        for name, port in self.executable.outputs.items():
            held, result = self.blobs.get(port.key), results[name]
            if held is not None and held.array is result:
                continue
            if held is not None and port.key in self.given:
                self.check_memory(port.key, result.shape)
                np.copyto(held.array, result)  # where nobody who was left behind writes
                continue
            self.give(port.key, result)
            self._left[port.key] = self.blobs[port.key]
        self._parts[part.member] = self._last = part

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
