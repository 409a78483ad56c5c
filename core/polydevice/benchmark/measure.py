"""The measuring loops, and the statistics of what they saw."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from polydevice.benchmark.arguments import Limits
from polydevice.dtype import Array
from polydevice.executable_network import ExecutableNetwork

Progress = Callable[[float], None]
"""Told how much of the work is done, from 0 to 1."""


@dataclass(frozen=True)
class Statistics:
    """What a measuring loop saw.

    Attributes:
        latencies_ms: time of every inference, sorted.
        iterations: number of inferences.
        duration_ms: time of the whole loop.
        batch: items per inference.
        asynchronous: whether several inferences ran at once.
    """

    latencies_ms: tuple[float, ...]
    iterations: int
    duration_ms: float
    batch: int
    asynchronous: bool

    def percentile(self, percent: int) -> float:
        """Return the nearest-rank percentile of the latency in milliseconds."""
        rank = math.ceil(len(self.latencies_ms) * percent / 100) - 1
        return self.latencies_ms[max(rank, 0)]

    @property
    def throughput(self) -> float:
        """Items per second: measured when asynchronous, else from the median latency."""
        if self.asynchronous:
            return self.batch * self.iterations * 1e3 / self.duration_ms
        return self.batch * 1e3 / self.percentile(50)


def measure_sync(
    run: Callable[[Mapping[str, Array]], object],
    inputs: Sequence[Mapping[str, Array]],
    limits: Limits,
    batch: int,
    progress: Progress,
) -> Statistics:
    """Call `run` on one set of inputs after another until the limits are reached."""
    latencies: list[float] = []
    start = time.perf_counter()
    while not _reached(limits, len(latencies), time.perf_counter() - start):
        begin = time.perf_counter()
        run(inputs[len(latencies) % len(inputs)])
        latencies.append((time.perf_counter() - begin) * 1e3)
        progress(_done(limits, len(latencies), time.perf_counter() - start))
    duration = (time.perf_counter() - start) * 1e3
    return Statistics(tuple(sorted(latencies)), len(latencies), duration, batch, False)


def measure_async(
    executable: ExecutableNetwork,
    inputs: Sequence[Mapping[str, Array]],
    limits: Limits,
    batch: int,
    progress: Progress,
) -> Statistics:
    """Keep every request busy until the limits are reached and each has run equally often.

    Inputs are set once and stay in the requests: the loop measures inference, not copying.
    """
    requests = executable.requests
    for index, request in enumerate(requests):
        for name, array in inputs[index % len(inputs)].items():
            request.set_blob(name, array)
    latencies: list[float] = []
    started = [False] * len(requests)
    iterations = 0
    start = time.perf_counter()
    while not _reached(limits, iterations, time.perf_counter() - start) or iterations % len(
        requests
    ):
        index = executable.get_idle_request_id()
        while index < 0:
            executable.wait(num_requests=1)
            index = executable.get_idle_request_id()
        if started[index]:
            requests[index].wait()  # raises what failed
            latencies.append(requests[index].latency)
        started[index] = True
        requests[index].start_async()
        iterations += 1
        progress(_done(limits, iterations, time.perf_counter() - start))
    for request, used in zip(requests, started):
        if used:
            request.wait()
            latencies.append(request.latency)
    duration = (time.perf_counter() - start) * 1e3
    return Statistics(tuple(sorted(latencies)), iterations, duration, batch, True)


def _reached(limits: Limits, iterations: int, seconds: float) -> bool:
    """Whether both limits are reached; with none of a kind, the other decides."""
    enough = limits.iterations is None or iterations >= limits.iterations
    late = limits.seconds is None or seconds >= limits.seconds
    return enough and late


def _done(limits: Limits, iterations: int, seconds: float) -> float:
    parts = []
    if limits.iterations is not None:
        parts.append(iterations / limits.iterations)
    if limits.seconds is not None:
        parts.append(seconds / limits.seconds)
    return min([1.0, *parts])


@dataclass(frozen=True)
class Phases:
    """Where the time of one whole request goes, in milliseconds (medians).

    Attributes:
        set_inputs: handing the inputs over, conversion and copy included.
        inference: running, upload and download included where the device has memory of its own.
        read_outputs: copying the outputs out.
    """

    set_inputs: float
    inference: float
    read_outputs: float


def measure_phases(
    executable: ExecutableNetwork, inputs: Sequence[Mapping[str, Array]], rounds: int = 20
) -> Phases:
    """Time the steps of a request separately."""
    request = executable.create_infer_request()
    rows: list[tuple[float, float, float]] = []
    for index in range(rounds):
        begin = time.perf_counter()
        for name, array in inputs[index % len(inputs)].items():
            request.set_blob(name, array)
        ready = time.perf_counter()
        outputs = request.infer()
        done = time.perf_counter()
        for array in outputs.values():
            array.copy()
        end = time.perf_counter()
        rows.append((ready - begin, done - ready, end - done))
    middle = [sorted(column)[len(rows) // 2] * 1e3 for column in zip(*rows)]
    return Phases(*middle)
