"""GPU_ENABLE_LOOP_UNROLLING: loops of known length become layers of the device, or stay loops."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core
from polydevice.rewrites.control_flow import unroll_loops as module

rng = np.random.default_rng(8)
X = {"x": rng.normal(size=(4, 3)).astype(np.float32)}
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, outputs, weights) -> bytes:
    graph = helper.make_graph(
        nodes,
        "loops",
        [info("x", FLOAT, [4, 3])],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def loop(trips: int, inner: bool = False, until: int = 0) -> bytes:
    """x ← tanh(x · w) + i, and every x joined; until i reaches a number, or (-1) x a limit."""
    nodes = [
        helper.make_node("Cast", ["i"], ["f"], to=FLOAT),
        helper.make_node("MatMul", ["before", "w"], ["m"]),
        helper.make_node("Tanh", ["m"], ["t"]),
        helper.make_node("Add", ["t", "f"], ["after"]),
        helper.make_node("Identity", ["go"], ["on"]),
        helper.make_node("Identity", ["after"], ["each"]),
    ]
    if until > 0:
        nodes[4] = helper.make_node("Less", ["i", "until"], ["on"])
    if until < 0:
        nodes[4:5] = [
            helper.make_node("ReduceMax", ["after"], ["most"], keepdims=0),
            helper.make_node("Less", ["most", "limit"], ["on"]),
        ]
    if inner:
        body = helper.make_graph(
            [
                helper.make_node("Mul", ["p", "p"], ["q"]),
                helper.make_node("Identity", ["c"], ["d"]),
            ],
            "inner",
            [info("j", INT, []), info("c", BOOL, []), info("p", FLOAT, [4, 3])],
            [info("d", BOOL, []), info("q", FLOAT, [4, 3])],
        )
        nodes[2] = helper.make_node("Loop", ["two", "yes", "m"], ["t"], body=body)
    body = helper.make_graph(
        nodes,
        "body",
        [info("i", INT, []), info("go", BOOL, []), info("before", FLOAT, [4, 3])],
        [info("on", BOOL, []), info("after", FLOAT, [4, 3]), info("each", FLOAT, [4, 3])],
    )
    weights = {
        "trips": np.int64(trips), "yes": np.bool_(True), "two": np.int64(2),
        "until": np.int64(until), "limit": np.float32(3.5),
        "w": np.linspace(-0.5, 0.4, 9, dtype=np.float32).reshape(3, 3),
    }  # fmt: skip
    nodes = [helper.make_node("Loop", ["trips", "yes", "x"], ["y", "all"], body=body)]
    return model(nodes, ["y", "all"], weights)


def scan(backwards: bool) -> bytes:
    """Running sums over the rows, forwards or backwards, both in and out."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "row"], ["next"]),
            helper.make_node("Relu", ["next"], ["out"]),
        ],
        "body",
        [info("sum", FLOAT, [3]), info("row", FLOAT, [3])],
        [info("next", FLOAT, [3]), info("out", FLOAT, [3])],
    )
    directions = {"scan_input_directions": [1], "scan_output_directions": [1]} if backwards else {}
    node = helper.make_node(
        "Scan", ["zero", "x"], ["y", "all"], body=body, num_scan_inputs=1, **directions
    )
    return model([node], ["y", "all"], {"zero": np.zeros(3, np.float32)})


MODELS = {
    "loop": loop(5), "once": loop(1), "nested": loop(3, inner=True),
    "scan": scan(False), "scan backwards": scan(True),
}  # fmt: skip


def right(content: bytes) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return session.run(None, X)


@pytest.fixture
def core(opencl):
    with Core() as core:
        yield core


def load(core, content, **config):
    executable = core.load_network(core.read_network(content), "GPU", config)
    results = executable.infer(X)
    assert list(results) == ["y", "all"]
    for found, expected in zip(results.values(), right(content), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    return executable


def kept(executable) -> dict[str, str]:
    """Return type of each loop that was not written out → where it runs."""
    nodes = executable.latest_plan().graph.nodes
    on_host = {node.op.type: "host" for node in nodes if node.on_host}
    return on_host | {node.op.type: "device" for node in nodes if node.nested is not None}


@pytest.mark.parametrize("content", MODELS.values(), ids=MODELS)
def test_loops_of_known_length_are_written_out(core, content) -> None:
    assert kept(load(core, content)) == {}


@pytest.mark.parametrize("name", MODELS)
def test_switched_off_loops_stay_loops_of_the_device_unless_they_run_once(core, name) -> None:
    executable = load(core, MODELS[name], GPU_ENABLE_LOOP_UNROLLING="NO")
    scans = {"TensorIterator": "device"}
    expected = {"once": {}, "scan": scans, "scan backwards": scans}
    assert kept(executable) == expected.get(name, {"Loop": "device"})


def test_condition_that_ends_the_loop_early(core) -> None:
    """It counts iterations, so that it is known beforehand."""
    assert kept(load(core, loop(9, until=3))) == {}


def test_condition_that_depends_on_the_input(core) -> None:
    assert kept(load(core, loop(9, until=-1))) == {"Loop": "device"}


def test_long_loops_stay_loops(core, monkeypatch) -> None:
    monkeypatch.setattr(module, "NODE_LIMIT", 20)
    assert kept(load(core, loop(30))) == {"Loop": "device"}


def test_loop_with_something_that_no_kernel_takes_runs_on_the_host(core, monkeypatch) -> None:
    from polydevice.ops.matmul import MatMul
    from polydevice_gpu.kernels import kernel

    monkeypatch.setitem(kernel.all_kernels(), MatMul, [])
    assert kept(load(core, loop(3))) == {"Loop": "host"}


def test_layers_are_named_after_loop_and_iteration(core) -> None:
    executable = load(core, loop(2), PERF_COUNT="YES")
    (loop_node,) = [n.name for n in core.read_network(loop(2)).nodes() if n.op.type == "Loop"]
    names = {o for n in executable.latest_plan().graph.nodes for o in n.origins}
    assert any(name.startswith(f"{loop_node}/1/") for name in names)
    assert any(name.startswith(f"{loop_node}/2/") for name in names)
