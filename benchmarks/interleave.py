"""Fair timing of several programs that do the same work: in turn, in changing order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

Run = Callable[[], object]


def interleave(
    runs: Mapping[str, Run],
    rounds: int = 9,
    block_ms: float = 60,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the median time of each program in milliseconds.

    Every round times a block of each program, forwards and backwards by turns, so that a slow
    moment of the machine, or a cache that a neighbour filled, meets all of them alike. The median
    of a block is robust against single interruptions, the median of rounds against slow blocks.

    Args:
        runs: name → what to time; each call is one inference.
        rounds: how many rounds count; one more before them warms up.
        block_ms: least time of one block.
        clock: gives seconds.
    """
    names = list(runs)
    medians: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(rounds + 1):
        for name in names if round_ % 2 else reversed(names):
            median = _block(runs[name], block_ms, clock)
            if round_:
                medians[name].append(median)
    return {name: float(np.median(values)) for name, values in medians.items()}


def _block(run: Run, block_ms: float, clock: Callable[[], float]) -> float:
    times: list[float] = []
    run()  # the first call after another program's block finds cold caches; it does not count
    begin = clock()
    while len(times) < 3 or (clock() - begin) * 1e3 < block_ms:
        start = clock()
        run()
        times.append((clock() - start) * 1e3)
    return float(np.median(times))


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean; the right average of ratios."""
    return float(np.exp(np.mean(np.log(values))))
