"""Networks whose values are rounded to 16 bits: computed in floats, and rounded as they say."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.lowering.convolution.digits import factors_of, integers_of
from polydevice_cpu.onednn.library import library
from polydevice_cpu.plan.step import IN_TILES
from tests.cpu.machine_code import missing_tiles
from tests.cpu.quantised_graphs import Graph, check, pick, reference

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")


@pytest.mark.parametrize("dtype", [np.uint16, np.int16])
def test_steps_of_16_bits_are_functions_of_what_computes_their_input(core, dtype):
    g = Graph(np.random.default_rng(4))
    middle = 0x8000 + np.iinfo(dtype).min

    def rounded(y: str, scale: float, zero: int) -> str:
        parameters = g.parameters(dtype, scale, zero)
        return g.emit("DequantizeLinear", g.emit("QuantizeLinear", y, *parameters), *parameters)

    x = rounded("x", 1e-4, middle + 77)
    weights = g.store(g.rng.normal(size=(8, 4, 3, 3)).astype(np.float32))
    y = rounded(g.emit("Conv", x, weights, pads=[1] * 4), 5e-4, middle - 9)
    # What only moves is rounded a second time without effect; a sum is rounded anew.
    moved = g.emit("MaxPool", g.emit("Transpose", y, perm=[0, 1, 3, 2]), kernel_shape=[2, 2])
    again = rounded(moved, 5e-4, middle - 9)
    total = rounded(g.emit("Add", again, g.emit("Abs", again)), 2e-3, middle)
    model = g.model((1, 4, 12, 11), np.float32, {again: np.float32, total: np.float32}, opset=21)
    feed = {"x": g.rng.normal(size=(1, 4, 12, 11)).astype(np.float32)}
    # The sums of the convolution may round to the next step: 5e-4, and twice that to 2e-3.
    found = check(core, model, feed, {again: 5.01e-4, total: 2.01e-3}, least="")
    roundings = [kind for kind in "+".join(found).split("+") if "Quantize" in kind]
    assert roundings == ["QuantizeDequantize"] * 3, found


def test_halves_behind_a_first_rounding_of_16_bits_go_to_even_ones(core):
    """What has been rounded is known to the last bit, so that it is divided then."""
    g = Graph(np.random.default_rng(6))

    def rounded(y: str, scale: float) -> str:
        parameters = g.parameters(np.int16, scale, 0)
        return g.emit("DequantizeLinear", g.emit("QuantizeLinear", y, *parameters), *parameters)

    weights = g.store(g.rng.normal(size=(5, 3, 3, 3)).astype(np.float32))
    y = rounded(g.emit("Conv", "x", weights), 3e-4)
    z = rounded(g.emit("Relu", y), 6e-4)
    model = g.model((1, 3, 31, 29), np.float32, {z: np.float32}, opset=21)
    feed = {"x": g.rng.normal(size=(1, 3, 31, 29)).astype(np.float32)}
    check(core, model, feed, {z: 6.01e-4}, least="")
    (want,) = reference(model, feed)
    (got,) = core.load_network(core.read_network(model), "CPU").infer(feed).values()
    # The sums may be near halves of the first steps; every second one is a half of the others.
    assert (got != want).mean() < 0.01


@pytest.mark.parametrize("seed", range(24))
def test_windows_of_one_element_multiply_digits(core, seed):
    """Numbers of 16 bits by weights of 8, with another tensor added and rounded, or moved."""
    g = Graph(np.random.default_rng(seed))
    dtype = pick(g.rng, np.uint16, np.int16)
    middle = 0x8000 + np.iinfo(dtype).min

    def rounded(y: str, scale: float) -> str:
        zero = int(middle + g.rng.integers(-4000, 4000))
        return g.quantised_by(y, g.parameters(dtype, scale, zero))

    channels, results = int(g.rng.choice([32, 64, 68, 100])), int(g.rng.integers(20, 70))
    shape = 2, channels, 17, 15
    x = rounded("x", 2e-4)
    if g.rng.random() < 0.5:
        x = g.emit("Transpose", x, perm=[0, 1, 3, 2])
    bias = g.store(g.rng.normal(size=results).astype(np.float32))
    weights = g.weights((results, channels, 1, 1), 0)
    y = rounded(g.emit("Conv", *(x, weights, bias)[: pick(g.rng, 2, 3)]), 5e-3)
    other = rounded(g.emit("Conv", x, g.weights((results, channels, 1, 1), 0)), 5e-3)
    last = g.emit("Add", y, other)
    total = rounded(last if g.rng.random() < 0.5 else g.emit("Relu", last), 8e-3)
    # Each sum may round to the next step, both, and what is made of them once more.
    results = {total: 1.61e-2} | ({y: 5.01e-3} if g.rng.random() < 0.5 else {})
    model = g.model(shape, np.float32, dict.fromkeys(results, np.float32), opset=21)
    feed = {"x": g.rng.normal(size=shape).astype(np.float32)}
    check(core, model, feed, results, least="")
    executable = core.load_network(core.read_network(model), "CPU")
    (got, *_), (want, *_) = executable.infer(feed).values(), reference(model, feed)
    assert (np.abs(got - want) > 1e-4).mean() < 0.01
    in_tiles = [each for each in executable.latest_plan().steps if each.implementation == IN_TILES]
    if missing_tiles("amx_int8", "fsrm"):
        assert not in_tiles
    else:
        assert len(in_tiles) == 2, executable.explain()
        assert "floating point" not in executable.explain()


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_windows_multiply_digits(core, seed, rank):
    """With borders, steps and gaps; of three axes they stay floats."""
    g = Graph(np.random.default_rng(10 * seed + rank))
    rng, channels, results = g.rng, 40, 24
    x = g.quantised_by("x", g.parameters(np.uint16, 2e-4, int(rng.integers(20000, 40000))))
    sizes = [int(n) for n in rng.integers(2, 4, rank)]
    weights = g.weights((results, channels, *sizes), 0)
    y = g.emit(
        "Conv",
        *(x, weights),
        strides=[int(n) for n in rng.integers(1, 3, rank)],
        dilations=[int(n) for n in rng.integers(1, 3, rank)],
        pads=[int(n) for n in rng.integers(0, 3, 2 * rank)],
    )
    y = g.quantised_by(y, g.parameters(np.uint16, 5e-3, 30000))
    shape = (2, channels, *{1: [800], 2: [31, 29], 3: [9, 8, 7]}[rank])
    model = g.model(shape, np.float32, {y: np.float32}, opset=21)
    feed = {"x": rng.normal(size=shape).astype(np.float32)}
    check(core, model, feed, {y: 5.01e-3}, least="")
    executable = core.load_network(core.read_network(model), "CPU")
    steps = executable.latest_plan().steps
    in_tiles = IN_TILES in [step.implementation for step in steps]
    assert in_tiles is (rank < 3 and not missing_tiles("amx_int8", "fsrm")), executable.explain()


@pytest.mark.parametrize("seed", range(16))
def test_rows_of_digits_meet_matrices(core, seed):
    g = Graph(np.random.default_rng(seed))
    dtype = pick(g.rng, np.uint16, np.int16)
    middle = 0x8000 + np.iinfo(dtype).min
    terms, columns, rows = int(g.rng.choice([128, 200])), int(g.rng.integers(130, 200)), 50
    x = g.quantised_by("x", g.parameters(dtype, 2e-4, middle + 33))
    weights = g.unsigned_weights((terms, columns), 1)
    if g.rng.random() < 0.5:
        whole = g.store(g.rng.integers(-128, 128, (terms, columns)).astype(np.int8))
        weights = g.emit("DequantizeLinear", whole, *g.parameters(np.int8, 0.01, 0))
    y = g.emit("MatMul", x, weights)
    model = g.model((2, rows // 2, terms), np.float32, {y: np.float32}, opset=21)
    feed = {"x": g.rng.normal(size=(2, rows // 2, terms)).astype(np.float32)}
    check(core, model, feed, {y: 1e-4}, least="")
    executable = core.load_network(core.read_network(model), "CPU")
    executable.infer(feed)
    kinds = [step.implementation for step in executable.latest_plan().steps]
    assert (IN_TILES in kinds) is (not missing_tiles("amx_int8", "fsrm")), executable.explain()


def test_digits_are_multiplied_where_integers_may_be(core):
    g = Graph(np.random.default_rng(3))
    x = g.quantised_by("x", g.parameters(np.int16, 2e-4, 0))
    y = g.emit("Conv", x, g.weights((40, 64, 1, 1), 0))
    model = g.model((1, 64, 30, 30), np.float32, {y: np.float32}, opset=21)
    options = {"LP_TRANSFORMS_MODE": "NO"}
    plain = core.load_network(core.read_network(model), "CPU", options)
    assert IN_TILES not in [step.implementation for step in plain.latest_plan().steps]
    given = g.rng.normal(size=(1, 64, 30, 30)).astype(np.float32)
    (want,), (got,) = (
        each.infer({"x": given}).values()
        for each in (plain, core.load_network(core.read_network(model), "CPU"))
    )
    np.testing.assert_allclose(got, want, atol=4e-6 * np.abs(want).max())


@pytest.mark.parametrize("zero", [0, 3])
def test_weights_that_are_no_integers_of_8_bits_stay_floats(core, zero):
    g = Graph(np.random.default_rng(7))
    x = g.quantised_by("x", g.parameters(np.int16, 2e-4, 0))
    weights = g.rng.normal(size=(40, 64, 1, 1)).astype(np.float32)
    if zero:  # integers that reach from -131 to 124
        whole = g.rng.integers(-128, 128, (40, 64, 1, 1)) - zero
        whole[:, 0], whole[:, 1] = -128 - zero, 127 - zero
        weights = (whole * 0.02).astype(np.float32)
    y = g.emit("Conv", x, g.store(weights))
    model = g.model((1, 64, 16, 16), np.float32, {y: np.float32}, opset=21)
    check(core, model, {"x": g.rng.normal(size=(1, 64, 16, 16)).astype(np.float32)}, {y: 1e-4},
          least="")  # fmt: skip
    executable = core.load_network(core.read_network(model), "CPU")
    assert IN_TILES not in [step.implementation for step in executable.latest_plan().steps]


@pytest.mark.parametrize("most", [127, 128, 90, 1])
@pytest.mark.parametrize("is_shared", [False, True])
def test_integers_are_found_in_weights(most, is_shared):
    rng = np.random.default_rng(most)
    whole = rng.integers(-most, min(most, 127) + 1, (30, 200))
    whole[:, 7] = -most
    whole[3] = 0
    scales = np.full(30, 0.0137) if is_shared else rng.uniform(1e-6, 1e6, 30)
    scales = scales.astype(np.float32)
    weights = whole.astype(np.float32) * scales[:, np.newaxis]
    integers = integers_of(weights.reshape(30, 200, 1, 1))
    factors = factors_of(integers, weights)
    np.testing.assert_allclose(integers * factors[:, np.newaxis], weights, rtol=3e-7)
    assert most == 1 or (integers == whole).all()  # of which 127 times as much is as good


@pytest.mark.parametrize("wild", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_no_integers(wild):
    weights = np.ones((4, 8, 1, 1), np.float32)
    weights[1, 2] = wild
    assert not integers_of(weights).size
