"""TablePlan: a plan most of which is a table of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from polydevice.errors import InternalError
from polydevice.tensor import TensorDesc
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.plan.plan import OF_TAIL, Plan, PlanParts, Result, inputs_of
from polydevice_cpu.plan.step import Compute, PrimitiveStep, Step, Strips, TailStep
from polydevice_cpu.plan.tables.form import Order, TableForm
from polydevice_cpu.plan.value import Kind, Storage, Value


class FilledStrips(NamedTuple):
    """A step in strips.

    Attributes:
        strips: what computes them.
        offsets: in their homes, by index on execution.
        whole: layouts of what is one for all positions, likewise.
        constants: what they read besides, by index on execution.
    """

    strips: Strips
    offsets: Mapping[int, int]
    whole: Mapping[int, Descriptor]
    constants: Mapping[int, Value]


View = tuple[tuple[int, ...], int, tuple[int, ...]]
"""Shape, offset and steps, both in bytes, of an array in its home."""


class TablePlan(Plan):
    """A plan whose steps are made as such only where somebody asks for them.

    Attributes:
        form: what it has in common with other plans.
        order: the steps; see `TableForm.order`.
        numbers: those of the table that sizes change.
        sizes: those that steps read.
        arrays: functions that NumPy computes with, and what they are told; None of steps that are
            computed otherwise.
        strips: steps in strips, by number.
        primitives: what computes these.
        late: the steps that are no numbers, by number.
        kept: storages for what depends on sizes alone, by number.
    """

    is_table = True

    def __init__(
        self,
        parts: PlanParts,
        inputs: Callable[[], Sequence[TensorDesc]],
        form: TableForm,
        order: Order,
        numbers: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        arrays: Sequence[tuple[Compute | None, Sequence[View]] | None],
        strips: Mapping[int, FilledStrips],
        late: Mapping[int, Step],
        kept: Mapping[int, Storage],
        results: list[Result | None],
        arena_bytes: int,
        again: Callable[[], Plan | None],
    ) -> None:
        """Take over what a plan consists of, with the template's parts but for `inputs`.

        `results` are the shape and type of each output, None where a tail computes it; `again`
        makes the plan with all its steps.
        """
        self.form, self.order = form, order
        self.numbers, self.sizes, self.arrays = numbers, sizes, arrays
        self.strips, self.late, self.kept = strips, late, kept
        self._again = again
        self._note(parts, form.once, [each or OF_TAIL for each in results])
        self._inputs = inputs
        self.whole_outputs = [index for index, each in enumerate(results) if each is not None]
        tails = [step.new for step in late.values() if isinstance(step, TailStep)]
        self.new_results = frozenset(self.whole_outputs).union(*tails)
        whole = [each for each in results if each is not None]
        self.result_bytes = sum(math.prod(shape) * dtype.itemsize for shape, dtype in whole)
        primitives = [step for step in late.values() if isinstance(step, PrimitiveStep)]
        counted = len(late) - len(primitives) + len(strips)
        counted += len(arrays) - arrays.count(None)
        self.held_bytes = self._held(len(primitives), counted) + numbers.nbytes + sizes.nbytes
        self.arena_bytes = arena_bytes
        pieces = dict.fromkeys(piece for each in strips.values() for piece in each.strips.pieces)
        self.primitives = [piece.primitive for piece in pieces]
        own = [step.scratchpad_bytes for step in primitives]
        self.scratchpad_bytes = max(
            [*own, *(part.scratchpad_bytes for part in self.primitives)], default=0
        )

    @property
    def words(self) -> npt.NDArray[np.int64]:
        """A table of its own, with addresses counted from their homes."""
        return self.form.filled(self.numbers)

    @cached_property
    def _with_steps(self) -> Plan:
        made = self._again()
        if made is None:
            raise InternalError("a plan cannot be made once more")
        return made

    @property
    def steps(self) -> list[Step]:
        """All of them; none is bound to memory but those that are `late`."""
        return self._with_steps.steps

    @property
    def outputs(self) -> list[Value | None]:
        """Where the last steps put results."""
        return self._with_steps.outputs

    @cached_property
    def read(self) -> frozenset[int]:
        """Which inputs some step reads."""
        found = {home.number for home in self.form.homes if home.kind is Kind.INPUT}
        return frozenset(found).union(inputs_of(self.late.values()))

    def step(self, number: int) -> Step:
        """Return a step by its number."""
        return self.late.get(number) or self.steps[number]

    @property
    def step_count(self) -> int:
        """How many steps there are."""
        return self.form.step_count

    def compile(self) -> None:
        """See to it that all code is there."""
        for step in self.late.values():
            if isinstance(step, PrimitiveStep):
                for primitive in step.primitives:
                    primitive.compile()
        for primitive in self.primitives:
            primitive.compile()
        self.is_compiled = True
