"""Properties of devices and loaded models, as core's configuration keys and metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from polydevice.compat.openvino.element_type import Type
from polydevice.compat.openvino.rt_info import OVAny
from polydevice.errors import UnknownOptionError, nearest

_log = logging.getLogger("polydevice.compat.openvino")

RENAMED: dict[str, tuple[str, ...]] = {
    "INFERENCE_NUM_THREADS": ("CPU_THREADS_NUM",),
    "COMPILATION_NUM_THREADS": ("GPU_MAX_NUM_THREADS",),
    "NUM_STREAMS": ("CPU_THROUGHPUT_STREAMS", "GPU_THROUGHPUT_STREAMS"),
    "GPU_QUEUE_PRIORITY": ("GPU_PLUGIN_PRIORITY",),
    "GPU_QUEUE_THROTTLE": ("GPU_PLUGIN_THROTTLE",),
}
"""Property → the configuration keys that it is, the first that a device has."""

WITHOUT_EFFECT = frozenset(
    {
        "AFFINITY",
        "ALLOW_AUTO_BATCHING",
        "AUTO_BATCH_TIMEOUT",
        "CACHE_ENCRYPTION_CALLBACKS",
        "CACHE_MODE",
        "CPU_BIND_THREAD",
        "CPU_DENORMALS_OPTIMIZATION",
        "CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE",
        "DEVICE_BIND_BUFFER",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE",
        "ENABLE_CPU_PINNING",
        "ENABLE_CPU_RESERVATION",
        "ENABLE_HYPER_THREADING",
        "ENABLE_MMAP",
        "ENABLE_RUNTIME_FALLBACK",
        "ENABLE_STARTUP_FALLBACK",
        "ENABLE_TENSOR_PARALLEL",
        "ENABLE_WEIGHTLESS",
        "FORCE_TBB_TERMINATE",
        "GPU_DISABLE_WINOGRAD_CONVOLUTION",
        "GPU_ENABLE_SDPA_OPTIMIZATION",
        "GPU_HOST_TASK_PRIORITY",
        "KEY_CACHE_GROUP_SIZE",
        "KEY_CACHE_PRECISION",
        "KV_CACHE_PRECISION",
        "LOG_LEVEL",
        "MODEL_DISTRIBUTION_POLICY",
        "MODEL_PRIORITY",
        "MODEL_PTR",
        "SCHEDULE_POLICY",
        "SCHEDULING_CORE_TYPE",
        "TBB_PARTITIONER",
        "VALUE_CACHE_GROUP_SIZE",
        "VALUE_CACHE_PRECISION",
        "WEIGHTS_PATH",
        "WORKLOAD_TYPE",
    }
)
"""Properties that are taken, and change nothing: they are about how OpenVINO itself works."""

PRIORITIES = "MULTI_DEVICE_PRIORITIES"
NESTED = "DEVICE_PROPERTIES"


def plain(value: Any) -> Any:
    """Return a property's value without OpenVINO's wrapping: text, number, list or dictionary."""
    if isinstance(value, OVAny):
        value = value.value
    if isinstance(value, Type):
        return value.type_name
    if isinstance(value, Enum):
        return value.name
    if hasattr(value, "to_integer"):  # streams.Num
        return value.to_integer()
    return value


def pairs(given: Any) -> dict[str, Any]:
    """Return properties as a dictionary: of one, of the pair that a property makes, or a list."""
    if isinstance(given, Mapping):
        return {str(key): plain(value) for key, value in given.items()}
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        return {str(given[0]): plain(given[1])}
    return {key: value for each in given for key, value in pairs(each).items()}


def to_config(given: Any, known: Iterable[str], device: str) -> dict[str, Any]:
    """Return core's configuration for properties.

    Args:
        given: see `pairs`.
        known: the configuration keys of the device.
        device: for messages.

    Raises:
        UnknownOptionError: there is no such property.
    """
    config: dict[str, Any] = {}
    keys = set(known)
    for name, value in pairs(given).items():
        if name == NESTED:
            inner: Any = next((p for d, p in dict(value).items() if device.startswith(d)), {})
            config.update(to_config(inner, keys, device))
        elif name == PRIORITIES:
            continue  # part of the device's name
        elif name in SPECIAL:
            config.update(SPECIAL[name](value, keys))
        elif name in keys:
            config[name] = _text(value)
        elif name in RENAMED:
            config.update({key: _text(value) for key in RENAMED[name] if key in keys})
        elif name in WITHOUT_EFFECT or name in ("CACHE_DIR", "DEVICE_ID"):
            _log.debug("%s has no effect on %s", name, device)
        elif "_" in name and name.partition("_")[0] in ("NPU", "GPU", "CPU", "AUTO", "MULTI"):
            _log.debug("%s is for another device than %s", name, device)
        else:
            legal = [*keys, *SPECIAL, *RENAMED, *WITHOUT_EFFECT]
            raise UnknownOptionError(
                f"NotFound: Unsupported property {name} by {device}.{nearest(name, legal)}"
            )
    return config


def _streams(value: Any, keys: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in RENAMED["NUM_STREAMS"]:
        if key in keys:
            text = str(value).upper()
            device = key.partition("_")[0]
            chosen = {"-1": "AUTO", "-2": "NUMA" if device == "CPU" else "AUTO"}.get(text, text)
            named = chosen in ("AUTO", "NUMA")
            found[key] = f"{device}_THROUGHPUT_{chosen}" if named else _text(value)
    return found


def _hint(value: Any, keys: set[str]) -> dict[str, Any]:
    if "PERFORMANCE_HINT" not in keys:
        return {}
    name = str(value).upper().rpartition(".")[2]
    known = {
        "CUMULATIVE_THROUGHPUT": "THROUGHPUT",
        "UNDEFINED": "",
        "NONE": "",
        "TPUT": "THROUGHPUT",
    }
    return {"PERFORMANCE_HINT": known.get(name, name)}


def _precision(value: Any, keys: set[str]) -> dict[str, Any]:
    name = str(value)
    found: dict[str, Any] = {}
    if "INFERENCE_PRECISION_HINT" in keys:
        found["INFERENCE_PRECISION_HINT"] = {"dynamic": "undefined", "bf16": "f16"}.get(name, name)
    if "ENFORCE_BF16" in keys:
        found["ENFORCE_BF16"] = "YES" if name == "bf16" else "NO"
    return found


def _mode(value: Any, keys: set[str]) -> dict[str, Any]:
    accurate = str(value).upper().endswith("ACCURACY")
    return _precision("f32", keys) if accurate else {}


def _profiling(value: Any, keys: set[str]) -> dict[str, Any]:
    return {"PERF_COUNT": _text(value)} if "PERF_COUNT" in keys else {}


SPECIAL: dict[str, Callable[[Any, set[str]], dict[str, Any]]] = {
    "NUM_STREAMS": _streams,
    "PERFORMANCE_HINT": _hint,
    "INFERENCE_PRECISION_HINT": _precision,
    "EXECUTION_MODE_HINT": _mode,
    "PERF_COUNT": _profiling,
    "ENABLE_PROFILING": _profiling,
}
"""Property → what makes configuration keys of its value."""


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if str(value).lower() in ("true", "false"):
        return "YES" if str(value).lower() == "true" else "NO"
    return str(value) if isinstance(value, int) else value


def properties_of(known: Iterable[str]) -> list[str]:
    """Return the properties that a device's configuration keys are, and the keys themselves."""
    keys = list(known)
    renamed = [name for name, theirs in RENAMED.items() if set(keys) & set(theirs)]
    precision = ["INFERENCE_PRECISION_HINT"] if "ENFORCE_BF16" in keys else []
    return [*keys, *renamed, *precision]


def from_config(name: str, read: Callable[[str], str], known: Iterable[str]) -> Any:
    """Return a property that is a configuration key, or several; None when it is none.

    Args:
        name: of the property.
        read: returns the text of a configuration key.
        known: the configuration keys that there are.
    """
    keys = [key for key in RENAMED.get(name, (name,)) if key in set(known)]
    if name == "INFERENCE_PRECISION_HINT" and "ENFORCE_BF16" in set(known):
        return Type("bf16") if read("ENFORCE_BF16") == "YES" else Type("f32")
    if not keys:
        return None
    text = read(keys[0])
    if text in ("YES", "NO"):
        return text == "YES"
    if name == "INFERENCE_PRECISION_HINT":
        return Type("dynamic" if text == "undefined" else text)
    if name == "PERFORMANCE_HINT":
        from polydevice.compat.openvino.properties.hint import PerformanceMode

        return PerformanceMode[text or "LATENCY"]
    return int(text) if name in RENAMED and text.isdecimal() else text
