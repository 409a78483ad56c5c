"""TableTemplate: the numbers of a table by formulas of sizes.

A plan that is filled in step by step takes some 35 us for each, as its objects are gone from the
processor's cache. Here the steps that machine code or NumPy computes for all sizes are filled in
once with symbolic sizes, and what comes out is formulas: for other sizes of the same class they are
evaluated at once, and written to one table. What sizes decide on the way is guarded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from polydevice.symbolic_formulas import Formulas
from polydevice_cpu.onednn.ahead import ahead
from polydevice_cpu.plan.filling.filled import Filled, UnfitError, described
from polydevice_cpu.plan.filling.formulas import Formulas as Found
from polydevice_cpu.plan.filling.needs import Numbers
from polydevice_cpu.plan.filling.recipe import Packing, Recipe
from polydevice_cpu.plan.filling.strips import StripCut
from polydevice_cpu.plan.plan import Plan, PlanParts
from polydevice_cpu.plan.tables.form import (
    TableForm,
)
from polydevice_cpu.plan.tables.plan import BoundStrips, TablePlan
from polydevice_cpu.plan.value import Kind, Storage

Contents = tuple[Found, Recipe, Packing]
"""What a template's plans consist of."""


class TableTemplate:
    """Plans of a template for a class of its sizes."""

    def __init__(
        self,
        form: TableForm,
        formulas: Formulas,
        contents: Contents,
        parts: PlanParts,
        late: Sequence[int],
        doubts: Mapping[int, Sequence[int]],
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
            late: numbers of the steps that are made one by one.
            doubts: choice → steps that it is about.
            places: of the sizes that late steps need.
            storages: numbers of those in the arena.
            is_for_now: whether something is computed otherwise than in a plan that runs often.
        """
        self.formulas = formulas
        self._form, self._contents, self._parts = form, contents, parts
        self._late, self._doubts = frozenset(late), doubts
        self._order = form.order(self._late)
        self._places, self._storages = places, storages
        self._is_for_now = is_for_now

    @property
    def late(self) -> int:
        """How many steps are made one by one for all sizes."""
        return len(self._late)

    def others(self, choices: Sequence[int]) -> list[int]:
        """Return the steps of which these choices are others for some sizes."""
        return [number for choice in choices for number in self._doubts[choice]]

    def plan(
        self,
        found: list[Any],
        others: Sequence[int],
        numbers: Callable[[], list[Any] | None],
        again: Callable[[], Plan | None],
    ) -> TablePlan | None:
        """Return the plan for some sizes; None where oneDNN answers otherwise for them.

        Args:
            found: what the formulas gave.
            others: steps that are another choice.
            numbers: returns what the template's formulas give of the sizes.
            again: makes the plan with all its steps.
        """
        form, words = self._form, self._form.words.copy()
        distinct = form.distinct
        if distinct:
            words[form.varying] = np.array(found[:distinct], np.int64)[form.which]
        arena_bytes, kept_bytes, shapes, arrays, strips, known, offsets, inputs = found[distinct:]
        kept = {
            number: Storage(Kind.KEPT, size)
            for number, size in zip(form.kept, kept_bytes, strict=True)
        }
        late, order = self._late, self._order
        sizes: Numbers = dict(zip(self._places, known, strict=True))
        in_strips, whole = self._in_strips(strips, others)
        if others or whole:
            late = late.union(others, whole)
            order = form.order(late)
            sizes = numbers()
        steps, is_for_now, is_compiled = {}, self._is_for_now, True
        if late and sizes is not None:
            placed = dict(zip(self._storages, offsets, strict=True))
            try:
                with ahead() as codes:
                    filled = Filled(
                        sizes,
                        *self._contents,
                        codes,
                        may_be_in_strips=True,
                        kept=kept,
                        placed=placed,
                    )
                    recipe = self._contents[1]
                    steps = {number: filled.step(recipe.steps[number]) for number in sorted(late)}
            except KeyError:  # they need other sizes
                return self.plan(found, sorted(late), numbers, again) if not others else None
            except UnfitError:
                return None
            is_for_now |= filled.is_for_now
            is_compiled = codes.is_done
        elif late:
            return None
        dtypes = [value.dtype for value in self._parts.outputs if value is not None]
        parts = PlanParts(
            *([], [], partial(described, self._parts.inputs(), inputs)),
            *(self._parts.refused, self._parts.origins),
        )
        results = list(zip(shapes, dtypes, strict=True))
        made = TablePlan(
            *(parts, form, order, words, arrays, in_strips, steps, kept),
            *(results, arena_bytes, again),
        )
        made.is_compiled, made.is_final = is_compiled, not is_for_now
        return made

    def _in_strips(
        self, found: Sequence[tuple[int, int, tuple[int, ...]]], others: Sequence[int]
    ) -> tuple[list[BoundStrips | None], list[int]]:
        """The steps in strips, and numbers of those of which some primitive is not there yet."""
        cutter, recipe, packing = self._contents[0].strips, *self._contents[1:]
        made: list[BoundStrips | None] = []
        lacking = []
        for form, (positions, twice, offsets) in zip(
            self._form.strips.values(), found, strict=True
        ):
            strips = None
            if form.step not in others:
                strips = cutter.strips(StripCut(form.key, positions, twice))
                if strips is None or any(
                    at not in strips.pieces[0].layouts and at not in form.whole for at in form.homes
                ):
                    strips = None
                    lacking.append(form.step)
            if strips is None:
                made.append(None)
                continue
            constants = form.constants
            if form.packed is not None:
                index, value = form.packed
                layout = strips.pieces[0].weights
                assert layout is not None
                constants = {**constants, index: recipe.packed(value, layout, packing)}
            made.append(BoundStrips(strips, dict(zip(form.homes, offsets, strict=True)), constants))
        return made, lacking
