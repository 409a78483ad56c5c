"""Weights that a plan has packed are let go of, and read again from the model's file if need be."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core
from polydevice.errors import ModelFileError
from polydevice.executable_network import ExecutableNetwork
from polydevice.files.stored import StoredBuffer, stored_buffer
from polydevice_cpu.onednn.library import library

pytestmark = pytest.mark.skipif(library() is None, reason="oneDNN packs weights, NumPy does not")

SIZE = 1024  # products of 4 MiB of weights, beside a table that is looked up in

X = {"x": np.random.default_rng(3).standard_normal((2, SIZE)).astype(np.float32)}


@pytest.fixture
def core():
    with Core() as core:
        yield core


def _model() -> onnx.ModelProto:
    """y = w2 ((w1 x) scaled) + a row of a table."""
    rng = np.random.default_rng(1)
    weights = {
        "w1": rng.standard_normal((SIZE, SIZE)),
        "w2": rng.standard_normal((SIZE, SIZE)),
        "table": rng.standard_normal((4, SIZE)),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["c"]),
        helper.make_node("ArgMax", ["x"], ["most"], axis=1, keepdims=0),
        helper.make_node("Mod", ["most", "four"], ["index"]),
        helper.make_node("Gather", ["table", "index"], ["row"]),
        helper.make_node("Add", ["c", "row"], ["y"]),
    ]
    stored = [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()]
    stored.append(numpy_helper.from_array(np.array(4), "four"))
    graph = helper.make_graph(
        nodes,
        "kept",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, SIZE])],
        stored,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(params=["in the file", "beside it"])
def file(request, tmp_path: Path) -> Path:
    """The model; its weights lie in `weights`."""
    path = tmp_path / "kept.onnx"
    beside = request.param == "beside it"
    onnx.save(_model(), path, save_as_external_data=beside, location="kept.data")
    return path


def _weights(file: Path) -> Path:
    beside = file.with_name("kept.data")
    return beside if beside.exists() else file


def _loaded(
    core: Core, file: Path
) -> tuple[ExecutableNetwork, dict[str, weakref.ref[StoredBuffer]]]:
    """A loaded network, and its weights as they were read."""
    network = core.read_network(file)
    buffers = {}
    for name in ("w1", "w2", "table"):
        constant = network.node(name).constant
        assert constant is not None
        buffer = stored_buffer(constant)
        assert buffer is not None
        buffers[name] = weakref.ref(buffer)
    executable = core.load_network(network, "CPU")
    del network, constant, buffer
    gc.collect()
    return executable, buffers


def _wanted() -> np.ndarray:
    values = {each.name: numpy_helper.to_array(each) for each in _model().graph.initializer}
    rows = values["table"][X["x"].argmax(1) % 4]
    return np.maximum(X["x"] @ values["w1"], 0) @ values["w2"] + rows


def test_what_is_packed_is_let_go(core, file):
    executable, buffers = _loaded(core, file)
    assert {name for name, buffer in buffers.items() if buffer() is not None} == {"table"}
    packed = executable.get_metric("WEIGHTS_BYTES")
    assert 8 << 20 <= packed < 9 << 20
    request = executable.requests[0]
    np.testing.assert_allclose(request.infer(X)["y"], _wanted(), rtol=1e-4, atol=1e-2)
    assert executable.memory.used_bytes < 10 << 20  # packed weights, the table, and little else


def test_a_network_that_is_kept_keeps_its_weights(core, file):
    network = core.read_network(file)
    executable = core.load_network(network, "CPU")
    gc.collect()
    w1 = network.node("w1").constant
    assert w1 is not None
    np.testing.assert_array_equal(w1, numpy_helper.to_array(_model().graph.initializer[0]))
    assert executable.memory.used_bytes > 16 << 20
    del network, w1
    gc.collect()
    assert executable.memory.used_bytes < 10 << 20


def _buffers() -> dict[int, StoredBuffer]:
    """Return what lives of weights that know their place, by identity."""
    return {id(each): each for each in gc.get_objects() if isinstance(each, StoredBuffer)}


def test_weights_do_not_wait_for_the_garbage_collector(core, file):
    gc.collect()
    others = _buffers()  # of networks that other tests keep
    gc.disable()
    try:
        executable = core.load_network(file, "CPU")
        found = [each.nbytes for number, each in _buffers().items() if number not in others]
    finally:
        gc.enable()
    assert found == [4 * 4 * SIZE]  # the table
    np.testing.assert_allclose(executable.infer(X)["y"], _wanted(), rtol=1e-4, atol=1e-2)


def test_it_is_exported_all_the_same(core, file):
    executable, _ = _loaded(core, file)
    imported = core.import_network(executable.export(), "CPU")
    np.testing.assert_array_equal(imported.infer(X)["y"], executable.infer(X)["y"])
    assert executable.get_exec_graph_info().nodes()


def test_a_plan_for_one_thread_is_made_of_them(core, file):
    executable, _ = _loaded(core, file)
    plan = executable.latest_plan()
    alone = executable.compiled.plan_alone(plan, ((2, SIZE),))
    assert alone is not None
    gc.collect()
    assert executable.get_metric("WEIGHTS_BYTES") < 9 << 20  # the packed weights are the same


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_file_may_go(core, file, how):
    """It is held open."""
    executable, _ = _loaded(core, file)
    weights = _weights(file)
    if how == "deleted":
        weights.unlink()
    else:
        other = weights.with_name("other")
        other.write_bytes(bytes(weights.stat().st_size))
        other.replace(weights)
    imported = core.import_network(executable.export(), "CPU")
    np.testing.assert_array_equal(imported.infer(X)["y"], executable.infer(X)["y"])


@pytest.mark.parametrize("size", ["as large", "shorter"])
def test_a_file_that_is_written_over(core, file, size):
    executable, _ = _loaded(core, file)
    before = executable.infer(X)["y"].copy()
    weights = _weights(file)
    with weights.open("r+b") as opened:
        if size == "shorter":
            opened.truncate(weights.stat().st_size // 2)
        else:
            opened.seek(weights.stat().st_size // 2)
            opened.write(bytes(4096))
    np.testing.assert_array_equal(executable.infer(X)["y"], before)
    assert executable.compiled.plan_alone(executable.latest_plan(), ((2, SIZE),)) is None
    with pytest.raises(ModelFileError, match=f"{weights.name}.*changed since.*rename"):
        executable.export()


def test_one_that_changed_before_is_not_relied_on(core, file):
    network = core.read_network(file)
    weights = _weights(file)
    os.utime(weights, (1, 1))
    executable = core.load_network(network, "CPU")
    del network
    gc.collect()
    imported = core.import_network(executable.export(), "CPU")
    np.testing.assert_array_equal(imported.infer(X)["y"], executable.infer(X)["y"])
