"""Configuration keys of the GPU device do what they say; each test fails without the effect."""

from __future__ import annotations

import itertools
import threading
import time
import warnings

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.activation import Relu
from polydevice.ops.io import Parameter, Result
from polydevice.ops.math import Abs
from polydevice.shape import Shape
from polydevice_gpu.cl.programs.program import ProgramBuilder
from polydevice_gpu.compiler.stages import GRAPH
from polydevice_gpu.graph import Place
from polydevice_gpu.runtime.runner import GpuRunner
from tests.cpu.models import answer, build, residual

MODEL = residual()
INPUT = {"x": np.random.default_rng(1).random((2, 3, 14, 14), np.float32)}


def load(core, config=None, model=MODEL):
    return core.load_network(core.read_network(model), "GPU", config or {})


def check(executable) -> None:
    results = executable.infer(INPUT)
    for name, right in zip(("y", "logits", "p1"), answer(MODEL, INPUT), strict=True):
        np.testing.assert_allclose(results[name], right, rtol=1e-4, atol=1e-5)


# -- memory ----------------------------------------------------------------------------------------


def test_without_memory_pool_every_value_has_bytes_of_its_own(core) -> None:
    pooled, separate = load(core), load(core, {"CLDNN_MEM_POOL": "NO"})
    arena = pooled.latest_plan().arena
    assert arena.size_bytes < arena.sum_bytes
    arena = separate.latest_plan().arena
    assert arena.size_bytes == arena.sum_bytes
    assert len(arena.blocks) > 3
    assert len(set(arena.places.values())) == len(arena.places)
    check(pooled)
    check(separate)


# -- dumps -----------------------------------------------------------------------------------------


def test_graph_dumps_show_every_stage(core, tmp_path) -> None:
    folder = tmp_path / "made" / "graphs"
    check(load(core, {"CLDNN_GRAPH_DUMPS_DIR": str(folder), "TUNING_PRETUNED": "NO"}))
    files = sorted(folder.glob("*.dot"))
    stages = ["lower", *(each.__name__ for each in GRAPH)]
    assert [path.name.split("_", 2)[-1] for path in files] == [
        f"{number:02}_{stage}.dot" for number, stage in enumerate(stages)
    ]
    first, last = files[0].read_text(), files[-1].read_text()
    for text in (first, last):
        assert text.startswith("digraph ") and text.rstrip().endswith("}")
        assert text.count("Parameter") == 1 and text.count("Result") == 3
    assert "convolution" not in first and "convolution" in last  # kernels are chosen at the end
    assert "then " not in first and "then " in last  # and activations fused


def test_graph_dumps_of_equal_names_stay_apart(core, tmp_path) -> None:
    """Networks of one name and shape, and loading twice: each has files of its own."""
    for op in (Relu(), Abs(), Abs()):
        x = Node("x", Parameter(ElementType.f32, Shape([2, 3])))
        y = Node("y", op, [x.output])
        network = Network("same", [x], [Node("out", Result(), [y.output])])
        options = {"CLDNN_GRAPH_DUMPS_DIR": str(tmp_path), "TUNING_PRETUNED": "NO"}
        core.load_network(network, "GPU", options)
    found = sorted(tmp_path.glob("*_lower.dot"))
    assert [path.name for path in found] == [
        "same_2x3_00_lower.dot", "same_2x3_2_00_lower.dot", "same_2x3_3_00_lower.dot"
    ]  # fmt: skip
    expressions = [path.read_text().lower() for path in found]
    assert "abs" not in expressions[0] and all("abs" in text for text in expressions[1:])
    assert len(list(tmp_path.glob("*.dot"))) == 3 * (1 + len(GRAPH))


def test_source_dumps_compile_to_the_same_programs(core, opencl, tmp_path) -> None:
    check(load(core, {"CLDNN_SOURCES_DUMPS_DIR": str(tmp_path)}))
    files = sorted(tmp_path.glob("clDNN_program*.cl"))
    assert len(files) > 3
    builder = ProgramBuilder(opencl)
    for path in files:
        text = path.read_text()
        assert "/* Compiler's log:" in text
        builder.build(path.name, text)


def test_source_of_a_program_that_does_not_compile_is_dumped(core, tmp_path, monkeypatch) -> None:
    from polydevice.errors import KernelBuildError

    monkeypatch.setenv("POLYDEVICE_NO_COMPILE", "1")
    with pytest.raises(KernelBuildError):
        load(core, {"CLDNN_SOURCES_DUMPS_DIR": str(tmp_path)})
    assert all("forbids to compile" in f.read_text() for f in tmp_path.glob("clDNN_program*.cl"))
    assert list(tmp_path.glob("clDNN_program*.cl"))


@pytest.mark.parametrize("key", ["CLDNN_GRAPH_DUMPS_DIR", "CLDNN_SOURCES_DUMPS_DIR"])
def test_dumps_folder_that_cannot_be_written_warns_and_loads(core, key, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        check(load(core, {key: str(tmp_path / "file" / "folder")}))


def test_nothing_is_dumped_by_default(core, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(load(core))
    assert not list(tmp_path.iterdir())


# -- threads, streams, queues ----------------------------------------------------------------------


def _overlap(monkeypatch, owner, name, seconds=0.02):
    """Wrap a method; the returned list gets the number of calls running whenever one starts."""
    real, lock, running, seen = getattr(owner, name), threading.Lock(), [0], []

    def wrapped(self, *args, **kwargs):
        with lock:
            running[0] += 1
            seen.append(running[0])
        try:
            time.sleep(seconds)
            return real(self, *args, **kwargs)
        finally:
            with lock:
                running[0] -= 1

    monkeypatch.setattr(owner, name, wrapped)
    return seen


@pytest.mark.parametrize(("threads", "most"), [("1", 1), ("2", 2)])
def test_number_of_threads_that_compile(core, compiled_here, monkeypatch, threads, most) -> None:
    monkeypatch.setattr("polydevice_gpu.options.available_cores", lambda: 4)
    seen = _overlap(monkeypatch, ProgramBuilder, "_compile")
    check(load(core, {"GPU_MAX_NUM_THREADS": threads}))
    assert max(seen) == most


def test_host_layers_get_the_number_of_threads(core, monkeypatch) -> None:
    asked = []
    real = Core.load_network

    def load_network(self, network, device_name, config=None, num_requests=None):
        asked.append((device_name, dict(config or {})))
        return real(self, network, device_name, config, num_requests)

    model = build(
        [("NonMaxSuppression", ["boxes", "scores"], ["y"], {})],
        {"boxes": [1, 6, 4], "scores": [1, 1, 6]},
        ["y"],
        {},
    )
    network = core.read_network(model)
    monkeypatch.setattr(Core, "load_network", load_network)
    core.load_network(network, "GPU", {"GPU_MAX_NUM_THREADS": "1"})
    assert ("CPU", {"CPU_THREADS_NUM": 1}) in asked


@pytest.mark.parametrize(
    ("config", "streams"),
    [
        ({}, 1),
        ({"GPU_THROUGHPUT_STREAMS": "3"}, 3),
        ({"GPU_THROUGHPUT_STREAMS": "GPU_THROUGHPUT_AUTO"}, 2),
    ],
)
def test_streams_run_at_once_and_outputs_do_not_mix(core, monkeypatch, config, streams) -> None:
    executable = load(core, config)
    assert executable.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == 2 * streams
    rng = np.random.default_rng(2)
    inputs = [{"x": rng.random((2, 3, 14, 14), np.float32)} for _ in range(12)]
    right = [executable.infer(each)["y"] for each in inputs]
    assert all(not np.array_equal(a, b) for a, b in itertools.pairwise(right))
    weights = executable._weights.size_bytes
    requests = [executable.create_infer_request() for _ in range(6)]
    queues = {executable.queue(n)[0].pointer for n in range(8)}
    assert len(queues) == streams
    seen = _overlap(monkeypatch, GpuRunner, "run")
    for start in range(0, 12, 6):
        for request, each in zip(requests, inputs[start : start + 6], strict=True):
            request.start_async(each)
        for request, expected in zip(requests, right[start : start + 6], strict=True):
            request.wait()
            assert np.array_equal(request.get_blob("y").array, expected)
    assert max(seen) == streams
    assert executable._weights.size_bytes == weights > 0  # one copy serves all streams
    memories = {v.memory for v in executable.latest_plan().graph.outputs.values()}
    assert all(memory.place is Place.ARENA for memory in memories)


@pytest.mark.parametrize(("exclusive", "most"), [("YES", 1), ("NO", 2)])
def test_exclusive_requests_of_two_networks(core, monkeypatch, exclusive, most) -> None:
    networks = [load(core, {"EXCLUSIVE_ASYNC_REQUESTS": exclusive}) for _ in range(2)]
    requests = [network.create_infer_request() for network in networks for _ in range(3)]
    seen = _overlap(monkeypatch, GpuRunner, "run")
    for request in requests:
        request.start_async(INPUT)
    for request in requests:
        request.wait()
    assert max(seen) == most


def test_exclusive_is_without_effect_with_streams(core, monkeypatch) -> None:
    config = {"EXCLUSIVE_ASYNC_REQUESTS": "YES", "GPU_THROUGHPUT_STREAMS": "2"}
    executable = load(core, config)
    requests = [executable.create_infer_request() for _ in range(4)]
    seen = _overlap(monkeypatch, GpuRunner, "run")
    for request in requests:
        request.start_async(INPUT)
    for request in requests:
        request.wait()
    assert max(seen) == 2


@pytest.mark.parametrize("key", ["GPU_PLUGIN_PRIORITY", "GPU_PLUGIN_THROTTLE"])
def test_queue_hints_are_used_or_refused_when_loading(core, opencl, key) -> None:
    from polydevice.errors import OptionValueError

    extension = "cl_khr_priority_hints" if "PRIORITY" in key else "cl_khr_throttle_hints"
    core.set_config({key: "1"}, "GPU")  # only loading asks the device
    if extension in opencl.facts.extensions.split():
        check(load(core))
    else:
        with pytest.raises(OptionValueError, match=extension):
            load(core)
    core.set_config({key: "0"}, "GPU")
    check(load(core))


def test_device_id_chooses_the_device(core) -> None:
    from polydevice.errors import DeviceNotFoundError

    assert load(core, {"DEVICE_ID": "0"}).device == "GPU.0"
    with pytest.raises(DeviceNotFoundError, match="Available: GPU.0"):
        load(core, {"DEVICE_ID": "77"})
    core.set_config({"DEVICE_ID": "77"}, "GPU")
    with pytest.raises(DeviceNotFoundError):
        load(core)


# -- metrics and read-back -------------------------------------------------------------------------


def test_metrics_of_an_executable_network(core) -> None:
    executable = load(core, {"PERF_COUNT": "YES"})
    names = ["NETWORK_NAME", "SUPPORTED_METRICS", "SUPPORTED_CONFIG_KEYS"]
    names.append("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
    known = executable.get_metric("SUPPORTED_METRICS")
    assert set(names) <= set(known)
    assert all(executable.get_metric(name) is not None for name in known)
    assert executable.get_metric("NETWORK_NAME") == "test"
    assert executable.get_metric("SUPPORTED_CONFIG_KEYS") == core.get_metric(
        "GPU", "SUPPORTED_CONFIG_KEYS"
    )
    assert executable.get_config("PERF_COUNT") == "YES"
    assert core.get_config("GPU", "PERF_COUNT") == "NO"  # a load changes nothing else


def test_counters_only_with_perf_count(core) -> None:
    from polydevice.errors import InferenceError

    for on in ("YES", "NO"):
        executable = load(core, {"PERF_COUNT": on})
        request = executable.create_infer_request()
        request.infer(INPUT)
        if on == "NO":
            with pytest.raises(InferenceError, match="PERF_COUNT=YES"):
                request.get_perf_counts()
        else:
            assert any(row["real_time"] > 0 for row in request.get_perf_counts().values())


def test_every_key_is_read_back_and_bad_maps_change_nothing(core) -> None:
    from polydevice.errors import OptionError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        keys = core.get_metric("GPU", "SUPPORTED_CONFIG_KEYS")
        before = {key: core.get_config("GPU", key) for key in keys}
        for wrong in (
            {"PERF_COUNT": "YES", "NO_SUCH": "1"},
            {"PERF_COUNT": "YES", "DEVICE_ID": "x"},
        ):
            with pytest.raises(OptionError):
                core.set_config(wrong, "GPU")
        assert {key: core.get_config("GPU", key) for key in keys} == before


# -- precision -------------------------------------------------------------------------------------


def _half_model(quantized: bool) -> bytes:
    """f16 all through; quantised to 8 bits and back in the middle, or not."""
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Cast", ["c"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("QuantizeLinear", ["wide", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("Cast", ["d"], ["back"], to=TensorProto.FLOAT16),
        helper.make_node("Conv", ["back" if quantized else "c", "v"], ["t"]),
        helper.make_node("Exp", ["t"], ["y"]),
    ]
    if not quantized:
        del nodes[1:5]
    rng = np.random.default_rng(9)
    weights = {
        "w": rng.normal(0, 0.2, (4, 3, 3, 3)).astype(np.float16),
        "v": rng.normal(0, 0.2, (4, 4, 1, 1)).astype(np.float16),
    }
    if quantized:
        weights |= {"scale": np.float32(0.01), "zero": np.uint8(128)}
    half = TensorProto.FLOAT16
    graph = helper.make_graph(
        nodes,
        "half",
        [helper.make_tensor_value_info("x", half, [1, 3, 6, 6])],
        [helper.make_tensor_value_info("y", half, [1, 4, 6, 6])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


@pytest.mark.parametrize("hint", ["undefined", "f32", "f16"])
@pytest.mark.parametrize("allowed", ["YES", "NO"])
@pytest.mark.parametrize("quantized", [True, False])
def test_f16_in_quantized_networks(core, quantized, allowed, hint) -> None:
    model = _half_model(quantized)
    config = {"CLDNN_ENABLE_FP16_FOR_QUANTIZED_MODELS": allowed, "INFERENCE_PRECISION_HINT": hint}
    executable = load(core, config, model)
    graph = executable.latest_plan().graph
    inner = {
        value.storage.value
        for node in graph.nodes
        for value in node.outputs
        if not value.is_output and not node.is_view and value.storage.is_float
    }
    widened = hint == "f32" or (quantized and allowed == "NO")
    assert ("f16" not in inner) is widened
    x = {"x": np.random.default_rng(1).random((1, 3, 6, 6)).astype(np.float16)}
    y = executable.infer(x)["y"]
    assert y.dtype == np.float16
    (right,) = answer(model, x)
    np.testing.assert_allclose(y.astype(float), right.astype(float), rtol=0.03, atol=0.01)
