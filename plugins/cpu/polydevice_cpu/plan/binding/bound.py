"""BoundPlan: a plan with one request's memory, ready to run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakMethod

from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.errors import (
    DeviceMemoryError,
    InferCancelledError,
    InferTimeoutError,
    InternalError,
)
from polydevice_cpu.algorithms.by_machine.code import AddressedCalls
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.primitive import execution_error
from polydevice_cpu.plan.binding.array_calls import compute_instead
from polydevice_cpu.plan.binding.binder import Binder
from polydevice_cpu.plan.binding.bound_step import SEVERAL, BoundStep
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.binding.giving_way import GivingWay
from polydevice_cpu.plan.binding.moving import MovingPlace
from polydevice_cpu.plan.binding.places import OwnPlaces, Places
from polydevice_cpu.plan.binding.stretches import Call, Together, is_recorded, stretches
from polydevice_cpu.plan.binding.workspace import Workspace
from polydevice_cpu.plan.plan import Plan
from polydevice_cpu.plan.step import ArrayStep, Step

if TYPE_CHECKING:
    from polydevice_cpu.plan.tables.bound import BoundTable

BOUND_BYTES = 6_000
"""What binding takes for each step."""


class BoundPlan:
    """Every step of a plan as a prepared call on a request's own memory.

    Inputs and outputs may move (`set_input`, `set_output`); nothing else changes after it is made,
    and `run` allocates nothing of its own. The plans of a request, of which one runs at a time,
    share its workspace.
    """

    _binds = Binder

    def __init__(
        self,
        plan: Plan,
        context: Context,
        workspace: Workspace,
        alone: Callable[[], Plan | None] | None = None,
    ) -> None:
        """Bind a plan to memory.

        Args:
            plan: the plan.
            context: the request's.
            workspace: what the request's plans share.
            alone: makes a plan that computes the same in one thread, if there is one.
        """
        self.plan = plan
        self._get_threads, self._set_threads = openmp.functions()
        self._context = context
        self._binder = binder = self._binds(plan, context, workspace)
        self._table = self._table_of(plan)
        self._order = self._bound_steps() if self._table is None else self._table.order
        self._steps = self._order if self._table is None else []
        self.tail_outputs = binder.tail_outputs
        self.computes_arrays = binder.computes_arrays
        parts, counts, most = 0, [], 1
        for each in self._order:
            parts += len(each.primitives) or 1
            most = max(most, each.threads, each.shared)
            if each.threads:
                counts.append(each.threads)
        self.held_bytes = BOUND_BYTES * parts + binder.held_bytes
        if self._table is not None:
            self.held_bytes += self._table.words_bytes
        # NumPy's steps may multiply with oneDNN's code, too.
        self._first_threads = counts[0] if counts else context.compiled.settings.threads
        self._most_threads = most
        self._changes_threads = len(set(counts)) > 1
        self._stretches: list[list[Call]] | None = None
        self._without: AbstractSet[int] = frozenset()
        self._is_compiled = False
        """Whether the code of every step is there, as it is after the first run."""
        self._lacks = plan.once
        """Numbers of steps to run once that have not run yet."""
        self.lacks_arrays = False
        """Whether inputs and outputs must be set again, since something was bound besides."""
        self.input_places: dict[int, Array] = {}
        """Where the request puts small inputs before it runs, by number."""
        self.places: Places | None = None
        """Memory of small inputs and outputs, where it runs within another plan."""
        self.own_places: OwnPlaces | None = None
        """Memory of its own that small inputs and all outputs of a request have in it."""
        self._lent: set[MovingPlace] = set()
        """Inputs and outputs that lie in memory which may be others'."""
        self._giving_way: GivingWay[BoundPlan] | None = None
        is_whole = len(plan.whole_outputs) == len(plan.results)
        if alone is not None and is_whole and self._most_threads > 1:
            bind = WeakMethod(self._bind_alone)  # or its memory would wait for the next collection
            self._giving_way = GivingWay(
                plan.step_count, lambda: made(alone, workspace) if (made := bind()) else None
            )

    def _table_of(self, plan: Plan) -> BoundTable | None:
        """The table of a plan that is one."""
        if not plan.is_table:
            return None
        from polydevice_cpu.plan.tables.bound import BoundTable
        from polydevice_cpu.plan.tables.plan import TablePlan  # for open sizes alone

        assert isinstance(plan, TablePlan)
        return BoundTable(plan, self._binder)

    def _bound_steps(self) -> list[BoundStep]:
        bind = self._binder.bind
        return [
            BoundStep.of(number, step, bind(step)) for number, step in enumerate(self.plan.steps)
        ]

    def _each(self) -> list[BoundStep]:
        """All steps one by one."""
        if not self._steps and self._table is not None:
            self._steps = self._table.each()
        return self._steps

    def _bind_alone(
        self, make: Callable[[], Plan | None], workspace: Workspace
    ) -> BoundPlan | None:
        """Bind what computes the same in one thread."""
        try:
            plan = make()
            bound = None if plan is None else BoundPlan(plan, self._context, workspace)
            if bound is not None:
                bound._compile()  # or the first inference would be no measure
        except (DeviceMemoryError, InferCancelledError, InferTimeoutError):
            return None  # what was asked for is computed already
        if bound is not None:
            self.held_bytes += bound.held_bytes
            self.computes_arrays |= bound.computes_arrays
            self.lacks_arrays = True
        return bound

    # -- running ------------------------------------------------------------------------------

    def run(self) -> None:
        """Run all steps, each primitive with the number of threads that it was made for.

        Raises:
            InferenceError: a step fails.
            InferCancelledError: (or InferTimeoutError) the inference may not go on.
        """
        if self._giving_way is None or not self._is_compiled:
            self._run_together()
        else:
            self._giving_way.run(self._run_together)

    def _run_together(self) -> None:
        if self._most_threads > 1:
            openmp.keep_apart(self._most_threads)
        before = self._get_threads()
        if before == self._first_threads and not self._changes_threads:
            if self._is_compiled:
                self._run_all(current_bounds().check)
            else:
                self._run_first()
            return
        self._set_threads(self._first_threads)
        try:
            self._run()
        finally:
            self._set_threads(before)

    def repeated(self, without: AbstractSet[int] = frozenset()) -> Call:
        """Return what runs the steps as `run` does, called by this thread within these bounds.

        Args:
            without: numbers of steps that are not to run.

        Where no number of threads is to be set, it asks for nothing that stays as it is, which is
        some 0.7 µs of an iteration.
        """
        self._compile()
        if without != self._without:
            self._stretches, self._without = None, without
        is_set = self._most_threads == 1 and self._get_threads() == self._first_threads
        return partial(self._run_all, current_bounds().check) if is_set else self.run

    def recorded(self, without: AbstractSet[int]) -> list[Call] | None:
        """Return the call of each step but some, if all are C functions that take one thread.

        Who calls them calls `go_on` where one returns anything but 0.
        """
        self._compile()
        if self._most_threads > 1:
            return None
        if self._lacks:
            with openmp.threads(self._first_threads):
                self._run_once()
        without = without | self.plan.once
        calls = [each.call for each in self._each() if each.number not in without]
        return calls if all(map(is_recorded, calls)) else None

    def _run(self) -> None:
        if self._is_compiled:
            self._run_all(current_bounds().check)
        else:
            self._run_first()

    def _compile(self) -> None:
        if not self._is_compiled:
            self.plan.compile()
            self._is_compiled = True

    def _run_first(self) -> None:
        """Run each step as soon as its code is there."""
        check, threads = current_bounds().check, self._first_threads
        lacks_code = not self.plan.is_compiled
        for each in self._order:
            check()
            for primitive in each.primitives if lacks_code else ():
                if not primitive.is_compiled:
                    primitive.compile()
            if each.threads and each.threads != threads:
                threads = each.threads
                self._set_threads(threads)
            status = each.call()
            if status:
                self.go_on(each.call, status)
        self._is_compiled, self._lacks = True, frozenset()

    def _run_once(self) -> None:
        """Run what depends on sizes alone, where all code was there before the first run."""
        for each in self._order:
            if each.number not in self._lacks:
                continue
            if each.threads:
                self._set_threads(each.threads)
            status = each.call()
            if status:
                self.go_on(each.call, status)
        self._set_threads(self._first_threads)
        self._lacks = frozenset()

    def _run_all(self, check: Call) -> None:
        if self._lacks:
            self._run_once()
        if self._stretches is None:
            self._stretches = self._in_stretches()
        for stretch in self._stretches:
            check()
            for call in stretch:
                status = call()
                if status:
                    self.go_on(call, status)

    def run_marked(self) -> list[int]:
        """Run as `run` does; return when the first step began and when each ended.

        The times are of `time.perf_counter_ns`; there is one more than steps.
        """
        self._compile()
        before = self._get_threads()
        try:
            return self._run_marked()
        finally:
            self._set_threads(before)

    def _run_marked(self) -> list[int]:
        now, check = time.perf_counter_ns, current_bounds().check
        steps = self._each()  # of a table they are made now
        marks = [now()]
        for each in steps:
            check()
            if each.threads:
                self._set_threads(each.threads)
            status = each.call()
            marks.append(now())
            if status:
                self.go_on(each.call, status)
        return marks

    def _in_stretches(self) -> list[list[Call]]:
        """The calls, and between them those that change the number of threads."""
        run: list[Call] = []
        threads, without = self._first_threads, self._without | self.plan.once
        for each in self._each() if self._without else self._order:
            if each.number in without:
                continue
            if each.threads and each.threads != threads:
                threads = each.threads
                run.append(partial(self._set_threads, threads))
            run.append(each.call)
        return stretches(run)

    def go_on(self, call: Call, status: int) -> None:
        """Compute by NumPy what machine code has refused, and what was to follow in the same call.

        Raises:
            InferenceError: what the step reads is wrong, or oneDNN failed.
        """
        rest: Sequence[Call] = ()
        if isinstance(call, Together):
            call, status, rest = call.failed(status)
        step = self._step_of(call)
        if step is None:
            raise InternalError(f"machine code of a table that never refuses returned {status}")
        if not isinstance(call, AddressedCalls) or not isinstance(step, ArrayStep):
            raise execution_error(f"{step.type} {step.name!r}", status)
        compute_instead(step, step.start(self._context), call)
        for other in rest:
            status = other()
            if status:
                self.go_on(other, status)

    def _step_of(self, call: Call) -> Step | None:
        """The step that a call is of; None for several."""
        numbers = (each.number for each in self._order if each.call is call)
        number = next(numbers, SEVERAL)
        return None if number == SEVERAL else self.plan.step(number)

    # -- inputs and outputs -------------------------------------------------------------------

    def leave(self) -> None:
        """Keep no array of others; inputs and outputs are set again before the next run."""
        self.tail_outputs.clear()
        for place in self._lent:
            place.leave()
        self._lent.clear()
        if self._giving_way is not None and self._giving_way.alone is not None:
            self._giving_way.alone.leave()

    def set_input(self, index: int, array: Array, *, is_own: bool = False) -> None:
        """Read an input from this C-contiguous array from now on.

        Args:
            index: of the input.
            array: its memory…
            is_own: …which nobody else has, so that it may stay when others run.
        """
        self._set(self._binder.inputs.get(index), array, is_own)
        if self._giving_way is not None and self._giving_way.alone is not None:
            self._giving_way.alone.set_input(index, array, is_own=is_own)

    def set_output(self, index: int, array: Array, *, is_own: bool = False) -> None:
        """Write an output to this C-contiguous array from now on; see `set_input`."""
        self._set(self._binder.outputs.get(index), array, is_own)
        if self._giving_way is not None and self._giving_way.alone is not None:
            self._giving_way.alone.set_output(index, array, is_own=is_own)

    def _set(self, place: MovingPlace | None, array: Array, is_own: bool) -> None:
        if place is None:
            return
        place.move(array)
        if is_own:
            self._lent.discard(place)
        else:
            self._lent.add(place)
