"""``openvino.properties``: names of properties, which make pairs when they are called."""

from __future__ import annotations

from polydevice.compat.openvino.properties import (
    device,
    hint,
    intel_auto,
    intel_cpu,
    intel_gpu,
    log,
    streams,
)
from polydevice.compat.openvino.properties.property import Listed, Property

__all__ = [
    "CacheMode",
    "CompatibilityCheck",
    "WorkloadType",
    "auto_batch_timeout",
    "available_devices",
    "cache_dir",
    "cache_encryption_callbacks",
    "cache_mode",
    "compatibility_check",
    "compilation_num_threads",
    "device",
    "enable_mmap",
    "enable_profiling",
    "enable_weightless",
    "execution_devices",
    "force_tbb_terminate",
    "hint",
    "inference_num_threads",
    "intel_auto",
    "intel_cpu",
    "intel_gpu",
    "key_cache_group_size",
    "key_cache_precision",
    "loaded_from_cache",
    "log",
    "max_batch_size",
    "model_name",
    "num_streams",
    "optimal_batch_size",
    "optimal_number_of_infer_requests",
    "range_for_async_infer_requests",
    "range_for_streams",
    "runtime_requirements",
    "streams",
    "supported_properties",
    "value_cache_group_size",
    "value_cache_precision",
    "weights_path",
    "workload_type",
]


class CacheMode(Listed):
    """What a cache of compiled models is made for."""

    OPTIMIZE_SIZE = 0
    OPTIMIZE_SPEED = 1


class CompatibilityCheck(Listed):
    """Whether an exported model fits a device."""

    NOT_APPLICABLE = 0
    SUPPORTED = 1
    UNSUPPORTED = 2


class WorkloadType(Listed):
    """How important a model is."""

    DEFAULT = 0
    EFFICIENT = 1


auto_batch_timeout = Property("AUTO_BATCH_TIMEOUT")
available_devices = Property("AVAILABLE_DEVICES", settable=False)
cache_dir = Property("CACHE_DIR")
cache_encryption_callbacks = Property("CACHE_ENCRYPTION_CALLBACKS")
cache_mode = Property("CACHE_MODE")
compatibility_check = Property("COMPATIBILITY_CHECK", settable=False)
compilation_num_threads = Property("COMPILATION_NUM_THREADS")
enable_mmap = Property("ENABLE_MMAP")
enable_profiling = Property("PERF_COUNT")
enable_weightless = Property("ENABLE_WEIGHTLESS")
execution_devices = Property("EXECUTION_DEVICES", settable=False)
force_tbb_terminate = Property("FORCE_TBB_TERMINATE")
inference_num_threads = Property("INFERENCE_NUM_THREADS")
key_cache_group_size = Property("KEY_CACHE_GROUP_SIZE")
key_cache_precision = Property("KEY_CACHE_PRECISION")
loaded_from_cache = Property("LOADED_FROM_CACHE", settable=False)
max_batch_size = Property("MAX_BATCH_SIZE", settable=False)
model_name = Property("NETWORK_NAME", settable=False)
num_streams = Property("NUM_STREAMS")
optimal_batch_size = Property("OPTIMAL_BATCH_SIZE", settable=False)
optimal_number_of_infer_requests = Property("OPTIMAL_NUMBER_OF_INFER_REQUESTS", settable=False)
range_for_async_infer_requests = Property("RANGE_FOR_ASYNC_INFER_REQUESTS", settable=False)
range_for_streams = Property("RANGE_FOR_STREAMS", settable=False)
runtime_requirements = Property("RUNTIME_REQUIREMENTS", settable=False)
supported_properties = Property("SUPPORTED_PROPERTIES", settable=False)
value_cache_group_size = Property("VALUE_CACHE_GROUP_SIZE")
value_cache_precision = Property("VALUE_CACHE_PRECISION")
weights_path = Property("WEIGHTS_PATH")
workload_type = Property("WORKLOAD_TYPE")
