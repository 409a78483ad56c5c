"""PlanTemplate: what a plan that was made with symbolic sizes is for other sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from polydevice.dtype import ElementType
from polydevice.runtime.templates import Fit
from polydevice.symbolic_size import (
    Number,
    SymbolicSize,
    Trace,
    is_formula,
    is_symbolic,
    mentions_sizes,
    written,
)
from polydevice_gpu.graph import Border, GpuGraph, GpuNode, Memory, Value
from polydevice_gpu.kernels.launch import Argument, Computed, Launch, Local, Scratch, Weights
from polydevice_gpu.layout import Layout
from polydevice_gpu.passes.plan_memory import plan_memory
from polydevice_gpu.runtime.plan import Alike, HostStep, NestedStep, Plan, Step, memory_of


class PlanTemplate:
    """A plan whose sizes are formulas; what `fit` returns fills in numbers.

    Attributes:
        source: the plan with the formulas, which nothing runs.
        accepted: sets of choices that are kept as they are where others were to be made, since
            these were timed and are not faster.
    """

    def __init__(self, source: Plan, trace: Trace, memory_pool: bool) -> None:
        """Take over a plan that was just made, and end its trace."""
        self.source = source
        self.accepted: set[frozenset[tuple[int, str]]] = set()
        self._memory_pool = memory_pool
        found = _Formulas(trace)
        found.visit(source)
        self._worded = found.worded(source.graph)
        self._constants = {value for value in _values(source.graph) if _is_same_for_all(value)}
        self._names = [item.name for item in found.items]
        self._formulas = trace.formulas(found.items)
        self._asked = trace.asked

    def fit(self, sizes: Sequence[int]) -> Fit[Plan] | None:
        """Return the plan for these sizes, to be filled in, and how many choices may be others.

        None where another plan has to be made for them.
        """
        found = self._formulas(sizes)
        if found is None:
            return None
        numbers, choices = found
        asked = map(self._asked.__getitem__, choices)
        # Choices that are about no single node gain by sizes: whether they may be kept is known.
        if not all(each.about is not None or each.is_possible(None) for each in asked):
            return None
        return Fit(lambda: self._plan(numbers, choices), len(choices))

    def _plan(self, numbers: Sequence[Number], choices: Sequence[int]) -> Plan | None:
        """Return the plan with these numbers; None where a choice is not possible with them.

        Where choices would be others, the plan says so; it is right all the same.
        """
        written = dict(zip(self._names, numbers, strict=True))
        filled = _Filled(written, self._worded, self._constants)
        plan = filled.plan(self.source, self._memory_pool)
        plan.template = self
        source = self.source  # what was compiled for it counts in the first plan
        plan.programs_compiled, source.programs_compiled = source.programs_compiled, 0
        others = []
        for choice in choices:
            asked = self._asked[choice]
            node = None if asked.about is None else filled.nodes[asked.about]
            other = asked.other(node)
            if not other:
                continue
            if not asked.is_possible(node):
                return None
            others.append((choice, other))
            if node is not None and node.choice is not None:
                node.choice = dataclasses.replace(node.choice, stands_for=other)
        plan.others = frozenset(others)
        if plan.others in self.accepted:
            plan.keep_choices()
        return plan


def why_for_one_size(node: GpuNode) -> str:
    """Say why plans for other sizes are made stage by stage; empty where a layer allows more.

    A body has a plan of its own; constants of what the host computes are numbers.
    """
    if node.nested is not None:
        return f"{node.name!r} has a body"
    if node.on_host and any(is_formula(value.constant) for value in node.inputs):
        return f"{node.name!r} runs on the host, which reads constants computed from sizes"
    return ""


class _Formulas:
    """Collects the symbolic sizes that a plan is made of."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.items: list[SymbolicSize] = []
        self._seen: set[str] = set()
        self._values: set[Value] = set()

    def visit(self, plan: Plan) -> None:
        graph = plan.graph
        for value in _values(graph):
            self.value(value)
        for step in plan.launching:
            for memory in step.scratch.values():
                self.memory(memory)
            for launch in step.launches:
                self.sizes(launch.global_size)
                self.sizes(launch.local_size or ())
                for argument in launch.arguments:
                    self.argument(argument)

    def value(self, value: Value) -> None:
        if value in self._values:
            return
        self._values.add(value)
        self.sizes(self._trace.named_in(value.name))
        self.sizes(value.shape)
        if value.layout is not None:
            self.sizes((*value.layout.pitches, value.layout.offset))
        if value.border is not None:
            self.sizes([size for pair in value.border.inside for size in pair])
            self.size(value.border.fill)
        if value.constant is not None:
            self.array(value.constant)
        if value.memory is not None:
            self.memory(value.memory)

    def worded(self, graph: GpuGraph) -> set[GpuNode]:
        """Return the nodes whose choice says sizes."""
        found = set()
        for node in graph.nodes:
            for text in () if node.choice is None else node.choice.passed.values():
                if mentions_sizes(text):
                    found.add(node)
                    self.sizes(self._trace.named_in(text))
        return found

    def argument(self, argument: Argument) -> None:
        if isinstance(argument, Computed):
            self.size(argument.number)
        elif isinstance(argument, Local):
            self.size(argument.bytes)
        elif isinstance(argument, Scratch):
            self.size(argument.elements)
        elif isinstance(argument, Memory):
            self.memory(argument)
        elif isinstance(argument, Value):
            self.value(argument)

    def memory(self, memory: Memory) -> None:
        self.size(memory.elements)
        if memory.data is not None:
            self.array(memory.data)

    def array(self, array: Any) -> None:
        if is_formula(array):
            self.sizes(array.reshape(-1).tolist())

    def sizes(self, sizes: Sequence[Number]) -> None:
        for size in sizes:
            self.size(size)

    def size(self, size: Number) -> None:
        if is_symbolic(size) and size.name not in self._seen:
            self._seen.add(size.name)
            self.items.append(size)


class _Filled:
    """Copies a plan, with numbers in the place of formulas; what has none is shared."""

    def __init__(
        self,
        numbers: dict[str, Number],
        worded: AbstractSet[GpuNode],
        constants: AbstractSet[Value],
    ) -> None:
        self._numbers = numbers
        self._worded = worded
        self._constants = constants
        self._values: dict[Value, Value] = {}
        self._memory: dict[Memory, Memory] = {}
        self.nodes: dict[GpuNode, GpuNode] = {}

    def plan(self, source: Plan, memory_pool: bool) -> Plan:
        graph = self._graph(source.graph)
        steps = [self._any_step(step) for step in source.steps]
        places = {node: place for place, node in enumerate(graph.nodes)}
        launching = (step for step in steps if isinstance(step, Step))
        scratch = {places[step.node]: list(step.scratch.values()) for step in launching}
        arena = plan_memory(graph, scratch, memory_pool)
        made = Plan(source.device, graph, steps, arena, source.weights)
        made.apart, made.may_join = dict(source.apart), source.may_join
        made.binding = source.binding  # their kernels are the same
        return made

    def _size(self, size: Number) -> Number:
        return self._numbers[size.name] if type(size) is SymbolicSize else size

    def _sizes(self, sizes: Sequence[Number]) -> tuple[Number, ...]:
        numbers = self._numbers
        return tuple([numbers[s.name] if type(s) is SymbolicSize else s for s in sizes])

    def _graph(self, source: GpuGraph) -> GpuGraph:
        for value in _values(source):
            self._values[value] = value if value in self._constants else self._value(value)
        nodes = [self._node(node) for node in source.nodes]
        for old, new in self._values.items():
            if old.producer is not None and new is not old:
                new.producer = self.nodes.get(old.producer)
        return dataclasses.replace(
            source,
            inputs={name: self._values[value] for name, value in source.inputs.items()},
            outputs={name: self._values[value] for name, value in source.outputs.items()},
            nodes=nodes,
        )

    def _value(self, old: Value) -> Value:
        name = old.name
        if mentions_sizes(name):
            name = written(name, self._numbers.__getitem__)
        made = Value(name, old.element_type, self._sizes(old.shape), storage=old.storage)
        made.kind, made.is_output, made.on_host = old.kind, old.is_output, old.on_host
        if old.constant is not None:
            made.constant = self._array(old.constant, old.element_type)
        if old.layout is not None:
            made.layout = Layout(self._sizes(old.layout.pitches), self._size(old.layout.offset))
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
            if is_symbolic(old.elements) or (old.data is not None and is_formula(old.data)):
                data = self._array(old.data, old.storage)
                known = Memory(old.place, self._size(old.elements), old.storage, data, old.name)
            self._memory[old] = known
        return known

    def _array(self, array: Any, kind: ElementType) -> Any:
        if not is_formula(array):
            return array
        return np.array(self._sizes(array.reshape(-1).tolist()), kind.dtype).reshape(array.shape)

    def _node(self, old: GpuNode) -> GpuNode:
        values = self._values
        made = old.with_values(
            [values[each] for each in old.inputs], [values[each] for each in old.outputs]
        )
        if old in self._worded and old.choice is not None:
            passed = {
                name: written(text, self._numbers.__getitem__)
                for name, text in old.choice.passed.items()
            }
            made.choice = dataclasses.replace(old.choice, passed=passed)
        self.nodes[old] = made
        return made

    def _any_step(self, old: Step | HostStep | NestedStep) -> Step | HostStep | NestedStep:
        if isinstance(old, Step):
            return self._step(old)
        assert isinstance(old, HostStep), "bodies have plans of their own"
        group = dataclasses.replace(
            old.group,
            nodes=[self.nodes[node] for node in old.group.nodes],
            inputs=[self._values[value] for value in old.group.inputs],
            outputs=[self._values[value] for value in old.group.outputs],
        )
        return HostStep(group, old.executable, old.spare)

    def _step(self, old: Step) -> Step:
        scratch = {}
        if old.scratch:
            scratch = {s: Scratch(self._size(s.elements), s.storage, s.kept) for s in old.scratch}
        if old.alike is None:
            old.alike = [self._alike(launch) for launch in old.launches]
        launches = [
            self._launch(launch, alike.varying, scratch)
            for launch, alike in zip(old.launches, old.alike, strict=True)
        ]
        memory = memory_of(scratch.values()) if scratch else {}
        return Step(self.nodes[old.node], launches, old.kernels, memory, old.alike)

    def _alike(self, launch: Launch) -> Alike:
        """Say which arguments of a launch plans do not share."""
        varying = [
            position
            for position, argument in enumerate(launch.arguments)
            if not isinstance(argument, (np.generic, Weights))
            and argument not in self._constants
            and not (isinstance(argument, Local) and not is_symbolic(argument.bytes))
        ]
        given = launch.arguments
        return Alike(varying, [p for p in varying if isinstance(given[p], (Value, Memory))])

    def _launch(
        self, old: Launch, varying: Sequence[int], scratch: dict[Scratch, Scratch]
    ) -> Launch:
        local = None if old.local_size is None else self._sizes(old.local_size)
        arguments = old.arguments.copy()
        for position in varying:
            arguments[position] = self._argument(arguments[position], scratch)
        sizes = self._sizes(old.global_size), local
        return Launch(old.kernel, old.text, *sizes, arguments, old.options, old.is_custom, old.body)

    def _argument(self, old: Argument, scratch: dict[Scratch, Scratch]) -> Argument:
        if isinstance(old, Computed):
            return old.kind(self._numbers[old.number.name])  # type: ignore[no-any-return]
        if isinstance(old, Value):
            if old not in self._values:  # of a kernel's own
                self._values[old] = self._value(old)
            return self._values[old]
        if isinstance(old, Memory):
            return self._memory_of(old)
        if isinstance(old, Scratch):
            return scratch[old]
        if isinstance(old, Local):
            return Local(self._size(old.bytes))
        return old


def _values(graph: GpuGraph) -> dict[Value, None]:
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
