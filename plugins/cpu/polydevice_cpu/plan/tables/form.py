"""TableForm: what plans of a template for a class of sizes have in common, besides numbers."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.plan.binding.stretches import STRETCH
from polydevice_cpu.plan.value import Kind, Storage, Value

if TYPE_CHECKING:
    from polydevice_cpu.plan.filling.recipe import ValueForm  # 1 MB, for open sizes alone

NOTHING, TABLE, ARENA = 0, 1, 2
"""Numbers of homes that every table has: of plain numbers, the table itself, and the arena."""


class Home(NamedTuple):
    """What an address is counted from.

    Attributes:
        kind: of the storage.
        number: of the input or output, or of the storage that is kept.
        constant: it, for these.
    """

    kind: Kind
    number: int = 0
    constant: Storage | None = None


class Run(NamedTuple):
    """Steps one after the other that machine code computes.

    Attributes:
        steps: numbers of the first step, and of the one behind the last.
        calls: the first of their calls in the table, and the one behind the last.
    """

    steps: tuple[int, int]
    calls: tuple[int, int]


class ArrayForm(NamedTuple):
    """A step that NumPy computes, which writes its result itself.

    Attributes:
        step: its number.
        at: which it is of such steps.
        homes: where what it reads, and in the end what it writes, is: number of a home, and type.
    """

    step: int
    at: int
    homes: Sequence[tuple[int, np.dtype[Any]]]


class StripForm(NamedTuple):
    """A step in strips.

    Attributes:
        step: its number.
        at: which it is of such steps.
        key: see `StripCut`.
        homes: of what it reads and writes, by index on execution.
        constants: by index on execution: what stays as it is.
        packed: the index of a constant that is packed as the strips want it, and how it is made.
        whole: layouts of what may be one for all positions, by index on execution.
    """

    step: int
    at: int
    key: Any
    homes: Mapping[int, int]
    constants: Mapping[int, Value]
    packed: tuple[int, ValueForm] | None
    whole: Mapping[int, Descriptor]


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
        step_count: how many steps there are.
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
    step_count: int
    alive: Sequence[object]

    def order(self, late: Container[int]) -> list[Run | ArrayForm | StripForm | int]:
        """Return the steps: runs of code, those by NumPy or in strips, and numbers of others.

        Args:
            late: numbers of the steps that are no numbers.
        """
        order: list[Run | ArrayForm | StripForm | int] = []
        for number in range(self.step_count):
            if number in late:
                order.append(number)
            elif number in self.arrays:
                order.append(self.arrays[number])
            elif number in self.strips:
                order.append(self.strips[number])
            else:
                first, end = self.calls[number]
                last = order[-1] if order else None
                if isinstance(last, Run) and number - last.steps[0] < STRETCH:
                    order[-1] = Run((last.steps[0], number + 1), (last.calls[0], end))
                else:
                    order.append(Run((number, number + 1), (first, end)))
        return order
