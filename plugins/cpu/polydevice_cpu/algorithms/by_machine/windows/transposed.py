"""Transposed convolutions: as many convolutions as positions lie between two steps.

Position r of every step is the sum of the source's positions times each step-th element of a
window, so that nothing is multiplied by the zeros that a transposed convolution puts between. Over
two axes there are as many for each position of a step along either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from polydevice.dtype import Array
from polydevice_cpu.algorithms.by_machine.windows.covers import (
    FLOATS,
    Numbers,
    Shape,
    Windows,
    cover_of,
)
from polydevice_cpu.algorithms.by_machine.windows.sums import (
    Constants,
    Functions,
    Measures,
    TileCalls,
)


class Phase(NamedTuple):
    """Positions of a result that lie a step apart, along two axes.

    Attributes:
        first: the first one, by axis.
        steps: between two, likewise.
        sizes: of its window.
        pads: how far that reaches over the beginning of the source.
        constants: what is read besides; the weights are those of this phase.
    """

    first: Shape
    steps: Shape
    sizes: Shape
    pads: Shape
    constants: Constants


class _Taps(NamedTuple):
    """What a phase reads along one axis: elements of a window, from which on, and how far before.

    Attributes:
        first: the first position.
        elements: of the window, backwards.
        pad: see `Phase`.
    """

    first: int
    elements: range
    pad: int


def _taps(size: int, step: int, pad: int) -> list[_Taps]:
    """Return those of each phase of an axis."""
    found = []
    for first in range(step):
        shift, tap = divmod(first + pad, step)
        elements = range(tap, size, step)
        found.append(_Taps(first, elements[::-1], len(elements) - 1 - shift))
    return found


def phases(
    weights: Array,
    steps: Shape,
    pads: Shape,
    others: Constants,
    pack: Callable[[Array], Array],
) -> list[Phase] | None:
    """Return the phases of a transposed convolution.

    Args:
        weights: [rows and columns of a window, channels of the source, channels of the result]; of
            bytes, fours of these channels.
        steps: between the windows of two positions of the source, by axis.
        pads: positions that are left out at the beginning of the result.
        others: what is read besides weights.
        pack: returns weights as they lie one behind the other.

    Returns:
        None where a position has nothing to read.
    """
    sides = zip(weights.shape[:2], steps, pads, strict=True)
    down, along = (_taps(size, step, pad) for size, step, pad in sides)
    found = []
    for row in down:
        for column in along:
            own = weights[list(row.elements)][:, list(column.elements)]
            if not own.size:
                return None
            constants = replace(others, weights=pack(own))
            first, reach = (row.first, column.first), (row.pad, column.pad)
            found.append(Phase(first, steps, own.shape[:2], reach, constants))
    return found


def calls_of_phases(
    made: Functions,
    given: Sequence[Phase],
    source: Shape,
    result: Shape,
    numbers: Numbers = FLOATS,
) -> list[tuple[Functions, TileCalls, Constants]] | None:
    """Return what computes each phase, for `code_of_all`.

    Args:
        made: functions of tiles.
        given: all phases.
        source: [N, C, H, W], or [N, C, W] of windows of one column, whose channels lie next to each
            other.
        result: likewise.
        numbers: what these take.

    Returns:
        None where a window has nothing to read.
    """
    source, result = ((*each, 1) if len(each) == 3 else each for each in (source, result))
    pictures, channels, high, wide = result
    written, found = numbers.result * channels, []
    for (row, column), (down, along), sizes, pads, constants in given:
        if not (high > row and wide > column):
            continue
        windows = Windows(sizes, (1, 1), (0, 0), pads, is_depthwise=False)
        own = pictures, channels, -((row - high) // down), -((column - wide) // along)
        measures = Measures.of(source, own, windows, numbers)
        before, behind = [*measures.before], [*measures.behind]
        before[2] = high * wide * written
        behind[1], behind[3] = down * wide * written, along * written
        measures = measures._replace(before=tuple(before), behind=tuple(behind))
        calls = measures.told(cover_of(source[1], channels, windows, numbers))
        if calls is None:
            return None
        at = (row * wide + column) * written
        found.append((made, calls._replace(at=at), constants))
    return found
