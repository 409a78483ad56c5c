"""Layout: where the elements of a value lie in memory.

A layout is one pitch per logical axis (the distance in elements between neighbours along it) and
the offset of the first element. That one form describes the planar order ``bfyx``, channels-last
``byxf``, and every view that costs nothing: transposes (permuted pitches), slices and parts of a
concatenation (an offset), reversals (negative pitches) and broadcasts (pitch 0).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
            a == b for a, b, n in zip(self.pitches, other.pitches, shape, strict=True) if n > 1
        )

    def is_dense(self, shape: Sizes) -> bool:
        """Whether the elements fill a range of memory without gaps or repetition."""
        used = sorted((p, n) for p, n in zip(self.pitches, shape, strict=True) if n > 1)
        expected = 1
        for pitch, size in used:
            if pitch != expected:
                return False
            expected *= size
        return True

    def order(self, shape: Sizes) -> tuple[int, ...]:
        """Return the axes from the outermost to the innermost in memory."""
        return tuple(
            sorted(range(len(shape)), key=lambda a: (-abs(self.pitches[a]), shape[a] == 1, a))
        )


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
    blocks: list[tuple[int, int]] = []  # (elements, pitch of the innermost)
    for size, pitch in zip(old, layout.pitches, strict=True):
        if size == 1:
            continue
        if blocks and blocks[-1][1] == pitch * size:
            blocks[-1] = (blocks[-1][0] * size, pitch)
        else:
            blocks.append((size, pitch))
    pitches = [0] * len(new)
    rest = list(reversed(blocks))
    left, step = rest.pop(0) if rest else (1, 1)
    for axis in range(len(new) - 1, -1, -1):
        size = new[axis]
        if size == 1:
            pitches[axis] = step
            continue
        if left == 1 and rest:
            left, step = rest.pop(0)
        if left % size:
            return None
        pitches[axis] = step
        left //= size
        step *= size
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
        0 if size == 1 and wanted != 1 else pitch
        for size, wanted, pitch in zip(shape, target[missing:], layout.pitches, strict=True)
    ]
    return Layout(tuple(pitches), layout.offset)


def collapse(axes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge (size, pitch) pairs, outermost first, that step through memory evenly."""
    blocks: list[tuple[int, int]] = []
    for size, pitch in axes:
        if size == 1:
            continue
        if blocks and blocks[-1][1] == pitch * size:
            blocks[-1] = (blocks[-1][0] * size, pitch)
        else:
            blocks.append((size, pitch))
    return blocks
