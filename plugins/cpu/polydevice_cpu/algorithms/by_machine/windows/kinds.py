"""Kinds of rows and columns: which elements of their windows are in the picture."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from polydevice.symbolic_size import decided, is_symbolic, is_within, largest, number_of, smallest

_Kind = tuple[int, int, int, int]
NUMBERS = 4
"""Numbers of a kind."""

BAND_BYTES, FEW_ROWS, MOST_BANDS = 1 << 19, 4, 16
"""How much of a source is read for all groups of channels before the rest, about; and how many rows
of the result that are at least, and how many such parts at most."""


class Kinds(NamedTuple):
    """What there is of rows or columns of a result.

    Attributes:
        numbers: the first place, how many there are, the first element of their windows that is in
            the picture, and the first behind it; for each kind, which may be of no places.
        size: how many kinds.
        elements: of the windows of all places, as far as they are in the picture.
    """

    numbers: tuple[int, ...]
    size: int
    elements: int

    @classmethod
    def of(cls, found: Sequence[_Kind]) -> Kinds:
        """Return kinds of places."""
        elements = sum(n * (end - begin) for _, n, begin, end in found)
        return cls(tuple(itertools.chain(*found)), len(found), elements)

    def bands(self, source_bytes: int) -> Kinds:
        """Return the same where those whose windows are whole are several kinds.

        All groups of channels of one are computed before the next one.

        Args:
            source_bytes: of all rows.
        """
        place, count, *rest = self.numbers[:NUMBERS]
        most = min(number_of(source_bytes) // BAND_BYTES, number_of(count) // FEW_ROWS, MOST_BANDS)
        if most < 2 or not is_within(most - count, 0):
            return self
        numbers = tuple[int, ...]()
        for part in range(most):
            first = count * part // most
            numbers += place + first, count * (part + 1) // most - first, *rest
        return Kinds(numbers + self.numbers[NUMBERS:], self.size + most - 1, self.elements)

    def parts(self, most: int) -> list[Kinds]:
        """Return up to so many parts of the places, of about as many elements each."""
        if any(map(is_symbolic, self.numbers)):
            return self._parts_of_middle(most)
        each, found = -(-self.elements // most), list[list[_Kind]]()
        left = 0
        for at in range(0, len(self.numbers), NUMBERS):
            place, count, begin, end = self.numbers[at : at + NUMBERS]
            while count:
                if left <= 0:
                    found.append([])
                    left = each
                taken = min(count, -(-left // (end - begin)))
                found[-1].append((place, taken, begin, end))
                left -= taken * (end - begin)
                place, count = place + taken, count - taken
        return [Kinds.of(part) for part in found]

    def _parts_of_middle(self, most: int) -> list[Kinds]:
        """The same of sizes that are formulas: so many parts of the places of the first kind.

        What is before these comes with the first part, and what is behind them with the last one.
        """
        (place, count, begin, end), *others = zip(*[iter(self.numbers)] * NUMBERS, strict=True)
        if number_of(count) <= 1 or not is_within(most - count, 0):
            return [self]
        found = []
        for part in range(most):
            first, behind = count * part // most, count * (part + 1) // most
            kinds = [(place + first, behind - first, begin, end)]
            if part == 0:
                kinds += [kind for kind in others if not is_symbolic(kind[0])]
            if part == most - 1:
                kinds += [kind for kind in others if is_symbolic(kind[0])]
            found.append(Kinds.of(kinds))
        return found


class _Ends(NamedTuple):
    """What there is at both ends of an axis of which the middle is whole.

    Attributes:
        first: numbers of kinds at the beginning.
        last: kinds at the end, whose places are counted from there.
        before, behind: how many places these are.
        elements: of their windows.
    """

    first: tuple[int, ...]
    last: Sequence[_Kind]
    before: int
    behind: int
    elements: int


def kinds_of(count: int, size: int, taps: int, step: int, left_out: int, pad: int) -> Kinds | None:
    """Places of an axis by whose windows reach over the same end equally far.

    Args:
        count: places.
        size: of the picture.
        taps: elements of a window.
        step: between two windows.
        left_out: elements between two of a window.
        pad: how far the first window reaches over the beginning.

    Returns:
        None where a window has nothing to read.
    """
    if count == 1 and not pad and not left_out and taps == size:  # of any size, a formula's too
        return Kinds((0, 1, 0, taps), 1, taps)
    is_open = is_symbolic(size) and not any(map(is_symbolic, (taps, step, left_out, pad)))
    if is_open and (found := _of_formulas(count, size, taps, step, left_out, pad)) is not None:
        return found
    reach = (taps - 1) * (left_out + 1) + 1
    if size >= reach:  # or a window reaches over both ends
        over = decided(largest([(count - 1) * step - pad + reach - size, 0]))
        ends = _ends(taps, step, left_out, pad, over)
        if ends is not None:
            first, last, before, behind, elements = ends
            middle = count - before - behind
            if middle > 0:
                numbers = before, middle, 0, taps, *first
                for place, places, begin, end in last:
                    numbers += count + place, places, begin, end
                return Kinds(numbers, len(numbers) // NUMBERS, elements + middle * taps)
    return _one_by_one(count, size, taps, step, left_out, pad)


def _of_formulas(
    count: int, size: int, taps: int, step: int, left_out: int, pad: int
) -> Kinds | None:
    """The same of sizes that are formulas, smaller than a window, too.

    How far the last windows reach over the end depends on the rest of a size by steps: each place
    at an end is a kind of its own, whether its window reaches over it or not, and of no places
    where there are fewer. Sizes that windows with gaps do not fit into are left to numbers.

    Returns:
        None where a window may have nothing to read.
    """
    gap = left_out + 1
    reach = (taps - 1) * gap + 1
    over = (count - 1) * step - pad + reach - size
    most = min(number_of(over) + step, reach) - 1 if is_symbolic(over) else over
    if not (0 <= pad < reach and most < reach and over <= most):
        return None
    before, behind = -(-pad // step), max(-(-most // step), 0)
    middle = count - before - behind
    if left_out and not (size >= reach and middle > 0):
        return None
    first = [(place, count - place, -((place * step - pad) // gap)) for place in range(before)]
    last = [(count + at, count + at - before + 1, 0) for at in range(-behind, 0)]
    found = [(before, middle if left_out else largest([middle, 0]), 0, taps)]
    for place, left, begin in (*first, *last):
        there = 1 if left_out else smallest([largest([left, 0]), 1])
        end = smallest([-((place * step - pad - size) // gap), taps])
        found.append((place, there, begin, taps if left_out and begin else end))
    return Kinds.of(found)


@lru_cache(maxsize=256)
def _ends(taps: int, step: int, left_out: int, pad: int, over: int) -> _Ends | None:
    """The ends of axes as of `kinds_of`; None where a window has nothing to read.

    Args:
        taps: as there.
        step: as there.
        left_out: as there.
        pad: as there.
        over: how far the last window reaches over the end.
    """
    before, behind = max(-(-pad // step), 0), max(-(-over // step), 0)
    reach = (taps - 1) * (left_out + 1) + 1
    count = before + 1 + behind  # with one place between them, whatever the size
    size = (count - 1) * step - pad + reach - over
    if size < reach:
        count += -(-(reach - size) // step)
        size = (count - 1) * step - pad + reach - over
    kinds = _one_by_one(count, size, taps, step, left_out, pad)
    if kinds is None:
        return None
    found = list(zip(*[iter(kinds.numbers)] * NUMBERS, strict=True))
    first = [kind for kind in found if kind[0] < before]
    last = [(at - count, n, begin, end) for at, n, begin, end in found if at >= count - behind]
    elements = kinds.elements - (count - before - behind) * taps
    return _Ends(tuple(itertools.chain(*first)), last, before, behind, elements)


@lru_cache(maxsize=256)
def _one_by_one(
    count: int, size: int, taps: int, step: int, left_out: int, pad: int
) -> Kinds | None:
    """The same, of axes of any size."""
    gap = left_out + 1

    def read(start: int) -> tuple[int, int]:
        """The elements of a window that are in the picture."""
        return max(0, -(start // gap)), min(taps, -((start - size) // gap))

    first = max(0, min(-(-pad // step), count))
    last = max(min((size - 1 - (taps - 1) * gap + pad) // step + 1, count), first)
    found = [(first, last - first, 0, taps)] if last > first else []
    for places in range(first), range(last, count):
        for (begin, end), alike in itertools.groupby(
            places, lambda place: read(place * step - pad)
        ):
            place, *others = alike
            found.append((place, 1 + len(others), begin, end))
    if any(begin >= end for _, _, begin, end in found):
        return None
    return Kinds.of(found)
