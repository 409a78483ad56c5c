"""Rounds: a loop's body bound once for all its iterations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.ops.control_flow import Iteration, Loop
from polydevice.runtime.plan_cache import Shapes
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.plan.binding.bound import BoundPlan
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.binding.loops.iterations import FEWEST, Iterations, Taken
from polydevice_cpu.plan.binding.workspace import Workspace
from polydevice_cpu.plan.plan import Plan
from polydevice_cpu.plan.step import ArrayStep, CodeStep, PrimitiveStep
from polydevice_cpu.plan.value import Kind, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

SMALL_BYTES = 1 << 20
"""Results of a body up to here are kept by the request; larger ones take longer than binding."""


ADMITTED_BYTES = 1 << 20
"""What iterations may add to what is joined behind them before memory is asked for again."""


class Rounds:
    """Two bound plans of a body, each of which reads the carried values that the other one wrote.

    With them an iteration moves no memory, where binding it to new arrays takes 12 µs.
    """

    def __init__(
        self, op: Iteration, plan: Plan, shapes: Shapes, context: Context, workspace: Workspace
    ) -> None:
        self.shapes = shapes
        self.plan = plan
        self._plans = [BoundPlan(plan, context, workspace) for _ in range(2)]
        self._results = [[np.empty(*result) for result in plan.results] for _ in range(2)]
        self._runs = [bound.run for bound in self._plans]
        self._carried = {edge.parameter: edge.result for edge in op.back_edges}
        self._copies = _copies(plan, self._carried)
        self._constant = {_written(plan, number) for number in self._copies}
        self._own: dict[int, Array] = {}
        for bound, written, read in zip(
            self._plans, self._results, reversed(self._results), strict=True
        ):
            for index, array in enumerate(written):
                bound.set_output(index, array, is_own=True)
            for parameter, result in self._carried.items():
                bound.set_input(parameter, read[result], is_own=True)
        changing = [tie.parameter for tie in op.body_inputs if tie.slicing is not None]
        counter = op.current_iteration if isinstance(op, Loop) else None
        inputs = plan.inputs  # are described anew each time
        for parameter in [*changing, *([] if counter is None else [counter])]:
            desc = inputs[parameter]
            assert desc.shape is not None
            array = self._own[parameter] = np.empty(desc.shape.static, desc.element_type.dtype)
            for bound in self._plans:
                bound.set_input(parameter, array, is_own=True)
        self._counter = counter
        number = None if counter is None else self._own.pop(counter)
        self._number = number if counter in plan.read else None
        self._iterations: Iterations | None = None
        self._may_call = True

    @property
    def held_bytes(self) -> int:
        """Estimate of what it takes besides the plan and the workspace."""
        held = sum(bound.held_bytes for bound in self._plans) + 2 * self.plan.result_bytes
        held += sum(array.nbytes for array in self._own.values())
        return held + (0 if self._iterations is None else self._iterations.held_bytes)

    def leave(self) -> None:
        """Keep nothing that was given for all iterations; `begin` comes before the next ones."""
        for bound in self._plans:
            bound.leave()

    @staticmethod
    def suit(op: Iteration, plan: Plan) -> bool:
        """Whether every iteration is like the first: small, and of sizes that do not change."""
        results = [edge.result for edge in op.back_edges]
        if len(plan.whole_outputs) < len(plan.results) or len(set(results)) < len(results):
            return False
        if plan.result_bytes > SMALL_BYTES:
            return False
        inputs = plan.inputs
        for edge in op.back_edges:
            desc = inputs[edge.parameter]
            if desc.shape is None or not desc.shape.is_static:
                return False
            if plan.results[edge.result] != (desc.shape.static, desc.element_type.dtype):
                return False
        return True

    def begin(self, given: Mapping[int, Array]) -> None:
        """Take the values before the first iteration; the caller keeps them until the last."""
        for parameter, array in given.items():
            if parameter in self._carried:
                for results in self._results:  # both, for what no iteration writes
                    np.copyto(results[self._carried[parameter]], array)
            elif parameter not in self._own and parameter != self._counter:
                for bound in self._plans:
                    bound.set_input(parameter, array)
        self._runs = [bound.repeated(self._copies) for bound in self._plans]

    def run(self, iteration: int, values: Mapping[int, Array]) -> Sequence[Array]:
        """Run an iteration with values of its own; the next but one writes the results anew."""
        for parameter, value in values.items():
            np.copyto(self._own[parameter], value)
        if self._number is not None:
            self._number.fill(iteration)
        which = iteration & 1
        self._runs[which]()
        return self._results[which]

    def go_on(
        self,
        iteration: int,
        end: int,
        condition: int | None,
        changing: Mapping[int, Callable[[int], Array]],
        taken: Sequence[Taken],
    ) -> tuple[int, bool]:
        """Run iterations up to `end` or until one says so.

        Args:
            iteration: number of the first one.
            end: number of the one that is not to run.
            condition: which result says whether there is another one; None for none.
            changing: what returns the value of a parameter for an iteration.
            taken: results of which every iteration's is kept.

        Returns:
            the number of the next iteration, and whether the last one wants it.

        Raises:
            DeviceMemoryError: what is taken, and has to be joined, is more than may be used.
        """
        runs, number = self._runs, self._number
        flags = None
        if condition is not None and condition not in self._constant:
            flags = [results[condition] for results in self._results]
        if end - iteration >= FEWEST:
            iterations = self._by_iterations(flags, changing, taken)
            if iterations is not None:
                return iterations.go_on(iteration, end, changing, taken)
        places = [(self._own[parameter], part) for parameter, part in changing.items()]
        takes = [
            [(results[each.result], each.parts.append) for each in taken]
            for results in self._results
        ]
        each_bytes = sum(array.nbytes for array, _ in takes[0])
        admitted, admit = iteration, current_bounds().admit
        while iteration < end:
            for place, part in places:
                place[...] = part(iteration)
            if number is not None:
                number.fill(iteration)
            which = iteration & 1
            runs[which]()
            for array, take in takes[which]:
                take(array.copy())
            iteration += 1
            if each_bytes and iteration >= admitted:
                admitted = iteration + max(ADMITTED_BYTES // each_bytes, 1)
                admit(2 * iteration * each_bytes, f"a loop, after {iteration} iterations,")
            if flags is not None and not holds(flags[which]):
                return iteration, False
        return iteration, True

    def _by_iterations(
        self,
        flags: Sequence[Array] | None,
        changing: Mapping[int, Callable[[int], Array]],
        taken: Sequence[Taken],
    ) -> Iterations | None:
        """What runs iterations as one call; None where some steps are not machine code's."""
        if not self._may_call:
            return None
        if self._iterations is None:
            calls = [bound.recorded(self._copies) for bound in self._plans]
            bodies = [(bound, own) for bound, own in zip(self._plans, calls, strict=True) if own]
            self._may_call = len(bodies) == len(self._plans) and Iterations.suit(
                self._number, flags
            )
            if not self._may_call:
                return None
            own = [self._own[parameter] for parameter in changing]
            kept = [[results[each.result] for each in taken] for results in self._results]
            self._iterations = Iterations(bodies, own, kept, self._number, flags)
        return self._iterations

    def results(self, iteration: int) -> Sequence[Array]:
        """Return the results of an iteration, until the next but one."""
        return self._results[iteration & 1]


def holds(condition: Array) -> bool:
    """Whether a condition is true, in all its elements if it has more than one."""
    return bool(condition.item() if condition.size == 1 else condition.all())


def _copies(plan: Plan, carried: Mapping[int, int]) -> frozenset[int]:
    """Numbers of steps that copy a carried value to where the next iteration reads it.

    Both places have it before the first iteration, and nothing else writes there.
    """
    found = []
    for number in range(len(plan.steps)):
        ends = _ends(plan, number)
        if ends is None or not _lie_alike(*ends):
            continue
        source, target = (value.storage.root for value in ends)
        is_carried = source.kind is Kind.INPUT and target.kind is Kind.OUTPUT
        if not is_carried or carried.get(source.index) != target.index:
            continue
        if ends[1].shape == plan.results[target.index][0]:
            found.append(number)
    return frozenset(found)


def _ends(plan: Plan, number: int) -> tuple[Value, Value] | None:
    """From where to where a step copies; None for others."""
    step = plan.steps[number]
    if isinstance(step, ArrayStep) and step.type == "Copy":
        return step.inputs[0], step.outputs[0]
    if isinstance(step, PrimitiveStep) and step.type == "Reorder":
        return step.arguments[Arg.SRC], step.arguments[Arg.DST]
    if isinstance(step, CodeStep) and step.type == "Reorder":  # in the place of such a primitive
        return step.inputs[0], step.outputs[0]
    return None


def _lie_alike(source: Value, target: Value) -> bool:
    """Whether a copy is the same bytes at the same place; that of a transposed value is not."""
    are_rows = source.is_dense and target.is_dense and source.dtype == target.dtype
    return are_rows and (source.shape, source.offset_bytes) == (target.shape, target.offset_bytes)


def _written(plan: Plan, number: int) -> int:
    """Which output a step copies to."""
    ends = _ends(plan, number)
    assert ends is not None
    return ends[1].storage.root.index
