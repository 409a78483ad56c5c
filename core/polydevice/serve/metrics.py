"""Prometheus metrics of a server, read from the statistics that there are anyway."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from polydevice.serve.models.repository import Models
from polydevice.serve.models.statistics import SECONDS

CONTENT_TYPE = CONTENT_TYPE_LATEST
_LABELS = ("model", "version")


class _ModelMetrics(Collector):
    def __init__(self, models: Models) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "polydevice_requests", "Requests by how they ended.", labels=(*_LABELS, "outcome")
        )
        items = CounterMetricFamily("polydevice_items", "Items inferred.", labels=_LABELS)
        runs = CounterMetricFamily("polydevice_batches", "Runs of the network.", labels=_LABELS)
        phases = CounterMetricFamily(
            "polydevice_phase_seconds",
            "Time of requests by phase.",
            labels=(*_LABELS, "phase"),
        )
        waiting = GaugeMetricFamily("polydevice_queue", "Requests that wait.", labels=_LABELS)
        seconds = HistogramMetricFamily(
            "polydevice_request_seconds", "Time of a request in the server.", labels=_LABELS
        )
        for model in self._models:
            labels, found = (model.name, model.version), model.statistics
            with found.lock:
                requests.add_metric((*labels, "success"), found.success.count)
                requests.add_metric((*labels, "fail"), found.fail.count)
                requests.add_metric((*labels, "refused"), found.refused)
                items.add_metric(labels, found.items)
                runs.add_metric(labels, found.runs)
                phases.add_metric((*labels, "queue"), found.queue.ns / 1e9)
                for phase, duration in vars(found.requests).items():
                    phases.add_metric((*labels, phase), duration.ns / 1e9)
                total, buckets = 0, []
                for bound, count in zip((*SECONDS, float("inf")), found.histogram, strict=True):
                    total += count
                    buckets.append(("+Inf" if bound == float("inf") else str(bound), total))
                seconds.add_metric(labels, buckets, found.success.ns / 1e9)
            waiting.add_metric(labels, model.batcher.waiting)
        yield from (requests, items, runs, phases, waiting, seconds)


def registry_of(models: Models) -> CollectorRegistry:
    """Return a registry with the metrics of these models."""
    registry = CollectorRegistry()
    registry.register(_ModelMetrics(models))
    return registry


def text_of(registry: CollectorRegistry) -> bytes:
    """Return the metrics in Prometheus' text format."""
    return generate_latest(registry)
