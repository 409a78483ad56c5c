"""TableForm: what plans of a template for a class of sizes have in common, besides numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from polydevice.dtype import Array
from polydevice_cpu.onednn.constants import DataType
from polydevice_cpu.plan.binding.stretches import STRETCH
from polydevice_cpu.plan.step import ArrayStep
from polydevice_cpu.plan.value import Kind, Value

if TYPE_CHECKING:
    from polydevice_cpu.plan.filling.recipe import ValueForm  # 1 MB, for open sizes alone

NOTHING, TABLE, ARENA, SIZES = range(4)
"""Numbers of homes that every table has: of plain numbers, the table itself, the arena, and sizes
that steps read."""


class Way(IntEnum):
    """How a step is computed by numbers; what comes first is chosen first."""

    CODE = 0
    NUMPY = 1
    STRIPS = 2


class Home(NamedTuple):
    """What an address is counted from.

    Attributes:
        kind: of the storage.
        number: of the input or output, or of the storage that is kept.
        data: of a constant that NumPy reads.
    """

    kind: Kind
    number: int = 0
    data: Array | None = None


class Run(NamedTuple):
    """Steps one after the other that machine code computes.

    Those that depend on sizes alone have their own, and so has each that may refuse what it reads.

    Attributes:
        steps: numbers of the first step, and of the one behind the last.
        calls: the first of their calls in the table, and the one behind the last.
    """

    steps: tuple[int, int]
    calls: tuple[int, int]


class ArrayForm(NamedTuple):
    """A step that NumPy computes.

    Attributes:
        step: its number.
        at: which it is of such steps.
        given: that of the template, where it tells what computes it.
        homes: where what it reads, and behind that what it writes, is: number of a home, and type.
        read: how many of these it reads.
    """

    step: int
    at: int
    given: ArrayStep | None
    homes: Sequence[tuple[int, np.dtype[Any]]]
    read: int


class StripForm(NamedTuple):
    """A step in strips.

    Attributes:
        step: its number.
        key: see `StripCut`.
        homes: of what it reads and writes, by index on execution.
        types: of the same.
        constants: by index on execution: what stays as it is.
        packed: the index of a constant that is packed as the strips want it, and how it is made.
    """

    step: int
    key: Any
    homes: Mapping[int, int]
    types: Mapping[int, DataType]
    constants: Mapping[int, Value]
    packed: tuple[int, ValueForm] | None


Order = list["Run | ArrayForm | StripForm | int"]
"""Steps: of several by machine code, by NumPy, in strips; the number of one that is no numbers."""


@dataclass(frozen=True, eq=False)
class TableForm:
    """What is the same for all sizes of a class.

    Attributes:
        words: the table: calls as of type `CALL`, and behind them what functions are told; places
            of the numbers that sizes change are 0.
        varying: where these are.
        which: which of the numbers that formulas give each is.
        distinct: how many these are.
        bases: the number of the home that each number of the table is counted from.
        homes: what these are.
        moving: number of a home of which the caller provides the memory → where it is counted from.
        calls: step that machine code computes → its first call, and the one behind the last.
        arrays: steps that NumPy computes.
        strips: steps in strips.
        kept: numbers of the storages that the request keeps for what depends on sizes alone.
        once: numbers of the steps that compute that.
        refusing: step whose code may refuse what it reads → where the code is told addresses.
        step_count: how many steps there are.
        threads: how many share a call of machine code, at most.
        alive: what machine code reads besides.
    """

    words: npt.NDArray[np.int64]
    varying: npt.NDArray[np.intp]
    which: npt.NDArray[np.intp]
    distinct: int
    bases: npt.NDArray[np.intp]
    homes: Sequence[Home]
    moving: Mapping[int, npt.NDArray[np.intp]]
    calls: Mapping[int, tuple[int, int]]
    arrays: Mapping[int, ArrayForm]
    strips: Mapping[int, StripForm]
    kept: Sequence[int]
    once: frozenset[int]
    refusing: Mapping[int, int]
    step_count: int
    threads: int
    alive: Sequence[object]

    def filled(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return a table with the numbers that formulas give, as many as `distinct`."""
        words: npt.NDArray[np.int64] = self.words.copy()
        if self.distinct:
            words[self.varying] = numbers[self.which]
        return words

    @cached_property
    def counted(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Places of the addresses in memory that stays, and the numbers of their homes.

        They are a tenth of the words, of which all were gone through otherwise.
        """
        stays = np.array([number not in self.moving for number in range(len(self.homes))])
        stays[NOTHING] = False
        places = np.flatnonzero(stays[self.bases])
        return places, self.bases[places]

    @cached_property
    def kept_homes(self) -> Sequence[tuple[int, Home]]:
        """The homes that a request has memory of its own for, with their numbers."""
        return [(n, home) for n, home in enumerate(self.homes) if home.kind is Kind.KEPT]

    def order(self, broken: Collection[tuple[int, Way]]) -> Order:
        """Return the steps: runs of code, those by NumPy or in strips, and numbers of others.

        Args:
            broken: ways of steps that are no choice.
        """
        if not broken:
            return self._between(0, self.step_count, broken)
        # Without a way nothing is joined that was apart: but for the places of these steps all is
        # as it is with all ways (of 420 steps 0.1 instead of 0.8 ms).
        whole, places = self._whole
        order = list(whole)
        for place in sorted({places[number] for number, _ in broken}, reverse=True):
            first, end = _steps_of(whole[place])
            order[place : place + 1] = self._between(first, end, broken)
        return order

    @cached_property
    def _whole(self) -> tuple[Order, Sequence[int]]:
        """The order with all ways, and the place of each step in it."""
        order = self._between(0, self.step_count, ())
        places = [0] * self.step_count
        for place, each in enumerate(order):
            for number in range(*_steps_of(each)):
                places[number] = place
        return order, places

    def _between(self, start: int, stop: int, broken: Collection[tuple[int, Way]]) -> Order:
        """The order of some steps."""
        order: Order = []
        for number in range(start, stop):
            if number in self.calls and (number, Way.CODE) not in broken:
                first, end = self.calls[number]
                last = order[-1] if order and self._are_alike(number - 1, number) else None
                if isinstance(last, Run) and number - last.steps[0] < STRETCH:
                    order[-1] = Run((last.steps[0], number + 1), (last.calls[0], end))
                else:
                    order.append(Run((number, number + 1), (first, end)))
            elif number in self.arrays and (number, Way.NUMPY) not in broken:
                order.append(self.arrays[number])
            elif number in self.strips and (number, Way.STRIPS) not in broken:
                order.append(self.strips[number])
            else:
                order.append(number)
        return order

    def _are_alike(self, *numbers: int) -> bool:
        """Whether steps may be in one run."""
        if not self.refusing.keys().isdisjoint(numbers):
            return False
        return len({number in self.once for number in numbers}) == 1


def _steps_of(each: Run | ArrayForm | StripForm | int) -> tuple[int, int]:
    """The first step, and the one behind the last."""
    if isinstance(each, Run):
        return each.steps
    number = each if isinstance(each, int) else each.step
    return number, number + 1


def late_of(order: Order) -> list[int]:
    """Return the numbers of the steps that are no numbers."""
    return [each for each in order if isinstance(each, int)]
