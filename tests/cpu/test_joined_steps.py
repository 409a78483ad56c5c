"""Rows normalised by machine code, and steps that it computes at once; ONNX Runtime judges."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.functions import Activation
from polydevice_cpu.algorithms.by_machine.instructions import DIVIDE, MUL
from polydevice_cpu.algorithms.by_machine.reductions import layer_norm
from polydevice_cpu.algorithms.by_machine.windows.following import Function
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.loading import load
from tests.cpu.machine_code import with_avx512, with_vectors
from tests.cpu.quantised_graphs import Graph, reference
from tests.guard_pages import SIDES, guarded

F = np.float32


def placed(side, rng, *shape):
    array = guarded(side, 4 * max(int(np.prod(shape)), 1)).view(F)[: int(np.prod(shape))]
    array[...] = rng.normal(size=array.shape)
    return array.reshape(shape)


def normalised(x, epsilon):
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + epsilon)


@with_vectors
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 33, 64, 79, 80, 100, 1000, 20001])
def test_rows_of_every_length(side, affine, length):
    rng = np.random.default_rng(length)
    for rows, offset in ((1, 0), (3, 300), (70, -2)):
        x, y = (placed(side, rng, rows, length) for _ in range(2))
        x += offset
        vectors = [placed(side, rng, length) for _ in range(2)] if affine else []
        told = layer_norm.prepared(rows, length, 1e-3, affine=affine)
        call = Code.of([told]).bound([address_of(each) for each in (x, *vectors, y)])
        want = normalised(x, 1e-3)
        if affine:
            want = want * vectors[0] + vectors[1]
        for _ in range(2):
            y[...] = np.nan
            assert call() == 0
            np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5 * max(abs(offset), 1))
        call = Code.of([told]).bound([address_of(each) for each in (x, *vectors, x)])
        assert call() == 0
        np.testing.assert_array_equal(x, y)  # as results may lie where rows do


@with_vectors
@pytest.mark.parametrize("scale", [0.01, 1e-30])
def test_rows_that_are_rounded(scale):
    rng = np.random.default_rng(4)
    x, y = (placed("after", rng, 40, 50) for _ in range(2))
    factor, divisor = np.full(1, F(2)), np.full(1, F(scale))
    limits = (Function.CLIP, -100.0, 120.0)
    chain = [MUL, DIVIDE, Activation("round", 0, 0), limits, (Function.LINEAR, scale, 0.0)]
    told = layer_norm.prepared(40, 50, 1e-5, chain, affine=False)
    call = Code.of([told]).bound([address_of(each) for each in (x, factor, divisor, y)])
    assert call() == 0
    want = np.clip(np.rint(2 * normalised(x, 1e-5) / scale), -100, 120) * scale
    assert np.abs(y - want).max() <= scale * 1.001
    assert (np.abs(y - want) > scale / 2).mean() < 0.01


@with_vectors
def test_rows_of_what_is_no_number():
    x = np.ones((5, 20), F)
    x[0, 3], x[1, 4], x[2, 5], x[3] = np.nan, np.inf, -np.inf, 3e38
    y = np.zeros_like(x)
    told = layer_norm.prepared(5, 20, 1e-5, affine=False)
    assert Code.of([told]).bound([address_of(x), address_of(y)])() == 0
    assert np.isnan(y[:3]).all()
    assert (y[4] == 0).all()


def test_no_rows_have_no_code():
    assert layer_norm.prepared(0, 8, 1e-5, affine=False) is None


def rounded(g, y, scale):
    return g.quantised_by(y, g.parameters(np.int16, scale, 0))


def norm(g, x, width):
    scale, shift = (g.store(g.rng.normal(size=width).astype(F)) for _ in range(2))
    return g.emit("LayerNormalization", x, scale, shift)


def joined(g, x, axis):
    return g.emit("Concat", x, g.emit("Relu", x), x, axis=axis)


def twice(g, x):
    return g.emit("Add", rounded(g, x, 1e-4), x)


def gate(g, *, swapped=False):
    x = rounded(g, "x", 1e-4)
    factors = [x, rounded(g, g.emit("HardSigmoid", x, alpha=0.25), 2e-5)]
    return rounded(g, g.emit("Mul", *(factors[::-1] if swapped else factors)), 1e-4)


def error(g):
    """GELU as it is spelled, with roundings between."""
    x = rounded(g, "x", 1e-4)
    y = rounded(g, g.emit("Erf", g.emit("Div", x, g.store(np.float32(np.sqrt(2))))), 3e-5)
    y = rounded(g, g.emit("Add", y, g.store(np.float32(1))), 6e-5)
    y = rounded(g, g.emit("Mul", y, g.store(np.float32(0.5))), 3e-5)
    return rounded(g, g.emit("Mul", x, y), 1e-4)


def channels(g):
    """Numbers for each channel of what lies channels last."""
    c = g.emit("Conv", "x", g.store(g.rng.normal(size=(70, 5, 1, 1)).astype(F)))
    g.emit("Relu", c)
    numbers = [g.store(g.rng.normal(size=(70, 1, 1)).astype(F)) for _ in range(2)]
    y = g.emit("Sigmoid", g.emit("Tanh", c))
    return rounded(g, g.emit("Sub", g.emit("Mul", y, numbers[0]), numbers[1]), 2e-4)


def many(g):
    """More operands than code is told of."""
    x = y = g.emit("Abs", "x")
    for _ in range(9):
        other = g.store(g.rng.uniform(0.9, 1.1, (5, 1, 12)).astype(F))
        y = g.emit("Mul", g.emit("Add", y, x), other)
    return rounded(g, g.emit("Tanh", g.emit("Mul", y, y)), 1e-4)


def neighbour(g):
    """What stands beside a function, and does not read it."""
    a, b = g.emit("Relu", "x"), g.emit("Abs", "x")
    y = g.emit("Sigmoid", "x")
    z = g.emit("Mul", a, b)
    return rounded(g, g.emit("Sub", z, y), 1e-4)


NETWORKS = {
    "a gate": gate,
    "a neighbour": neighbour,
    "a gate turned round": lambda g: gate(g, swapped=True),
    "channels": channels,
    "error": error,
    "many": many,
    "normalised": lambda g: rounded(g, norm(g, "x", 12), 1e-4),
    "joined": lambda g: rounded(g, joined(g, "x", 1), 1e-4),
    "joined rows": lambda g: rounded(g, joined(g, "x", 3), 2e-4),
    "read twice": lambda g: twice(g, norm(g, "x", 12)),
    "joined last": lambda g: rounded(
        g, joined(g, g.emit("Conv", "x", g.store(g.rng.normal(size=(20, 5, 3, 3)).astype(F))), 1),
        1e-3,
    ),
}  # fmt: skip
TOGETHER = {
    "error": "Divide+Erf+QuantizeDequantize+Add+QuantizeDequantize"
    "+Multiply+QuantizeDequantize+Multiply+QuantizeDequantize",
    "a gate": "HardSigmoid+QuantizeDequantize+Multiply+QuantizeDequantize",
    "a gate turned round": "HardSigmoid+QuantizeDequantize+Multiply+QuantizeDequantize",
    "normalised": "LayerNorm+QuantizeDequantize",
    "joined": "Concat+QuantizeDequantize",
    "joined rows": "Concat+QuantizeDequantize",
    "joined last": "Concat+QuantizeDequantize",
}


@pytest.mark.parametrize("known", [True, False], ids=["known", "open"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(core, name, threads, known):
    g = Graph(np.random.default_rng(len(name)))
    result = NETWORKS[name](g)
    shape = (2, 5, 7, 12) if known else ("n", 5, "h", 12)
    model = g.model(shape, F, {result: F}, opset=21)
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request = executable.create_infer_request()
    step = 1e-3 if name == "joined last" else 2e-4
    for number, sizes in enumerate([(2, 7)] if known else [(1, 7), (2, 4), (3, 9), (2, 7)]):
        feed = {"x": np.random.default_rng(number).normal(size=(sizes[0], 5, sizes[1], 12))}
        feed["x"] = feed["x"].astype(F)
        (want,) = reference(model, feed)
        for _ in range(2):
            (got,) = request.infer(feed).values()
            assert np.abs(got - want).max() <= 1.01 * step
            assert (np.abs(got - want) > step / 4).mean() < 0.02


UNARY = ("Tanh", "Sigmoid", "Erf", "Softsign", "HardSigmoid", "Abs", "Relu", "Neg")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")


@pytest.mark.parametrize("seed", range(40))
def test_functions_at_random(core, seed):
    rng = np.random.default_rng(seed)
    g = Graph(rng)
    values = ["x", g.emit("Conv", "x", g.store(rng.normal(size=(8, 8, 1, 1)).astype(F) / 4))]
    for _ in range(14):
        first = values[-1] if rng.random() < 0.6 else values[rng.integers(len(values))]
        kind = rng.integers(4)
        if kind == 0:
            made = g.emit(str(rng.choice(UNARY)), first)
        elif kind == 1:
            made = rounded(g, first, 2e-5)
        else:
            sizes = ((8, 1, 1), (1,), (9,), (2, 8, 7, 9))[rng.integers(4)]
            number = g.store(rng.uniform(-1, 1, sizes).astype(F))
            other = number if kind == 2 else values[rng.integers(len(values))]
            pair = [first, other][:: rng.choice([1, -1])]
            made = g.emit("Tanh", g.emit(str(rng.choice(BINARY)), *pair))
        values.append(made)
    results = {values[-1]: F, values[rng.integers(2, len(values) - 1)]: F}
    model = g.model((2, 8, 7, 9), F, results, opset=21)
    feed = {"x": rng.normal(size=(2, 8, 7, 9)).astype(F) / 2}
    request = load(core, model, CPU_THREADS_NUM=1).create_infer_request()
    want = reference(model, feed)
    for _ in range(2):
        for ours, theirs in zip(request.infer(feed).values(), want, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-3)
            assert (np.abs(ours - theirs) > 1e-5).mean() < 0.02


def test_a_value_between_that_is_a_result(core):
    g = Graph(np.random.default_rng(8))
    first = rounded(g, g.emit("HardSigmoid", "x"), 2e-5)
    second = rounded(g, g.emit("Mul", first, "x"), 1e-4)
    model = g.model((3, 4, 50), F, {first: F, second: F}, opset=21)
    feed = {"x": g.rng.normal(size=(3, 4, 50)).astype(F)}
    request = load(core, model, CPU_THREADS_NUM=1).create_infer_request()
    for _ in range(2):
        for got, want in zip(request.infer(feed).values(), reference(model, feed), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-4)


@with_avx512
@pytest.mark.parametrize("name", TOGETHER)
def test_one_step_computes_both(core, name):
    g = Graph(np.random.default_rng(3))
    result = NETWORKS[name](g)
    model = g.model((2, 5, 7, 12), F, {result: F}, opset=21)
    executable = load(core, model, CPU_THREADS_NUM=1)
    feed = {"x": g.rng.normal(size=(2, 5, 7, 12)).astype(F)}
    executable.infer(feed)
    steps = [step.type for step in executable.latest_plan().steps]
    assert TOGETHER[name] in steps, steps
