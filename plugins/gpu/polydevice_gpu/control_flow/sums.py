"""Sums: times of the layers of a body, added up over its iterations."""

from __future__ import annotations

from collections.abc import Container, Iterable

from polydevice.runtime.layer_times import LayerTime
from polydevice_gpu import cl
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.runtime.layer_times import Times, time_of


class Sums:
    """One time for each node, however often it ran; and one for the layer that they belong to."""

    def __init__(self, layer: GpuNode) -> None:
        self._layer = layer
        self.times: dict[GpuNode, LayerTime] = {}

    def clear(self) -> None:
        """Begin again."""
        self.times = {}

    def add(self, times: Times, own: Container[GpuNode]) -> None:
        """Add what the nodes of a body took in one iteration.

        Args:
            times: of its nodes, and of those in loops in it.
            own: the body's own nodes.
        """
        for node, time in times.items():
            self._add(node, time)
            if node in own:
                self._add(self._layer, time)

    def add_copies(self, launches: Iterable[cl.LaunchTime]) -> None:
        """Add what copies to and from the body took."""
        self._add(self._layer, time_of(launches))

    def _add(self, node: GpuNode, time: LayerTime) -> None:
        before = self.times.get(node, LayerTime())
        self.times[node] = LayerTime(before.device_us + time.device_us, before.cpu_us + time.cpu_us)
