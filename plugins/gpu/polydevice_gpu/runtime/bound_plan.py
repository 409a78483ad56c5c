"""BoundPlan: what one request replays.

Its arena, its kernel objects with their arguments, and nothing left to allocate or decide during an
inference.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import PolydeviceError
from polydevice.runtime.plan_cache import Shapes
from polydevice_gpu import cl
from polydevice_gpu.blobs.blob import GpuBlob
from polydevice_gpu.blobs.given_memory import GivenMemory
from polydevice_gpu.cl.memory.blocks import Blocks
from polydevice_gpu.cl.queues.turn_lock import TurnLock
from polydevice_gpu.graph import Memory
from polydevice_gpu.runtime.backlog import Backlog
from polydevice_gpu.runtime.bound_steps import BoundSteps, OnHost
from polydevice_gpu.runtime.host import Requests
from polydevice_gpu.runtime.plan import Plan
from polydevice_gpu.runtime.state import GpuVariable
from polydevice_gpu.runtime.transfer import Transfer

BOUND_BYTES = 1 << 20
"""What a bound plan takes besides its arena: kernel objects, mostly; an estimate from above."""

RECENT = 2
"""Inferences whose memory is known when it comes again: variables read and write two in turn."""


class BoundPlan(BoundSteps):
    """A plan with the memory and kernel objects of one request."""

    def __init__(self, plan: Plan, blocks: Blocks, requests: Requests | None = None) -> None:
        """Take memory and set every kernel argument.

        Args:
            plan: what to run.
            blocks: memory of the request, which its other plans use, too.
            requests: likewise, of what the host computes.

        Raises:
            DeviceMemoryError: the plan needs more than the network may use, or than there is.
        """
        contents = plan.contents
        self._memory_of_request = blocks
        self._held = blocks.of(plan.arena.blocks)
        buffers = [block.buffer for block in self._held]
        super().__init__(plan, buffers, Backlog(), requests=requests)
        self._inputs = {n: Transfer(v) for n, v in contents.inputs.items() if not v.on_host}
        self._outputs = {n: Transfer(v) for n, v in contents.outputs.items() if not v.on_host}
        ports = (*self._inputs.values(), *self._outputs.values())
        self._own = {port.memory: self.region(port.memory) for port in ports}
        self._on_host: OnHost = {}
        self._memory: GivenMemory | None = None  # which launches read and write
        self._recent: list[GivenMemory] = []

    @property
    def held_bytes(self) -> int:
        """How much memory is free when nobody uses this any longer."""
        return BOUND_BYTES + self._memory_of_request.bytes_kept_by(self._held)

    @property
    def uses_host(self) -> bool:
        """Whether an inference waits, or gives outputs whose sizes are not known beforehand."""
        return super().uses_host or any(v.on_host for v in self.plan.contents.outputs.values())

    def enqueue(
        self,
        queue: cl.Queue,
        inputs: Mapping[str, Array | GpuBlob],
        outputs: Mapping[str, Array | GpuBlob],
        turns: TurnLock | None = None,
    ) -> None:
        """Enqueue everything; waits only where the host computes layers.

        Args:
            queue: in order.
            inputs: arrays of the plan's shapes, not to be changed before the end; or blobs, which
                the launches read in place wherever that is possible.
            outputs: likewise, to fill. The dictionaries of one of the last inferences mean its
                memory.
            turns: lock of the queue, if others may use it while a loop runs or the host computes.

        Raises:
            BlobError: a blob is released or mapped, or two outputs share memory.
            InferCancelledError: (or InferTimeoutError) the inference may not go on.
            InferenceError: a loop or If cannot go on; nothing is left in the queue then.
        """
        memory = self._memory
        if memory is None or not memory.is_of(inputs, outputs):
            memory = self._given(inputs, outputs)
        for blob in memory.remote:
            blob.check_usable()
        owned: list[GpuBlob] = []
        try:
            for blob in memory.owners:
                blob.acquire(queue.pointer)
                owned.append(blob)
            self.backlog.begin(turns)
            self._enqueue_all(queue, memory)
        except BaseException:
            self._give_up(queue)
            raise
        finally:
            for blob in owned:
                blob.give_back(queue.pointer)

    def _give_up(self, queue: cl.Queue) -> None:
        """Let what is enqueued end: it reads and writes arrays that nobody keeps any longer."""
        self._memory = None
        self._recent.clear()
        with contextlib.suppress(PolydeviceError):
            queue.finish()

    @property
    def replays(self) -> bool:
        """Whether the next inference with the same memory is the last one's launches, no more."""
        is_settled = self._memory is not None and self._memory.is_settled
        tells = any(each.stretch.waits and each.stretch.tells for each in self.joined)
        return is_settled and self.launches_only is not None and not tells

    def replay(self, queue: cl.Queue) -> None:
        """Enqueue what the last inference did, which left nothing to place or copy; see `replays`.

        Raises:
            BlobError: a blob is released or mapped.
        """
        assert self._memory is not None
        assert self.launches_only is not None
        for blob in self._memory.remote:
            blob.check_usable()
        try:
            for launches in self.launches_only:
                launches.enqueue(queue)
        except BaseException:
            self._give_up(queue)
            raise

    def _enqueue_all(self, queue: cl.Queue, memory: GivenMemory) -> None:
        """Enqueue inputs, stretches and outputs, while all blobs are ours."""
        if memory.is_settled:
            if memory is not self._memory:
                self._use(memory)
            self.run(queue, self._on_host)
            return
        self._memory = None
        given = self.plan.contents.inputs
        self._on_host = {given[name]: array for name, array in memory.arrays.items()}
        for value in self.plan.contents.outputs.values():
            if value.on_host and value.constant is not None:
                self._on_host[value] = value.constant.copy()
        for name, port in self._inputs.items():
            self._feed(queue, port, memory.inputs[name], name in memory.overwritten)
        for name, port in self._outputs.items():
            target = memory.outputs[name]
            self._place(port.memory, None if isinstance(target, np.ndarray) else target.buffer)
        self.run(queue, self._on_host)
        for name, port in self._outputs.items():
            self._collect(queue, port, memory.outputs[name])
        if memory.is_remote and not self._on_host:  # arrays are not kept for longer
            ports = len(self._inputs) + len(self._outputs)
            memory.is_settled = len(memory.used_in_place) == ports
            self._memory = memory

    def _given(
        self, inputs: Mapping[str, Array | GpuBlob], outputs: Mapping[str, Array | GpuBlob]
    ) -> GivenMemory:
        """Return the memory that dictionaries mean, of those before if they were."""
        for memory in self._recent:
            if memory.is_of(inputs, outputs):
                return memory
        memory = GivenMemory(inputs, outputs)
        if memory.is_remote:
            self._recent = [*self._recent[1 - RECENT :], memory]
        return memory

    def _use(self, memory: GivenMemory) -> None:
        """Let the launches use memory in which nothing is copied."""
        for ports, blobs in ((self._inputs, memory.inputs), (self._outputs, memory.outputs)):
            for name, port in ports.items():
                blob = blobs[name]
                self._place(port.memory, None if isinstance(blob, np.ndarray) else blob.buffer)
        self._memory = memory

    def _feed(
        self, queue: cl.Queue, port: Transfer, given: Array | GpuBlob, is_overwritten: bool
    ) -> None:
        """Let the launches find an input: in place, or copied into the arena."""
        if isinstance(given, np.ndarray):
            self._place(port.memory, None)
            if port.elements:
                queue.upload(self.region(port.memory), port.to_device(given), wait=False)
            return
        buffer = None if is_overwritten else given.buffer
        self._place(port.memory, buffer)
        if buffer is None and port.elements:
            given.fetch(queue, self.region(port.memory), port.memory.bytes)

    def _collect(self, queue: cl.Queue, port: Transfer, target: Array | GpuBlob) -> None:
        """Bring an output where it belongs, unless the launches wrote it there."""
        if not port.elements:
            return
        if isinstance(target, np.ndarray):
            queue.download(self.region(port.memory), port.staging(target), wait=False)
        elif target.buffer is None:
            target.store(queue, self.region(port.memory), port.memory.bytes)

    def _place(self, memory: Memory, buffer: cl.Buffer | None) -> None:
        """Make a buffer the memory of an input or output; None for its place in the arena."""
        self.connect(memory, self._own[memory] if buffer is None else buffer)

    def may_repeat(
        self, inputs: Mapping[str, Array | GpuBlob], outputs: Mapping[str, Array | GpuBlob]
    ) -> bool:
        """Whether an inference that wrote its outputs has left its inputs as they were."""
        return not any(_overlap(r, w) for r in inputs.values() for w in outputs.values())

    def complete(self, outputs: Mapping[str, Array | GpuBlob]) -> dict[str, Array]:
        """Convert what was downloaded, after the queue got there; return the other outputs.

        Raises:
            WaitInVainError: what ran as one launch did not end.
        """
        self.check()
        if self._memory is not None and self._memory.is_settled:
            return {}
        for name, port in self._outputs.items():
            target = outputs[name]
            if isinstance(target, np.ndarray):
                port.finish(target)
        values = self.plan.contents.outputs.items()
        return {name: self._on_host[value] for name, value in values if value.on_host}


class Job(NamedTuple):
    """One inference.

    Attributes:
        bound: the plan with its memory.
        inputs: what is read.
        outputs: what is written, except what the host computes.
        shapes: of inputs and variables.
    """

    bound: BoundPlan
    inputs: dict[str, Array | GpuBlob]
    outputs: dict[str, Array | GpuBlob]
    shapes: Shapes

    @property
    def blobs(self) -> list[GpuBlob]:
        """What of its memory is on the device."""
        blobs = (*self.inputs.values(), *self.outputs.values())
        return [blob for blob in blobs if isinstance(blob, GpuBlob)]

    @property
    def is_remote(self) -> bool:
        """Whether nothing of it is for the host."""
        mine = len(self.inputs) + len(self.outputs)
        return not self.bound.uses_host and len(self.blobs) == mine


class KnownJob(NamedTuple):
    """An inference whose memory is all on the device, while what is bound stays.

    Attributes:
        job: the inference.
        blobs: its inputs and outputs.
        values: those of the variables, which it reads.
    """

    job: Job
    blobs: list[GpuBlob]
    values: list[GpuBlob]

    def holds(self, variables: Iterable[GpuVariable]) -> bool:
        """Whether its memory is still there, and the variables have these values."""
        for blob in self.blobs:
            if blob.is_released:
                return False
        return all(v.value is mine for v, mine in zip(variables, self.values, strict=True))


class Replay(NamedTuple):
    """An inference that may run again just as it did.

    Attributes:
        known: the inference, of a network without variables.
        changes: of the network's plans, before it was gathered; see `PlanCache.changes`.
    """

    known: KnownJob
    changes: int

    def may_run(self, changes: int) -> bool:
        """Whether its plan and memory are still there."""
        return self.changes == changes and self.known.holds(())


def _overlap(first: Array | GpuBlob, second: Array | GpuBlob) -> bool:
    """Whether two of an inference's arguments may share bytes."""
    if isinstance(first, GpuBlob) and isinstance(second, GpuBlob):
        return first.overlaps(second)
    if isinstance(first, GpuBlob) or isinstance(second, GpuBlob):
        return False
    return np.may_share_memory(first, second)
