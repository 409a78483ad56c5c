"""Followers for other people's tools: OpenTelemetry's spans and Prometheus' figures.

They need the extra ``polydevice[observability]``. For example::

    from polydevice.observability import PrometheusFigures

    executable.follow(PrometheusFigures())
    prometheus_client.start_http_server(9000)
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from polydevice.errors import PolydeviceError
from polydevice.runtime.follower import Follower, Inference

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

BUCKETS_S = tuple(step * 10.0**power for power in range(-5, 2) for step in (1, 2, 5))
"""Upper bounds of a histogram's buckets: 10 µs to 50 s."""


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
        from polydevice import __version__

        self._tracer = trace.get_tracer("polydevice", __version__, provider)
        self._failed = trace.Status(trace.StatusCode.ERROR)
        self._shift_ns = time.time_ns() - time.perf_counter_ns()

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
        """
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
            registry=where,
            buckets=buckets,
        )
        self._queue = Histogram(
            "polydevice_queue_seconds",
            "Time that asynchronous inferences waited for a thread",
            labels,
            registry=where,
            buckets=buckets,
        )
        self._failures = Counter(
            "polydevice_failures",
            "Inferences that failed or were cancelled",
            [*labels, "error"],
            registry=where,
        )

    def inference(self, done: Inference) -> None:
        """Count an inference."""
        names = done.network, done.device
        if done.queued_ns is not None:
            self._queue.labels(*names).observe((done.start_ns - done.queued_ns) / 1e9)
        if done.error is None:
            self._time.labels(*names).observe((done.end_ns - done.start_ns) / 1e9)
        else:
            self._failures.labels(*names, type(done.error).__name__).inc()


def _missing(package: str, error: ImportError) -> PolydeviceError:
    return PolydeviceError(
        f"{package} is not installed ({error}); pip install 'polydevice[observability]'"
    )
