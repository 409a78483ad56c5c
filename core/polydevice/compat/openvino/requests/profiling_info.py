"""ProfilingInfo: what an inference spent on a layer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from polydevice.compat.openvino.properties.property import Listed
from polydevice.compat.openvino.surface import Surface
from polydevice.inspection.placement import Placement


class Status(Listed):
    """What became of a layer."""

    NOT_RUN = 0
    OPTIMIZED_OUT = 1
    EXECUTED = 2


class ProfilingInfo(Surface):
    """What an inference spent on one layer."""

    Status = Status
    NOT_RUN = Status.NOT_RUN
    OPTIMIZED_OUT = Status.OPTIMIZED_OUT
    EXECUTED = Status.EXECUTED

    def __init__(self) -> None:
        """Describe nothing yet."""
        self.status = Status.NOT_RUN
        self.real_time = self.cpu_time = timedelta()
        self.node_name = self.exec_type = self.node_type = ""

    @classmethod
    def _of(cls, name: str, count: Mapping[str, Any]) -> ProfilingInfo:
        made = cls()
        made.node_name = name
        made.status = Status.__members__.get(count["status"], Status.NOT_RUN)
        made.real_time = timedelta(microseconds=count["real_time"])
        made.cpu_time = timedelta(microseconds=count["cpu_time"])
        made.exec_type, made.node_type = count["exec_type"], count["layer_type"]
        return made

    @classmethod
    def _unmeasured(cls, placed: Placement) -> ProfilingInfo:
        """Describe a layer of a model that was loaded without PERF_COUNT."""
        made = cls()
        made.node_name, made.node_type, made.exec_type = placed.node, placed.type, "unknown"
        return made
