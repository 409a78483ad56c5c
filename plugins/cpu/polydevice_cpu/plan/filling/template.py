"""PlanTemplate: what a plan that was made with symbolic sizes is for other sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from polydevice.locks import Lock
from polydevice.runtime.templates import Fit
from polydevice.symbolic_trace import Trace
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.ahead import ahead
from polydevice_cpu.plan.filling.filled import Filled, UnfitError
from polydevice_cpu.plan.filling.plan_sizes import PlanSizes
from polydevice_cpu.plan.filling.recipe import Packing, Recipe
from polydevice_cpu.plan.plan import Plan, PlanParts
from polydevice_cpu.plan.settling import Pauses
from polydevice_cpu.plan.step import CodeStep
from polydevice_cpu.plan.tables.making import table_template
from polydevice_cpu.plan.tables.template import Broken, TableTemplate

MOST_TABLES = 8
"""Classes of a template's sizes for which a table is tried: one takes as long as some ten plans."""

MOST_LATE, FEW_LATE, OF_STEPS = 4, 2, 32
"""Steps of a plan that a table has no numbers of for its sizes alone, above which one is made, and
above which the others are asked first; and one more for so many steps. To ask a table takes as long
as a few such steps, with its formulas."""


Later = Callable[[Callable[[], None]], None]
"""Has something done in the background."""

Decided = Callable[[Sequence[int]], "Plan | None"]
"""Returns a plan of sizes for which everything was chosen; None where there is none."""


class PlanTemplate:
    """A plan whose sizes are formulas; what `fit` returns fills in numbers.

    Which steps there are, what they compute together, and in which layouts is as it was for the
    sizes that the template was made with. oneDNN is asked for each primitive that runs: where it
    has other code than was expected, or code that is not proved, the template does not fit. Until
    the plan has run often, machine code or NumPy computes what they can for all sizes; what else
    treats every position alike is computed in `Strips`, and other convolutions in `Blocks`.

    What is filled in so for several sizes becomes a `TableTemplate`, which does it at once.

    Requests fill in one at a time (`PlanCache`), and who asks a table for its steps waits for its
    turn as well; but a plan that has run often is filled in for its own sizes by a thread beside:
    what is kept from one to the next is written once, whole.
    """

    def __init__(
        self,
        parts: PlanParts,
        trace: Trace,
        packing: Packing,
        later: Later,
        decided: Decided,
    ) -> None:
        """Take over what a plan consists of, and end its trace.

        Args:
            parts: of a plan with formulas.
            trace: of their sizes.
            packing: returns a constant in a layout.
            later: has tables made but the first one.
            decided: asked for plans that have run often, of sizes for which the template might have
                chosen otherwise.

        Raises:
            UntraceableError: a step is for these sizes alone.
        """
        found = PlanSizes()
        found.visit(parts)
        self._parts = parts
        self._recipe = Recipe(parts, found.places, found.fixed)
        self._packing = packing
        self._found = found
        self._formulas = trace.formulas(found.wanted)
        found.wanted.clear()
        self._turn = Lock()
        self._tables: list[TableTemplate] = []
        self._ones: dict[TableTemplate, tuple[bool, ...]] = {}
        """Which sizes were 1 where a table was made."""
        self._later, self._is_learning = later, False
        self._wanted: Sequence[int] | None = None
        """Sizes that a table was wanted for while another one was made."""
        self._decided = decided
        self._tried = 0

    def fit(self, sizes: Sequence[int]) -> Fit[Plan] | None:
        """Return what fills in the plan for these sizes; None where another one may be better."""
        best: tuple[TableTemplate, list[Any], Broken] | None = None
        fewest = math.inf
        for table in self._likely(sizes):
            found = table.formulas(sizes)
            if found is None:
                continue
            broken, late = table.broken(found[1])
            if late < fewest:
                best, fewest = (table, found[0], broken), late
            if late <= self._late_of(table, FEW_LATE):
                break
        if best is not None:
            return Fit(partial(self._of_table, sizes, *best))
        found = self._formulas(sizes)
        return None if found is None else Fit(partial(self._plan, sizes, found[0]))

    def _late_of(self, table: TableTemplate, more: int) -> int:
        """How many steps are made one by one, with so many more than a table leaves out always."""
        return table.late + more + len(self._recipe.steps) // OF_STEPS

    def _likely(self, sizes: Sequence[int]) -> list[TableTemplate]:
        """The tables; first those that were made where the same sizes were 1, which decide most."""
        tables, ones = self._tables, _ones(sizes)
        if len(tables) < 2:
            return tables
        return sorted(tables, key=lambda table: self._ones[table] != ones)

    def _of_table(
        self, sizes: Sequence[int], table: TableTemplate, found: list[Any], broken: Broken
    ) -> Plan | None:
        numbers, again = partial(self._numbers, sizes), partial(self._with_steps, sizes)
        with self._turn, openmp.threads(openmp.thread_count()):
            plan = table.plan(found, broken, numbers, again)
        if plan is None:
            return self._with_steps(sizes)
        if not plan.is_final:
            plan.whole = partial(self._whole, sizes)
        if len(plan.late) > self._late_of(table, MOST_LATE):
            self._learn(sizes)
        return plan

    def _numbers(self, sizes: Sequence[int]) -> list[Any] | None:
        found = self._formulas(sizes)
        return None if found is None else found[0]

    def _with_steps(self, sizes: Sequence[int]) -> Plan | None:
        """The plan with all its steps, where there is a table for such sizes."""
        numbers = self._numbers(sizes)
        return None if numbers is None else self._step_by_step(sizes, numbers)

    def _plan(self, sizes: Sequence[int], numbers: list[Any]) -> Plan | None:
        plan = self._step_by_step(sizes, numbers)
        if plan is not None and (not plan.is_final or _has_code(plan)):
            self._learn(sizes)
        return plan

    def _step_by_step(self, sizes: Sequence[int], numbers: list[Any]) -> Plan | None:
        with self._turn:
            plan, is_in_strips = self._filled(numbers, may_be_in_strips=True)
        if plan is not None and is_in_strips:
            plan.is_final = False
            plan.whole = partial(self._whole, sizes)
        return plan

    def _learn(self, sizes: Sequence[int]) -> None:
        """Make a table for sizes like these: the first at once, with the template."""
        with self._turn:
            if self._tried == MOST_TABLES:
                return
            if self._is_learning:
                self._wanted = sizes
                return
            self._tried += 1
            self._is_learning, is_first = True, self._tried == 1
        if is_first:
            self._make_table(sizes)
        else:
            self._later(partial(self._make_table, sizes, Pauses()))

    def _make_table(self, sizes: Sequence[int], pause: Callable[[], None] | None = None) -> None:
        contents = self._found, self._recipe, self._packing
        if not self._tables:  # of sizes of 1 the second one is, which they decide otherwise
            likely = [max(size, 2) for size in sizes]
            sizes = sizes if self._formulas(likely) is None else likely
        made = wanted = None
        try:
            with openmp.threads(openmp.thread_count()):  # what oneDNN is asked with changes
                made = table_template(self._formulas, contents, self._parts, sizes, pause)
        finally:  # at once: a request may want the next one as soon as nobody makes this one
            with self._turn:
                if made is not None:
                    self._ones[made] = _ones(sizes)
                    self._tables = sorted([*self._tables, made], key=lambda table: table.late)
                self._is_learning = False
                wanted, self._wanted = self._wanted, None
        if wanted is not None and self._lacks(wanted):
            self._learn(wanted)

    def _lacks(self, sizes: Sequence[int]) -> bool:
        """Whether every table leaves many steps of a plan for these sizes to be made one by one."""
        for table in self._likely(sizes):
            found = table.formulas(sizes)
            if found is not None and table.broken(found[1])[1] <= self._late_of(table, MOST_LATE):
                return False
        return True

    def _whole(self, sizes: Sequence[int]) -> Plan | None:
        """The plan without strips; plans keep sizes, as the numbers are many more."""
        found = self._formulas(sizes)
        if found is None:
            return None
        made = self._decided(sizes) if found[1] else None
        return made or self._filled(found[0], may_be_in_strips=False)[0]

    def settled(self, sizes: Sequence[int]) -> Plan | None:
        """Return the plan for these sizes alone; None where something might be chosen otherwise."""
        found = self._formulas(sizes)
        if found is None or found[1]:
            return None
        return self._filled(found[0], may_be_in_strips=False)[0]

    def _filled(self, numbers: list[Any], *, may_be_in_strips: bool) -> tuple[Plan | None, bool]:
        """The plan, and whether something in it is in strips or blocks, or by NumPy."""
        try:
            with openmp.threads(openmp.thread_count()), ahead() as codes:
                filled = Filled(
                    *(numbers, self._found, self._recipe, self._packing, codes),
                    may_be_in_strips=may_be_in_strips,
                )
                plan = filled.plan(self._parts)
        except UnfitError:
            return None, False
        plan.is_compiled = codes.is_done
        return plan, filled.is_for_now


def _has_code(plan: Plan) -> bool:
    """Whether machine code computes some step of a plan that stays, so that a table may have it."""
    return any(isinstance(step, CodeStep) for step in plan.steps)


def _ones(sizes: Sequence[int]) -> tuple[bool, ...]:
    """Which sizes are 1."""
    return tuple(size == 1 for size in sizes)
