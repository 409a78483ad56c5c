"""BoundPlan: what one request replays.

Its arena, its kernel objects with their arguments, and nothing left to allocate or decide during an
inference.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import BlobError
from polydevice_gpu import cl
from polydevice_gpu.blob import GpuBlob
from polydevice_gpu.graph import GpuNode, Memory, Value
from polydevice_gpu.host import HostRun
from polydevice_gpu.kernels.launch import Launch
from polydevice_gpu.layer_times import NodeTime, Times
from polydevice_gpu.plan import HostStep, Plan, Step, argument_of
from polydevice_gpu.port import Port, Use


class BoundPlan:
    """A plan with the memory and kernel objects of one request."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        device = plan.device
        graph = plan.graph
        self._blocks = [device.memory.allocate(size, "arena") for size in plan.arena.blocks]
        self._regions: dict[Memory, cl.Buffer] = {}
        self._stretches: list[cl.LaunchList | HostRun] = []
        self._inputs = {n: Port(v) for n, v in graph.inputs.items() if not v.on_host}
        self._outputs = {n: Port(v) for n, v in graph.outputs.items() if not v.on_host}
        ports = (*self._inputs.values(), *self._outputs.values())
        self._uses: dict[Memory, list[Use]] = {port.memory: [] for port in ports}
        with plan.binding:
            self._add_launches()
        self._own = {port.memory: self.region(port.memory) for port in ports}
        self._crossings: dict[Value, tuple[Port, Array]] = {}
        self._read = {value for node in graph.nodes if not node.on_host for value in node.inputs}
        self._read.update(graph.outputs.values())
        self._on_host: dict[Value, Array] = {}

    def _add_launches(self) -> None:
        """Make the stretches of launches, and of what the host computes between them."""
        for step in self.plan.steps:
            if isinstance(step, HostStep):
                self._stretches.append(HostRun(step.group, step.executable))
                continue
            if not self._stretches or isinstance(self._stretches[-1], HostRun):
                self._stretches.append(cl.LaunchList(self.plan.device))
            launches = self._stretches[-1]
            assert not isinstance(launches, HostRun)
            for launch, kernel in zip(step.launches, step.kernels, strict=True):
                self._add(launches, step, launch, kernel)

    def _add(self, launches: cl.LaunchList, step: Step, launch: Launch, kernel: cl.Kernel) -> None:
        """Add a launch with its arguments, and note which of them are inputs and outputs."""
        weights = self.plan.weights
        arguments = [argument_of(a, step.scratch, weights, self.region) for a in launch.arguments]
        number = launches.add(kernel, launch.global_size, launch.local_size, arguments)
        for position, argument in enumerate(launch.arguments):
            memory = argument.memory if isinstance(argument, Value) else argument
            if isinstance(memory, Memory) and memory in self._uses:
                self._uses[memory].append((launches, number, position))

    @property
    def uses_host(self) -> bool:
        """Whether the host computes layers, or outputs whose sizes are not known beforehand."""
        hosted = any(isinstance(stretch, HostRun) for stretch in self._stretches)
        return hosted or any(value.on_host for value in self.plan.graph.outputs.values())

    def enqueue(
        self,
        queue: cl.Queue,
        inputs: Mapping[str, Array | GpuBlob],
        outputs: Mapping[str, Array | GpuBlob],
    ) -> None:
        """Enqueue everything; waits only where the host computes layers.

        Args:
            queue: in order.
            inputs: arrays of the plan's shapes, not to be changed before the end; or blobs, which
                the launches read in place wherever that is possible.
            outputs: likewise, to fill.

        Raises:
            BlobError: a blob is released or mapped, or two outputs share memory.
        """
        remote = [
            blob for blob in (*inputs.values(), *outputs.values()) if isinstance(blob, GpuBlob)
        ]
        for blob in remote:
            blob.check_usable()
        written = _written(outputs)
        # Several may be regions of one, which is taken over once.
        owners = dict.fromkeys(blob.whole for blob in remote)
        owned: list[GpuBlob] = []
        try:
            for blob in owners:
                blob.acquire(queue.pointer)
                owned.append(blob)
            self._enqueue_all(queue, inputs, outputs, written)
        finally:
            for blob in owned:
                blob.give_back(queue.pointer)

    def _enqueue_all(
        self,
        queue: cl.Queue,
        inputs: Mapping[str, Array | GpuBlob],
        outputs: Mapping[str, Array | GpuBlob],
        written: list[GpuBlob],
    ) -> None:
        """Enqueue inputs, stretches and outputs, while all blobs are ours."""
        given = self.plan.graph.inputs
        self._on_host = {
            value: array
            for name, value in given.items()
            if not isinstance(array := inputs[name], GpuBlob)
        }
        for name, port in self._inputs.items():
            self._feed(queue, port, inputs[name], written)
        for name, port in self._outputs.items():
            target = outputs[name]
            self._connect(port.memory, target.buffer if isinstance(target, GpuBlob) else None)
        for stretch in self._stretches:
            if isinstance(stretch, HostRun):
                self._run_host(stretch, queue, self._on_host)
            else:
                stretch.enqueue(queue)
        for name, port in self._outputs.items():
            self._collect(queue, port, outputs[name])

    def _feed(
        self, queue: cl.Queue, port: Port, given: Array | GpuBlob, written: list[GpuBlob]
    ) -> None:
        """Let the launches find an input: in place, or copied into the arena."""
        if not isinstance(given, GpuBlob):
            self._connect(port.memory, None)
            if port.value.elements:
                queue.upload(self.region(port.memory), port.to_device(given), wait=False)
            return
        in_place = given.buffer is not None and not any(given.overlaps(blob) for blob in written)
        self._connect(port.memory, given.buffer if in_place else None)
        if not in_place and port.value.elements:
            given.fetch(queue, self.region(port.memory), port.memory.bytes)

    def _collect(self, queue: cl.Queue, port: Port, target: Array | GpuBlob) -> None:
        """Bring an output where it belongs, unless the launches wrote it there."""
        if not port.value.elements:
            return
        if not isinstance(target, GpuBlob):
            queue.download(self.region(port.memory), port.staging(target), wait=False)
        elif target.buffer is None:
            target.store(queue, self.region(port.memory), port.memory.bytes)

    def _connect(self, memory: Memory, buffer: cl.Buffer | None) -> None:
        """Make a buffer the memory of an input or output; None for its place in the arena."""
        wanted = self._own[memory] if buffer is None else buffer
        if self._regions[memory] is wanted:
            return
        self._regions[memory] = wanted
        for launches, number, position in self._uses[memory]:
            launches.set_argument(number, position, wanted)

    def complete(self, outputs: Mapping[str, Array | GpuBlob]) -> dict[str, Array]:
        """Convert what was downloaded, after the queue got there; return the other outputs."""
        for name, port in self._outputs.items():
            target = outputs[name]
            if not isinstance(target, GpuBlob):
                port.finish(target)
        graph = self.plan.graph
        return {name: self._on_host[v] for name, v in graph.outputs.items() if v.on_host}

    def _run_host(self, step: HostRun, queue: cl.Queue, on_host: dict[Value, Array]) -> None:
        """Fetch what a group reads, compute it, and bring back what launches read."""
        waiting = []
        for value in step.group.inputs:
            if value not in on_host:
                port, array = self._crossing(value)
                if value.elements:
                    queue.download(self.region(port.memory), port.staging(array), wait=False)
                on_host[value] = array
                waiting.append((port, array))
        queue.finish()
        for port, array in waiting:
            port.finish(array)
        results = step.run([on_host[value] for value in step.group.inputs])
        for value, result in zip(step.group.outputs, results, strict=True):
            on_host[value] = result
            if not value.on_host and value.elements and value in self._read:
                port, array = self._crossing(value)
                np.copyto(array, result)
                queue.upload(self.region(port.memory), port.to_device(array), wait=False)

    def _crossing(self, value: Value) -> tuple[Port, Array]:
        """Return the place of a value that host and device exchange, and host memory for it."""
        if value not in self._crossings:
            array = np.empty(value.shape, value.element_type.dtype)
            self._crossings[value] = (Port(value), array)
        return self._crossings[value]

    def times(self) -> list[cl.LaunchTime]:
        """Return when each launch of the last run was on the device; needs a profiling queue."""
        return [
            time
            for stretch in self._stretches
            if not isinstance(stretch, HostRun)
            for time in stretch.profile()
        ]

    def layer_times(self) -> Times:
        """Return how long each node took in the last run; needs a profiling queue."""
        found: dict[GpuNode, NodeTime] = {}
        launches = iter(self.times())
        for step in self.plan.steps:
            if isinstance(step, Step) and step.launches:
                found[step.node] = NodeTime.of([next(launches) for _ in step.launches])
        for stretch in self._stretches:
            if isinstance(stretch, HostRun):
                found.update(stretch.times())
        return found

    def region(self, memory: Memory) -> cl.Buffer:
        """Return the buffer behind a piece of memory: of the arena, or of a blob."""
        if memory not in self._regions:
            self._regions[memory] = self._blocks[self.plan.arena.places[memory]]
        return self._regions[memory]


def _written(outputs: Mapping[str, Array | GpuBlob]) -> list[GpuBlob]:
    """Return the blobs that the launches write.

    Raises:
        BlobError: two of them share memory.
    """
    blobs: list[GpuBlob] = []
    for name, blob in outputs.items():
        if not isinstance(blob, GpuBlob):
            continue
        if any(blob.overlaps(other) for other in blobs):
            raise BlobError(f"output {name!r} shares memory with another output; use two blobs")
        blobs.append(blob)
    return blobs
