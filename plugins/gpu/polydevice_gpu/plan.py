"""Plan: a network compiled for a device and concrete shapes; shared by all requests.

A plan holds no buffers of a request; a `BoundPlan` does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from polydevice.executable_network import ExecutableNetwork
from polydevice_gpu import cl
from polydevice_gpu.graph import GpuGraph, GpuNode, Memory, Place, Value
from polydevice_gpu.host import HostGroup
from polydevice_gpu.kernels.launch import Argument, Launch, Local, Scratch, Weights
from polydevice_gpu.passes.plan_memory import ArenaPlan
from polydevice_gpu.weights import WeightStore


@dataclass
class Step:
    """What one node takes: its launches, and the kernels that they call."""

    node: GpuNode
    launches: list[Launch] = field(default_factory=list)
    kernels: list[cl.Kernel] = field(default_factory=list)
    scratch: dict[Scratch, Memory] = field(default_factory=dict)


@dataclass
class HostStep:
    """What the host computes between launches."""

    group: HostGroup
    executable: ExecutableNetwork


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
    steps: list[Step | HostStep]
    arena: ArenaPlan
    weights: WeightStore
    programs_compiled: int = 0
    binding: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """Held while kernels are bound: they hand out their first instance to one caller only."""

    @property
    def programs(self) -> set[cl.Program]:
        """The programs that its launches run."""
        steps = (step for step in self.steps if isinstance(step, Step))
        return {kernel.program for step in steps for kernel in step.kernels}


def argument_of(
    argument: Argument,
    scratch: Mapping[Scratch, Memory],
    weights: WeightStore,
    region: Callable[[Memory], cl.Buffer],
) -> cl.Buffer | cl.LocalMemory | np.generic:
    """Return what a launch's argument stands for.

    Args:
        argument: of the launch.
        scratch: the node's scratch memory.
        weights: makes the forms of constants.
        region: returns the buffer of a piece of memory that is no weight.
    """
    if isinstance(argument, np.generic):
        return argument
    if isinstance(argument, Local):
        return cl.LocalMemory(argument.bytes)
    if isinstance(argument, Scratch):
        return region(scratch[argument])
    if isinstance(argument, Weights):
        value = argument.value
        assert value.constant is not None
        return weights.buffer(value.constant, argument.storage, argument)
    memory = argument.memory if isinstance(argument, Value) else argument
    assert memory is not None, f"{argument} has no memory"
    if memory.place is Place.WEIGHTS:
        assert memory.data is not None
        return weights.buffer(memory.data, memory.storage, None)
    return region(memory)


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
