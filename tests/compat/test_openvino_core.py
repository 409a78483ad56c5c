"""Devices, properties and errors of the stand-in for openvino, which need no comparison."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import polydevice.compat.openvino.runtime.opset8 as old_opset
import pytest

import polydevice.compat.openvino as ov
import polydevice.compat.openvino.properties as props
import polydevice.compat.openvino.runtime as old
from polydevice.compat.openvino import opset13 as ops
from polydevice.compat.openvino import passes
from polydevice.compat.openvino.properties import hint
from polydevice_cpu import processor


@pytest.fixture
def model() -> ov.Model:
    x = ops.parameter([1, 4], np.float32, name="x")
    return ov.Model([ops.relu(x, name="y")], [x], "small")


IMAGE = np.array([[-1, 2, -3, 4]], np.float32)


@pytest.mark.parametrize("module", ["openvino", "polydevice.compat.openvino"])
def test_a_constant_shares_an_array_or_copies_it(module) -> None:
    constant = importlib.import_module(f"{module}.op").Constant
    for shared in (True, False):
        array = np.arange(3, dtype=np.float32)
        made = constant(array, shared_memory=shared)
        array[1] = 9
        assert made.data.tolist() == [0, 9 if shared else 1, 2]


@pytest.mark.parametrize(("kind", "done"), [("Relu", False), ("Tanh", True), ("Relu", True)])
def test_a_rewrite_says_whether_it_changed_anything(model, kind: str, done: bool) -> None:
    """OpenVINO's own says nothing."""
    rewrite = passes.GraphRewrite()
    matcher = passes.Matcher(passes.WrapType(f"opset13.{kind}"), "m")
    rewrite.add_matcher(passes.MatcherPass(matcher, lambda _: done))
    assert rewrite.run_on_model(model) is (done and kind == "Relu")


@pytest.mark.parametrize("start", [None, 5])
def test_a_variable_begins_with_its_value_or_zeros(start: int | None) -> None:
    first = [] if start is None else [ops.constant(np.full((1, 2), start, np.float32))]
    held = ops.read_value(*first, "sum", np.float32, [1, 2])
    x = ops.parameter([1, 2], np.float32)
    more = ops.add(held, x)
    model = ov.Model([ops.result(more)], [ops.assign(more, "sum")], [x], "keep")
    request = ov.Core().compile_model(model, "CPU").create_infer_request()
    for turn in (1, 2):
        found = request.infer({0: np.ones((1, 2), np.float32)})[0]
        np.testing.assert_array_equal(found, np.full((1, 2), (start or 0) + turn))


@pytest.mark.parametrize("shares", [False, True])
def test_starting_copies_inputs_unless_they_are_shared(model: ov.Model, shares: bool) -> None:
    request = ov.Core().compile_model(model, "CPU").create_infer_request()
    image = IMAGE.copy()
    request.start_async({0: image}, share_inputs=shares)
    request.wait()
    image[0, 0] = 7
    request.infer()
    assert request.get_output_tensor().data[0, 0] == (7 if shares else 0)


def test_a_whole_batch_may_be_the_only_item(model: ov.Model) -> None:
    request = ov.Core().compile_model(model, "CPU").create_infer_request()
    request.set_input_tensors([ov.Tensor(IMAGE)])
    request.infer()
    assert request.get_output_tensor().data.tolist() == [[0, 2, 0, 4]]


def test_without_a_device_auto_chooses_one(model: ov.Model) -> None:
    for compiled in (
        ov.compile_model(model),
        ov.Core().compile_model(model),
        ov.Core().compile_model(model, "AUTO", {props.device.priorities(): "CPU"}),
        ov.Core().compile_model(model, "MULTI", [props.device.priorities("CPU")]),
        ov.Core().compile_model(model, {"PERFORMANCE_HINT": "LATENCY"}),
    ):
        assert compiled(IMAGE)[0].tolist() == [[0, 2, 0, 4]]


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        ({"NUM_STREAMS": 2}, "CPU_THROUGHPUT_STREAMS", "2"),
        ({props.num_streams(): props.streams.Num(3)}, "CPU_THROUGHPUT_STREAMS", "3"),
        ({"INFERENCE_NUM_THREADS": 1}, "CPU_THREADS_NUM", "1"),
        (props.inference_num_threads(2), "CPU_THREADS_NUM", "2"),
        ({"PERF_COUNT": True}, "PERF_COUNT", "YES"),
        ({props.enable_profiling: False}, "PERF_COUNT", "NO"),
        (hint.performance_mode(hint.PerformanceMode.THROUGHPUT), "PERFORMANCE_HINT", "THROUGHPUT"),
        ({"PERFORMANCE_HINT": "CUMULATIVE_THROUGHPUT"}, "PERFORMANCE_HINT", "THROUGHPUT"),
        pytest.param(
            *({"INFERENCE_PRECISION_HINT": ov.Type.bf16}, "ENFORCE_BF16", "YES"),
            marks=pytest.mark.skipif(
                not processor.has_bf16(), reason="no bfloat16 on this processor"
            ),
        ),
        ({hint.inference_precision(): "f32"}, "ENFORCE_BF16", "NO"),
        ({"DEVICE_PROPERTIES": {"CPU": {"NUM_STREAMS": 4}}}, "CPU_THROUGHPUT_STREAMS", "4"),
        ({"EXECUTION_MODE_HINT": hint.ExecutionMode.ACCURACY}, "ENFORCE_BF16", "NO"),
    ],
)
def test_a_property_becomes_a_configuration_key(
    given: Any, key: str, value: str, model: ov.Model
) -> None:
    compiled = ov.Core().compile_model(model, "CPU", given)
    assert compiled._loaded.executable.get_config(key) == value
    core = ov.Core()
    core.set_property("CPU", given)
    assert core._core.get_config("CPU", key) == value


def test_properties_are_read_back() -> None:
    core = ov.Core()
    core.set_property({"NUM_STREAMS": 2})
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": 2, "ENABLE_CPU_PINNING": False})
    assert core.get_property("CPU", props.num_streams()) == 2
    assert core.get_property("CPU", "INFERENCE_NUM_THREADS") == 2
    assert core.get_property("CPU", "INFERENCE_PRECISION_HINT") == ov.Type.f32
    assert core.get_property("CPU", "ENABLE_CPU_PINNING") is False
    supported = core.get_property("CPU", props.supported_properties())
    assert supported["NUM_STREAMS"] == "RW"
    assert supported["FULL_DEVICE_NAME"] == "RO"
    for name in supported:
        assert core.get_property("CPU", name) is not None, name


def test_what_is_refused_says_what_to_do(model: ov.Model, tmp_path: Path) -> None:
    core = ov.Core()
    with pytest.raises(RuntimeError, match="register_operations"):
        core.add_extension("libmine.so")
    with pytest.raises(RuntimeError, match="entry points"):
        ov.Core("plugins.xml")
    with pytest.raises(RuntimeError, match="INFERENCE_NUM_THREADS"):
        core.set_property("CPU", {"INFERENCE_NUM_THREAD": 1})
    with pytest.raises(RuntimeError, match="NONSENSE"):
        core.compile_model(model, "NONSENSE")
    with pytest.raises(RuntimeError, match="keeps its configuration"):
        core.compile_model(model, "CPU").set_property({"NUM_STREAMS": 2})
    with pytest.raises(RuntimeError, match="undeclared parameters: x"):
        ov.Model(model.results, [], "none")
    with pytest.raises(AttributeError, match="'OpExtension': extensions are"):
        ov.OpExtension  # noqa: B018
    with pytest.raises(RuntimeError, match="no parameter of the body"):
        ops.tensor_iterator().set_invariant_input(ops.parameter([2]), ops.parameter([2]))
    with pytest.raises(RuntimeError, match="PyTorch|ONNX"):
        ov.convert_model(object())
    broken = tmp_path / "broken.xml"
    broken.write_text("<net")
    with pytest.raises(RuntimeError, match=r"broken\.xml"):
        core.read_model(broken)
    with pytest.raises(RuntimeError, match="does not accept|broadcast"):
        ops.add(ops.parameter([2], np.float32), ops.parameter([3], np.float32))


def test_the_runtime_module_of_former_releases_is_the_same() -> None:
    assert old.Core is ov.Core
    assert old_opset is ov.opset8
    assert old.properties.hint is hint  # type: ignore[attr-defined]


def test_graphs_are_changed_through_their_nodes(model: ov.Model) -> None:
    (node,) = [each for each in model.get_ops() if each.get_type_name() == "Relu"]
    (reader,) = node.output(0).get_target_inputs()
    assert reader == reader.get_node().input(reader.get_index()) != node.input(0)
    reader.replace_source_output(ops.negative(node).output(0))
    model.validate_nodes_and_infer_types()
    assert ov.compile_model(model, "CPU")(IMAGE)[0].tolist() == [[0, -2, 0, -4]]
    node.input_value(0).replace(ops.abs(node.input_value(0)).output(0))
    assert ov.compile_model(model, "CPU")(IMAGE)[0].tolist() == [[-1, -2, -3, -4]]
    with pytest.raises(RuntimeError):
        reader.replace_source_output(ov.op.Constant(np.zeros(3, np.float32)).output(9))


def test_a_request_keeps_its_memory_and_says_when_it_runs(model: ov.Model) -> None:
    compiled = ov.compile_model(model, "CPU")
    request = compiled.create_infer_request()
    own = np.zeros((1, 4), np.float32)
    request.set_output_tensor(ov.Tensor(own, shared_memory=True))
    request.infer(IMAGE)
    assert own.tolist() == [[0, 2, 0, 4]]
    for number in (-1, 1):
        with pytest.raises(RuntimeError, match=f"there is no input {number}; the model has 1"):
            request.get_input_tensor(number)
    compiled(IMAGE)
    compiled.release_memory()
    assert compiled(-IMAGE)[0].tolist() == [[1, 0, 3, 0]]
    queue = ov.AsyncInferQueue(compiled, 2)

    def fail(_: ov.InferRequest, number: int) -> None:
        raise ValueError(f"number {number}")

    queue.set_callback(fail)
    queue.start_async(IMAGE, 7)
    with pytest.raises(ValueError, match="number 7"):
        queue.wait_all()


@pytest.mark.parametrize("by_property", [True, False])
def test_a_model_says_that_it_comes_from_the_cache(
    by_property: bool, device: str, model: ov.Model, tmp_path: Path
) -> None:
    device = device.partition(".")[0]
    if device.startswith("HETERO"):
        pytest.skip("has parts, of which each may come from the cache")
    for wanted in (False, True, True):
        core = ov.Core()
        config = {props.cache_dir: tmp_path / "cache"}
        if by_property:
            core.set_property(config)
        compiled = core.compile_model(model, device, {} if by_property else config)
        assert compiled.get_property(props.loaded_from_cache) is wanted
        assert compiled(IMAGE)[0].tolist() == [[0, 2, 0, 4]]
    assert ov.Core().compile_model(model, device).get_property("LOADED_FROM_CACHE") is False
