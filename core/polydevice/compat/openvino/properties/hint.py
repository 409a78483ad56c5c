"""``openvino.properties.hint``: names of properties, which make pairs when they are called."""

from __future__ import annotations

from polydevice.compat.openvino.properties.property import Listed, Property

__all__ = [
    "ExecutionMode",
    "ModelDistributionPolicy",
    "PerformanceMode",
    "Priority",
    "SchedulingCoreType",
    "activations_scale_factor",
    "allow_auto_batching",
    "compiled_blob",
    "dynamic_quantization_group_size",
    "enable_cpu_pinning",
    "enable_cpu_reservation",
    "enable_hyper_threading",
    "execution_mode",
    "inference_precision",
    "kv_cache_precision",
    "model",
    "model_distribution_policy",
    "model_priority",
    "num_requests",
    "performance_mode",
    "scheduling_core_type",
]


class ExecutionMode(Listed):
    """What counts more where both cannot be had."""

    PERFORMANCE = 1
    ACCURACY = 2


class ModelDistributionPolicy(Listed):
    """How a model is spread over the parts of a device."""

    TENSOR_PARALLEL = 0
    PIPELINE_PARALLEL = 1


class PerformanceMode(Listed):
    """What a device aims at."""

    LATENCY = 1
    THROUGHPUT = 2
    CUMULATIVE_THROUGHPUT = 3


class Priority(Listed):
    """How important something is."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2
    DEFAULT = 1


class SchedulingCoreType(Listed):
    """On which of the processor's cores to run."""

    ANY_CORE = 0
    PCORE_ONLY = 1
    ECORE_ONLY = 2


activations_scale_factor = Property("ACTIVATIONS_SCALE_FACTOR")
allow_auto_batching = Property("ALLOW_AUTO_BATCHING")
compiled_blob = Property("COMPILED_BLOB")
dynamic_quantization_group_size = Property("DYNAMIC_QUANTIZATION_GROUP_SIZE")
enable_cpu_pinning = Property("ENABLE_CPU_PINNING")
enable_cpu_reservation = Property("ENABLE_CPU_RESERVATION")
enable_hyper_threading = Property("ENABLE_HYPER_THREADING")
execution_mode = Property("EXECUTION_MODE_HINT")
inference_precision = Property("INFERENCE_PRECISION_HINT")
kv_cache_precision = Property("KV_CACHE_PRECISION")
model = Property("MODEL_PTR")
model_distribution_policy = Property("MODEL_DISTRIBUTION_POLICY")
model_priority = Property("MODEL_PRIORITY")
num_requests = Property("PERFORMANCE_HINT_NUM_REQUESTS")
performance_mode = Property("PERFORMANCE_HINT")
scheduling_core_type = Property("SCHEDULING_CORE_TYPE")
