"""What a device reports while it tunes kernels: log records that carry a `TunedLayer`.

A device that tunes logs one record per layer to `LOGGER`, with the layer as ``record.tuned``;
``polydevice tune`` shows them as progress and as a table.
"""

from __future__ import annotations

import logging

from polydevice.dataclass import dataclass

LOGGER = logging.getLogger("polydevice.tuning")


@dataclass(frozen=True)
class TunedLayer:
    """What tuning one layer gave.

    Attributes:
        name: the layer.
        number: its place among those to tune, from 1.
        count: how many there are.
        candidates: how many ways of computing it were timed.
        rejected: how many gave other results than the reference, or did not build.
        default: the choice without tuning, and its time.
        best: the choice that is kept, and its time.
        skipped: why nothing was timed; empty when it was.
    """

    name: str
    number: int
    count: int
    candidates: int = 0
    rejected: int = 0
    default: str = ""
    default_ns: int = 0
    best: str = ""
    best_ns: int = 0
    skipped: str = ""

    def __str__(self) -> str:
        if self.skipped:
            return f"{self.number}/{self.count} {self.name}: {self.skipped}"
        return (
            f"{self.number}/{self.count} {self.name}: {self.default} {self.default_ns / 1e3:.1f} µs"
            f" → {self.best} {self.best_ns / 1e3:.1f} µs, best of {self.candidates}"
        )


def report(layer: TunedLayer) -> None:
    """Log a layer."""
    LOGGER.info("%s", layer, extra={"tuned": layer})
