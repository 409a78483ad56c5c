"""``openvino.properties.intel_auto``: names of properties."""

from __future__ import annotations

from polydevice.compat.openvino.properties.property import Listed, Property

__all__ = [
    "SchedulePolicy",
    "device_bind_buffer",
    "devices_utilization_threshold",
    "enable_runtime_fallback",
    "enable_startup_fallback",
    "low_power_device",
    "perf_curve_table",
    "schedule_policy",
]


class SchedulePolicy(Listed):
    """How AUTO spreads requests."""

    ROUND_ROBIN = 0
    DEVICE_PRIORITY = 1
    DEFAULT = 1


device_bind_buffer = Property("DEVICE_BIND_BUFFER")
devices_utilization_threshold = Property("DEVICES_UTILIZATION_THRESHOLD")
enable_runtime_fallback = Property("ENABLE_RUNTIME_FALLBACK")
enable_startup_fallback = Property("ENABLE_STARTUP_FALLBACK")
low_power_device = Property("LOW_POWER_DEVICE")
perf_curve_table = Property("PERF_CURVE_TABLE")
schedule_policy = Property("SCHEDULE_POLICY")
