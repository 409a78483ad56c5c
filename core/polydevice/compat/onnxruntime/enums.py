"""onnxruntime's enumerations, with its numbers."""

from __future__ import annotations

from enum import Enum, IntEnum


class _Enum(IntEnum):
    """Prints as onnxruntime's do: ``ExecutionMode.ORT_SEQUENTIAL``."""

    __str__ = Enum.__str__


class GraphOptimizationLevel(_Enum):
    """How much a graph is optimised; polydevice always optimises all it can."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(_Enum):
    """Whether operators run one after the other; on polydevice the device decides."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(_Enum):
    """In which order operators run; on polydevice the device decides."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtAllocatorType(_Enum):
    """Kinds of allocators."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(_Enum):
    """Kinds of memory."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(_Enum):
    """Whether the host sees a device's memory."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtSparseFormat(_Enum):
    """Formats of sparse tensors; polydevice has dense ones alone."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class OrtDeviceVendorId(IntEnum):
    """Makers of devices, by PCI number."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtExecutionProviderDevicePolicy(_Enum):
    """What `SessionOptions.set_provider_selection_policy` chooses devices by."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6
