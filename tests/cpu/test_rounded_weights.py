"""Weights that a FakeQuantize of a constant rounds are integers, as those stored in 8 bits are.

The oracle is its definition in f64, whose numbers OpenVINO multiplies in f32.
"""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from tests.cpu.loading import assert_integers, steps

pytestmark = pytest.mark.skipif(library() is None, reason="needs oneDNN")

INSIDE = np.float32(-2.0), np.float32(127 / 64)
"""Limits of activations: 256 levels, 1/64 apart."""


def rounded(x, levels, low, high, out_low, out_high):
    """FakeQuantize as it is defined."""
    x, low, high, out_low, out_high = (np.float64(a) for a in (x, low, high, out_low, out_high))
    with np.errstate(invalid="ignore", divide="ignore"):
        y = np.rint((x - low) / (high - low) * (levels - 1)) / (levels - 1)
    y = np.where(x <= np.minimum(low, high), out_low, y * (out_high - out_low) + out_low)
    return np.where(x > np.maximum(low, high), out_high, y)


def product(ops, kind, x, w):
    """A product of two nodes; transposed convolutions have windows that overlap."""
    match kind:
        case "Convolution":
            return ops.convolution(x, w, [2, 1], [1, 0], [0, 1], [1, 1])
        case "GroupConvolution":
            return ops.group_convolution(x, w, [1, 1], [1, 1], [1, 1], [1, 1])
        case "ConvolutionBackpropData":
            return ops.convolution_backprop_data(x, w, [2, 2], None, [1, 1], [1, 1])
        case "GroupConvolutionBackpropData":
            return ops.group_convolution_backprop_data(x, w, [2, 2], None, [1, 1], [1, 1])
    return ops.matmul(x, w, False, kind == "turned MatMul")


SHAPES = {
    "Convolution": ((2, 9, 8, 7), (12, 9, 3, 3), (0,)),
    "GroupConvolution": ((2, 12, 8, 7), (3, 5, 4, 3, 3), (0, 1)),
    "ConvolutionBackpropData": ((2, 9, 6, 7), (9, 12, 4, 4), (1,)),
    "GroupConvolutionBackpropData": ((1, 8, 6, 5), (2, 4, 9, 3, 3), (0, 2)),
    "MatMul": ((7, 21), (21, 10), (1,)),
    "turned MatMul": ((3, 5, 21), (10, 21), (0,)),
}
"""Of the source and of the weights, and along which axes of these outputs lie."""


def limits(rng, levels, size, outputs):
    """Input and output limits of weights, 0 on a level or between the two in the middle."""
    shape = [n if axis in outputs else 1 for axis, n in enumerate(size)]
    if rng.random() < 0.3:
        shape = [1] * int(rng.integers(len(size) + 1))
    step = rng.uniform(0.5, 2, shape) * 2 / (levels - 1)
    low = -step * (levels // 2 if levels == 256 else (levels - 1) / 2)
    ends = [low, low + step * (levels - 1)]
    more = ends if rng.random() < 0.5 else [end * rng.uniform(0.5, 2, shape) for end in ends[:1]]
    if len(more) == 1:
        more.append(more[0] * ends[1] / ends[0])
    return [np.asarray(end, np.float32) for end in (*ends, *more)]


def check(core, path, kind, x, w, levels, of_weights, *, halves=False, moved=""):
    """Compare with the definition; returns what is loaded."""
    import openvino

    ops = openvino.opset8
    source = ops.parameter(list(x.shape), np.float32, name="x")
    ends = [ops.constant(end) for end in of_weights]
    stored = w.reshape(-1, *w.shape[2:]) if moved == "before" else w
    constant = ops.constant(stored.astype(np.float16 if halves else np.float32))
    weights = ops.convert(constant, np.float32) if halves else constant
    shape = ops.constant(np.array(w.shape))
    if moved == "before":
        weights = ops.reshape(weights, shape, False)
    weights = ops.fake_quantize(weights, *ends, levels)
    if moved == "behind":
        rows = ops.reshape(weights, ops.constant(np.array([-1, *w.shape[2:]])), False)
        weights = ops.reshape(rows, shape, False)
    quantised = ops.fake_quantize(source, *INSIDE, *INSIDE, 256)
    model = openvino.Model([product(ops, kind, quantised, weights)], [source], "m")
    openvino.save_model(model, path / "m.xml", compress_to_fp16=False)
    given = rounded(x, 256, *INSIDE, *INSIDE), rounded(w, levels, *of_weights)
    plain = [ops.parameter(list(array.shape), np.float32) for array in given]
    wanted = openvino.Model([product(ops, kind, *plain)], plain, "wanted")
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.compile_model(wanted, "CPU", hint).create_infer_request()
    theirs = request.infer([array.astype(np.float32) for array in given])[0]
    executable = core.load_network(core.read_network(path / "m.xml"), "CPU")
    for _ in range(2):
        (ours,) = executable.infer({"x": x}).values()
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-6 * np.abs(theirs).max())
    return executable


@pytest.mark.parametrize("levels", [256, 255, 16, 15, 2])
@pytest.mark.parametrize("kind", SHAPES)
def test_rounded_weights_are_integers(core, tmp_path, kind, levels):
    rng = np.random.default_rng(levels)
    of_x, of_w, outputs = SHAPES[kind]
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in (of_x, of_w))
    halves = rng.random() < 0.5
    w = w.astype(np.float16).astype(np.float32) if halves else w
    moved = ("", "before", "behind")[rng.integers(3)] if len(of_w) == 5 else ""
    ends = limits(rng, levels, of_w, outputs)
    made = check(core, tmp_path, kind, x, w, levels, ends, halves=halves, moved=moved)
    assert_integers(made, steps(made))


@pytest.mark.parametrize("kind", ["Convolution", "turned MatMul"])
def test_weights_whose_levels_are_no_i8(core, tmp_path, rng, kind):
    """Levels of each output lie around 0 in their own way; what all lack is summed up besides."""
    x = rng.normal(size=(2, 70, 5, 6) if kind == "Convolution" else (9, 70)).astype(np.float32)
    w = rng.normal(size=(6, 70, 1, 1)[: x.ndim]).astype(np.float32)
    zeros = np.array([0, 3, 100, 128, 200, 255]).reshape(6, *[1] * (x.ndim - 1))
    step = rng.uniform(0.005, 0.02, zeros.shape)
    ends = [((end - zeros) * step).astype(np.float32) for end in (0, 255)]
    made = check(core, tmp_path, kind, x, w, 256, ends * 2)
    assert_integers(made, steps(made))


def test_outputs_of_zeros(core, tmp_path, rng):
    """Limits of 0 make 0, of whatever the weights are."""
    x = rng.normal(size=(1, 9, 8, 7)).astype(np.float32)
    w = rng.normal(size=(12, 9, 3, 3)).astype(np.float32)
    w[2:4] = 0
    most = np.abs(w).max((1, 2, 3), keepdims=True)
    made = check(core, tmp_path, "Convolution", x, w, 255, [-most, most, -most, most])
    assert_integers(made, steps(made))
    nothing = most * (np.arange(12) % 3 > 0).reshape(-1, 1, 1, 1).astype(np.float32)
    check(core, tmp_path, "Convolution", x, w, 255, [-most, most, -nothing, nothing])


@pytest.mark.parametrize("form", ["no level is 0", "0 is outside", "turned", "varying", "infinite"])
def test_other_weights_stay_in_floating_point(core, tmp_path, rng, form):
    x = rng.normal(size=(1, 9, 8, 7)).astype(np.float32)
    w = rng.normal(size=(12, 9, 3, 3)).astype(np.float32)
    low, high = {
        "no level is 0": (-1.0, 2.1),
        "0 is outside": (0.5, 2.0),
        "turned": (1.0, -1.0),
    }.get(form, (-1.0, 1.0))
    ends = [np.float32(end) for end in (low, high)]
    if form == "varying":
        ends = [end * rng.uniform(1, 2, (1, 9, 1, 1)).astype(np.float32) for end in ends]
        ends = [-ends[1], ends[1]]
    if form == "infinite":
        w[3, 2, 1, 1] = np.inf
    first = [np.float32(-1), np.float32(1)] if form == "turned" else ends
    made = check(core, tmp_path, "Convolution", x, w, 255, [*first, *ends])
    if form != "infinite":
        assert not any("IntegerProduct" in step for step in steps(made))


@pytest.mark.parametrize("levels", [256, 255, 16])
@pytest.mark.parametrize("form", ["plain", "transposed", "other zeros", "read twice"])
def test_channels_with_limits_of_their_own(core, tmp_path, rng, form, levels):
    """Windows of single channels read integers whose scales their weights take over."""
    import openvino

    ops = openvino.opset8
    x = (rng.normal(size=(2, 6, 9, 8)) * 2).astype(np.float32)
    x[0, 0, 0, :3] = 1e30, -1e30, 0
    zeros = np.full((1, 6, 1, 1), levels // 3 if rng.random() < 0.5 else 0)
    if form == "other zeros":
        zeros[0, 2] += 1
    step = rng.uniform(1, 3, zeros.shape) / levels
    factor = rng.uniform(0.5, 2, zeros.shape if rng.random() < 0.5 else ())
    ends = [((end - zeros) * step).astype(np.float32) for end in (0, levels - 1)]
    ends += [((end - zeros) * step * factor).astype(np.float32) for end in (0, levels - 1)]
    whole = rng.integers(-127, 128, (6, 1, 1, 3, 3) if form == "transposed" else (6, 2, 1, 3, 3))
    scale = rng.uniform(0.002, 0.02, (6, 1, 1, 1, 1)).astype(np.float32)
    source = ops.parameter(list(x.shape), np.float32, name="x")
    y = ops.fake_quantize(source, *map(ops.constant, ends), levels)
    w = ops.constant(whole.astype(np.int8))
    w = ops.multiply(ops.convert(w, np.float32), ops.constant(scale))

    def made(read, weights):
        if form == "transposed":
            z = ops.group_convolution_backprop_data(read, weights, [2, 2], None, [1, 1], [1, 1])
        else:
            z = ops.group_convolution(read, weights, [1, 2], [1, 1], [1, 1], [1, 1])
        return [ops.relu(read), z] if form == "read twice" else [z]

    openvino.save_model(
        openvino.Model(made(y, w), [source], "m"), tmp_path / "m.xml", compress_to_fp16=False
    )
    given = rounded(x, levels, *ends), whole * np.float64(scale)
    plain = [ops.parameter(list(array.shape), np.float32) for array in given]
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    wanted = openvino.Model(made(*plain), plain, "wanted")
    request = openvino.compile_model(wanted, "CPU", hint).create_infer_request()
    results = request.infer([array.astype(np.float32) for array in given]).values()
    executable = core.load_network(core.read_network(tmp_path / "m.xml"), "CPU")
    for _ in range(2):
        for ours, theirs in zip(executable.infer({"x": x}).values(), results, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-6 * np.abs(theirs).max())
    if form == "plain":
        assert_integers(executable, steps(executable))
