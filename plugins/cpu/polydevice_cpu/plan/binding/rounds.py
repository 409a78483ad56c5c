"""Rounds: a loop's body bound once for all its iterations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.control_flow import Iteration
from polydevice.runtime.plan_cache import Shapes
from polydevice_cpu.plan.binding.bound import BoundPlan
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.binding.workspace import Workspace
from polydevice_cpu.plan.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

SMALL_BYTES = 1 << 20
"""Results of a body up to here are kept by the request; larger ones take longer than binding."""


class Rounds:
    """Two bound plans of a body, each of which reads the carried values that the other one wrote.

    With them an iteration moves no memory, where binding it to new arrays takes 12 µs.
    """

    def __init__(
        self, op: Iteration, plan: Plan, shapes: Shapes, context: Context, workspace: Workspace
    ) -> None:
        self.shapes = shapes
        self._plans = [BoundPlan(plan, context, workspace) for _ in range(2)]
        self._results = [[np.empty(*result) for result in plan.results] for _ in range(2)]
        self._runs = [bound.run for bound in self._plans]
        self._carried = {edge.parameter: edge.result for edge in op.back_edges}
        self._own: dict[int, Array] = {}
        for bound, written, read in zip(
            self._plans, self._results, reversed(self._results), strict=True
        ):
            for index, array in enumerate(written):
                bound.set_output(index, array)
            for parameter, result in self._carried.items():
                bound.set_input(parameter, read[result])
        changing = [tie.parameter for tie in op.body_inputs if tie.slicing is not None]
        counter = getattr(op, "current_iteration", None)
        for parameter in [*changing, *([] if counter is None else [counter])]:
            desc = plan.inputs[parameter]
            assert desc.shape is not None
            array = self._own[parameter] = np.empty(desc.shape.static, desc.element_type.dtype)
            for bound in self._plans:
                bound.set_input(parameter, array)

    @staticmethod
    def suit(op: Iteration, plan: Plan) -> bool:
        """Whether every iteration is like the first: small, and of sizes that do not change."""
        results = [edge.result for edge in op.back_edges]
        if len(plan.whole_outputs) < len(plan.results) or len(set(results)) < len(results):
            return False
        if plan.result_bytes > SMALL_BYTES:
            return False
        for edge in op.back_edges:
            desc = plan.inputs[edge.parameter]
            if desc.shape is None or not desc.shape.is_static:
                return False
            if plan.results[edge.result] != (desc.shape.static, desc.element_type.dtype):
                return False
        return True

    def begin(self, given: Mapping[int, Array]) -> None:
        """Take the values before the first iteration; the caller keeps them until the last."""
        for parameter, array in given.items():
            if parameter in self._carried:
                np.copyto(self._results[1][self._carried[parameter]], array)
            elif parameter not in self._own:
                for bound in self._plans:
                    bound.set_input(parameter, array)
        self._runs = [bound.repeated() for bound in self._plans]

    def run(self, iteration: int, values: Mapping[int, Array]) -> Sequence[Array]:
        """Run an iteration with values of its own; the next but one writes the results anew."""
        for parameter, value in values.items():
            np.copyto(self._own[parameter], value)
        which = iteration & 1
        self._runs[which]()
        return self._results[which]
