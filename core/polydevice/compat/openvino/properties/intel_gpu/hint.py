"""``openvino.properties.intel_gpu.hint``: names of properties."""

from __future__ import annotations

from polydevice.compat.openvino.properties.property import Property

__all__ = [
    "available_device_mem",
    "enable_large_allocations",
    "enable_lora_operation",
    "host_task_priority",
    "queue_priority",
    "queue_throttle",
]


available_device_mem = Property("AVAILABLE_DEVICE_MEM_SIZE")
enable_large_allocations = Property("GPU_ENABLE_LARGE_ALLOCATIONS")
enable_lora_operation = Property("GPU_ENABLE_LORA_OPERATION")
host_task_priority = Property("GPU_HOST_TASK_PRIORITY")
queue_priority = Property("GPU_QUEUE_PRIORITY")
queue_throttle = Property("GPU_QUEUE_THROTTLE")
