"""Whether choices of a tuning file are faster than those without tuning, timed in turn."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from polydevice_gpu.kernels.kernel import Choice
from polydevice_gpu.tuning.candidate_runner import Outcome, agrees

_PAIRS = 11
"""So often both are timed."""

_GAIN = 0.97
"""What is faster takes less than this part of the other's time, by medians."""

_WINS = 0.75
"""And is the shorter one in so many of the pairs."""

Run = Callable[[Choice], Outcome | None]
"""Computes a layer in some way; None when that fails."""


def time_in_turn(default: Choice, choice: Choice, run: Run) -> tuple[int, int, bool]:
    """Time two ways of computing a layer by turns.

    Args:
        default: the way without tuning.
        choice: the file's way.
        run: runs a way several times, and gives the best time and what it computed.

    Returns:
        The medians of both in nanoseconds, and whether the file's way is faster. It is not where
        one of them fails, or what they compute does not agree.
    """
    pairs = []
    for turn in range(_PAIRS):
        order = (default, choice) if turn % 2 else (choice, default)
        found = {str(way): run(way) for way in order}
        before, after = found[str(default)], found[str(choice)]
        if before is None or after is None or not _agree(before, after):
            return 0, 0, False
        pairs.append((before.time_ns, after.time_ns))
    before_ns, after_ns = (round(median(times)) for times in zip(*pairs, strict=True))
    wins = sum(after < before for before, after in pairs)
    return before_ns, after_ns, after_ns < _GAIN * before_ns and wins >= _WINS * _PAIRS


def _agree(one: Outcome, other: Outcome) -> bool:
    return all(agrees(a, b) for a, b in zip(one.outputs, other.outputs, strict=True))
