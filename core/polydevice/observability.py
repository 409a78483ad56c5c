"""Followers for other people's tools: OpenTelemetry's spans and Prometheus' figures.

They need the extra ``polydevice[observability]``. For example::

    from polydevice.observability import PrometheusFigures

    executable.follow(PrometheusFigures())
    prometheus_client.start_http_server(9000)
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from polydevice.errors import OptionValueError, PolydeviceError
from polydevice.runtime.follower import Follower, Inference
from polydevice.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

BUCKETS_S = tuple(step * 10.0**power for power in range(-5, 2) for step in (1, 2, 5))
"""Upper bounds of a histogram's buckets: 10 µs to 50 s."""


def _shift_ns() -> int:
    """Return what the system's clock is ahead of the one that inferences are timed by.

    The pair that was read fastest tells it, as the thread may have to wait for a core in between.
    """
    found = []
    for _ in range(10):
        before, now, after = time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()
        found.append((after - before, now - (before + after) // 2))
    return min(found)[1]


class OpenTelemetrySpans(Follower):
    """A span for each inference, within the span that the thread is in which runs it.

    It is called "inference NAME", with the network, the device, the request and the time in the
    queue as attributes; one that failed has the exception and the status of an error.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """Begin.

        Args:
            provider: of OpenTelemetry; None for the global one.

        Raises:
            PolydeviceError: OpenTelemetry is not installed.
        """
        try:
            from opentelemetry import trace
        except ImportError as error:
            raise _missing("opentelemetry-api", error) from error
        self._tracer = trace.get_tracer("polydevice", __version__, provider)
        self._failed = trace.Status(trace.StatusCode.ERROR)
        self._shift_ns = _shift_ns()

    def inference(self, done: Inference) -> None:
        """Make a span with the times that the inference had."""
        attributes: dict[str, str | int | float] = {
            "polydevice.network": done.network,
            "polydevice.device": done.device,
            "polydevice.request": done.request,
        }
        if done.queued_ns is not None:
            attributes["polydevice.queue_ms"] = (done.start_ns - done.queued_ns) / 1e6
        span = self._tracer.start_span(
            f"inference {done.network}",
            start_time=done.start_ns + self._shift_ns,
            attributes=attributes,
        )
        if done.error is not None:
            span.record_exception(done.error)
            span.set_status(self._failed)
        span.end(done.end_ns + self._shift_ns)


class PrometheusFigures(Follower):
    """Histograms of the time of inferences and in the queue, and counters of those that failed.

    ``polydevice_inference_seconds`` and ``polydevice_queue_seconds`` have the labels `network` and
    `device`; ``polydevice_failures_total`` has `error` as well, the exception's class.
    """

    def __init__(
        self, registry: CollectorRegistry | None = None, buckets: Sequence[float] = BUCKETS_S
    ) -> None:
        """Register the figures; make one object for a process and let it follow all networks.

        Args:
            registry: of prometheus_client; None for the global one.
            buckets: upper bounds, in seconds, ascending.

        Raises:
            PolydeviceError: prometheus_client is not installed.
            OptionValueError: buckets are not ascending numbers, or the registry has such figures.
        """
        _check_buckets(buckets)
        try:
            from prometheus_client import REGISTRY, Counter, Histogram
        except ImportError as error:
            raise _missing("prometheus-client", error) from error
        labels = ["network", "device"]
        where = REGISTRY if registry is None else registry
        self._time = Histogram(
            "polydevice_inference_seconds",
            "Time of inferences on the device",
            labels,
            registry=None,
            buckets=buckets,
        )
        self._queue = Histogram(
            "polydevice_queue_seconds",
            "Time that asynchronous inferences waited for a thread",
            labels,
            registry=None,
            buckets=buckets,
        )
        self._failures = Counter(
            "polydevice_failures",
            "Inferences that failed or were cancelled",
            [*labels, "error"],
            registry=None,
        )
        _register(where, self._time, self._queue, self._failures)

    def inference(self, done: Inference) -> None:
        """Count an inference."""
        names = done.network, done.device
        if done.queued_ns is not None:
            self._queue.labels(*names).observe((done.start_ns - done.queued_ns) / 1e9)
        if done.error is None:
            self._time.labels(*names).observe((done.end_ns - done.start_ns) / 1e9)
        else:
            self._failures.labels(*names, type(done.error).__name__).inc()


def _check_buckets(buckets: Sequence[float]) -> None:
    try:
        bounds = [-math.inf, *buckets]
        ascending = len(bounds) > 1 and all(a < b for a, b in itertools.pairwise(bounds))
    except TypeError:
        ascending = False
    if not ascending:
        raise OptionValueError(
            f"buckets={buckets!r} is not possible; give ascending upper bounds in "
            "seconds, as in [0.001, 0.01, 0.1]"
        )


def _register(registry: CollectorRegistry, *figures: Collector) -> None:
    """Register all figures or, where one is there already, none."""
    with contextlib.ExitStack() as undone:
        for figure in figures:
            try:
                registry.register(figure)
            except ValueError as error:
                raise OptionValueError(
                    f"the registry has such figures already ({error}); let one PrometheusFigures "
                    "follow all networks of a process, or give another registry"
                ) from None
            undone.callback(registry.unregister, figure)
        undone.pop_all()


def _missing(package: str, error: ImportError) -> PolydeviceError:
    return PolydeviceError(
        f"{package} is not installed ({error}); pip install 'polydevice[observability]'"
    )
