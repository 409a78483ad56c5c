"""Loops that read one element of an input in each iteration, which is cut for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core
from polydevice.passes.constant_folding import constant_folding
from polydevice.rewrites.control_flow.slice_inputs import slice_inputs
from polydevice_cpu.implement import evaluate
from tests.cpu import models


@pytest.fixture
def core() -> Iterator[Core]:
    with Core() as made:
        yield made


def _info(name: str, kind: int, shape: list) -> object:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(trips: str = "length", end: float = 1e9, *, again: bool = False) -> bytes:
    """Per step h = tanh(h + x[t] * z[:, t]), until a sum of h is `end`; x and z have as many.

    Args:
        trips: an initialiser's number, or "length": as many as x has.
        end: of which sum of h no other iteration comes.
        again: whether the body reads x along another axis, too.
    """
    make = helper.make_node
    body = [
        make("Gather", ["x", "t"], ["row"], axis=0),
        make("Gather", ["z", "t"], ["column"], axis=-1),
        make("Mul", ["row", "column"], ["part"]),
        make("Add", ["h", "part"], ["sum"]),
        make("Tanh", ["sum"], ["next"]),
        make("ReduceSum", ["next"], ["total"], keepdims=0),
        make("Less", ["total", "end"], ["goes_on"]),
        make("Cast", ["t"], ["number"], to=TensorProto.FLOAT),
        make("Add", ["next", "number"], ["each"]),
    ]
    if again:
        body += [make("Gather", ["x", "zero"], ["side"], axis=1)]
        body += [
            make("ReduceMax", ["side"], ["top"], keepdims=0),
            make("Add", ["each", "top"], ["all"]),
        ]
    inner = helper.make_graph(
        body,
        "body",
        [
            _info("t", TensorProto.INT64, []),
            _info("go", TensorProto.BOOL, []),
            _info("h", TensorProto.FLOAT, [6]),
        ],
        [
            _info("goes_on", TensorProto.BOOL, []),
            _info("next", TensorProto.FLOAT, [6]),
            _info("all" if again else "each", TensorProto.FLOAT, [6]),
        ],
    )
    nodes = [
        make("Shape", ["x"], ["sizes"]),
        make("Gather", ["sizes", "zero"], ["length"], axis=0),
        make("Loop", [trips, "", "start"], ["last", "parts"], body=inner),
    ]
    numbers = {"zero": np.int64(0), "end": np.float32(end)}
    numbers.update({"start": np.zeros(6, np.float32)})
    if trips != "length":
        numbers[trips] = np.int64(trips)
    graph = helper.make_graph(
        nodes,
        "g",
        [_info("x", TensorProto.FLOAT, ["n", 6]), _info("z", TensorProto.FLOAT, [6, "n"])],
        [_info("last", TensorProto.FLOAT, [6]), _info("parts", TensorProto.FLOAT, ["m", 6])],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in numbers.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()


def _inputs(length: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(length)
    return {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in (("x", (length, 6)), ("z", (6, length)))
    }


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("end", [1e9, 0.3])
def test_lengths_that_vary(core, device, again, end):
    """Any number of iterations, the first of which may be the last, or none."""
    model = _model(end=end, again=again)
    executable = core.load_network(core.read_network(model), device)
    for length in (5, 9, 2, 1, 0, 7):
        if again and not length:
            continue  # of nothing there is no largest
        inputs = _inputs(length)
        for ours, theirs in zip(
            executable.infer(inputs).values(), models.answer(model, inputs), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_fewer_iterations_than_elements(core, device):
    model = _model("3")
    executable = core.load_network(core.read_network(model), device)
    inputs = _inputs(8)
    theirs = models.answer(model, inputs)
    for ours, wanted in zip(executable.infer(inputs).values(), theirs, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6)


def test_elements_beyond_the_end_are_zeros(core, device):
    """What a Gather gives for indices outside."""
    executable = core.load_network(core.read_network(_model("4")), device)
    inputs = _inputs(2)
    longer = {
        "x": np.pad(inputs["x"], ((0, 2), (0, 0))),
        "z": np.pad(inputs["z"], ((0, 0), (0, 2))),
    }
    theirs = models.answer(_model("4"), longer)
    for ours, wanted in zip(executable.infer(inputs).values(), theirs, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("trips", "length", "again", "count"),
    [("length", 5, False, 2), ("length", 5, True, 1), ("3", 8, False, 2), ("4", 2, False, 0)],
)
def test_which_inputs_are_cut(core, trips, length, again, count):
    """Those that are read by the number alone, in loops that stay within them."""
    network = core.read_network(_model(trips, again=again))
    network.evaluate = evaluate
    network.reshape({"x": [length, 6], "z": [6, length]})
    constant_folding(network, evaluate)
    assert slice_inputs(network) == count
    assert slice_inputs(network) == 0


def _counting(limit: str, *, also: bool = False) -> bytes:
    """Per step h = tanh(h + x[i]); i counts by itself, up to what is handed on, as in TensorFlow.

    Args:
        limit: "length", that of x, or "m", which is given.
        also: whether a flag ends the loop besides.
    """
    make, whole = helper.make_node, TensorProto.INT32
    body = [
        make("Gather", ["x", "i"], ["row"], axis=0),
        make("Add", ["h", "row"], ["sum"]),
        make("Tanh", ["sum"], ["next"]),
        make("Add", ["i", "one"], ["following"]),
        make("Cast", ["following"], ["left"], to=TensorProto.FLOAT),
        make("Cast", ["end"], ["right"], to=TensorProto.FLOAT),
        make("Less", ["left", "right"], ["less"]),
        make("ReduceMin", ["next"], ["least"], keepdims=0),
        make("Less", ["least", "most"], ["small"]),
        make("And", ["small", "less"], ["both"]),
        make("Identity", ["end"], ["same"]),
    ]
    carried = [_info("i", whole, []), _info("h", TensorProto.FLOAT, [6]), _info("end", whole, [])]
    inner = helper.make_graph(
        body,
        "body",
        [_info("t", TensorProto.INT64, []), _info("go", TensorProto.BOOL, []), *carried],
        [
            _info("both" if also else "less", TensorProto.BOOL, []),
            _info("following", whole, []),
            _info("next", TensorProto.FLOAT, [6]),
            _info("same", whole, []),
            _info("sum", TensorProto.FLOAT, [6]),
        ],
    )
    nodes = [
        make("Shape", ["x"], ["sizes"]),
        make("Gather", ["sizes", "zero"], ["long"], axis=0),
        make("Cast", ["long"], ["length"], to=whole),
        make("Less", ["begin", limit], ["first"]),
        make(
            "Loop",
            ["", "first", "begin", "start", limit],
            ["n_", "last", "m_", "parts"],
            body=inner,
        ),
    ]
    numbers = {"zero": np.int64(0), "begin": np.int32(0), "one": np.int32(1)}
    numbers.update({"start": np.zeros(6, np.float32), "most": np.float32(0.4)})
    given = [_info("x", TensorProto.FLOAT, ["n", 6])]
    given += [_info("m", whole, [])] if limit == "m" else []
    graph = helper.make_graph(
        nodes,
        "g",
        given,
        [_info("last", TensorProto.FLOAT, [6]), _info("parts", TensorProto.FLOAT, ["k", 6])],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in numbers.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()


@pytest.mark.parametrize("also", [False, True])
@pytest.mark.parametrize("limit", ["length", "m"])
def test_loops_that_count_by_themselves(core, device, limit, also):
    model = _counting(limit, also=also)
    executable = core.load_network(core.read_network(model), device)
    for length in (6, 9, 3, 1, 0, 8):
        inputs = {"x": _inputs(length)["x"]}
        if limit == "m":
            inputs["m"] = np.array(length // 2, np.int32)
        for ours, theirs in zip(
            executable.infer(inputs).values(), models.answer(model, inputs), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_limit_beyond_the_elements(core, device):
    """A Gather gives zeros there."""
    executable = core.load_network(core.read_network(_counting("m")), device)
    x = _inputs(3)["x"]
    limit = {"m": np.array(5, np.int32)}
    theirs = models.answer(_counting("m"), {"x": np.pad(x, ((0, 2), (0, 0)))} | limit)
    for _ in range(2):
        ours = executable.infer({"x": x} | limit)
        for found, wanted in zip(ours.values(), theirs, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("also", [False, True])
@pytest.mark.parametrize(("limit", "count"), [("length", 1), ("m", 0)])
def test_which_loops_that_count_are_given_parts(core, also, limit, count):
    network = core.read_network(_counting(limit, also=also))
    network.evaluate = evaluate
    network.reshape({"x": [5, 6]} | ({"m": []} if limit == "m" else {}))
    constant_folding(network, evaluate)
    assert slice_inputs(network) == count
