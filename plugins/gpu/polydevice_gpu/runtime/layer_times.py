"""What the nodes of a plan take, from the times of their launches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from polydevice.runtime.layer_times import LayerTime
from polydevice_gpu.graph import GpuNode

if TYPE_CHECKING:
    from polydevice_gpu import cl

Times = Mapping[GpuNode, LayerTime]
"""The nodes that launched something or ran on the host; empty before the first inference."""


def time_of(launches: Iterable[cl.LaunchTime]) -> LayerTime:
    """Add the times of a node's launches up."""
    device_ns = host_ns = 0
    for launch in launches:
        device_ns += launch.duration_ns
        host_ns += launch.enqueuing_ns
    return LayerTime(device_ns / 1e3, host_ns / 1e3)
