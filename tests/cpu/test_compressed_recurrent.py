"""LSTMs with weights of 8 bits are as exact as in f32; what is not plain about them stays right."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.dtype import ElementType
from polydevice_cpu.algorithms.by_machine.recurrent import digits
from polydevice_cpu.lowering.recurrent import digits as lowered
from polydevice_cpu.lowering.recurrent import primitives as lowering
from polydevice_cpu.passes.integers import compressed_recurrent as compressing
from polydevice_cpu.processor import has_int8
from tests.cpu.machine_code import missing_avx512
from tests.cpu.quantised_graphs import reference

SIZE, HIDDEN = 5, 7
DIGITS = "digits of 24 bits"
"""What computes a layer, as reports say; set to more of it where that is machine code."""


@pytest.fixture(autouse=True, params=["machine code", "machine code, more states", "oneDNN"])
def small_weights(monkeypatch, request) -> None:
    monkeypatch.setattr(compressing, "LEAST_ELEMENTS", 1)
    monkeypatch.setattr(lowering, "MANY_ELEMENTS", 1)
    if request.param == "oneDNN":
        monkeypatch.setattr(digits, "is_there", lambda: False)
    elif not missing_avx512("avx512_vnni"):
        monkeypatch.setitem(globals(), "DIGITS", lowered.CODE)
    if "more" in request.param:
        monkeypatch.setitem(globals(), "SIZE", 37)
        monkeypatch.setitem(globals(), "HIDDEN", 50)


def _models(*, count=1, per_column=False, kind=np.int8, zero=0, lengths=False, **attributes):
    """A DynamicQuantizeLSTM, and the LSTM in f32 that it stands for."""
    rng = np.random.default_rng(count)
    low, high = (-127, 128) if kind is np.int8 else (zero - 127, min(zero + 128, 256))
    stored, floats = {}, {}
    for name, terms in (("w", SIZE), ("r", HIDDEN)):
        q = rng.integers(low, high, (count, terms, 4 * HIDDEN)).astype(kind)
        shape = (count, 4 * HIDDEN) if per_column else (count,)
        most = 0.14 / HIDDEN  # or rounding would grow from step to step, in f32, too
        scale = rng.uniform(most / 20, most, shape).astype(np.float32)
        stored |= {name: q, f"{name}_s": scale, f"{name}_z": np.full(shape, zero, kind)}
        wide = (q.astype(np.float32) - zero) * scale.reshape(count, 1, -1)
        floats[name] = np.ascontiguousarray(wide.swapaxes(1, 2))
    bias = {"b": rng.standard_normal((count, 8 * HIDDEN)).astype(np.float32)}
    given = ["x", "w", "r", "b", "lengths" if lengths else "", "h", "c"]
    scales = ["", "w_s", "w_z", "r_s", "r_z"]
    made = []
    for node, initial in (
        (("DynamicQuantizeLSTM", [*given, *scales], "com.microsoft"), stored | bias),
        (("LSTM", given, ""), floats | bias),
    ):
        made.append(_model(node, initial, count, lengths, **attributes))
    return made


def _model(node, stored, count, lengths, **attributes) -> bytes:
    kind, inputs, domain = node
    state = [count, "batch", HIDDEN]
    outputs = ["y", "last", "cell"]
    made = helper.make_node(
        kind, inputs, outputs, name="lstm", domain=domain, hidden_size=HIDDEN, **attributes
    )
    wanted = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["time", "batch", SIZE]),
        *(helper.make_tensor_value_info(name, TensorProto.FLOAT, state) for name in "hc"),
    ]
    if lengths:
        wanted.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"]))
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    kept = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph([made], "g", wanted, results, kept)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def _inputs(rng, time, batch, count, size=1.0) -> dict[str, np.ndarray]:
    def f(*shape):
        return (rng.standard_normal(shape) * size).astype(np.float32)

    state = count, batch, HIDDEN
    return {"x": f(time, batch, SIZE), "h": f(*state), "c": f(*state)}


def _check(core, models, asked) -> str:
    """Twice each, one shape after the other; returns the explanation of the last."""
    network = core.load_network(core.read_network(models[0]), "CPU")
    request = network.create_infer_request()
    for inputs in (*asked, *asked):
        answers = request.infer(inputs).values()
        for answer, right in zip(answers, reference(models[1], inputs), strict=True):
            np.testing.assert_allclose(answer, right, rtol=1e-4, atol=4e-6)
    return network.explain()


needs_integers = pytest.mark.skipif(not has_int8(), reason="products of bytes are not exact here")


@needs_integers
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("per_column", [False, True])
def test_steps_are_as_exact_as_in_f32(core, direction, per_column):
    count = 2 if direction == "bidirectional" else 1
    models = _models(count=count, per_column=per_column, direction=direction)
    rng = np.random.default_rng(5)
    shapes = [(1, 1), (6, 1), (7, 3), (1, 16), (5, 16)]
    explained = _check(core, models, [_inputs(rng, *shape, count) for shape in shapes])
    assert DIGITS in explained
    assert "floating point" not in explained


@needs_integers
@pytest.mark.parametrize("size", [0.0, 1e-30, 100.0])
def test_numbers_of_any_size(core, size):
    """Also a first state that no step could have made, beside rows of another size."""
    inputs = _inputs(np.random.default_rng(6), 4, 3, 1, size)
    inputs["x"][1] *= np.float32(1e-4)
    assert DIGITS in _check(core, _models(), [inputs])


@needs_integers
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("name", ["x", "h", "c"])
def test_what_is_no_number_is_computed_in_f32(core, name, bad):
    """It reaches what it reaches there, and no other item; afterwards all is as before."""
    models, rng = _models(), np.random.default_rng(7)
    network = core.load_network(core.read_network(models[0]), "CPU")
    floats = core.load_network(core.read_network(models[1]), "CPU")
    for broken in (False, True, False):
        inputs = _inputs(rng, 3, 2, 1)
        if broken:
            inputs[name][0, 1, 2] = bad
        answers, rights = (each.infer(inputs).values() for each in (network, floats))
        for answer, right in zip(answers, rights, strict=True):
            np.testing.assert_allclose(answer, right, rtol=1e-4, atol=4e-6)


@needs_integers
def test_weights_without_a_sign(core):
    models = _models(kind=np.uint8, zero=128)
    inputs = _inputs(np.random.default_rng(8), 3, 2, 1)
    assert DIGITS in _check(core, models, [inputs])


@pytest.mark.parametrize(
    "settings",
    [{"kind": np.uint8, "zero": 90}, {"clip": 0.5}, {"activations": ["Sigmoid", "Relu", "Tanh"]}],
    ids=["wide", "clip", "relu"],
)
def test_others_stay_in_f32(core, settings):
    inputs = _inputs(np.random.default_rng(9), 3, 2, 1)
    if settings.get("zero"):
        settings = settings | {"per_column": True}
    explained = _check(core, _models(**settings), [inputs])
    assert "digits" not in explained


@needs_integers
def test_lengths_and_large_batches_are_computed_in_f32(core):
    rng = np.random.default_rng(10)
    inputs = _inputs(rng, 4, 3, 1) | {"lengths": np.array([4, 1, 3], np.int32)}
    assert "digits" not in _check(core, _models(lengths=True), [inputs])
    explained = _check(core, _models(), [_inputs(rng, 2, 40, 1)])
    assert "digits" not in explained
    assert "computed in floating point" in explained


def test_weights_stay_bytes(core):
    network = core.read_network(_models()[0])
    kinds = {port.element_type for node in network.nodes() for port in node.inputs}
    assert ElementType.i8 in kinds
