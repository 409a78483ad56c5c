"""Every configuration key of the GPU device: legal values, aliases, and what is not there yet."""

from __future__ import annotations

import pytest

from polydevice.errors import OptionValueError, UnknownOptionError
from polydevice_gpu.options import GpuOptions, available_cores

SPECIFIED = {
    "PERF_COUNT", "DYN_BATCH_ENABLED", "DUMP_KERNELS", "GPU_PLUGIN_PRIORITY", "GPU_PLUGIN_THROTTLE",
    "CONFIG_FILE", "TUNING_MODE", "TUNING_FILE", "CLDNN_MEM_POOL", "CLDNN_GRAPH_DUMPS_DIR",
    "CLDNN_SOURCES_DUMPS_DIR", "CACHE_DIR", "EXCLUSIVE_ASYNC_REQUESTS", "GPU_THROUGHPUT_STREAMS",
    "DEVICE_ID", "LP_TRANSFORMS_MODE", "GPU_NV12_TWO_INPUTS",
    "CLDNN_ENABLE_FP16_FOR_QUANTIZED_MODELS", "GPU_MAX_NUM_THREADS", "GPU_ENABLE_LOOP_UNROLLING",
}  # fmt: skip
ALIASES = {
    "CLDNN_PLUGIN_PRIORITY": "GPU_PLUGIN_PRIORITY",
    "CLDNN_PLUGIN_THROTTLE": "GPU_PLUGIN_THROTTLE",
    "CLDNN_NV12_TWO_INPUTS": "GPU_NV12_TWO_INPUTS",
    "CLDNN_MAX_NUM_THREADS": "GPU_MAX_NUM_THREADS",
}


def test_every_key_of_the_inference_engine_is_there() -> None:
    rows = GpuOptions.table()
    hints = {"PERFORMANCE_HINT", "PERFORMANCE_HINT_NUM_REQUESTS"}
    assert {row.key for row in rows} == SPECIFIED | hints | {
        "ACCURACY_GUARD",
        "ACCURACY_GUARD_INPUTS",
        "ACCURACY_GUARD_SECONDS",
        "GPU_DEVICES",
        "GPU_SINGLE_LAUNCH",
        "TUNING_PRETUNED",
        "INFERENCE_PRECISION_HINT",
        "INFER_TIMEOUT_MS",
        "MEMORY_LIMIT",
        "SHAPE_BUCKETS",
        "TUNING_BUDGET_S",
    }
    assert {alias: row.key for row in rows for alias in row.aliases} == ALIASES
    assert all(row.help and row.legal for row in rows)


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [
        ("PERF_COUNT", "YES", "YES"),
        ("KEY_PERF_COUNT", True, "YES"),
        ("EXCLUSIVE_ASYNC_REQUESTS", "NO", "NO"),
        ("GPU_THROUGHPUT_STREAMS", "GPU_THROUGHPUT_AUTO", "2"),
        ("GPU_THROUGHPUT_STREAMS", "3", "3"),
        ("GPU_THROUGHPUT_STREAMS", 4, "4"),
        ("GPU_PLUGIN_PRIORITY", "3", "3"),
        ("GPU_PLUGIN_THROTTLE", 0, "0"),
        ("GPU_MAX_NUM_THREADS", "1", "1"),
        ("GPU_MAX_NUM_THREADS", "-5", str(available_cores())),
        ("GPU_MAX_NUM_THREADS", "100000", str(available_cores())),
        ("DEVICE_ID", "1", "1"),
        ("DEVICE_ID", "", ""),
        ("CACHE_DIR", "kernels.cache", "kernels.cache"),
        ("GPU_DEVICES", "intel,name:pocl", "intel,name:pocl"),
        ("CLDNN_MEM_POOL", "YES", "YES"),
        ("TUNING_MODE", "TUNING_DISABLED", "TUNING_DISABLED"),
        ("INFERENCE_PRECISION_HINT", "f16", "f16"),
        ("INFERENCE_PRECISION_HINT", "undefined", "undefined"),
    ],
)
def test_legal_value(key, value, read) -> None:
    assert GpuOptions().updated({key: value}).read(key) == read


@pytest.mark.parametrize(
    ("key", "value", "names"),
    [
        ("PERF_COUNT", "yes", "YES, NO"),
        ("PERF_COUNT", 1, "YES, NO"),
        ("GPU_THROUGHPUT_STREAMS", "0", "GPU_THROUGHPUT_AUTO"),
        ("GPU_THROUGHPUT_STREAMS", "3x", "GPU_THROUGHPUT_AUTO"),
        ("GPU_THROUGHPUT_STREAMS", "CPU_THROUGHPUT_AUTO", "GPU_THROUGHPUT_AUTO"),
        ("GPU_THROUGHPUT_STREAMS", True, "GPU_THROUGHPUT_AUTO"),
        ("GPU_PLUGIN_PRIORITY", "4", "high"),
        ("GPU_PLUGIN_THROTTLE", "-1", "high"),
        ("GPU_MAX_NUM_THREADS", "many", "integer"),
        ("DEVICE_ID", "first", "a number"),
        ("DEVICE_ID", "-1", "a number"),
        ("GPU_DEVICES", "gpu", "all-gpus, intel, cpu"),
        ("GPU_DEVICES", 7, "all-gpus, intel, cpu"),
        ("TUNING_MODE", "TUNING_ON", "TUNING_CREATE"),
        ("CACHE_DIR", 7, "a folder"),
        ("INFERENCE_PRECISION_HINT", "bf16", "undefined, f32, f16"),
        ("INFERENCE_PRECISION_HINT", "FP16", "undefined, f32, f16"),
    ],
)
def test_illegal_value_names_key_value_and_the_legal_ones(key, value, names) -> None:
    with pytest.raises(OptionValueError) as caught:
        GpuOptions().updated({key: value})
    assert f"{key}={value!r}" in str(caught.value)
    assert names in str(caught.value)


@pytest.mark.parametrize(("alias", "key"), ALIASES.items())
def test_alias_works_and_warns(alias, key) -> None:
    value = GpuOptions().read(key)
    with pytest.warns(DeprecationWarning, match=f"{alias} is deprecated; use {key}"):
        assert GpuOptions().updated({alias: value}).read(alias) == value


@pytest.mark.parametrize(
    "key", ["LOG_LEVEL", "CPU_THREADS_NUM", "perf_count", "KEY_KEY_PERF_COUNT"]
)
def test_unknown_key_names_the_known_ones(key) -> None:
    with pytest.raises(UnknownOptionError, match="PERF_COUNT"):
        GpuOptions().updated({key: "YES"})


def test_rule_comes_from_the_key_else_from_the_variable(monkeypatch) -> None:
    monkeypatch.setenv("POLYDEVICE_GPU_DEVICES", "intel")
    assert GpuOptions().selection.text == "intel"
    assert GpuOptions().updated({"GPU_DEVICES": "cpu"}).selection.text == "cpu"
