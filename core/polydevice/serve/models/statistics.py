"""Statistics: how many requests a model answered, and where their time went."""

from __future__ import annotations

import time
from bisect import bisect_left
from dataclasses import field

from polydevice.dataclass import dataclass
from polydevice.locks import Lock

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of the histogram of answering times."""


@dataclass
class Duration:
    """A number of events, and the time they took together."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int, count: int = 1) -> None:
        """Count events of so many nanoseconds each."""
        self.count += count
        self.ns += ns * count


@dataclass
class BatchTimes:
    """Where the time of batches of one size went."""

    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)


@dataclass(frozen=True)
class BatchRun:
    """One run of the network: items, and nanoseconds for assembling, inferring and dividing."""

    items: int
    input_ns: int
    infer_ns: int
    output_ns: int


@dataclass
class Statistics:
    """Counts of one model since it was loaded; every method may be called from any thread.

    Attributes:
        success: requests that were answered, with their whole time in the server.
        fail: those that were accepted and failed.
        refused: those that did not get into the queue.
        queue: waiting of requests until their batch began.
        batches: items → times of the batches of so many.
        last_ms: time of the last inference, in milliseconds since 1970; 0 before the first.
        histogram: answered requests by their time, up to each of `SECONDS` and beyond.
    """

    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    refused: int = 0
    queue: Duration = field(default_factory=Duration)
    requests: BatchTimes = field(default_factory=BatchTimes)
    batches: dict[int, BatchTimes] = field(default_factory=dict)
    items: int = 0
    runs: int = 0
    last_ms: int = 0
    histogram: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    lock: Lock = field(default_factory=Lock)

    def ran(self, run: BatchRun, queued_ns: list[int]) -> None:
        """Count one run, for requests that had waited so long."""
        with self.lock:
            self.items += run.items
            self.runs += 1
            self.last_ms = time.time_ns() // 1_000_000
            times = self.batches.setdefault(run.items, BatchTimes())
            for ns in queued_ns:
                self.queue.add(ns)
            for each, count in ((times, 1), (self.requests, len(queued_ns))):
                each.compute_input.add(run.input_ns, count)
                each.compute_infer.add(run.infer_ns, count)
                each.compute_output.add(run.output_ns, count)

    def answered(self, ns: int) -> None:
        """Count a request that ended well."""
        with self.lock:
            self.success.add(ns)
            self.histogram[bisect_left(SECONDS, ns / 1e9)] += 1

    def failed(self, ns: int) -> None:
        """Count a request that failed."""
        with self.lock:
            self.fail.add(ns)

    def refuse(self) -> None:
        """Count a request for which there was no room."""
        with self.lock:
            self.refused += 1

    def as_dict(self) -> dict[str, object]:
        """Return what the statistics extension of the protocol has."""
        with self.lock:
            nothing = {"count": 0, "ns": 0}
            return {
                "last_inference": self.last_ms,
                "inference_count": self.items,
                "execution_count": self.runs,
                "inference_stats": {
                    "success": vars(self.success).copy(),
                    "fail": vars(self.fail).copy(),
                    "queue": vars(self.queue).copy(),
                    **_times(self.requests),
                    "cache_hit": nothing,
                    "cache_miss": nothing,
                },
                "batch_stats": [
                    {"batch_size": size, **_times(self.batches[size])}
                    for size in sorted(self.batches)
                ],
            }


def _times(times: BatchTimes) -> dict[str, object]:
    return {name: vars(duration).copy() for name, duration in vars(times).items()}
