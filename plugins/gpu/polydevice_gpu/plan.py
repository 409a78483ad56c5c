"""Plan: a network compiled for a device and concrete shapes; shared by all requests.

A plan holds no buffers of a request. `Plan.bind` makes what one request replays: its arena, its
kernel objects with their arguments, and nothing left to allocate or decide during an inference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice_gpu import cl
from polydevice_gpu.graph import GpuGraph, GpuNode, Memory, Place, Value
from polydevice_gpu.kernels.launch import Argument, Launch, Local, Scratch, Weights
from polydevice_gpu.passes.plan_memory import ArenaPlan


class WeightStore:
    """Constants in device memory, in the form that kernels want; each uploaded once.

    Shared by the plans, streams and requests of an executable network.
    """

    def __init__(self, device: cl.Device) -> None:
        self._device = device
        self._buffers: dict[tuple[int, str, ElementType], tuple[cl.Buffer, Array]] = {}

    def buffer(self, constant: Array, storage: ElementType, form: Weights | None) -> cl.Buffer:
        """Return the buffer that holds a constant in a form (None: as it is)."""
        key = (id(constant), form.form if form else "", storage)
        if key not in self._buffers:
            array = np.asarray(constant) if form is None else form.make(np.asarray(constant))
            array = np.ascontiguousarray(array.astype(storage.dtype, copy=False))
            buffer = self._device.memory.allocate(max(array.nbytes, 1), "weights")
            if array.nbytes:
                with self._device.queue() as queue:
                    queue.upload(buffer, array)
            # The array is kept so that its id stays its own.
            self._buffers[key] = (buffer, constant)
        return self._buffers[key][0]

    @property
    def size_bytes(self) -> int:
        """Bytes of all constants."""
        return sum(buffer.size_bytes for buffer, _ in self._buffers.values())

    def clear(self) -> None:
        """Forget all buffers; they are released when nothing uses them any more."""
        self._buffers.clear()


@dataclass
class Step:
    """What one node takes: its launches, and the kernels that they call."""

    node: GpuNode
    launches: list[Launch] = field(default_factory=list)
    kernels: list[cl.Kernel] = field(default_factory=list)
    scratch: dict[Scratch, Memory] = field(default_factory=dict)


@dataclass
class Plan:
    """A compiled network.

    Attributes:
        graph: after all passes.
        steps: in execution order; views have none.
        arena: where everything lies.
        weights: constants on the device.
        programs_compiled: how many programs were not in the cache.
    """

    device: cl.Device
    graph: GpuGraph
    steps: list[Step]
    arena: ArenaPlan
    weights: WeightStore
    programs_compiled: int = 0

    def bind(self) -> BoundPlan:
        """Allocate what one request needs and set every kernel argument."""
        return BoundPlan(self)


class BoundPlan:
    """A plan with the memory and kernel objects of one request."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        device = plan.device
        self._arena = device.memory.allocate(max(plan.arena.size_bytes, 1), "arena")
        self._regions: dict[Memory, cl.Buffer] = {}
        self._launches = cl.LaunchList(device)
        for step in plan.steps:
            for launch, kernel in zip(step.launches, step.kernels, strict=True):
                arguments = [self._argument(a, step) for a in launch.arguments]
                self._launches.add(kernel, launch.global_size, launch.local_size, arguments)
        self._inputs = {name: _Port(value) for name, value in plan.graph.inputs.items()}
        self._outputs = {name: _Port(value) for name, value in plan.graph.outputs.items()}

    def run(self, queue: cl.Queue, inputs: dict[str, Array], outputs: dict[str, Array]) -> None:
        """Compute outputs from inputs; returns when they are filled."""
        for name, port in self._inputs.items():
            if port.value.elements:
                array = port.to_device(inputs[name])
                queue.upload(self.region(port.memory), array, wait=False)
        self._launches.enqueue(queue)
        for name, port in self._outputs.items():
            if port.value.elements:
                target = port.staging(outputs[name])
                queue.download(self.region(port.memory), target, wait=False)
        queue.finish()
        for name, port in self._outputs.items():
            port.finish(outputs[name])

    def times(self) -> list[cl.LaunchTime]:
        """Return when each launch of the last run was on the device; needs a profiling queue."""
        return self._launches.profile()

    def region(self, memory: Memory) -> cl.Buffer:
        """Return the buffer behind a piece of the arena."""
        if memory not in self._regions:
            offset = self.plan.arena.offsets[memory]
            size = max(memory.bytes, 1)
            self._regions[memory] = self._arena.region(offset, size, memory.name)
        return self._regions[memory]

    def _argument(self, argument: Argument, step: Step) -> cl.Buffer | cl.LocalMemory | np.generic:
        weights = self.plan.weights
        if isinstance(argument, np.generic):
            return argument
        if isinstance(argument, Local):
            return cl.LocalMemory(argument.bytes)
        if isinstance(argument, Scratch):
            return self.region(step.scratch[argument])
        if isinstance(argument, Weights):
            value = argument.value
            assert value.constant is not None
            return weights.buffer(value.constant, argument.storage, argument)
        memory = argument.memory if isinstance(argument, Value) else argument
        assert memory is not None, f"{argument} has no memory"
        if memory.place is Place.WEIGHTS:
            assert memory.data is not None
            return weights.buffer(memory.data, memory.storage, None)
        return self.region(memory)


class _Port:
    """An input or output: its memory, and a copy on the host where the types differ."""

    def __init__(self, value: Value) -> None:
        self.value = value
        assert value.memory is not None
        self.memory = value.memory
        differs = value.storage.dtype != value.element_type.dtype
        self._staging = np.empty(value.shape, value.storage.dtype) if differs else None

    def to_device(self, array: Array) -> Array:
        """Return the array in the type that is stored."""
        if self._staging is None:
            return array
        np.copyto(self._staging, array, casting="unsafe")
        return self._staging

    def staging(self, array: Array) -> Array:
        """Return what to download into."""
        return array if self._staging is None else self._staging

    def finish(self, array: Array) -> None:
        """Convert what was downloaded."""
        if self._staging is not None:
            np.copyto(array, self._staging, casting="unsafe")


def scratch_memory(launches: Sequence[Launch]) -> dict[Scratch, Memory]:
    """Return a piece of the arena for every scratch argument."""
    found: dict[Scratch, Memory] = {}
    for launch in launches:
        for argument in launch.arguments:
            if isinstance(argument, Scratch) and argument not in found:
                found[argument] = Memory(
                    Place.ARENA, argument.elements, argument.storage, name="scratch"
                )
    return found
