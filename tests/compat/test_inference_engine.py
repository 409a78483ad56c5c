"""Programs of the Python API of 2021, written down from OpenVINO's samples in our own words.

What they print is held against OpenVINO's API of today on the same files: the package whose
interface this is has not been published since 2024.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino.opset8 as ops
import pytest

import polydevice.compat.inference_engine as ie
from polydevice.compat.inference_engine.surface import ABSENT, DIFFERENT, OURS

random = np.random.default_rng(0)

MEMBERS = {
    "IECore": "available_devices get_versions read_network load_network import_network "
    "query_network set_config get_config get_metric register_plugin register_plugins "
    "unregister_plugin add_extension",
    "IENetwork": "name input_info inputs outputs batch_size add_outputs reshape serialize "
    "get_ov_name_for_tensor",
    "ExecutableNetwork": "requests input_info inputs outputs infer start_async wait "
    "get_idle_request_id get_exec_graph_info get_metric get_config export",
    "InferRequest": "infer async_infer wait set_completion_callback input_blobs output_blobs "
    "inputs outputs set_blob preprocess_info set_batch get_perf_counts latency query_state",
    "TensorDesc": "precision dims layout",
    "Blob": "buffer tensor_desc",
    "InputInfoPtr": "name precision layout preprocess_info tensor_desc input_data",
    "InputInfoCPtr": "name precision tensor_desc input_data",
    "DataPtr": "name precision shape layout initialized",
    "CDataPtr": "name precision shape layout initialized",
    "PreProcessInfo": "get_number_of_channels init set_mean_image set_mean_image_for_channel "
    "mean_variant resize_algorithm color_format",
    "PreProcessChannel": "mean_value std_scale mean_data",
    "VariableState": "name state reset",
    "MeanVariant": "MEAN_IMAGE MEAN_VALUE NONE",
    "ResizeAlgorithm": "NO_RESIZE RESIZE_BILINEAR RESIZE_AREA",
    "ColorFormat": "RAW RGB BGR RGBX BGRX NV12 I420",
    "WaitMode": "RESULT_READY STATUS_ONLY",
    "StatusCode": "OK GENERAL_ERROR NOT_IMPLEMENTED NETWORK_NOT_LOADED PARAMETER_MISMATCH "
    "NOT_FOUND OUT_OF_BOUNDS UNEXPECTED REQUEST_BUSY RESULT_NOT_READY NOT_ALLOCATED "
    "INFER_NOT_STARTED NETWORK_NOT_READ",
}
"""The public classes of the API of 2021.4, with their members."""


@pytest.mark.parametrize("owner", MEMBERS)
def test_every_member_is_here(owner: str) -> None:
    assert owner in ie.__all__
    for member in MEMBERS[owner].split():
        assert hasattr(getattr(ie, owner), member), member


def test_the_tables_name_what_there_is() -> None:
    known = {*MEMBERS, "get_version", "read_network"}
    known |= {f"{owner}.{name}" for owner, names in MEMBERS.items() for name in names.split()}
    assert known - set(ie.__all__) == {each for each in known if "." in each}
    assert set(DIFFERENT) | set(OURS) <= known
    assert not set(ABSENT) & known
    with pytest.raises(AttributeError, match=r"no 'IEPlugin'"):
        ie.IEPlugin  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"IENetwork has no 'layers': removed in 2021"):
        ie.IENetwork.__new__(ie.IENetwork).layers  # type: ignore[attr-defined]  # noqa: B018


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small convolutional network with a batch that a Reshape does not write out."""
    x = ops.parameter([1, 3, 12, 10], np.float32, name="data")
    weights = random.standard_normal((5, 3, 3, 3)).astype(np.float32) / 5
    y = ops.convolution(x, ops.constant(weights), [2, 2], [1, 1], [1, 1], [1, 1], name="conv")
    y = ops.relu(y, name="act")
    y = ops.reduce_mean(y, np.array([2, 3]), False, name="mean")
    y = ops.softmax(y, 1, name="prob")
    path = tmp_path_factory.mktemp("ir") / "net.xml"
    openvino.serialize(openvino.Model([y], [x], "net"), path, path.with_suffix(".bin"))
    return path


def answer(model: Any, *inputs: Any) -> np.ndarray[Any, Any]:
    """What OpenVINO of today says, in f32."""
    core = openvino.Core()
    made = core.read_model(model) if isinstance(model, Path) else model
    compiled = core.compile_model(made, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found: np.ndarray[Any, Any] = compiled(list(inputs))[0]
    return found


def test_hello_classification(classifier: Path, device: str) -> None:
    core = ie.IECore()
    net = core.read_network(model=str(classifier))
    (input_blob,), (out_blob,) = net.input_info, net.outputs
    net.input_info[input_blob].precision = "U8"
    net.outputs[out_blob].precision = "FP32"
    assert net.input_info[input_blob].input_data.shape == [1, 3, 12, 10]
    _, _, height, width = net.input_info[input_blob].input_data.shape
    image = random.integers(0, 256, (height, width, 3)).astype(np.uint8)
    loaded = core.load_network(network=net, device_name=device)
    result = loaded.infer(inputs={input_blob: np.expand_dims(image.transpose(2, 0, 1), 0)})
    wanted = answer(classifier, image.transpose(2, 0, 1)[None].astype(np.float32))
    np.testing.assert_allclose(result[out_blob], wanted, rtol=1e-4, atol=1e-5)
    before = result[out_blob].copy()
    loaded.infer({input_blob: np.zeros((1, 3, 12, 10))})
    np.testing.assert_array_equal(result[out_blob], before)


def test_hello_reshape_with_preprocessing_of_layout_and_size(classifier: Path, device: str) -> None:
    core = ie.IECore()
    net = core.read_network(str(classifier), str(classifier.with_suffix(".bin")))
    net.reshape({"data": [1, 3, 8, 9]})
    net.batch_size = 2
    assert net.batch_size == 2
    assert net.input_info["data"].input_data.shape == [2, 3, 8, 9]
    info = net.input_info["data"]
    info.layout, info.precision = "NHWC", "U8"
    info.preprocess_info.init(3)
    for channel, mean in enumerate((10.0, 20.0, 30.0)):
        info.preprocess_info[channel].mean_value = mean
    image = random.integers(0, 256, (2, 8, 9, 3)).astype(np.uint8)
    planar = image.transpose(0, 3, 1, 2).astype(np.float32)
    means = np.array([10, 20, 30], np.float32).reshape(1, 3, 1, 1)
    model = openvino.Core().read_model(classifier)
    model.reshape([2, 3, 8, 9])
    for variant, wanted in (
        (ie.MeanVariant.NONE, planar),
        (ie.MeanVariant.MEAN_VALUE, planar - means),
    ):
        info.preprocess_info.mean_variant = variant
        loaded = core.load_network(net, device)
        (result,) = loaded.infer({"data": image}).values()
        np.testing.assert_allclose(result, answer(model, wanted), rtol=1e-4, atol=1e-5)
        assert loaded.input_info["data"].tensor_desc == ie.TensorDesc("U8", [2, 3, 8, 9], "NHWC")
    with pytest.raises(AttributeError, match="nothing"):
        net.reshape({"nothing": [1]})
    with pytest.raises(AttributeError, match="batch size 0"):
        net.batch_size = 0


def test_classification_async(classifier: Path, device: str) -> None:
    core = ie.IECore()
    loaded = core.load_network(core.read_network(classifier), device, num_requests=3)
    images = random.standard_normal((7, 1, 3, 12, 10)).astype(np.float32)
    wanted = [answer(classifier, image) for image in images]
    statuses: list[tuple[int, int]] = []
    for request in loaded.requests:
        request.set_completion_callback(lambda status, i: statuses.append((status, i)), 9)
    found: dict[int, np.ndarray[Any, Any]] = {}
    running: dict[int, int] = {}
    for index, image in enumerate(images):
        slot = index % 3
        if slot in running:
            assert loaded.requests[slot].wait() == ie.StatusCode.OK
            (blob,) = loaded.requests[slot].output_blobs.values()
            found[running[slot]] = blob.buffer
        loaded.start_async(slot, {"data": image})
        running[slot] = index
    assert loaded.wait() == 0
    for slot, index in running.items():
        loaded.requests[slot].wait(-1)
        (found[index],) = (blob.buffer for blob in loaded.requests[slot].output_blobs.values())
    np.testing.assert_allclose([found[i] for i in range(7)], wanted, rtol=1e-4, atol=1e-5)
    assert statuses == [(0, 9)] * 7
    assert loaded.get_idle_request_id() in range(3)
    assert loaded.requests[0].latency > 0
    with pytest.raises(ValueError, match="request_id specified: 3"):
        loaded.start_async(3)


def test_blobs_are_shared(classifier: Path, device: str) -> None:
    core = ie.IECore()
    loaded = core.load_network(str(classifier), device, num_requests=1)
    (request,) = loaded.requests
    image = random.standard_normal((1, 3, 12, 10)).astype(np.float32)
    request.input_blobs["data"].buffer[:] = image
    request.infer()
    wanted = answer(classifier, image)
    (blob,) = request.output_blobs.values()
    np.testing.assert_allclose(blob.buffer, wanted, rtol=1e-4, atol=1e-5)
    own = np.zeros((1, 3, 12, 10), np.float32)
    held = ie.Blob(ie.TensorDesc("FP32", [1, 3, 12, 10], "NCHW"), own)
    request.set_blob("data", held)
    own[:] = -image
    request.infer()
    (blob,) = request.output_blobs.values()
    np.testing.assert_allclose(blob.buffer, answer(classifier, -image), rtol=1e-4, atol=1e-5)
    request.infer({"data": image})
    np.testing.assert_array_equal(own, image)
    assert request.input_blobs["data"] is held
    with pytest.raises(AssertionError, match="No input with name nothing"):
        request.infer({"nothing": image})
    with pytest.raises(ValueError, match="broadcast"):
        request.infer({"data": np.zeros((1, 3, 12, 11), np.float32)})
    with pytest.raises(RuntimeError):
        request.set_blob("data", ie.Blob(ie.TensorDesc("I32", [1, 3, 12, 10], "NCHW")))
    with pytest.raises(TypeError, match="loaded network"):
        request.preprocess_info["data"].resize_algorithm = ie.ResizeAlgorithm.RESIZE_AREA


def test_a_stateful_network_keeps_its_state(tmp_path: Path, device: str) -> None:
    """As the speech sample does: frames one after the other, and a reset between utterances."""
    x = ops.parameter([1, 4], np.float32, name="frame")
    start = ops.constant(np.zeros((1, 4), np.float32))
    from polydevice.compat.openvino import Model, opset6, serialize

    mine = opset6.parameter([1, 4], np.float32, name="frame")
    read = opset6.read_value(opset6.constant(np.zeros((1, 4), np.float32)), "sum")
    total = opset6.add(read, mine)
    keep = opset6.assign(total, "sum")
    serialize(Model([opset6.relu(total, name="out")], [keep], [mine], "sum"), tmp_path / "s.xml")
    assert x.get_output_size() == start.get_output_size()
    loaded = ie.IECore().load_network(ie.IECore().read_network(tmp_path / "s.xml"), device)
    frames = random.random((5, 1, 4)).astype(np.float32)
    (state,) = loaded.requests[0].query_state()
    assert state.name == "sum"
    for _ in range(2):
        state.reset()
        for count in range(1, 6):
            (result,) = loaded.infer({"frame": frames[count - 1]}).values()
            np.testing.assert_allclose(result, frames[:count].sum(0), rtol=1e-5)
        np.testing.assert_allclose(state.state.buffer, frames.sum(0), rtol=1e-5)


def test_hello_query_device() -> None:
    core = ie.IECore()
    for device in core.available_devices:
        metrics = core.get_metric(device, "SUPPORTED_METRICS")
        assert all(core.get_metric(device, name) is not None for name in metrics)
        for key in core.get_metric(device, "SUPPORTED_CONFIG_KEYS"):
            assert isinstance(core.get_config(device, key), str)
    version = core.get_versions("CPU")["CPU"]
    assert version.major >= 0
    assert "CPU" in version.description
    assert ie.get_version().startswith("2021.4.2")


def test_networks_are_written_queried_and_exported(classifier: Path, tmp_path: Path) -> None:
    core = ie.IECore()
    net = core.read_network(classifier)
    assert set(core.query_network(net, "CPU").values()) == {"CPU"}
    net.add_outputs("act")
    net.add_outputs([("conv", 0)])
    assert {"act", "conv"} < set(net.outputs)
    with pytest.raises(TypeError):
        net.add_outputs(7)
    net.serialize(str(tmp_path / "more.xml"))
    again = core.read_network(str(tmp_path / "more.xml"), str(tmp_path / "more.bin"))
    assert sorted(again.outputs) == sorted(net.outputs)
    content = core.read_network(
        (tmp_path / "more.xml").read_bytes(), (tmp_path / "more.bin").read_bytes(), True
    )
    image = random.standard_normal((1, 3, 12, 10)).astype(np.float32)
    loaded = core.load_network(content, "CPU", {"PERF_COUNT": "YES"})
    results = loaded.infer({"data": image})
    assert (results["act"] == np.maximum(results["conv"], 0)).all()
    counts = loaded.requests[0].get_perf_counts()
    assert {"status", "exec_type", "layer_type", "real_time"} <= set(next(iter(counts.values())))
    loaded.export(str(tmp_path / "blob"))
    imported = core.import_network(tmp_path / "blob", "CPU", num_requests=2)
    assert len(imported.requests) == 2
    for name, value in imported.infer({"data": image}).items():
        np.testing.assert_array_equal(value, results[name])
    assert loaded.get_exec_graph_info().name
    assert loaded.get_metric("NETWORK_NAME") == "net"
    assert loaded.get_config("PERF_COUNT") == "YES"


def test_wrong_use_is_told(classifier: Path) -> None:
    core = ie.IECore()
    with pytest.raises(Exception, match="doesn't exist"):
        core.read_network("nothing.xml")
    net = core.read_network(classifier)
    with pytest.raises(ValueError, match="-1"):
        core.load_network(net, "CPU", num_requests=-1)
    with pytest.raises(TypeError, match="text"):
        core.load_network(net, "CPU", {"PERF_COUNT": True})  # type: ignore[dict-item]
    with pytest.raises(RuntimeError, match="NONSENSE"):
        core.load_network(net, "CPU", {"NONSENSE": "YES"})
    with pytest.raises(RuntimeError, match="NONSENSE"):
        core.load_network(net, "NONSENSE")
    with pytest.raises(RuntimeError, match="register_operations"):
        core.add_extension("libmine.so", "CPU")
    with pytest.raises(RuntimeError, match="entry points"):
        ie.IECore("plugins.xml")
    with pytest.raises(ValueError, match="FP31"):
        net.input_info["data"].precision = "FP31"
    with pytest.raises(ValueError, match="XYZ"):
        net.input_info["data"].layout = "XYZ"
    with pytest.warns(DeprecationWarning, match="read_network"):
        assert ie.IENetwork(str(classifier)).name == "net"


def test_descriptions_and_blobs() -> None:
    desc = ie.TensorDesc("FP16", [2, 3], "NC")
    assert copy.deepcopy(desc) == desc != ie.TensorDesc("FP16", [2, 3], "HW")
    with pytest.raises(KeyError):
        ie.TensorDesc("FP16", [2, 3], "NX")
    with pytest.raises(ValueError, match="NX"):
        desc.layout = "NX"
    assert ie.Blob(desc).buffer.dtype == np.float16
    array = np.arange(6, dtype=np.float32)
    desc.precision = "FP32"
    blob = ie.Blob(desc, array)
    assert np.shares_memory(blob.buffer, array)
    assert not np.shares_memory(copy.deepcopy(blob).buffer, array)
    assert ie.Blob(desc, np.asfortranarray(array.reshape(2, 3))).buffer.tolist() == [
        0,
        3,
        1,
        4,
        2,
        5,
    ]
    with pytest.raises(AttributeError, match="7"):
        ie.Blob(desc, np.zeros(7, np.float32))
    with pytest.raises(ValueError, match="int32"):
        ie.Blob(desc, np.zeros(6, np.int32))
    assert ie.Blob(ie.TensorDesc("U8", [], "SCALAR")).buffer.shape == (1,)


PROGRAM = """
import sys
from openvino.inference_engine import IECore, Blob
from openvino.inference_engine.ie_api import IENetwork
from openvino.inference_engine.constants import StatusCode
net = IECore().read_network(sys.argv[1])
loaded = IECore().load_network(net, "CPU")
(result,) = loaded.infer({"data": 1}).values()
print(type(net) is IENetwork, result.shape, IECore.__module__)
"""


@pytest.mark.parametrize("facade", ["inference_engine", "openvino"])
def test_a_program_finds_it_under_its_name(facade: str, classifier: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "polydevice", "run", "--as", facade]
    done = subprocess.run(
        [*command, tmp_path / "program.py", classifier],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True (1, 5) polydevice.compat.inference_engine.core\n"
    (tmp_path / "other.py").write_text("import openvino.runtime")
    other = subprocess.run(
        [*command[:-1], "inference_engine", tmp_path / "other.py"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert other.returncode == 1
    assert "has no 'openvino.runtime'" in other.stderr


def digits(ops: Any, function: Any) -> Any:
    """A network for digits, built with the functions of an operation set."""
    numbers = np.random.default_rng(8)
    image = ops.parameter([1, 1, 12, 12], np.float32, "image")
    kernels = ops.constant(numbers.standard_normal((6, 1, 5, 5)).astype(np.float32))
    layer = ops.convolution(image, kernels, [1, 1], [0, 0], [0, 0], [1, 1])
    layer = ops.add(layer, ops.constant(np.ones((1, 6, 1, 1), np.float32)))
    layer = ops.max_pool(layer, [2, 2], [0, 0], [0, 0], [2, 2], "ceil", None)
    layer = ops.relu(ops.reshape(layer, np.array([-1, 96]), True))
    weights = ops.constant(numbers.standard_normal((10, 96)).astype(np.float32) / 30)
    scores = ops.softmax(ops.matmul(layer, weights, False, True), 1)
    return function([scores], [image], "digits")


def test_networks_are_built_and_looked_at_with_ngraph() -> None:
    import openvino.opset7 as there
    from polydevice.compat.ngraph.opset5 import hswish

    import polydevice.compat.ngraph as ng

    function = digits(ng, ng.Function)
    network = ie.IENetwork(ng.Function.to_capsule(function))
    network.input_info["image"].precision = "U8"
    image = np.random.default_rng(9).integers(0, 9, (1, 1, 12, 12)).astype(np.uint8)
    (found,) = ie.IECore().load_network(network, "CPU").infer({"image": image}).values()
    compiled = openvino.compile_model(
        digits(there, openvino.Model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    np.testing.assert_allclose(found, compiled(image.astype(np.float32))[0], atol=1e-5)
    nodes = ng.function_from_cnn(network).get_ordered_ops()
    kinds = [node.get_type_name() for node in nodes if node.get_input_size() == 1]
    assert kinds == ["MaxPool", "Relu", "Softmax", "Result"]
    assert ng.function_to_cnn(function).name == "digits"
    assert hswish(ng.parameter([2])).get_type_name() == "HSwish"
    assert ng.impl.Function.from_capsule(function).get_friendly_name() == "digits"
    with pytest.raises(AttributeError, match="no 'nonsense'"):
        ng.nonsense  # noqa: B018
    with pytest.raises(ImportError, match="opset9"):
        from polydevice.compat.ngraph import opset9  # noqa: F401
