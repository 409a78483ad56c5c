"""BoundTable: a table of numbers with one request's memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from polydevice.dtype import Array
from polydevice.processor.machine_code import CALL, Calls, calls_at
from polydevice_cpu.algorithms.by_machine.code import AddressedCalls
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.plan.binding.array_calls import call_of, written
from polydevice_cpu.plan.binding.binder import Binder
from polydevice_cpu.plan.binding.bound_step import SEVERAL, BoundStep
from polydevice_cpu.plan.binding.moving import NOWHERE
from polydevice_cpu.plan.binding.stretches import Call
from polydevice_cpu.plan.binding.strips import run_strips
from polydevice_cpu.plan.step import Compute
from polydevice_cpu.plan.tables.form import ARENA, SIZES, TABLE, ArrayForm, Home, Run, StripForm
from polydevice_cpu.plan.tables.plan import FilledStrips, TablePlan, View
from polydevice_cpu.plan.value import Kind

CALL_BYTES = CALL.itemsize


class TableCalls(AddressedCalls):
    """Calls of a table that may refuse what they read.

    Attributes:
        told: what the first one is, from its addresses on.
    """

    __slots__ = ("told",)
    told: npt.NDArray[np.int64]

    def addresses(self, count: int) -> Sequence[int]:
        """Return where its values are, of so many."""
        found: list[int] = self.told[:count].tolist()
        return found


class BoundTable:
    """The steps of a plan, with a request's memory.

    Attributes:
        order: what runs them, in order.
        words_bytes: what the table takes.
    """

    def __init__(self, plan: TablePlan, binder: Binder) -> None:
        """Tell the table where the memory of a request is."""
        self._plan, form = plan, plan.form
        self._words = words = plan.words
        self.words_bytes = words.nbytes
        self._begin = address_of(words)
        self._starts = starts = np.zeros(len(form.homes), np.int64)
        starts[TABLE], starts[ARENA] = self._begin, address_of(binder.arena)
        starts[SIZES] = address_of(plan.sizes)
        for number, home in form.kept_homes:
            starts[number] = address_of(self._data(binder, number, home))
        counted, bases = form.counted
        words[counted] += starts[bases]
        for number, places in form.moving.items():
            home = form.homes[number]
            moving = binder.place_of(home.kind, home.number)
            moving.tables.append((words, places, words[places]))
        self.order = [self._bound(binder, each) for each in plan.order]

    def _bound(self, binder: Binder, each: Run | ArrayForm | StripForm | int) -> BoundStep:
        plan = self._plan
        if isinstance(each, Run):
            number, _ = each.steps
            if number in plan.form.refusing:
                return BoundStep(number, self._refusing(each), shared=plan.form.threads)
            if number not in plan.once:
                number = SEVERAL
            return BoundStep(number, self._code(*each.calls), shared=plan.form.threads)
        if isinstance(each, ArrayForm):
            found = plan.arrays[each.at]
            assert found is not None
            return BoundStep(each.step, self._array(binder, each, *found))
        if isinstance(each, StripForm):
            filled = plan.strips[each.step]
            primitives = [piece.primitive for piece in filled.strips.pieces]
            call = self._strips(binder, each, filled)
            return BoundStep(each.step, call, primitives, primitives[0].threads)
        return BoundStep.of(each, plan.late[each], binder.bind(plan.late[each]))

    def each(self) -> list[BoundStep]:
        """Return the steps one by one."""
        found: list[BoundStep] = []
        refusing = self._plan.form.refusing
        for form, bound in zip(self._plan.order, self.order, strict=True):
            if isinstance(form, Run) and form.steps[0] not in refusing:
                for number in range(*form.steps):
                    call = self._code(*self._plan.form.calls[number])
                    found.append(BoundStep(number, call, shared=bound.shared))
            else:
                found.append(bound)
        return found

    def _code(self, first: int, end: int) -> Call:
        made = calls_at(self._begin + CALL_BYTES * first, end - first, Calls)
        assert made is not None  # there is the code that it calls
        return made

    def _refusing(self, form: Run) -> Call:
        (number, _), (first, end) = form.steps, form.calls
        made = calls_at(self._begin + CALL_BYTES * first, end - first, TableCalls)
        assert made is not None
        made.told = self._words[self._plan.form.refusing[number] :]
        return made

    def _array(
        self, binder: Binder, form: ArrayForm, compute: Compute | None, views: Sequence[View]
    ) -> Call:
        sides: tuple[list[Array], list[Array]] = [], []  # what it reads, and what it writes
        homes, stay = self._plan.form.homes, True
        for at, ((number, dtype), view) in enumerate(zip(form.homes, views, strict=True)):
            home, arrays = homes[number], sides[at >= form.read]
            if home.kind in (Kind.INPUT, Kind.OUTPUT):
                stay = False
                self._follow(binder, home, arrays, dtype, view)
            else:
                data = self._data(binder, number, home)
                arrays.append(np.ndarray(view[0], dtype, data, view[1], view[2]))
        binder.computes_arrays = True
        if compute is not None:
            whole = partial(compute, *sides[0], *sides[1])
            return whole if stay else partial(written, compute, *sides)
        assert form.given is not None
        return call_of(form.given, form.given.start(binder.context), *sides, stay=stay)

    def _strips(self, binder: Binder, form: StripForm, found: FilledStrips) -> Call:
        strips, offsets, whole, constants = found
        cut = strips.pieces[0].layouts
        known = [x for at, value in constants.items() for x in (at, value.constant_memory.handle)]
        calls = binder.strip_calls(strips.pieces, known, list(whole.items()))
        addresses, homes = [], self._plan.form.homes
        for position, at in enumerate((*cut, *whole)):
            number, offset = form.homes[at], offsets[at]
            home = homes[number]
            addresses.append(int(self._starts[number]) + offset)
            if home.kind in (Kind.INPUT, Kind.OUTPUT):
                place = binder.place_of(home.kind, home.number)
                place.addresses.append((addresses, position, offset))
        return partial(run_strips, strips, calls, addresses)

    def _data(self, binder: Binder, number: int, home: Home) -> Array:
        """The bytes of what stays where it is."""
        if number == ARENA:
            return binder.arena
        if number == SIZES:
            return self._plan.sizes
        found = (
            home.data if home.kind is Kind.CONSTANT else binder.home(self._plan.kept[home.number])
        )
        assert found is not None
        return found

    @staticmethod
    def _follow(
        binder: Binder, home: Home, arrays: list[Array], dtype: np.dtype[np.generic], view: View
    ) -> None:
        """Keep an array up to date when an input or output moves."""
        at = len(arrays)
        arrays.append(NOWHERE)

        def update(data: Array | None) -> None:
            arrays[at] = (
                NOWHERE if data is None else np.ndarray(view[0], dtype, data, view[1], view[2])
            )

        binder.place_of(home.kind, home.number).views.append(update)
