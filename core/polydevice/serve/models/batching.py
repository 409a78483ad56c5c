"""Batcher: the queue of a model, and the threads that compute what waits there together."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import field

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.errors import PolydeviceError, RequestError
from polydevice.executable_network import ExecutableNetwork
from polydevice.infer_request import InferRequest
from polydevice.locks import Condition
from polydevice.serve.models.limits import Limits
from polydevice.serve.models.statistics import BatchRun, Statistics
from polydevice.serve.refusal import Reason, RefusedError

_log = logging.getLogger(__name__)

Outputs = dict[str, Array]

AFTER_ERROR = 0.1
"""Seconds that a thread rests after an error of its own, so that the log does not fill."""


@dataclass(eq=False)
class _Job:
    """A request that waits.

    Attributes:
        inputs: name → array.
        items: how many there are along the batch.
        kind: what must be equal for two requests to be computed together.
        end: when it is no longer worth computing, of ``time.perf_counter()``.
        begin: when it came, in nanoseconds of ``time.perf_counter_ns()``.
        future: gets the outputs.
    """

    inputs: Mapping[str, Array]
    items: int
    kind: tuple[tuple[int, ...], ...]
    end: float
    begin: int = field(default_factory=time.perf_counter_ns)
    future: Future[Outputs] = field(default_factory=Future)

    def fail(self, error: BaseException) -> None:
        with contextlib.suppress(InvalidStateError):  # answered, or cancelled meanwhile
            self.future.set_exception(error)


def planned_sizes(most: int) -> list[int]:
    """Return the batches that are computed: powers of two below the largest, and that."""
    sizes = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    return [*sizes, most]


class Batcher:
    """Gathers requests into batches, up to a size and a delay, and runs them.

    A batch is filled up to the next of `planned_sizes`, by items that it has, so that the device
    meets few shapes. A batch that fails is run again one by one, so that a request that cannot be
    computed does not take others with it. Nothing is run twice otherwise.
    """

    def __init__(
        self, name: str, executable: ExecutableNetwork, limits: Limits, statistics: Statistics
    ) -> None:
        """Start one thread for each request that is to run at a time.

        Args:
            name: of the model, for messages.
            executable: the network.
            limits: of the server.
            statistics: told of every run and request.
        """
        self._name = name
        self._limits = limits
        self._statistics = statistics
        self._sizes = planned_sizes(limits.max_batch)
        self._queue: deque[_Job] = deque()
        self._changed = Condition()
        self._closed = False
        number = limits.requests or executable.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
        requests = [executable.create_infer_request() for _ in range(number)]
        self._threads = [
            threading.Thread(target=self._work, args=(each,), name=f"serve-{name}-{i}", daemon=True)
            for i, each in enumerate(requests)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    def submit(self, inputs: Mapping[str, Array], seconds: float | None = None) -> Future[Outputs]:
        """Queue a request; the future gets its outputs: name → array of its own.

        Args:
            inputs: name → array, which fits.
            seconds: how long the answer is of use; the server's limit if that is less.

        Raises:
            RefusedError: the queue is full, or the server is ending.
        """
        batched = self._limits.max_batch > 1
        items = len(next(iter(inputs.values()))) if batched else 1
        kind = tuple(array.shape[1:] for array in inputs.values()) if batched else ()
        most = self._limits.request_seconds
        job = _Job(inputs, items, kind, time.perf_counter() + min(seconds or most, most))
        with self._changed:
            if self._closed:
                raise RefusedError(Reason.ENDING, "the server is ending; ask another one")
            if len(self._queue) >= self._limits.queue:
                self._statistics.refuse()
                raise RefusedError(
                    Reason.BUSY,
                    f"{len(self._queue)} requests of model {self._name!r} wait already, "
                    "which is the limit; try again later",
                )
            self._queue.append(job)
            self._changed.notify()
        return job.future

    def flush(self) -> None:
        """Take no more requests, and let those that wait for others wait no longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self, end: float) -> None:
        """Take no more requests, and answer those that wait until `end`, of ``time.monotonic()``.

        What is left then is refused.
        """
        self.flush()
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))
        with self._changed:
            left = list(self._queue)
            self._queue.clear()
        for job in left:
            job.fail(RefusedError(Reason.ENDING, "the server has ended; ask another one"))

    # -- gathering ----------------------------------------------------------------------------

    def _take(self) -> list[_Job]:
        """Wait for a batch; empty when there will be none."""
        with self._changed:
            while True:
                self._drop_late()
                if not self._queue:
                    if self._closed:
                        return []
                    self._changed.wait()
                    continue
                jobs, full = self._gather()
                delay = self._limits.max_delay_ms / 1e3
                left = self._queue[0].begin / 1e9 + delay - time.perf_counter_ns() / 1e9
                if full or self._closed or left <= 0:
                    for job in jobs:
                        self._queue.remove(job)
                    return [job for job in jobs if job.future.set_running_or_notify_cancel()]
                self._changed.wait(left)

    def _gather(self) -> tuple[list[_Job], bool]:
        """Return the first request and those that go with it, and whether no more would."""
        first, most = self._queue[0], self._limits.max_batch
        if most == 1:
            return [first], True
        jobs: list[_Job] = []
        items = 0
        for job in self._queue:
            if job.kind != first.kind:
                continue
            if items + job.items > most:
                return jobs, True
            jobs.append(job)
            items += job.items
        return jobs, items == most

    def _drop_late(self) -> None:
        """Answer the first ones for which it is too late; others are looked at in their turn."""
        now = time.perf_counter()
        while self._queue and (self._queue[0].end < now or self._queue[0].future.cancelled()):
            job = self._queue.popleft()
            self._statistics.failed(time.perf_counter_ns() - job.begin)
            job.fail(RefusedError(Reason.TIMEOUT, "the request waited in the queue for too long"))

    # -- computing ----------------------------------------------------------------------------

    def _work(self, request: InferRequest) -> None:
        while True:
            try:
                jobs = self._take()
                if jobs:
                    self._answer(request, jobs)
                    del jobs
                    continue
            except BaseException:  # noqa: BLE001 - the model would be answered by no one
                _log.exception("a thread of model %r goes on after an error", self._name)
                time.sleep(AFTER_ERROR)
            with self._changed:
                if self._closed and not self._queue:
                    return

    def _answer(self, request: InferRequest, jobs: list[_Job]) -> None:
        try:
            self._run(request, jobs)
        except PolydeviceError as error:
            if len(jobs) == 1:
                self._give_up(jobs, error)
            else:
                self._run_alone(request, jobs)
        except BaseException as error:  # noqa: BLE001 - the client is told; the thread lives on
            self._give_up(jobs, error)

    def _run_alone(self, request: InferRequest, jobs: list[_Job]) -> None:
        for job in jobs:
            try:
                self._run(request, [job])
            except BaseException as error:  # noqa: BLE001 - the client is told
                self._give_up([job], error)

    def _give_up(self, jobs: list[_Job], error: BaseException) -> None:
        trace = None if isinstance(error, RequestError) else error
        _log.warning(
            "%d requests of model %r failed: %s", len(jobs), self._name, error, exc_info=trace
        )
        for job in jobs:
            self._statistics.failed(time.perf_counter_ns() - job.begin)
            job.fail(error)

    def _run(self, request: InferRequest, jobs: list[_Job]) -> None:
        begin = time.perf_counter_ns()
        items = sum(job.items for job in jobs)
        inputs = self._assembled(jobs, items)
        ready = time.perf_counter_ns()
        outputs = request.infer(inputs)
        inferred = time.perf_counter_ns()
        answers = self._divided(jobs, outputs)
        end = time.perf_counter_ns()
        run = BatchRun(items, ready - begin, inferred - ready, end - inferred)
        self._statistics.ran(run, [begin - job.begin for job in jobs])
        for job, answer in zip(jobs, answers, strict=True):
            self._statistics.answered(end - job.begin)
            job.future.set_result(answer)

    def _assembled(self, jobs: list[_Job], items: int) -> Mapping[str, Array]:
        if self._limits.max_batch == 1:
            return jobs[0].inputs
        planned = next(size for size in self._sizes if size >= items)
        if len(jobs) == 1 and planned == items:
            return jobs[0].inputs
        inputs: dict[str, Array] = {}
        for name in jobs[0].inputs:
            parts = [job.inputs[name] for job in jobs]
            filling = [parts[-1][-1:]] * (planned - items)
            inputs[name] = np.concatenate([*parts, *filling])
        return inputs

    def _divided(self, jobs: list[_Job], outputs: Outputs) -> list[Outputs]:
        if self._limits.max_batch == 1:
            return [{name: array.copy() for name, array in outputs.items()}]
        answers, at = [], 0
        for job in jobs:
            part = slice(at, at + job.items)
            answers.append({name: array[part].copy() for name, array in outputs.items()})
            at = part.stop
        return answers
