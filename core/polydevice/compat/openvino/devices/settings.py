"""Properties of devices and loaded models, as core's configuration keys and metrics."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from polydevice.compat.openvino.types.element_type import Type
from polydevice.compat.openvino.types.rt_info import OVAny
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

WITHOUT_EFFECT: dict[str, Any] = {
    "AFFINITY": None,
    "ALLOW_AUTO_BATCHING": True,
    "AUTO_BATCH_TIMEOUT": 1000,
    "CACHE_ENCRYPTION_CALLBACKS": None,
    "CACHE_MODE": None,
    "CPU_BIND_THREAD": None,
    "CPU_DENORMALS_OPTIMIZATION": False,
    "CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE": 1.0,
    "DEVICE_BIND_BUFFER": False,
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
    "ENABLE_CPU_PINNING": False,
    "ENABLE_CPU_RESERVATION": False,
    "ENABLE_HYPER_THREADING": True,
    "ENABLE_MMAP": True,
    "ENABLE_RUNTIME_FALLBACK": True,
    "ENABLE_STARTUP_FALLBACK": True,
    "ENABLE_TENSOR_PARALLEL": False,
    "ENABLE_WEIGHTLESS": False,
    "FORCE_TBB_TERMINATE": False,
    "GPU_DISABLE_WINOGRAD_CONVOLUTION": False,
    "GPU_ENABLE_SDPA_OPTIMIZATION": True,
    "GPU_HOST_TASK_PRIORITY": None,
    "KEY_CACHE_GROUP_SIZE": 0,
    "KEY_CACHE_PRECISION": Type("dynamic"),
    "KV_CACHE_PRECISION": Type("dynamic"),
    "LOG_LEVEL": None,
    "MODEL_DISTRIBUTION_POLICY": frozenset(),
    "MODEL_PRIORITY": None,
    "MODEL_PTR": None,
    "SCHEDULE_POLICY": None,
    "SCHEDULING_CORE_TYPE": None,
    "TBB_PARTITIONER": None,
    "VALUE_CACHE_GROUP_SIZE": 0,
    "VALUE_CACHE_PRECISION": Type("dynamic"),
    "WEIGHTS_PATH": "",
    "WORKLOAD_TYPE": None,
}
"""Properties that are taken, and change nothing: they are about how OpenVINO itself works.

Each with what it is where nobody sets it, None for what then cannot be asked for.
"""

PRIORITIES = ("MULTI_DEVICE_PRIORITIES", "DEVICE_PRIORITIES")
"""What lists the devices of MULTI, AUTO and HETERO, in one name or the other."""
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
        elif name in PRIORITIES:
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
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if str(value).lower() in ("true", "false"):
        return "YES" if str(value).lower() == "true" else "NO"
    return str(value) if isinstance(value, int) else value


def properties_of(known: Iterable[str]) -> list[str]:
    """Return the properties that a device's configuration keys are, and the keys themselves."""
    keys = list(known)
    renamed = [name for name, theirs in RENAMED.items() if set(keys) & set(theirs)]
    precision = ["INFERENCE_PRECISION_HINT"] if "ENFORCE_BF16" in keys else []
    return [*keys, *renamed, *precision]


def device_type(kind: str) -> Any:
    """Return OpenVINO's form of core's metric DEVICE_TYPE."""
    from polydevice.compat.openvino.properties import device

    return device.Type[kind.upper()]


def kept(name: str, given: Mapping[str, Any]) -> Any:
    """Return a property that changes nothing as it was set, or as it is left; None for others.

    Args:
        name: of the property.
        given: what was set; see `pairs`.
    """
    from polydevice.compat.openvino.properties.hint import (
        ExecutionMode,
        Priority,
        SchedulingCoreType,
    )
    from polydevice.compat.openvino.properties.log import Level

    listed: dict[str, Any] = {
        "EXECUTION_MODE_HINT": ExecutionMode.PERFORMANCE,
        "LOG_LEVEL": Level.NO,
        "MODEL_PRIORITY": Priority.MEDIUM,
        "SCHEDULING_CORE_TYPE": SchedulingCoreType.ANY_CORE,
    }
    left = listed.get(name, WITHOUT_EFFECT.get(name))
    value = given.get(name)
    if value is None or left is None:
        return value if name in WITHOUT_EFFECT else left
    kind = type(left)
    if issubclass(kind, Enum):
        known = kind.__members__
        return known.get(str(value).upper().rpartition(".")[2], left)
    if kind is bool:
        return str(value).upper() in ("TRUE", "YES", "1")
    return value if kind is frozenset else kind(value)


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
    counts = name in RENAMED or name == "PERFORMANCE_HINT_NUM_REQUESTS"
    return int(text) if counts and text.isdecimal() else text
