"""TableTemplate: the numbers of a table by formulas of sizes.

A plan that is filled in step by step takes some 35 us for each, as its objects are gone from the
processor's cache. Here the steps that machine code or NumPy computes for all sizes are filled in
once with symbolic sizes, and what comes out is formulas: for other sizes of the same class they are
evaluated at once, and written to one table. What sizes decide on the way is guarded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from polydevice.symbolic_formulas import Formulas
from polydevice_cpu.onednn.ahead import ahead
from polydevice_cpu.onednn.constants import DataType
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.plan.filling.filled import Filled, UnfitError
from polydevice_cpu.plan.filling.needs import Numbers
from polydevice_cpu.plan.filling.plan_sizes import PlanSizes
from polydevice_cpu.plan.filling.recipe import Packing, Recipe, described
from polydevice_cpu.plan.filling.strips import StripCut
from polydevice_cpu.plan.plan import Plan, PlanParts
from polydevice_cpu.plan.step import Step, Strips
from polydevice_cpu.plan.tables.form import Order, StripForm, TableForm, Way, late_of
from polydevice_cpu.plan.tables.plan import FilledStrips, TablePlan
from polydevice_cpu.plan.value import Kind, Storage

Shape = tuple[int, ...]

Broken = frozenset[tuple[int, Way]]
"""Ways of steps that are no choice for some sizes."""

_Seen = tuple[int, Shape, Shape]
"""Offset, shape and strides of a value."""

Contents = tuple[PlanSizes, Recipe, Packing]
"""What a template's plans consist of."""


PLAIN = 7
"""How many results of the formulas stand between the table's numbers and what is told of arrays."""

MOST_ORDERS = 64
"""Orders of steps that are kept, by the ways that are no choice."""


class TableTemplate:
    """Plans of a template for a class of its sizes."""

    def __init__(
        self,
        form: TableForm,
        formulas: Formulas,
        contents: Contents,
        parts: PlanParts,
        doubts: Mapping[int, Sequence[tuple[int, Way]]],
        places: Sequence[int],
        storages: Sequence[int],
        *,
        is_for_now: bool,
    ) -> None:
        """Take over what was made with symbolic sizes.

        Args:
            form: what stays.
            formulas: of what does not.
            contents: what the template's plans consist of.
            parts: of the template.
            doubts: choice → ways of steps that it is about.
            places: of the sizes that late steps need.
            storages: numbers of those in the arena.
            is_for_now: whether something is computed otherwise than in a plan that runs often.
        """
        self.formulas = formulas
        self._form, self._contents, self._parts = form, contents, parts
        self._doubts = doubts
        self._orders: dict[Broken, Order] = {}
        self._late = late_of(self._ordered(frozenset()))
        self._places, self._storages = places, storages
        self._is_for_now = is_for_now
        self._dtypes = [None if value is None else value.dtype for value in parts.outputs]

    @property
    def late(self) -> int:
        """How many steps are made one by one for all sizes."""
        return len(self._late)

    def broken(self, choices: Sequence[int]) -> tuple[Broken, int]:
        """Return the ways of steps that these choices are about, and how many steps have no way."""
        broken = frozenset(way for choice in choices for way in self._doubts.get(choice, ()))
        return broken, len(late_of(self._ordered(broken)))

    def plan(
        self,
        found: list[Any],
        broken: Broken,
        numbers: Callable[[], list[Any] | None],
        again: Callable[[], Plan | None],
    ) -> TablePlan | None:
        """Return the plan for some sizes; None where oneDNN answers otherwise for them.

        Args:
            found: what the formulas gave.
            broken: ways of steps that are no choice for these sizes.
            numbers: returns what the template's formulas give of the sizes.
            again: makes the plan with all its steps.
        """
        form, distinct = self._form, self._form.distinct
        behind = distinct + PLAIN
        arena_bytes, kept_bytes, shapes, known, offsets, read, inputs = found[distinct:behind]
        arrays = found[behind : behind + len(form.arrays)]
        strips = dict(zip(form.strips, found[behind + len(form.arrays) :], strict=True))
        kept = {
            number: Storage(Kind.KEPT, size)
            for number, size in zip(form.kept, kept_bytes, strict=True)
        }
        order = self._ordered(broken)
        in_strips, lacking = self._in_strips(order, strips) if strips else ({}, ())
        if lacking:
            order = self._ordered(broken.union((number, Way.STRIPS) for number in lacking))
        steps: Mapping[int, Step] = {}
        is_for_now, is_compiled = False, True
        late = late_of(order)
        if late:
            is_known = late == self._late
            sizes = _Some(zip(self._places, known, strict=True)) if is_known else numbers()
            placed = dict(zip(self._storages, offsets, strict=True))
            made_late = self._made_late(late, sizes, kept, placed)
            if made_late is None and is_known:  # they are made otherwise, of other sizes
                made_late = self._made_late(late, numbers(), kept, placed)
            if made_late is None:
                return None
            steps, is_for_now, is_compiled = made_late
        parts, whole = self._parts, iter(shapes)
        results = [None if dtype is None else (next(whole), dtype) for dtype in self._dtypes]
        made = TablePlan(
            *(parts, partial(described, parts.inputs(), inputs), form, order),
            *(_words(found[:distinct]), _words(read)),
            arrays,
            in_strips,
            steps,
            kept,
            results,
            arena_bytes,
            again,
        )
        made.is_compiled = is_compiled and all(each.is_compiled for each in made.primitives)
        made.is_final = not (is_for_now or self._is_for_now)
        return made

    def _made_late(
        self,
        late: Sequence[int],
        sizes: Numbers,
        kept: Mapping[int, Storage],
        placed: Mapping[int, int],
    ) -> tuple[dict[int, Step], bool, bool] | None:
        """Steps that are no numbers, whether one is for now, and whether all code is there.

        None where sizes are lacking, or oneDNN answers otherwise.
        """
        if sizes is None:
            return None
        recipe = self._contents[1]
        try:
            with ahead() as codes:
                filled = Filled(
                    *(sizes, *self._contents, codes),
                    may_be_in_strips=True,
                    kept=kept,
                    placed=placed,
                )
                steps = {number: filled.step(recipe.steps[number]) for number in late}
        except UnfitError:
            return None
        return steps, filled.is_for_now, codes.is_done

    def _ordered(self, broken: Broken) -> Order:
        known = self._orders.get(broken)
        if known is None:
            if len(self._orders) == MOST_ORDERS:
                self._orders.clear()
            known = self._orders[broken] = self._form.order(broken)
        return known

    def _in_strips(
        self, order: Order, found: Mapping[int, tuple[int, int, Sequence[_Seen]]]
    ) -> tuple[dict[int, FilledStrips], list[int]]:
        """The steps in strips, and numbers of those of which some primitive is not there yet."""
        cutter, recipe, packing = self._contents[0].strips, *self._contents[1:]
        made, lacking = {}, []
        cuts: dict[StripCut, Strips | None] = {}  # layers that are alike have one
        for form in order:
            if not isinstance(form, StripForm):
                continue
            positions, twice, seen = found[form.step]
            cut = StripCut(form.key, positions, twice)
            if cut not in cuts:
                cuts[cut] = cutter.strips(cut)
            strips = cuts[cut]
            if strips is None:
                lacking.append(form.step)
                continue
            moved = strips.pieces[0].layouts
            offsets, whole = {}, {}
            for (index, data_type), (offset, shape, strides) in zip(
                form.types.items(), seen, strict=True
            ):
                offsets[index] = offset
                if index not in moved:
                    whole[index] = _strided(shape, strides, data_type)
            constants = form.constants
            if form.packed is not None:
                index, value = form.packed
                layout = strips.pieces[0].weights
                assert layout is not None
                constants = {**constants, index: recipe.packed(value, layout, packing)}
            made[form.step] = FilledStrips(strips, offsets, whole, constants)
        return made, lacking


class _Some(dict[int, Any]):
    """Some of all sizes, by their places."""

    def __missing__(self, place: int) -> Any:
        raise UnfitError  # what was decided otherwise needs another one


def _words(numbers: Sequence[int]) -> npt.NDArray[np.int64]:
    """Numbers of 8 bytes; those of ways that are no choice may be any."""
    try:
        return np.array(numbers, np.int64)
    except OverflowError:
        return np.array([number & (1 << 64) - 1 for number in numbers], np.uint64).view(np.int64)


@lru_cache(maxsize=256)
def _strided(shape: tuple[int, ...], strides: tuple[int, ...], data_type: DataType) -> Descriptor:
    return Descriptor.strided(shape, strides, data_type)
