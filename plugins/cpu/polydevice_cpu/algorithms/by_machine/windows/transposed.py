"""Transposed convolutions along one axis: as many convolutions as positions lie between two steps.

Position r of every step is the sum of the source's positions times each step-th element of a
window, so that nothing is multiplied by the zeros that a transposed convolution puts between.
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
    """Positions of a result that lie a step apart.

    Attributes:
        first: the first one.
        pad: how far its window reaches over the beginning of the source.
        constants: what is read besides; the weights are those of this phase.
    """

    first: int
    pad: int
    constants: Constants


def phases(
    weights: Array, step: int, pad: int, others: Constants, pack: Callable[[Array], Array]
) -> list[Phase] | None:
    """Return the phases of a transposed convolution.

    Args:
        weights: [elements of a window, channels of the source, channels of the result]; of bytes,
            fours of these channels.
        step: between the windows of two positions of the source.
        pad: positions that are left out at the beginning of the result.
        others: what is read besides weights.
        pack: returns weights as they lie one behind the other.

    Returns:
        None where a position has nothing to read.
    """
    found = []
    for first in range(step):
        shift, tap = divmod(first + pad, step)
        own = weights[tap::step][::-1]
        if not len(own):
            return None
        constants = replace(others, weights=pack(own))
        found.append(Phase(first, len(own) - 1 - shift, constants))
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
        source: [N, C, W], whose channels lie next to each other.
        result: likewise.
        numbers: what these take.

    Returns:
        None where a window has nothing to read.
    """
    pictures, read, width = source
    _, channels, wide = result
    written, step, found = numbers.result * channels, len(given), []
    for first, pad, constants in given if wide >= step else given[:wide]:
        assert constants.weights is not None
        windows = Windows((len(constants.weights), 1), (1, 1), (0, 0), (pad, 0), is_depthwise=False)
        own = pictures, channels, -((first - wide) // step), 1
        measures = Measures.of((pictures, read, width, 1), own, windows, numbers)
        before, behind = [*measures.before], [*measures.behind]
        before[2], behind[1] = wide * written, step * written
        measures = measures._replace(before=tuple(before), behind=tuple(behind))
        calls = measures.told(cover_of(read, channels, windows, numbers))
        if calls is None:
            return None
        found.append((made, calls._replace(at=first * written), constants))
    return found
