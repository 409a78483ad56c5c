"""Functions of powers of e by instructions of AVX2, and steps of their own where these compute."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine import instructions
from polydevice_cpu.algorithms.by_machine.avx2.sigmoids import Sigmoids
from polydevice_cpu.algorithms.by_machine.code import PARTS, Code, may_share
from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
    MUL,
    RDI,
    RSI,
    STORE,
    Instructions,
)
from polydevice_cpu.algorithms.by_machine.rows import elementwise
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.step import BY_ROWS, MACHINE_CODE
from tests.cpu import models
from tests.cpu.loading import image, load, wait_for_settling
from tests.cpu.machine_code import (
    are_sigmoids_apart,
    followed,
    needs,
    with_avx2,
    with_vectors,
)

F = np.float32
TOGETHER = 16
"""Numbers of a vector."""

STEEP = 1.75
"""What Swish multiplies by before its logistic function."""

ODD = [0.0, -0.0, 3e38, -3e38, 1e-40, -1e-40, np.inf, np.nan, -np.inf]


def numbers(rng, scale):
    """Many around 0, large and tiny ones, and odd ones, minus infinity last; no multiple of 8."""
    drawn = rng.normal(size=4000) * scale, rng.normal(size=992) * 10.0 ** rng.uniform(-30, 37, 992)
    return np.concatenate([*drawn, ODD]).astype(F)


def logistic(x):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def gelu(x):
    return np.array([each * 0.5 * math.erfc(-each / math.sqrt(2)) for each in x])


def gelu_tanh(x):
    return x * logistic(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


TRUTH = {
    "logistic": logistic,
    "swish": lambda x: x * logistic(STEEP * x),
    "tanh": np.tanh,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}
LEAST = -80.0
"""From here on a logistic function is a normal number, and right to its last bits but a few."""


def assert_true(name, x, got, *, steep=STEEP):
    """That answers are right: within a share of themselves, of GELU of 1 or x, the larger one.

    A rounding is 6e-8 of a number, and a function is some ten at most. What a logistic function
    makes of less than `LEAST` is next to 0. Minus infinity is left out.
    """
    x, got = (each[x != -np.inf].astype(float) for each in (x, got))
    with np.errstate(invalid="ignore"):
        wanted = x * logistic(steep * x) if name == "swish" else TRUTH[name](x)
        share = 3e-7 if name == "tanh" else 6e-7
        if name.startswith("gelu"):
            most = share * np.maximum(1, np.abs(x))
        else:
            most = share * np.abs(wanted) + 1e-38
        if name == "swish" and steep != 1:  # a product is rounded, of which a power is taken
            most += np.abs(steep * x * wanted) * F(2) ** -24
        if name in ("logistic", "swish"):
            is_least = (steep if name == "swish" else 1.0) * x < LEAST
            assert np.all(np.abs(got[is_least]) < 1e-32)
            wanted, got, most = (each[~is_least] for each in (wanted, got, most))
        right = (
            (got == wanted) | (np.isnan(got) & np.isnan(wanted)) | (np.abs(got - wanted) <= most)
        )
    assert right.all(), (wanted[~right], got[~right])


def computed(name, x):
    """What code of such a name makes of numbers, a vector at a time."""
    code = Instructions()
    code.begin(0)
    code.load(RSI, RDI, 0)
    code.vector(LOAD, 0, 0, RSI)
    sigmoids = Sigmoids(code, (1, 2, 3, 4))
    if name == "swish":
        sigmoids.swish(0, RDI, behind=4)
    else:
        getattr(sigmoids, name)(0)
    code.load(RSI, RDI, 1)
    code.vector(STORE, 0, 0, RSI)
    code.end(0)
    function = function_of(code.assembled())
    padded = np.concatenate([x, np.zeros(-len(x) % TOGETHER, F)])
    made = np.empty_like(padded)
    (steep,) = np.array([STEEP], F).view(np.int32)
    for start in range(0, len(padded), TOGETHER):
        at = [each[start:].ctypes.data for each in (padded, made)]
        given = np.array([*at, steep], np.int64)
        assert function(ctypes.c_void_p(given.ctypes.data)) == 0
    return made[: len(x)]


@with_avx2
@pytest.mark.parametrize("scale", [1, 20])
@pytest.mark.parametrize("name", TRUTH)
def test_code_of_halves_is_right(rng, monkeypatch, name, scale):
    """On every processor that has these instructions, whatever it uses by itself."""
    monkeypatch.setattr(instructions, "has_avx512", lambda *_: False)
    x = numbers(rng, scale)
    got = computed(name, x)
    assert_true(name, x, got)
    least = {"logistic": 0.0, "tanh": -1.0, "swish": np.nan, "gelu_tanh": np.nan, "gelu": 0.0}
    np.testing.assert_allclose(got[-1], least[name], rtol=0, atol=1e-37)
    assert np.all(np.signbit(got[x == 0]) == np.signbit(x[x == 0])) or name == "logistic"


FUNCTIONS = {  # of a, by name: nodes, and how the step is called
    "logistic": ([("Sigmoid", ["a"], ["y"], {})], "Sigmoid"),
    "swish": ([("Sigmoid", ["a"], ["b"], {}), ("Mul", ["a", "b"], ["y"], {})], "Swish"),
    "tanh": ([("Tanh", ["a"], ["y"], {})], "Tanh"),
    "gelu": ([("Gelu", ["a"], ["y"], {})], "Gelu"),
    "gelu_tanh": ([("Gelu", ["a"], ["y"], {"approximate": "tanh"})], "Gelu"),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_networks_are_right(core, rng, name, threads):
    """Large numbers, too, and odd ones, so many that neither vectors nor threads are even."""
    nodes, _ = FUNCTIONS[name]
    x = np.concatenate([numbers(rng, 6) for _ in range(7)])
    for given in (x, x[-4999:], x[-13:]):
        model = models.build(nodes, {"a": [len(given)]}, ["y"], {}, opset=20)
        got = load(core, model, CPU_THREADS_NUM=threads).infer({"a": given})["y"]
        if are_sigmoids_apart():
            assert_true(name, given, got, steep=1.0)
        else:
            usual = np.abs(given) < -LEAST
            wanted = models.answer(model, {"a": given})[0]
            np.testing.assert_allclose(got[usual], wanted[usual], rtol=1e-5, atol=3e-6)


def sums(kind, name, sizes):
    """A network of a convolution or product, and a function of it; of open sizes where None."""
    nodes, _ = FUNCTIONS[name]
    if kind == "MatMul":
        first = ("MatMul", ["x", "w"], ["a"], {})
        shape, weights = [*(sizes or ("n", "t")), 37], image(1, 37, 53) / 6
    else:
        group = 24 if kind == "GroupConvolution" else 1
        first = ("Conv", ["x", "w"], ["a"], {"pads": [1] * 4, "group": group})
        shape = [1, 24, *(sizes or ("h", "v"))]
        weights = image(1, 24, 24 // group, 3, 3) * F(0.2 if group == 1 else 0.5)
    return models.build([first, *nodes], {"x": shape}, ["y"], {"w": weights}, opset=20)


def feed(kind, number, sizes):
    return image(number, *([*sizes, 37] if kind == "MatMul" else [1, 24, *sizes]))


KINDS = ["Convolution", "GroupConvolution", "MatMul"]
SIZES = [(20, 31), (33, 18), (9, 70), (52, 27), (3, 5), (64, 64)]


def assert_as_onnx_runtime(model, x, got):
    (wanted,) = models.answer(model, {"x": x})
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@with_vectors
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_behind_sums_of_known_sizes(core, name, kind, threads):
    _, called = FUNCTIONS[name]
    model, x = sums(kind, name, (64, 62)), feed(kind, 1, (64, 62))
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request = executable.create_infer_request()
    got = request.infer({"x": x})["y"].copy()
    assert_as_onnx_runtime(model, x, got)
    np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
    steps = executable.latest_plan().steps
    wanted = followed(kind, called)
    assert [step.type for step in steps if step.type in wanted] == wanted
    assert_own(executable, called)


@with_vectors
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_behind_sums_of_open_sizes(core, monkeypatch, name, kind, threads):
    """First and later inferences of a size give the same to the bit."""
    monkeypatch.setattr(settling, "RUNS", 2)
    _, called = FUNCTIONS[name]
    model = sums(kind, name, None)
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request = executable.create_infer_request()
    for number, sizes in enumerate(SIZES):
        x = feed(kind, number, sizes)
        got = request.infer({"x": x})["y"].copy()
        assert_as_onnx_runtime(model, x, got)
        assert_own(executable, called)
        for _ in range(settling.RUNS):
            np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
        wait_for_settling()
        np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
        assert_own(executable, called)


def assert_own(executable, called):
    """That a function is a step of our own code, for known sizes or for all, where it is apart."""
    steps = executable.latest_plan().steps
    found = [step.implementation for step in steps if step.type == called]
    if are_sigmoids_apart():
        assert found in ([BY_ROWS], [MACHINE_CODE])
    else:
        assert not found


@with_vectors
@needs("" if may_share() else "this oneDNN has no OpenMP whose threads share work")
@pytest.mark.parametrize("sizes", [(40001,), (37, 613), (3, 5, 2039), (1500, 31)])
@pytest.mark.parametrize("is_along", [False, True])
@pytest.mark.parametrize("threads", [2, 3])
def test_parts_are_the_whole(rng, sizes, is_along, threads):
    """Of rows that lie apart, and with a factor for each place in a row, or for each row."""
    *outer, length = sizes
    x = rng.normal(size=(*outer, length + 3)).astype(F)[..., :length]
    factors = rng.normal(size=[*[1] * len(outer), length] if is_along else [*outer, 1]).astype(F)
    y = np.full(sizes, np.nan, F)
    forms = [(each.shape, each.strides) for each in (x, factors, y)]
    told = elementwise.in_parts([MUL], forms, threads)
    assert threads < len(told) <= PARTS * threads + 1
    code = Code.shared(told, threads)
    assert code.bound([address_of(each) for each in (x, factors, y)])() == 0
    np.testing.assert_array_equal(y, x * factors)


@with_vectors
def test_few_numbers_are_one_part():
    forms = [((elementwise.LEAST_SHARED - 1,), (4,))] * 2
    assert len(elementwise.in_parts([], forms, 4)) == 1
