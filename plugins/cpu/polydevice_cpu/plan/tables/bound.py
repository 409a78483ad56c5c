"""BoundTable: a table of numbers with one request's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import CALL, Calls, calls_at
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.plan.binding.array_calls import call_of, written
from polydevice_cpu.plan.binding.binder import BOUND_BYTES, Binder
from polydevice_cpu.plan.binding.stretches import Call
from polydevice_cpu.plan.binding.strips import run_strips
from polydevice_cpu.plan.step import Compute, PrimitiveStep
from polydevice_cpu.plan.tables.form import ARENA, TABLE, ArrayForm, Home, Run, StripForm
from polydevice_cpu.plan.tables.plan import FilledStrips, TablePlan, View
from polydevice_cpu.plan.value import Kind


class BoundTable:
    """The calls of a plan's steps.

    Attributes:
        plan: what they are of.
        held_bytes: estimate of what it takes, besides late steps.
        threads: with how many the primitives run, in order.
        late: those of steps that are no numbers, by number.
    """

    def __init__(self, plan: TablePlan, binder: Binder) -> None:
        """Tell the table where the memory of a request is."""
        self.plan, form = plan, plan.form
        self._words = words = np.empty_like(plan.words)
        self._begin = address_of(words)
        self._starts = starts = np.zeros(len(form.homes), np.int64)
        starts[TABLE], starts[ARENA] = self._begin, address_of(binder.arena)
        for number, home in enumerate(form.homes):
            if home.kind is Kind.KEPT:
                starts[number] = address_of(self._data(binder, number, home))
        np.add(plan.words, starts[form.bases], words)
        for number, places in form.moving.items():
            home = form.homes[number]
            moving = binder.place_of(home.kind, home.number)
            moving.tables.append((words, places, plan.words[places]))
        self.late = {number: binder.bind(step) for number, step in plan.late.items()}
        counted = sum(not isinstance(each, (Run, int)) for each in plan.order)
        self.held_bytes = words.nbytes + BOUND_BYTES * counted
        self._others: dict[int, Call] = {}
        self._calls: list[tuple[Call, int]] = []
        for each in plan.order:
            if isinstance(each, Run):
                self._calls.append((self._code(*each.calls), 0))
            elif isinstance(each, ArrayForm):
                call = self._others[each.step] = self._array(binder, each, *plan.arrays[each.at])
                self._calls.append((call, 0))
            elif isinstance(each, StripForm):
                call = self._others[each.step] = self._strips(binder, each, plan.strips[each.step])
                threads = plan.strips[each.step].strips.pieces[0].primitive.threads
                self._calls.append((call, threads))
            elif each not in form.once:
                step = plan.late[each]
                threads = step.primitive.threads if isinstance(step, PrimitiveStep) else 0
                self._calls.append((self.late[each], threads))
        self.threads = [threads for _, threads in self._calls if threads]

    def calls_of(self, threads: int, change: Callable[[int], object]) -> list[Call]:
        """Return the calls in order, one may be of several steps, and what changes threads.

        Args:
            threads: how many there are at first.
            change: sets the number of threads that primitives run with.
        """
        found: list[Call] = []
        for call, wanted in self._calls:
            if wanted and wanted != threads:
                threads = wanted
                found.append(partial(change, threads))
            found.append(call)
        return found

    def of_steps(self) -> list[Call]:
        """Return the call of each step."""
        known = {number: self._code(*calls) for number, calls in self.plan.form.calls.items()}
        known |= self._others | self.late
        return [known[number] for number in range(self.plan.step_count)]

    def _code(self, first: int, end: int) -> Call:
        made = calls_at(self._begin + CALL.itemsize * first, end - first, Calls)
        assert made is not None  # there is the code that it calls
        return made

    def _array(
        self, binder: Binder, form: ArrayForm, compute: Compute | None, views: Sequence[View]
    ) -> Call:
        sides: tuple[list[Array], list[Array]] = [], []  # what it reads, and what it writes
        homes, stay = self.plan.form.homes, True
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
        addresses, homes = [], self.plan.form.homes
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
        found = binder.home(home.constant or self.plan.kept[home.number])
        assert found is not None
        return found

    @staticmethod
    def _follow(
        binder: Binder, home: Home, arrays: list[Array], dtype: np.dtype[np.generic], view: View
    ) -> None:
        """Keep an array up to date when an input or output moves."""
        at = len(arrays)
        arrays.append(np.empty(0, dtype))

        def update(data: Array) -> None:
            arrays[at] = np.ndarray(view[0], dtype, data, view[1], view[2])

        binder.place_of(home.kind, home.number).views.append(update)
