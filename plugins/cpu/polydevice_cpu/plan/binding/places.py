"""Memory that inputs and outputs keep in a plan bound by a request, or running within others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from polydevice.blob import Blob
from polydevice.dtype import Array
from polydevice_cpu.onednn.engine import address_of

if TYPE_CHECKING:
    from polydevice_cpu.plan.binding.bound import BoundPlan

SMALL_BYTES = 1 << 16
"""Up to this size an array is copied, in 0.2 to 2 µs: to point a plan to others takes 2 to 8."""


_NOTHING: Array = np.empty(0)


@dataclass
class OwnPlaces:
    """Memory of their own that small inputs, and outputs, of a request keep in a bound plan.

    When the shapes come back nothing but large inputs is pointed to other memory: 1 instead of 8 µs
    for each input and output, and where 30 shapes take turns, 3 instead of 20.

    Attributes:
        small: numbers of the inputs that are copied.
        large: of those that are read where they are.
        outputs: number, key and memory of those that the plan computes.
        names: where in the plan inputs and outputs are, by key; see `CpuRunner.bind`.
        is_current: whether the plan writes its outputs there.
    """

    small: Sequence[int]
    large: Sequence[int]
    outputs: Sequence[tuple[int, str, Blob]]
    names: dict[str, tuple[int, bool, tuple[int, ...]]]
    is_current: bool = True

    def __post_init__(self) -> None:
        """Note where outputs begin and end."""
        arrays = [blob.array for _, _, blob in self.outputs if not blob.array.dtype.hasobject]
        self._spans = [(address_of(array), address_of(array) + array.nbytes) for array in arrays]

    def shares(self, arrays: Sequence[Array]) -> bool:
        """Whether an input, which has no gaps, lies where an output is written.

        The user may hand over what an earlier inference returned, and goes on having it.
        """
        for array in arrays:
            begin = address_of(array)
            end = begin + array.nbytes
            for first, last in self._spans:
                if begin < last and first < end:
                    return True
        return False


class _Copied:
    """A small input: copied to its place, or read where it is while it is the same array.

    What lies in the arena of the plan around is the same one in each inference: to copy 36 KB takes
    2 to 3 µs. One that changes is copied from then on.
    """

    __slots__ = ("_before", "index", "is_steady", "place", "read")

    def __init__(self, index: int, place: Array) -> None:
        self.index, self.place = index, place
        self.read: Array = place
        """The array that the plan reads."""
        self.is_steady = True
        """Whether it may be the same array again and again."""
        self._before = 0  # `id` of the last one, which may be gone

    def take(self, bound: BoundPlan, array: Array) -> None:
        """Let the plan read an array that it does not read as yet."""
        is_same, self._before = id(array) == self._before, id(array)
        if self.read is not self.place:
            self.point(bound)
            self.is_steady = False
        elif is_same and array.flags.c_contiguous:
            bound.set_input(self.index, array)
            self.read = array
            return
        self.place[...] = array

    def point(self, bound: BoundPlan) -> None:
        """Let the plan read the place."""
        bound.set_input(self.index, self.place)
        self.read = self.place


class Places:
    """Where the inputs of a bound plan are put, and where it writes its outputs.

    Bodies and what follows sizes that only data tells get other arrays every time, mostly.
    """

    __slots__ = ("_copied", "_kept", "_made", "_nothing", "_pointed")

    def __init__(self, bound: BoundPlan, inputs: Sequence[Array]) -> None:
        """Point a bound plan to memory for what is small of inputs like these, and its outputs."""
        plan = bound.plan
        self._copied: list[_Copied] = []
        self._pointed: list[int] = []
        for index, array in enumerate(inputs):
            place = _place(array.shape, array.dtype) if index in plan.read else None
            if place is not None:
                self._copied.append(_Copied(index, place))
            elif index in plan.read:
                self._pointed.append(index)
        self._kept: list[tuple[int, Array]] = []
        self._made: list[tuple[int, tuple[int, ...], np.dtype[Any]]] = []
        for index in plan.whole_outputs:
            place = _place(*plan.results[index])
            if place is None:
                self._made.append((index, *plan.results[index]))
            else:
                self._kept.append((index, place))
        self._nothing = [_NOTHING] * len(plan.results)
        self.point(bound)

    def point(self, bound: BoundPlan) -> None:
        """Point the bound plan to this memory."""
        for each in self._copied:
            each.point(bound)
        for index, place in self._kept:
            bound.set_output(index, place)
        bound.lacks_arrays = False

    def run(self, bound: BoundPlan, inputs: Sequence[Array]) -> list[Array]:
        """Run the bound plan on these values; the outputs are new arrays."""
        for each in self._copied:
            array = inputs[each.index]
            if not each.is_steady:
                each.place[...] = array
            elif array is not each.read:
                each.take(bound, array)
        held = []  # the plan has addresses alone: who holds a copy until it has run is this
        for index in self._pointed:
            array = inputs[index]
            if not array.flags.c_contiguous:
                array = np.ascontiguousarray(array)
                held.append(array)
            bound.set_input(index, array)
        outputs = self._nothing[:]
        for index, shape, dtype in self._made:
            outputs[index] = array = np.empty(shape, dtype)
            bound.set_output(index, array)
        bound.run()
        for index, place in self._kept:
            outputs[index] = place.copy()
        if bound.tail_outputs:
            for index, array in bound.tail_outputs.items():
                outputs[index] = array
        return outputs


def is_small(array: Array) -> bool:
    """Whether to copy an input takes less than to point a plan to it."""
    return array.nbytes <= SMALL_BYTES and not array.dtype.hasobject


def _place(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array | None:
    """Memory for a small value; None for a larger one, and for strings and the like."""
    if dtype.hasobject:
        return None
    small = math.prod(shape) * dtype.itemsize <= SMALL_BYTES
    return np.empty(shape, dtype) if small else None
