"""``openvino.properties.intel_gpu``: names of properties, which make pairs when they are called."""

from __future__ import annotations

from polydevice.compat.openvino.properties.intel_gpu import hint
from polydevice.compat.openvino.properties.property import Property

__all__ = [
    "CapabilityGPU",
    "MemoryType",
    "device_max_alloc_mem_size",
    "device_total_mem_size",
    "disable_winograd_convolution",
    "enable_loop_unrolling",
    "execution_units_count",
    "hint",
    "memory_statistics",
    "uarch_version",
]


class CapabilityGPU:
    """Names of what a GPU can."""

    HW_MATMUL = "GPU_HW_MATMUL"
    USM_MEMORY = "GPU_USM_MEMORY"


class MemoryType:
    """Names of kinds of a GPU's memory."""

    buffer = "GPU_BUFFER"
    surface = "GPU_SURFACE"


device_max_alloc_mem_size = Property("GPU_DEVICE_MAX_ALLOC_MEM_SIZE", settable=False)
device_total_mem_size = Property("GPU_DEVICE_TOTAL_MEM_SIZE", settable=False)
disable_winograd_convolution = Property("GPU_DISABLE_WINOGRAD_CONVOLUTION")
enable_loop_unrolling = Property("GPU_ENABLE_LOOP_UNROLLING")
execution_units_count = Property("GPU_EXECUTION_UNITS_COUNT", settable=False)
memory_statistics = Property("GPU_MEMORY_STATISTICS", settable=False)
uarch_version = Property("GPU_UARCH_VERSION", settable=False)
