"""LayerTimes: how long the layers, or the steps, of a plan take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from polydevice.locks import Lock

L = TypeVar("L")


class LayerTime(NamedTuple):
    """Time of a layer in one inference, or on average, in microseconds.

    Attributes:
        device_us: in which it was computed: by the device, or by the host.
        cpu_us: that the host took to have it computed, or to compute it.
    """

    device_us: float = 0.0
    cpu_us: float = 0.0


class LayerTimes(Generic[L]):
    """Averages over all inferences of a plan, by whatever request; for several threads.

    It keeps two sums for each layer, however many inferences there are.
    """

    def __init__(self) -> None:
        """Start without inferences."""
        self._lock = Lock()
        self._inferences = 0
        self._sums: dict[L, LayerTime] = {}

    def add(self, times: Mapping[L, LayerTime]) -> None:
        """Count one inference: the times of what was computed in it."""
        with self._lock:
            self._inferences += 1
            for layer, time in times.items():
                device, cpu = self._sums.get(layer, (0.0, 0.0))
                self._sums[layer] = LayerTime(device + time[0], cpu + time[1])

    @property
    def inferences(self) -> int:
        """How many were counted."""
        return self._inferences

    def averages(self) -> dict[L, LayerTime]:
        """Return the mean times of the inferences until now; empty before the first."""
        with self._lock:
            count = self._inferences
            return {
                layer: LayerTime(device / count, cpu / count)
                for layer, (device, cpu) in self._sums.items()
            }
