"""Layout: where the elements of a value lie in memory.

A layout is one pitch per logical axis (the distance in elements between neighbours along it) and
the offset of the first element. That one form describes the planar order ``bfyx``, channels-last
``byxf``, and every view that costs nothing: transposes (permuted pitches), slices and parts of a
concatenation (an offset), reversals (negative pitches) and broadcasts (pitch 0).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from polydevice.dataclass import dataclass
from polydevice.shape import happen_to_be_equal, is_one, places_in_order
from polydevice.symbolic_size import is_symbolic, unlike

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Pitches and offset of a value, in elements.

    Attributes:
        pitches: distance between neighbours along each logical axis; may be 0 or negative.
        offset: position of the element whose coordinates are all 0.
    """

    pitches: tuple[int, ...]
    offset: int = 0

    def named(self, shape: Sizes) -> str:
        """Name the layout of a value of `shape`: "bfyx", "byxf" … or "strided"."""
        letters = _LETTERS.get(len(shape))
        if letters is None:
            return "planar" if self == planar(shape) else "strided"
        for order in (tuple(range(len(shape))), channels_last_order(len(shape))):
            if self.same_as(ordered(shape, order), shape):
                return "".join(letters[axis] for axis in order)
        return "strided"

    def same_as(self, other: Layout, shape: Sizes) -> bool:
        """Whether both place the elements of a value of `shape` alike, offsets aside.

        Axes of size 1 have no neighbours, so their pitches do not matter.
        """
        return all(
            happen_to_be_equal(a, b)
            for a, b, n in zip(self.pitches, other.pitches, shape, strict=True)
            if is_symbolic(n) or n > 1
        )

    def is_dense(self, shape: Sizes) -> bool:
        """Whether the elements fill a range of memory without gaps or repetition."""
        sizes = zip(self.pitches, shape, strict=True)
        used = [(pitch, n) for pitch, n in sizes if is_symbolic(n) or n > 1]
        # Equal pitches are those of an axis and one of size 1, which mostly lies within it.
        used.reverse()
        expected = 1
        for place in places_in_order([pitch for pitch, _ in used]):
            pitch, size = used[place]
            if not happen_to_be_equal(pitch, expected):
                return False
            expected *= size
        return True

    def order(self, shape: Sizes) -> tuple[int, ...]:
        """Return the axes from the outermost to the innermost in memory."""
        axes = sorted(range(len(shape)), key=lambda a: (is_one(shape[a]), a), reverse=True)
        places = places_in_order([abs(self.pitches[axis]) for axis in axes])
        return tuple(axes[place] for place in reversed(places))


_LETTERS = {3: "bfx", 4: "bfyx", 5: "bfzyx"}


def ordered(shape: Sequence[int], order: Sequence[int]) -> Layout:
    """Lay out a value without gaps, axes from outermost to innermost as `order` says."""
    pitches = [0] * len(shape)
    pitch = 1
    for axis in reversed(order):
        pitches[axis] = pitch
        pitch *= max(shape[axis], 1)
    return Layout(tuple(pitches))


def planar(shape: Sequence[int]) -> Layout:
    """Lay out a value in the order of its axes, the last one contiguous."""
    return ordered(shape, range(len(shape)))


def channels_last_order(rank: int) -> tuple[int, ...]:
    """Return the order batch, space, channels."""
    return (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))


def channels_last(shape: Sequence[int]) -> Layout:
    """Lay out a value with its channels (axis 1) contiguous."""
    return ordered(shape, channels_last_order(len(shape)))


def reshaped(layout: Layout, old: Sizes, new: Sizes) -> Layout | None:
    """Return the layout that shows the same elements, in row-major order, as shape `new`.

    None when no pitches can do that and the elements have to be copied.
    """
    if math.prod(old) == 0:
        return planar(new)
    # Axes that are contiguous with one another form blocks; each block must be cut up on its own.
    # Their sizes are kept apart: what is cut as it was says nothing of a size that varies.
    rest: list[tuple[list[int], int]] = []  # (sizes, pitch of the innermost)
    for size, pitch in zip(old, layout.pitches, strict=True):
        if is_one(size):
            continue
        if rest and happen_to_be_equal(rest[-1][1], pitch * size):
            rest[-1] = ([*rest[-1][0], size], pitch)
        else:
            rest.append(([size], pitch))
    pitches = [0] * len(new)
    left, step = rest.pop() if rest else ([], 1)
    for axis in range(len(new) - 1, -1, -1):
        size = new[axis]
        if is_one(size):
            pitches[axis] = step
            continue
        if not left and rest:
            left, step = rest.pop()
        pitches[axis] = step
        step *= size
        while left and not is_symbolic(left[-1]) and not is_symbolic(size) and not size % left[-1]:
            size //= left.pop()
        if left and left[-1] is size:
            left.pop()
        elif not is_one(size):
            elements = math.prod(left[1:], start=left[0]) if left else 1
            if not happen_to_be_equal(elements % size, 0):
                return None
            quotient = elements // size
            left = (
                [] if is_one(quotient) or (rest and happen_to_be_equal(quotient, 1)) else [quotient]
            )
    return Layout(tuple(pitches), layout.offset)


def transposed(layout: Layout, order: Sequence[int]) -> Layout:
    """Return the layout of the transpose whose axis i is axis ``order[i]``."""
    return Layout(tuple(layout.pitches[axis] for axis in order), layout.offset)


def sliced(layout: Layout, starts: Sequence[int], steps: Sequence[int] | None = None) -> Layout:
    """Return the layout of a slice that begins at `starts`; steps may be negative."""
    offset = layout.offset + sum(s * p for s, p in zip(starts, layout.pitches, strict=True))
    if steps is None:
        return Layout(layout.pitches, offset)
    return Layout(tuple(p * s for p, s in zip(layout.pitches, steps, strict=True)), offset)


def broadcast(layout: Layout, shape: Sizes, target: Sizes) -> Layout:
    """Return the layout in which a value of `shape` repeats to fill `target` (NumPy's rule)."""
    missing = len(target) - len(shape)
    pitches = [0] * missing + [
        0 if (is_one(size) and not is_one(wanted)) or (size != wanted and size == 1) else pitch
        for size, wanted, pitch in zip(shape, target[missing:], layout.pitches, strict=True)
    ]
    return Layout(tuple(pitches), layout.offset)


def collapse(axes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge (size, pitch) pairs, outermost first, that step through memory evenly.

    What is made for a pitch that is neither 0 nor 1 is right for these, too, which it may be where
    another size is 1; so a plan with formulas notes nothing where it is neither.
    """
    blocks: list[tuple[int, int]] = []
    for size, pitch in axes:
        if is_one(size):
            continue
        if blocks and happen_to_be_equal(blocks[-1][1], pitch * size):
            blocks[-1] = (blocks[-1][0] * size, pitch)
        else:
            blocks.append((size, pitch))
    return [(size, unlike(pitch, 0, 1)) for size, pitch in blocks]
