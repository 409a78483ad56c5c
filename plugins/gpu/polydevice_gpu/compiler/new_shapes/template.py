"""PlanTemplate: what a plan that was made with symbolic sizes is for other sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

from polydevice.ops.control_flow import Iteration
from polydevice.runtime.templates import Fit
from polydevice.symbolic_size import Number, SymbolicSize, is_formula, is_symbolic, mentions_sizes
from polydevice.symbolic_trace import Trace
from polydevice_gpu.compiler.new_shapes.filling import FilledContents, Filling, values_of
from polydevice_gpu.graph import GpuGraph, GpuNode, Memory, Value
from polydevice_gpu.kernels.launch import Argument, Computed, Local, Scratch
from polydevice_gpu.runtime.plan import WRITTEN_OUT, Others, Plan
from polydevice_gpu.tuning.lookups import Lookups


class PlanTemplate:
    """A plan whose sizes are formulas; what `fit` returns fills in numbers.

    Attributes:
        source: the plan with the formulas, which nothing runs.
        accepted: sets of choices that are kept as they are where others were to be made, since
            these were timed and are not faster.
        lookups: what a tuner may know of its layers; None before anybody asked.
    """

    lookups: Lookups | None = None

    def __init__(
        self, source: Plan, trace: Trace, memory_pool: bool, *, in_lockstep: bool = True
    ) -> None:
        """Take over a plan that was just made, and end its trace.

        Args:
            source: the plan.
            trace: of the sizes that it was made with.
            memory_pool: whether values that do not live at the same time share memory.
            in_lockstep: whether work-items run so: loops that the host runs are better as layers,
                and many choices depend on sizes.
        """
        self.source = source
        self.accepted: set[Others] = set()
        found = _Formulas(trace)
        found.visit(source)
        worded = found.worded(source.graph)
        index = {item.name: place for place, item in enumerate(found.items)}
        self._filling = Filling(source, index, worded, memory_pool)
        self._formulas = trace.formulas(found.items)
        self._asked = trace.asked
        self._decides_later = in_lockstep
        self._has_loops = in_lockstep and any(map(_is_loop_of_sizes, source.graph.nodes))

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
        return Fit(lambda: self._plan(numbers, choices, sizes), len(choices))

    def _plan(
        self, numbers: Sequence[Number], choices: Sequence[int], sizes: Sequence[int]
    ) -> Plan | None:
        """Return the plan with these numbers; None where a choice is not possible with them.

        Where choices might be others, the plan says so; it is right all the same. Which would be
        takes 1.4 ms to find out of 16 (a Xeon): where many are, not before somebody asks.
        """
        plan = self._filling.plan(numbers)
        contents = plan.contents
        assert isinstance(contents, FilledContents)
        plan.template = self
        source = self.source  # what was compiled for it counts in the first plan
        plan.programs_compiled, source.programs_compiled = source.programs_compiled, 0
        nodes = contents.nodes([self._asked[choice].about for choice in choices])
        for choice, node in zip(choices, nodes, strict=True):
            if not self._asked[choice].is_possible(node):
                return None
        plan.doubts = frozenset([*choices, WRITTEN_OUT][: len(choices) + self._has_loops])
        if plan.doubts:
            plan.undecided = partial(self._others, contents, choices, sizes)
        return plan if self._decides_later else plan.decided()

    def _others(
        self, contents: FilledContents, choices: Sequence[int], sizes: Sequence[int]
    ) -> Others:
        """Return which choices would be others, for which the nodes' kernels stand then."""
        nodes = contents.nodes([self._asked[choice].about for choice in choices])
        found: list[tuple[int, str]] = []
        if self._has_loops:
            found.append((WRITTEN_OUT, f"a loop as layers for {', '.join(map(str, sizes))}"))
        differing = []
        for choice, node in zip(choices, nodes, strict=True):
            if other := self._asked[choice].other(node):
                found.append((choice, other))
                differing.append((node, other))
        if frozenset(found) in self.accepted:
            return frozenset()
        for node, other in differing:
            if node is not None and node.choice is not None:
                node.choice = dataclasses.replace(node.choice, stands_for=other)
        return frozenset(found)


def _is_loop_of_sizes(node: GpuNode) -> bool:
    """Whether the host runs a loop that is written out in plans for numbers."""
    if not node.on_host or not isinstance(node.op, Iteration):
        return False
    return any(
        is_formula(value.constant) or any(map(is_symbolic, value.shape)) for value in node.inputs
    )


def why_for_one_size(node: GpuNode) -> str:
    """Say why plans for other sizes are made stage by stage; empty where a layer allows more.

    A body has a plan of its own.
    """
    return "" if node.nested is None else f"{node.name!r} has a body"


class _Formulas:
    """Collects the symbolic sizes that a plan is made of."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.items: list[SymbolicSize] = []
        self._seen: set[str] = set()
        self._values: set[Value] = set()

    def visit(self, plan: Plan) -> None:
        graph = plan.graph
        for value in values_of(graph):
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
