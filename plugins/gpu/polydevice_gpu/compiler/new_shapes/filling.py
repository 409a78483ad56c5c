"""Filling in a plan: numbers in the place of a template's formulas.

What an inference needs is filled in at once: inputs and outputs, the arena, and the launches as
arrays. Nodes and values, which explain a plan, are made when somebody asks for them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from polydevice.dtype import ElementType
from polydevice.locks import Lock
from polydevice.runtime.arena import Life
from polydevice.symbolic_size import (
    Number,
    SymbolicSize,
    is_formula,
    is_symbolic,
    mentions_sizes,
    written,
)
from polydevice_gpu.graph import Border, GpuGraph, GpuNode, Memory, Value
from polydevice_gpu.kernels.launch import Argument, Computed, Launch, Local, Scratch
from polydevice_gpu.layout import Layout
from polydevice_gpu.passes.placing.plan_memory import ArenaPlan, lives_of, place_as
from polydevice_gpu.runtime.filled_stretch import FilledStretch, StretchTable
from polydevice_gpu.runtime.plan import (
    Contents,
    HostStep,
    NestedStep,
    Plan,
    Step,
    constant_in,
    read_in,
)

FILLED_BYTES = 3_000
"""What a launch takes on the host in a plan whose nodes nobody asked for (MiniLM: 1,700)."""


class Filling:
    """What filling in a template's plan takes that is the same for all sizes.

    Attributes:
        source: the plan with the formulas.
        index: name of a formula → its place among the numbers.
        worded: nodes whose choice says sizes.
        constants: values that plans share.
        lives: of pieces of memory in the arena: first and last step.
        pieces: the same, with the size of their elements in bytes.
        open_pieces: those whose sizes have formulas, and the places of these.
        held_bytes: estimate of the host memory that a plan takes.
        memory: of source, which holds sizes.
        read_of_host: what the host computes for launches or the caller.
        stretches: launches as tables, with what the host does between them.
    """

    def __init__(
        self,
        source: Plan,
        index: dict[str, int],
        worded: AbstractSet[GpuNode],
        memory_pool: bool,
    ) -> None:
        """Look at a plan whose sizes are formulas."""
        self.source = source
        self.index = index
        self.worded = worded
        self.constants = {v for v in values_of(source.graph) if _is_same_for_all(v)}
        places = {node: place for place, node in enumerate(source.graph.nodes)}
        scratch = {places[step.node]: list(step.scratch.values()) for step in source.launching}
        self.lives = lives_of(source.graph, scratch, memory_pool)
        arguments = [a for s in source.launching for each in s.launches for a in each.arguments]
        constants = [found[0] for found in map(constant_in, arguments) if found is not None]
        self._shared = frozenset(id(each) for each in constants if not is_formula(each))
        self._has_own_constants = any(map(is_formula, constants))
        made = {v for node in source.graph.nodes if node.on_host for v in node.outputs}
        self.read_of_host = made & read_in(source.graph)
        self._varies: dict[Memory, bool] = {}
        sizes: dict[Memory, Number] = {memory: memory.elements for memory in self.lives}
        self.open_pieces = [(m, index[size.name]) for m, size in sizes.items() if is_symbolic(size)]
        self.pieces = [
            (memory, first, last, memory.storage.dtype.itemsize)
            for memory, (first, last) in self.lives.items()
        ]
        self.held_bytes = FILLED_BYTES * sum(len(step.launches) for step in source.launching)
        self.stretches: list[StretchTable | HostStep] = []
        steps: list[Step] = []
        for step in (*source.steps, None):
            if isinstance(step, Step):
                steps.append(step)
                continue
            if steps:
                self.stretches.append(StretchTable(steps, index, self.constants))
                steps = []
            if step is not None:
                assert isinstance(step, HostStep), "bodies have plans of their own"
                self.stretches.append(step)

    def varies(self, memory: Memory) -> bool:
        """Whether a piece of memory, or what is in it, depends on sizes."""
        known = self._varies.get(memory)
        if known is None:
            known = is_symbolic(memory.elements) or is_formula(memory.data)
            self._varies[memory] = known
        return known

    def plan(self, numbers: Sequence[Number]) -> Plan:
        """Return the plan with these numbers."""
        source, contents = self.source, FilledContents(self, numbers)
        own = self._has_own_constants  # computed of sizes
        weights = source.weights.for_plan(self._shared) if own else source.weights
        made = Plan(source.device, contents, contents.arena(), weights)
        made.apart, made.may_join = dict(source.apart), source.may_join
        made.binding = source.binding  # their kernels are the same
        return made


class FilledContents(Contents):
    """A copy of a template's plan with numbers; what has no formula is shared."""

    def __init__(self, filling: Filling, numbers: Sequence[Number]) -> None:
        """Fill in what an inference needs."""
        self._filling = filling
        self._numbers = numbers
        self._values: dict[Value, Value] = {each: each for each in filling.constants}
        self._memory = {
            old: Memory(old.place, numbers[size], old.storage, None, old.name, old.row_tiles)
            for old, size in filling.open_pieces
        }
        self._nodes: dict[GpuNode, GpuNode] = {}
        self._lock = Lock()
        self._made: tuple[GpuGraph, list[Step | HostStep | NestedStep]] | None = None
        graph = filling.source.graph
        self._inputs = {name: self._value(value) for name, value in graph.inputs.items()}
        self._outputs = {name: self._value(value) for name, value in graph.outputs.items()}
        self._stretches: list[FilledStretch | HostStep] = [
            each.filled(numbers, self._memory_of)
            if isinstance(each, StretchTable)
            else self._host_step(each)
            for each in filling.stretches
        ]

    @property
    def inputs(self) -> dict[str, Value]:
        """Of the graph, by name."""
        return self._inputs

    @property
    def outputs(self) -> dict[str, Value]:
        """Of the graph, by name."""
        return self._outputs

    @property
    def graph(self) -> GpuGraph:
        """All nodes and values, made when they are asked for."""
        return self._all()[0]

    @property
    def steps(self) -> list[Step | HostStep | NestedStep]:
        """All steps, made when they are asked for."""
        return self._all()[1]

    @property
    def held_bytes(self) -> int:
        """Estimate of the host memory that it takes."""
        return self._filling.held_bytes

    @property
    def inner_plans(self) -> list[Plan]:
        """None: bodies have plans of their own."""
        return []

    @property
    def launches_only(self) -> bool:
        """Whether the host takes no part."""
        return not any(isinstance(each, HostStep) for each in self._stretches)

    def keep_choices(self) -> None:
        """Say of no node any more that its kernel stands in for another one."""
        with self._lock:  # a template's own nodes stand in for none
            for node in self._nodes.values():
                node.stand_for_itself()

    def stretches(self) -> list[FilledStretch | HostStep]:
        """Return launches as arrays, with what the host does between them."""
        return self._stretches

    def read(self) -> set[Value]:
        """Return what the host computes for launches or the caller: nobody asks for more."""
        with self._lock:
            return {self._value(value) for value in self._filling.read_of_host}

    def arena(self) -> ArenaPlan:
        """Return where everything lies."""
        made = self._memory
        memories = [made.get(old, old) for old in self._filling.lives]
        return place_as(memories, self._lives(), self._lives)

    def _lives(self) -> list[Life]:
        """Return the lives of the pieces of memory in the arena."""
        made = self._memory
        return [
            Life(first, last, made.get(old, old).elements * itemsize)
            for old, first, last, itemsize in self._filling.pieces
        ]

    def nodes(self, wanted: Sequence[GpuNode | None]) -> list[GpuNode | None]:
        """Return the nodes that take the places of a template's."""
        with self._lock:
            return [None if old is None else self.node(old) for old in wanted]

    def node(self, old: GpuNode) -> GpuNode:
        """Return the node that takes the place of the template's; by one thread at a time."""
        found = self._nodes.get(old)
        if found is None:
            inputs = [self._value(value) for value in old.inputs]
            outputs = [self._value(value) for value in old.outputs]
            found = self._nodes[old] = old.with_values(inputs, outputs)
            if old in self._filling.worded and old.choice is not None:
                passed = {name: self._written(text) for name, text in old.choice.passed.items()}
                found.choice = dataclasses.replace(old.choice, passed=passed)
        return found

    def sizes(self, sizes: Sequence[Number]) -> tuple[Number, ...]:
        """Return numbers for sizes with formulas."""
        numbers, index = self._numbers, self._filling.index
        return tuple([numbers[index[s.name]] if type(s) is SymbolicSize else s for s in sizes])

    def _all(self) -> tuple[GpuGraph, list[Step | HostStep | NestedStep]]:
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._made = self._make()
        return self._made

    def _make(self) -> tuple[GpuGraph, list[Step | HostStep | NestedStep]]:
        source = self._filling.source
        nodes = [self.node(node) for node in source.graph.nodes]
        hosts = (each for each in self._stretches if isinstance(each, HostStep))
        steps: list[Step | HostStep | NestedStep] = [
            self._step(step) if isinstance(step, Step) else next(hosts) for step in source.steps
        ]
        for old, new in self._values.items():
            if old.producer is not None and new is not old:
                new.producer = self._nodes.get(old.producer)
        graph = dataclasses.replace(
            source.graph, inputs=self._inputs, outputs=self._outputs, nodes=nodes
        )
        return graph, steps

    def _size(self, size: Number) -> Number:
        return self._number(size.name) if type(size) is SymbolicSize else size

    def _number(self, name: str) -> Number:
        return self._numbers[self._filling.index[name]]

    def _written(self, text: str) -> str:
        return written(text, self._number)

    def _value(self, old: Value) -> Value:
        found = self._values.get(old)
        if found is None:
            found = self._values[old] = self._copied(old)
        return found

    def _copied(self, old: Value) -> Value:
        name = self._written(old.name) if mentions_sizes(old.name) else old.name
        made = Value(name, old.element_type, self.sizes(old.shape), storage=old.storage)
        made.kind, made.is_output, made.on_host = old.kind, old.is_output, old.on_host
        if old.constant is not None:
            made.constant = self._array(old.constant, old.element_type)
        if old.layout is not None:
            made.layout = Layout(self.sizes(old.layout.pitches), self._size(old.layout.offset))
        if old.memory is not None:
            made.memory = self._memory_of(old.memory)
        if old.border is not None:
            inside = tuple((self._size(a), self._size(b)) for a, b in old.border.inside)
            made.border = Border(inside, self._size(old.border.fill))
        return made

    def _memory_of(self, old: Memory) -> Memory:
        known = self._memory.get(old)
        if known is None:
            known = old
            if self._filling.varies(old):
                data = self._array(old.data, old.storage)
                rest = old.storage, data, old.name, old.row_tiles
                known = Memory(old.place, self._size(old.elements), *rest)
            self._memory[old] = known
        return known

    def _array(self, array: Any, kind: ElementType) -> Any:
        if not is_formula(array):
            return array
        return np.array(self.sizes(array.reshape(-1).tolist()), kind.dtype).reshape(array.shape)

    def _host_step(self, old: HostStep) -> HostStep:
        group = dataclasses.replace(
            old.group,
            nodes=[self.node(node) for node in old.group.nodes],
            inputs=[self._value(value) for value in old.group.inputs],
            outputs=[self._value(value) for value in old.group.outputs],
        )
        return HostStep(group, old.executable, old.spare)

    def _step(self, old: Step) -> Step:
        scratch = {s: Scratch(self._size(s.elements), s.storage, s.kept) for s in old.scratch}
        memory = {scratch[s]: self._memory_of(old.scratch[s]) for s in old.scratch}
        launches = [self._launch(launch, scratch) for launch in old.launches]
        return Step(self.node(old.node), launches, old.kernels, memory)

    def _launch(self, old: Launch, scratch: dict[Scratch, Scratch]) -> Launch:
        arguments = [self._argument(argument, scratch) for argument in old.arguments]
        local = None if old.local_size is None else self.sizes(old.local_size)
        sizes = self.sizes(old.global_size), local
        return dataclasses.replace(
            old, global_size=sizes[0], local_size=sizes[1], arguments=arguments
        )

    def _argument(self, old: Argument, scratch: dict[Scratch, Scratch]) -> Argument:
        if isinstance(old, Computed):
            return old.kind(self._number(old.number.name))  # type: ignore[no-any-return]
        if isinstance(old, Value):
            return self._value(old)
        if isinstance(old, Memory):
            return self._memory_of(old)
        if isinstance(old, Scratch):
            return scratch[old]
        if isinstance(old, Local):
            return Local(self._size(old.bytes))
        return old


def values_of(graph: GpuGraph) -> dict[Value, None]:
    """Return the values of a graph, each once."""
    found = dict.fromkeys((*graph.inputs.values(), *graph.outputs.values()))
    for node in graph.nodes:
        found.update(dict.fromkeys(node.inputs))
        found.update(dict.fromkeys(node.outputs))
    return found


def _is_same_for_all(value: Value) -> bool:
    """Whether a value is a constant of which nothing depends on sizes, so that plans share it."""
    layout, memory = value.layout, value.memory
    sizes = [*value.shape]
    if layout is not None:
        sizes += [*layout.pitches, layout.offset]
    if memory is not None:
        sizes.append(memory.elements)
    return not (
        value.constant is None
        or value.producer is not None
        or value.border is not None
        or is_formula(value.constant)
        or (memory is not None and is_formula(memory.data))
        or mentions_sizes(value.name)
        or any(map(is_symbolic, sizes))
    )
