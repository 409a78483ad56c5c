"""Recurrent layers by machine code for all sizes: ONNX Runtime and NumPy in f64 judge."""

from __future__ import annotations

import threading

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.functions import Activation
from polydevice_cpu.algorithms.by_machine.recurrent.loop import MOST_ITEMS, Form
from polydevice_cpu.algorithms.by_machine.recurrent.steps import Layer, steps
from polydevice_cpu.lowering.recurrent import primitives
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.processor import has_bf16
from tests.cpu.loading import asked_from_now, load, wait_for_settling
from tests.cpu.machine_code import by_machine_code, with_vectors
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

pytestmark = with_vectors

F = np.float32
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
COUNTS = {"LSTM": 3, "GRU": 2, "RNN": 1}
FUNCTIONS = [
    "Sigmoid", "Tanh", "Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh",
    "HardSigmoid", "Elu", "Softsign", "Softplus",
]  # fmt: skip
BOUNDED = ["Sigmoid", "Tanh", "ScaledTanh", "HardSigmoid", "Softsign"]


def random_attributes(rng, kind, count, *, is_usual):
    """How a layer differs from others of its kind, in so many directions."""
    attributes = {}
    if rng.random() < 0.6 and not is_usual:
        chosen = [str(each) for each in rng.choice(FUNCTIONS, COUNTS[kind])]
        if kind != "RNN":  # or states would grow without bound
            chosen[0] = str(rng.choice(BOUNDED))
        attributes["activations"] = chosen * count
        attributes["activation_alpha"] = [0.3] * (len(chosen) * count)
        attributes["activation_beta"] = [0.6] * (len(chosen) * count)
    if rng.random() < 0.5:
        attributes["clip"] = float(rng.choice([0.5, 2.5]))
    if kind == "GRU":
        attributes["linear_before_reset"] = int(rng.integers(0, 2))
    return attributes


def random_layer(seed, kind, sizes=("T", "B"), *, is_usual=False):
    """A model of one layer of random form, and what makes inputs for so many steps and items."""
    rng = np.random.default_rng(seed)
    size, hidden = (int(n) for n in rng.integers(1, [9, 50]))
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    count = 2 if direction == "bidirectional" else 1

    def f(*shape):
        return (rng.standard_normal(shape) * 0.4).astype(F)

    rows = GATES[kind] * hidden
    stored = {"w": f(count, rows, size), "r": f(count, rows, hidden) / F(np.sqrt(hidden))}
    stored["b"] = f(count, 2 * rows)
    names = ["x", "w", "r", "b", "", "", ""]
    fed = [("x", TensorProto.FLOAT, [*sizes, size])]
    if rng.random() < 0.5:
        names[4] = "n"
        fed.append(("n", TensorProto.INT32, [sizes[1]]))
    if rng.random() < 0.7:
        for place, name in enumerate(("h", "c")[: 1 + (kind == "LSTM")], 5):
            names[place] = name
            fed.append((name, TensorProto.FLOAT, [count, sizes[1], hidden]))
    attributes = {"hidden_size": hidden, "direction": direction}
    attributes |= random_attributes(rng, kind, count, is_usual=is_usual)
    if kind == "LSTM" and rng.random() < 0.5:
        names.append("p")
        stored["p"] = f(count, 3 * hidden)
    while not names[-1]:
        names.pop()
    outputs = ["y", "last", *(["cell"] if kind == "LSTM" else [])]
    made = helper.make_node(kind, names, outputs, **attributes)
    graph = helper.make_graph(
        [made],
        "layer",
        [helper.make_tensor_value_info(*each) for each in fed],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)

    def inputs(steps, items):
        known = {"T": steps, "B": items}
        made = {}
        for name, type_, shape in fed:
            asked = [known.get(each, each) for each in shape]
            lengths = rng.integers(1, steps + 1, asked).astype(np.int32)
            made[name] = lengths if type_ == TensorProto.INT32 else f(*asked)
        return made

    return model.SerializeToString(), inputs


def expected(model, inputs):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def check(request, model, inputs):
    found, wanted = request.infer(inputs), expected(model, inputs)
    for each, right in zip(found.values(), wanted, strict=True):
        assert each.shape == right.shape
        np.testing.assert_allclose(each, right, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("kind", list(GATES))
def test_layers_of_any_form_and_size(core, kind, seed):
    rng = np.random.default_rng(seed)
    model, inputs = random_layer(seed, kind)
    network = load(core, model)
    request = network.create_infer_request()
    for _ in range(3):
        steps_, items = (int(n) for n in rng.integers(1, [12, 2 * MOST_ITEMS + 2]))
        check(request, model, inputs(steps_, items))
    assert f"{kind}Sequence" in by_machine_code(network)


def test_one_step_is_a_layer_too(core):
    for seed, kind in enumerate(GATES):
        model, inputs = random_layer(seed + 50, kind, sizes=(1, 1))
        check(load(core, model).create_infer_request(), model, inputs(1, 1))


def test_what_is_new_of_a_layer_with_other_sizes_is_not_planned(core, monkeypatch):
    """From the third shape on its plan is filled in."""
    model, inputs = random_layer(3, "GRU", is_usual=True)
    request = load(core, model).create_infer_request()
    for steps_ in (5, 6, 7):
        check(request, model, inputs(steps_, 2))
    planned = []
    emit = primitives.emit_loop

    def noted(*given, **more):
        planned.append(given)
        return emit(*given, **more)

    monkeypatch.setattr(primitives, "emit_loop", noted)
    asked = asked_from_now(monkeypatch)
    for steps_ in (9, 11, 30):
        check(request, model, inputs(steps_, 3))
        check(request, model, inputs(steps_, 2))
    assert not planned
    assert len(asked) <= 6  # the product of all inputs
    wait_for_settling()


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("kind", list(GATES))
def test_infinity_does_not_become_nan_behind_an_odd_number_of_states(core, kind, late, direction):
    """A state behind the last one is multiplied by zeros."""
    rng, count = np.random.default_rng(late), 1 + (direction == "bidirectional")
    rows, hidden, size = GATES[kind] * 5, 5, 3
    stored = {
        "w": rng.standard_normal((count, rows, size)).astype(F),
        "r": rng.standard_normal((count, rows, hidden)).astype(F),
    }
    more = {"linear_before_reset": late} if kind == "GRU" else {}
    nodes = [
        (kind, ["x", "w", "r"], ["y"], {"hidden_size": hidden, "direction": direction, **more})
    ]
    made = build(nodes, {"x": ["T", "B", size]}, ["y"], stored)
    network = load(core, made)
    x = rng.standard_normal((4, 3, size)).astype(F)
    x[1, 0, 0], x[2, 1, 2] = np.inf, -np.inf
    right = expected(made, {"x": x})
    assert np.isfinite(right[0]).all()
    check(network.create_infer_request(), made, {"x": x})
    assert f"{kind}Sequence" in by_machine_code(network)


def test_two_requests_at_once(core):
    model, inputs = random_layer(7, "LSTM", is_usual=True)
    network = load(core, model)
    given = [inputs(9, 5), inputs(4, 3)]
    wanted = [expected(model, each) for each in given]
    wrong = []

    def infer(number):
        request = network.create_infer_request()
        for _ in range(200):
            found = request.infer(given[number]).values()
            for each, right in zip(found, wanted[number], strict=True):
                if not np.allclose(each, right, rtol=1e-4, atol=2e-5):
                    wrong.append(number)

    threads = [threading.Thread(target=infer, args=(number,)) for number in (0, 1, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- the code itself ------------------------------------------------------------------------------


def called(layer, time, batch, arrays, side=None):
    """Run a layer's code; what it writes is added to the arrays."""
    hidden, count = layer.hidden, len(layer.backwards)
    sizes = {"result": (time, batch, count * hidden), "room": (layer.room,)}
    sizes |= dict.fromkeys(("last", "last_cell"), (count, batch, hidden))
    places = []
    for name in layer.form.names:
        given = arrays.get(name)
        shape = sizes[name] if given is None else given.shape
        if side is not None:
            kind = F if given is None else given.dtype
            size = int(np.prod(shape)) * np.dtype(kind).itemsize
            place = guarded(side, size).view(kind).reshape(shape)
        else:
            place = np.full(shape, np.nan, F) if given is None else given.copy()
        if given is not None:
            place[...] = given
        arrays[name] = place
        places.append(place)
    told = steps(layer, time, batch)
    assert told is not None
    assert Code.of(told).bound([address_of(place) for place in places])() == 0
    return arrays


def activated(name, x, alpha=0.0, beta=0.0, clip=0.0):
    """A function of 16 numbers at a time, by a layer that has no weights."""
    form = Form("rnn", (Activation(name, alpha, beta),), clip, False, False, False, 1, 0)
    layer = Layer(form, (False,), 16)
    rows = np.ascontiguousarray(np.resize(x, (-(-x.size // 16), 1, 16)).astype(F))
    arrays = {
        "entering": rows, "bias": np.zeros(16, F), "state": np.zeros((1, 1, 16), F),
        "weights": np.zeros((1, layer.weights), F),
    }  # fmt: skip
    return called(layer, len(rows), 1, arrays)["result"].reshape(-1)[: x.size]


def wide_range():
    rng = np.random.default_rng(0)
    signs = rng.choice([-1, 1], 4000)
    return np.concatenate([
        np.linspace(-12, 12, 4001), signs * 10.0 ** rng.uniform(-30, 2.3, 4000),
        [0.0, -0.0, 88.0, -88.0, 1e4, -1e4],
    ]).astype(F)  # fmt: skip


RIGHT = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "affine": lambda x: 0.3 * x + 0.6,
    "leakyrelu": lambda x: np.where(x < 0, 0.3 * x, x),
    "thresholdedrelu": lambda x: np.where(x > F(0.3), x, 0),
    "scaledtanh": lambda x: 0.3 * np.tanh(0.6 * x),
    "hardsigmoid": lambda x: np.clip(0.3 * x + 0.6, 0, 1),
    "elu": lambda x: np.where(x < 0, 0.3 * np.expm1(x), x),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "softplus": lambda x: np.logaddexp(x, 0),
}


@pytest.mark.parametrize("name", list(RIGHT))
def test_functions_are_right_to_a_few_units_of_the_last_place(name):
    x = wide_range()
    with np.errstate(over="ignore"):
        right = RIGHT[name](x.astype(np.float64))
    found = activated(name, x, 0.3, 0.6)
    # Next to where a sum is 0 and below 1e-37 what counts is the size of what was added.
    few = 1.2e-7 if name in ("affine", "hardsigmoid") else 1e-37
    np.testing.assert_allclose(found, right, rtol=6e-7, atol=few)


@pytest.mark.parametrize("name", list(RIGHT))
def test_infinity_and_nan_of_functions(name):
    x = np.array([np.inf, -np.inf, np.nan], F)
    with np.errstate(all="ignore"):
        right = np.asarray(RIGHT[name](x.astype(np.float64)))
    found = activated(name, x, 0.3, 0.6)
    if name == "thresholdedrelu":
        right[2] = 0  # it is not above the threshold
    if name == "softsign":
        right[:2] = np.nan
    np.testing.assert_allclose(found, right, rtol=1e-6, atol=1e-37)


def test_clip_keeps_nan():
    found = activated("relu", np.array([3, np.nan, -3, 0.2], F), clip=0.5)
    np.testing.assert_array_equal(found, np.array([0.5, np.nan, 0, 0.2], F))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("hidden", [1, 16, 21])
@pytest.mark.parametrize("kind", ["lstm", "gru", "late gru", "rnn"])
def test_nothing_beyond_its_operands_is_touched(kind, hidden, side):
    rng = np.random.default_rng(hidden)
    late = kind == "late gru"
    kind = kind.split()[-1]
    names = ("sigmoid", "tanh", "tanh")[: COUNTS[kind.upper()]]
    functions = tuple(Activation(name, 0.0, 0.0) for name in names)
    form = Form(kind, functions, 0.7, False, kind == "lstm", late, 1, 4)
    layer, time, batch = Layer(form, (False, True), hidden), 4, 6
    blocks = layer.blocks * 16

    def f(*shape):
        return rng.standard_normal(shape).astype(F)

    arrays = {
        "entering": f(time, batch, layer.columns), "bias": f(layer.columns),
        "state": f(2, batch, hidden), "cell": f(2, batch, hidden),
        "weights": f(2, layer.weights), "peepholes": f(2, 3, blocks), "behind": f(2, blocks),
        "lengths": np.array([4, 0, 2, 1, 3, 4], np.int32),
    }  # fmt: skip
    apart = called(layer, time, batch, dict(arrays))
    for name, array in called(layer, time, batch, dict(arrays), side).items():
        if name in ("result", "last", "last_cell"):
            assert np.isfinite(array).all(), name
            np.testing.assert_array_equal(array, apart[name])
    y = apart["result"].reshape(time, batch, 2, hidden)
    assert not y[2:, 2].any()
    assert not y[:, 1].any()
    np.testing.assert_array_equal(apart["last"][:, 1], arrays["state"][:, 1])


@pytest.mark.skipif(not has_bf16(), reason="the processor does not compute with bfloat16")
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_layers_behind_results_in_bfloat16(core, kind):
    """What is read is bfloat16 there, and what is written is twice as long."""
    gates, random = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], np.random.default_rng(3)
    weights = {
        "before": random.normal(size=(24, 16)).astype(np.float32) / 4,
        "w": random.normal(size=(1, gates * 32, 16)).astype(np.float32) / 4,
        "r": random.normal(size=(1, gates * 32, 32)).astype(np.float32) / 6,
    }
    nodes = [
        ("MatMul", ["x", "before"], ["a"], {}),
        (kind, ["a", "w", "r"], ["y", "last"], {"hidden_size": 32}),
    ]
    model = build(nodes, {"x": [9, 2, 24]}, ["y", "last"], weights)
    x = random.normal(size=(9, 2, 24)).astype(np.float32)
    network = core.read_network(model)
    got = core.load_network(network, "CPU", {"ENFORCE_BF16": "YES"}).infer({"x": x})
    for each, wanted in zip(got.values(), answer(model, {"x": x}), strict=True):
        np.testing.assert_allclose(each, wanted, atol=0.05)
