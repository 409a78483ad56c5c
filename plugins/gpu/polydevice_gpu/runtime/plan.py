"""Plan: a network compiled for a device and concrete shapes; shared by all requests.

A plan holds no buffers of a request; a `BoundPlan` does.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.executable_network import ExecutableNetwork
from polydevice.locks import Lock
from polydevice.runtime.layer_times import LayerTimes
from polydevice_gpu import cl
from polydevice_gpu.graph import GpuGraph, GpuNode, Memory, Place, Value
from polydevice_gpu.kernels.launch import Argument, Launch, Local, Scratch, Weights
from polydevice_gpu.one_launch.stretch import Stretch
from polydevice_gpu.runtime.host import HostGroup, Spare
from polydevice_gpu.runtime.weights import WeightStore

if TYPE_CHECKING:
    from polydevice_gpu.passes.placing.plan_memory import ArenaPlan
    from polydevice_gpu.runtime.bound_steps import BoundNested, BoundSteps
    from polydevice_gpu.runtime.filled_stretch import FilledStretch

LAUNCH_BYTES = 30_000
"""What a launch takes on the host, with its node, its kernel and its arguments."""

LATER = "the kernel that would run them is built in the background, after some inferences"
"""Why launches do not join yet."""


@dataclass
class Step:
    """What one node takes: its launches, and the kernels that they call."""

    node: GpuNode
    launches: list[Launch] = field(default_factory=list)
    kernels: list[cl.CompiledKernel] = field(default_factory=list)
    scratch: dict[Scratch, Memory] = field(default_factory=dict)


@dataclass
class HostStep:
    """What the host computes between launches, or a part of late sizes the device.

    Attributes:
        group: the layers.
        executable: runs them.
        spare: loads them on the host, where the device turns out not to take a part.
    """

    group: HostGroup
    executable: ExecutableNetwork
    spare: Spare | None = None


class NestedStep(ABC):
    """A loop or If: plans of its bodies, and copies between them and the plan around.

    Attributes:
        node: the layer.
        plans: of the bodies.
        copies: what brings values to the bodies and back where they cannot be used in place.
        memory: what lives in the outer arena while the layer runs; the bodies' arenas lie in it.
    """

    node: GpuNode
    plans: list[Plan]
    copies: list[Step]
    memory: list[Memory]

    @abstractmethod
    def bind(self, outer: BoundSteps) -> BoundNested:
        """Make what a request replays; its memory is that of the outer plan."""


class Contents(ABC):
    """What a plan consists of."""

    @property
    @abstractmethod
    def graph(self) -> GpuGraph:
        """The network after all passes."""

    @property
    @abstractmethod
    def steps(self) -> list[Step | HostStep | NestedStep]:
        """What is done, in execution order; views have no step."""

    @property
    def inputs(self) -> dict[str, Value]:
        """Of the graph, by name."""
        return self.graph.inputs

    @property
    def outputs(self) -> dict[str, Value]:
        """Of the graph, by name."""
        return self.graph.outputs

    @property
    def inner_plans(self) -> list[Plan]:
        """The plans of all bodies."""
        nested = (step for step in self.steps if isinstance(step, NestedStep))
        return [plan for step in nested for plan in step.plans]

    @property
    def held_bytes(self) -> int:
        """Estimate of the host memory that it takes."""
        return LAUNCH_BYTES * sum(len(step.launches) for step in launching(self.steps))

    @property
    def launches_only(self) -> bool:
        """Whether neither host nor loops take part."""
        return all(isinstance(step, Step) for step in self.steps)

    def keep_choices(self) -> None:
        """Say of no node any more that its kernel stands in for another one."""
        for node in self.graph.nodes:
            node.stand_for_itself()

    def stretches(self) -> list[FilledStretch | HostStep] | None:
        """Return launches as arrays, with what the host does between them; None without arrays."""
        return None

    def read(self) -> set[Value]:
        """Return what launches and bodies read, or the caller."""
        return read_in(self.graph)


def read_in(graph: GpuGraph) -> set[Value]:
    """Return what launches and bodies of a graph read, or the caller."""
    found = {value for node in graph.nodes if not node.on_host for value in node.inputs}
    found.update(graph.outputs.values())
    return found


class MadeContents(Contents):
    """What was made stage by stage."""

    def __init__(self, graph: GpuGraph, steps: list[Step | HostStep | NestedStep]) -> None:
        """Hold it."""
        self._graph = graph
        self._steps = steps

    @property
    def graph(self) -> GpuGraph:
        """The network after all passes."""
        return self._graph

    @property
    def steps(self) -> list[Step | HostStep | NestedStep]:
        """What is done, in execution order."""
        return self._steps


Others = frozenset[tuple[int, str]]
"""Numbers of choices, and what would be chosen instead."""

WRITTEN_OUT = -1
"""Number of a choice: that a loop stays one, whose iterations sizes tell, for the host to run."""


@dataclass(eq=False)
class Plan:
    """A compiled network.

    Attributes:
        contents: graph and steps, which a plan that was filled in makes when asked.
        arena: where everything lies.
        weights: constants on the device.
        programs_compiled: how many programs were not in the cache.
    """

    device: cl.Device
    contents: Contents
    arena: ArenaPlan
    weights: WeightStore
    programs_compiled: int = 0
    layers: dict[str, str] = field(default_factory=dict)
    """Layer of the model, as its user knows it, that is no constant → type of its operation."""
    times: LayerTimes[GpuNode] = field(default_factory=LayerTimes)
    """Of all inferences that were timed."""
    joined: dict[int, Stretch] = field(default_factory=dict)
    """Number of a step → what runs its launches with those of its neighbours as one."""
    apart: dict[int, str] = field(default_factory=dict)
    """Number of a step → why it has launches of its own; empty where nothing was to join."""
    tried: set[cl.Program] = field(default_factory=set)
    """Programs that were built to be timed and are not run."""
    wanted: dict[str, cl.ProgramSource] = field(default_factory=dict)
    """Source → program that it would rather run, and another one stands in for."""
    may_join: bool = False
    """Whether launches may become one whose kernel is not built yet."""
    runs: int = 0
    """Inferences that were counted while they may."""
    doubts: frozenset[int] = frozenset()
    """Numbers of choices that a plan made for these shapes alone might make otherwise."""
    undecided: Callable[[], Others] | None = None
    """Finds out which of them it would; None where that is known."""
    template: object = None
    """From which it was filled in; None of a plan that was made stage by stage."""
    may_serve: bool = False
    """Whether a template of its class of sizes may be made, and none is there."""
    binding: Lock = field(default_factory=Lock, repr=False)
    """Held while kernels are bound: they hand out their first instance to one caller only."""
    _others: Others = frozenset()
    _deciding: Lock = field(default_factory=Lock, repr=False)

    @property
    def graph(self) -> GpuGraph:
        """The network after all passes."""
        return self.contents.graph

    @property
    def steps(self) -> list[Step | HostStep | NestedStep]:
        """What it does in execution order; views have no step."""
        return self.contents.steps

    @property
    def is_final(self) -> bool:
        """Whether nothing is to be made that may be better, for these shapes or others."""
        return not (self.is_makeshift or self.may_join)

    @property
    def is_makeshift(self) -> bool:
        """Whether other programs or choices may be better, or may serve others."""
        return bool(self.wanted or self.doubts or self.may_serve)

    @property
    def others(self) -> Others:
        """Choices that a plan made for these shapes alone would make otherwise."""
        with self._deciding:
            if self.undecided is not None:
                self._others, self.undecided = self.undecided(), None
                self.doubts = frozenset(number for number, _ in self._others)
        return self._others

    def decided(self) -> Plan:
        """Return this plan, of which is known what of its choices would be others."""
        _ = self.others
        return self

    @property
    def wanted_choices(self) -> Hashable:
        """Choices that it would rather have, as far as they are known: equal ones are counted."""
        return self.doubts if self.undecided is not None else self._others

    @property
    def has_loops_of_sizes(self) -> bool:
        """Whether the host runs loops that are layers in a plan for these shapes alone."""
        return WRITTEN_OUT in self.doubts

    def keep_choices(self) -> None:
        """Want no other programs or choices, as they cannot be built or are not faster."""
        with self._deciding:
            self._others, self.undecided, self.doubts = frozenset(), None, frozenset()
        self.may_serve = False
        self.contents.keep_choices()
        self.wanted.clear()

    def keep_apart(self, reason: str) -> None:
        """Want no launches to become one any more."""
        self.may_join = False
        for number in [n for n, why in self.apart.items() if why is LATER]:
            self.apart[number] = reason

    @functools.cached_property
    def held_bytes(self) -> int:
        """Estimate of what the plan takes by itself: host memory, and constants of its shapes."""
        inner = sum(plan.held_bytes for plan in self.contents.inner_plans)
        return self.contents.held_bytes + self.weights.own_bytes + inner

    @functools.cached_property
    def running(self) -> dict[GpuNode, None]:
        """The nodes that launch something or run on the host, in execution order."""
        found: dict[GpuNode, None] = {}
        for step in self.steps:
            if isinstance(step, HostStep):
                found.update(dict.fromkeys(step.group.nodes))
            elif isinstance(step, NestedStep) or step.launches:
                found[step.node] = None
        return found

    @property
    def programs(self) -> set[cl.Program]:
        """The programs that its launches run, those of bodies and trials included."""
        kernels = {kernel for step in self.launching for kernel in step.kernels}
        for stretch in self.joined.values():
            kernels.update((stretch.kernel, stretch.note))
        inner = (plan.programs for plan in self.inner_plans)
        return {kernel.program for kernel in kernels}.union(self.tried, *inner)

    @property
    def launching(self) -> list[Step]:
        """What has launches, except in bodies."""
        return launching(self.steps)

    @property
    def inner_plans(self) -> list[Plan]:
        """The plans of all bodies."""
        return self.contents.inner_plans


def launching(steps: Sequence[Step | HostStep | NestedStep]) -> list[Step]:
    """Return the steps that have launches, and the copies of those with bodies."""
    found: list[Step] = []
    for step in steps:
        if isinstance(step, Step):
            found.append(step)
        elif isinstance(step, NestedStep):
            found += step.copies
    return found


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
    memory = argument.memory if isinstance(argument, Value) else argument
    if isinstance(memory, Memory) and memory.place is not Place.WEIGHTS:
        return region(memory)
    constant = constant_of(argument, weights)
    assert constant is not None, f"{argument} has no memory"
    return constant


def constant_in(argument: Argument) -> tuple[Array, ElementType, Weights | None] | None:
    """Return the constant that an argument is, how it is stored and in which form, if it is one."""
    if isinstance(argument, Weights):
        assert argument.value.constant is not None
        return argument.value.constant, argument.storage, argument
    memory = argument.memory if isinstance(argument, Value) else argument
    if not isinstance(memory, Memory) or memory.place is not Place.WEIGHTS:
        return None
    assert memory.data is not None
    return memory.data, memory.storage, None


def constant_of(argument: Argument, weights: WeightStore) -> cl.Buffer | None:
    """Return the buffer of an argument that is a constant, uploading what is not there yet."""
    found = constant_in(argument)
    return None if found is None else weights.buffer(*found)


def scratch_memory(launches: Sequence[Launch]) -> dict[Scratch, Memory]:
    """Return memory for every scratch argument."""
    arguments = (argument for launch in launches for argument in launch.arguments)
    return {
        each: Memory(
            Place.KEPT if each.kept else Place.ARENA, each.elements, each.storage, name="scratch"
        )
        for each in dict.fromkeys(each for each in arguments if isinstance(each, Scratch))
    }
