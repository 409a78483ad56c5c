"""LayerTimes: how long the nodes of a plan take."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polydevice_gpu.graph import GpuNode

if TYPE_CHECKING:
    from polydevice_gpu import cl


@dataclass(frozen=True)
class NodeTime:
    """Time of a node in one inference, or on average, in microseconds.

    Attributes:
        device_us: in which it was computed: by its launches, or by the host.
        cpu_us: that the host took to enqueue its launches, or to compute it.
    """

    device_us: float = 0
    cpu_us: float = 0

    @classmethod
    def of(cls, launches: Iterable[cl.LaunchTime]) -> NodeTime:
        """Add the times of a node's launches up."""
        device_ns = host_ns = 0
        for launch in launches:
            device_ns += launch.duration_ns
            host_ns += launch.enqueuing_ns
        return cls(device_ns / 1e3, host_ns / 1e3)


Times = Mapping[GpuNode, NodeTime]
"""The nodes that launched something or ran on the host; empty before the first inference."""


class LayerTimes:
    """Averages over all inferences of a plan, by whatever request; for several threads.

    It keeps two sums for each node, however many inferences there are.
    """

    def __init__(self) -> None:
        """Start without inferences."""
        self._lock = threading.Lock()
        self._inferences = 0
        self._sums: dict[GpuNode, tuple[float, float]] = {}

    def add(self, times: Times) -> None:
        """Count one inference."""
        with self._lock:
            self._inferences += 1
            for node, time in times.items():
                device, cpu = self._sums.get(node, (0.0, 0.0))
                self._sums[node] = (device + time.device_us, cpu + time.cpu_us)

    def averages(self) -> Times:
        """Return the mean times of the inferences until now."""
        with self._lock:
            count = self._inferences
            return {
                node: NodeTime(device / count, cpu / count)
                for node, (device, cpu) in self._sums.items()
            }
