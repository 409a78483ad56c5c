"""The measuring loops, and the statistics of what they saw."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from polydevice.benchmark.options.arguments import Limits
from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.executable_network import ExecutableNetwork
from polydevice.infer_request import InferRequest

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
        by_inputs: the times of inferences with each set of inputs, sorted; those of sets that
            differ in shape are worth a look.
        in_order: time of every inference, as they ended.
    """

    latencies_ms: tuple[float, ...]
    iterations: int
    duration_ms: float
    batch: int
    asynchronous: bool
    by_inputs: tuple[tuple[float, ...], ...] = ()
    in_order: tuple[float, ...] = ()

    def percentile(self, percent: int) -> float:
        """Return the nearest-rank percentile of the latency in milliseconds."""
        return nearest_rank(self.latencies_ms, percent)

    @property
    def throughput(self) -> float:
        """Items per second: measured when asynchronous, else from the median latency."""
        if self.asynchronous:
            return self.batch * self.iterations * 1e3 / self.duration_ms
        return self.batch * 1e3 / self.percentile(50)


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """Return the nearest-rank percentile of sorted values."""
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


class _Times:
    """The latencies of a loop, and by the set of inputs."""

    def __init__(self, sets: int) -> None:
        self.all: list[float] = []
        self.by_inputs: list[list[float]] = [[] for _ in range(sets)]

    def add(self, index: int, milliseconds: float) -> None:
        self.all.append(milliseconds)
        self.by_inputs[index].append(milliseconds)

    def statistics(self, start: float, batch: int, asynchronous: bool) -> Statistics:
        duration = (time.perf_counter() - start) * 1e3
        groups = tuple(tuple(sorted(times)) for times in self.by_inputs)
        return Statistics(
            *(tuple(sorted(self.all)), len(self.all), duration, batch, asynchronous, groups),
            in_order=tuple(self.all),
        )


def _keep_to_rate(rate: float, items: int, start: float) -> None:
    """Wait until so many items since the start are no more than the rate, if there is one."""
    if rate and (left := start + items / rate - time.perf_counter()) > 0:
        time.sleep(left)


def measure_sync(
    run: Callable[[Mapping[str, Array] | None], object],
    inputs: Sequence[Mapping[str, Array]],
    limits: Limits,
    batch: int,
    progress: Progress,
    *,
    fills: bool = True,
    rate: float = 0,
) -> Statistics:
    """Run one inference after another until the limits are reached.

    Args:
        run: infers, with these inputs or those it has.
        inputs: sets of inputs, used in turn.
        limits: when to end.
        batch: items per inference.
        progress: told how far it is.
        fills: whether inputs are handed over each time; else the first set, once.
        rate: the most items per second; 0 for any number.
    """
    times = _Times(len(inputs))
    if not fills:
        run(inputs[0])
    start = time.perf_counter()
    while not limits.are_reached(len(times.all), time.perf_counter() - start):
        number = len(times.all)
        index = number % len(inputs) if fills else 0
        _keep_to_rate(rate, number * batch, start)
        begin = time.perf_counter()
        run(inputs[index] if fills else None)
        times.add(index, (time.perf_counter() - begin) * 1e3)
        progress(_done(limits, number + 1, time.perf_counter() - start))
    return times.statistics(start, batch, False)


def measure_async(
    executable: ExecutableNetwork,
    inputs: Sequence[Mapping[str, Array]],
    limits: Limits,
    batch: int,
    progress: Progress,
    *,
    fills: bool = False,
    rate: float = 0,
) -> Statistics:
    """Keep every request busy until the limits are reached and each has run equally often.

    Args:
        executable: the network; its requests are used.
        inputs: sets of inputs, used in turn.
        limits: when to end.
        batch: items per inference.
        progress: told how far it is.
        fills: whether a request gets the next set before each inference; else every request keeps
            one, and the loop measures inference, not copying.
        rate: the most items per second; 0 for any number.
    """
    requests = executable.requests
    given = [index % len(inputs) for index in range(len(requests))]
    for request, index in zip(requests, given):
        _fill(request, inputs[index])
    times = _Times(len(inputs))
    started = [False] * len(requests)
    iterations = 0
    start = time.perf_counter()
    while not limits.are_reached(iterations, time.perf_counter() - start) or iterations % len(
        requests
    ):
        index = executable.get_idle_request_id()
        while index < 0:
            executable.wait(num_requests=1)
            index = executable.get_idle_request_id()
        request = requests[index]
        if started[index]:
            request.wait()  # raises what failed
            times.add(given[index], request.latency)
        _keep_to_rate(rate, iterations * batch, start)
        if fills:
            given[index] = iterations % len(inputs)
            _fill(request, inputs[given[index]])
        started[index] = True
        request.start_async()
        iterations += 1
        progress(_done(limits, iterations, time.perf_counter() - start))
    for request, used, index in zip(requests, started, given):
        if used:
            request.wait()
            times.add(index, request.latency)
    return times.statistics(start, batch, True)


def _fill(request: InferRequest, inputs: Mapping[str, Array]) -> None:
    for name, array in inputs.items():
        request.set_blob(name, array)


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
        _fill(request, inputs[index % len(inputs)])
        ready = time.perf_counter()
        outputs = request.infer()
        done = time.perf_counter()
        for array in outputs.values():
            array.copy()
        end = time.perf_counter()
        rows.append((ready - begin, done - ready, end - done))
    middle = [sorted(column)[len(rows) // 2] * 1e3 for column in zip(*rows)]
    return Phases(*middle)
