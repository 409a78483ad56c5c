"""Outputs that are called as an input is: each keeps the name that the model gives it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from polydevice import Blob, Core
from polydevice.compat.onnxruntime import InferenceSession
from polydevice.errors import BlobError
from polydevice.readers.ir import read_ir
from polydevice.writers.ir import write_ir

X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)


def model() -> bytes:
    """y = relu(x), and x as it is."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [info("x", TensorProto.FLOAT, ["n", 3])],
        [info("x", TensorProto.FLOAT, ["n", 3]), info("y", TensorProto.FLOAT, ["n", 3])],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.fixture
def core():
    with Core() as core:
        yield core


@pytest.fixture(params=["onnx", "ir"])
def network(core, request, tmp_path):
    read = core.read_network(model())
    if request.param == "onnx":
        return read
    write_ir(read, tmp_path / "m.xml")
    return read_ir(tmp_path / "m.xml")


@pytest.fixture(params=["itself", "HETERO", "AUTO", "MULTI"])
def target(request, device):
    if request.param == "itself":
        return device
    if request.param in ("AUTO", "MULTI"):
        return f"{request.param}:{device}"
    return "HETERO:CPU" if device == "CPU" else f"HETERO:{device},CPU"


@pytest.mark.parametrize("static", [False, True])
def test_results_have_the_names_of_the_model(core, network, target, static):
    assert list(network.inputs) == ["x"]
    assert list(network.outputs) == ["x", "y"]
    if static:
        network.reshape({"x": [2, 3]})
    executable = core.load_network(network, target)
    assert list(executable.outputs) == ["x", "y"]
    request = executable.create_infer_request()
    for data in (X, -2 * X, X):
        found = request.infer({"x": data})
        assert list(found) == ["x", "y"]
        np.testing.assert_array_equal(found["x"], data)
        np.testing.assert_array_equal(found["y"], np.maximum(data, 0))
        assert not np.shares_memory(found["x"], request.get_blob("x").array)


def test_what_differs_from_the_input(core, target):
    """The output keeps its type where the input's is set: the two are not one value."""
    network = core.read_network(model())
    network.inputs["x"].precision = "U8"
    request = core.load_network(network, target).create_infer_request()
    found = request.infer({"x": np.abs(X).astype(np.uint8)})
    assert found["x"].dtype == np.float32
    np.testing.assert_array_equal(found["x"], np.abs(X))
    assert request.get_blob("x").array.dtype == np.uint8
    assert request.get_blob("x", "output").array.dtype == np.float32


def test_memory_by_name_is_the_input(core, network, target):
    network.reshape({"x": [2, 3]})
    request = core.load_network(network, target).create_infer_request()
    mine, out = X.copy(), np.zeros_like(X)
    request.set_blob("x", Blob(mine))
    request.set_blob("x", Blob(out), "output")
    request.infer()
    assert request.get_blob("x").array is mine
    assert request.input_blobs["x"].array is mine
    assert request.output_blobs["x"].array is out
    np.testing.assert_array_equal(out, X)
    for kind in ("result", 7, []):
        with pytest.raises(BlobError, match="kind="):
            request.get_blob("x", kind)
    with pytest.raises(BlobError, match="'y' is an output; inputs: x"):
        request.get_blob("y", "input")


def test_asynchronously(core, network, target):
    executable = core.load_network(network, target)
    request = executable.create_infer_request()
    request.start_async({"x": X})
    request.wait()
    np.testing.assert_array_equal(request.output_blobs["x"].array, X)


def test_in_an_imported_network(core, network, device):
    network.reshape({"x": [2, 3]})
    content = core.load_network(network, device).export()
    executable = core.import_network(content, device)
    assert list(executable.outputs) == ["x", "y"]
    np.testing.assert_array_equal(executable.infer({"x": X})["x"], X)


def test_in_programs_of_another_runtime():
    session = InferenceSession(model(), providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_outputs()] == ["x", "y"]
    for got, want in zip(session.run(["x", "y"], {"x": X}), (X, np.maximum(X, 0)), strict=True):
        np.testing.assert_array_equal(got, want)
    binding, out = session.io_binding(), np.zeros_like(X)
    binding.bind_cpu_input("x", X)
    binding.bind_output("x", "cpu", 0, np.float32, out.shape, out.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(out, X)
