"""Operators whose answer depends on sizes that only inference tells."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from polydevice.errors import ShapeError
from tests.onnx.models import model, onnxruntime_outputs, run, tensor, value

pytestmark = pytest.mark.usefixtures("compiled_sparingly")

INT64 = TensorProto.INT64


def _numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.permutation(int(np.prod(shape))).reshape(shape).astype(np.float32)


def _check(proto: onnx.ModelProto, device: str, *inputs: np.ndarray) -> None:
    """Compare with ONNX Runtime, twice."""
    expected = onnxruntime_outputs(proto, *inputs)
    for _ in range(2):
        for got, want in zip(run(proto, *inputs, device=device), expected, strict=True):
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 7])
@pytest.mark.parametrize("axis", [0, -1])
def test_split_into_a_number_of_parts(size, axis, device, rng):
    shape = [2, 2]
    shape[axis] = size
    node = helper.make_node("Split", ["x"], ["a", "b", "c"], num_outputs=3, axis=axis)
    declared = ["n", 2] if axis == 0 else [2, "n"]
    proto = model([node], [value("x", declared)], [value(n, None) for n in "abc"])
    x = _numbers(rng, *shape)
    chunk = -(-size // 3)
    expected = np.split(x, [min(chunk, size), min(2 * chunk, size)], axis)
    for got, want in zip(run(proto, x, device=device), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("lengths", [[1, 4, 2], [0, 7, 0], [3, 3, 1]])
def test_split_by_lengths_that_are_an_input_of_unknown_size(lengths, device, rng):
    node = helper.make_node("Split", ["x", "l"], ["a", "b", "c"], axis=-1)
    proto = model(
        [node], [value("x", (2, "n")), value("l", ["parts"], INT64)],
        [value(n, None) for n in "abc"],
    )  # fmt: skip
    _check(proto, device, _numbers(rng, 2, 7), np.array(lengths))


@pytest.mark.parametrize("axis", [-3, -1, 0, 1, 2, 3])
@pytest.mark.parametrize("shape", [(0, 4, 2), (3, 0, 2), (3, 4, 0), (0, 0, 2), (3, 4, 2)])
@pytest.mark.parametrize("known", [False, True])
def test_flatten_of_nothing(axis, shape, known, device, rng):
    node = helper.make_node("Flatten", ["x"], ["y"], axis=axis)
    proto = model([node], [value("x", shape if known else ["a", "b", "c"])])
    x = _numbers(rng, *shape)
    (y,) = run(proto, x, device=device)
    np.testing.assert_array_equal(
        y, x.reshape(int(np.prod(shape[:axis])), int(np.prod(shape[axis:])))
    )


@pytest.mark.parametrize(
    ("pattern", "shape", "expected"),
    [
        ([0, 0], (0, 3, 2), (0, 3)),
        ([0, -1], (0, 3, 2), (0, 6)),
        ([0, -1], (4, 3, 2), (4, 6)),
        ([-1, 0], (0, 3, 2), (0, 3)),
        ([0, 7], (0, 3, 2), (0, 7)),
    ],
)
def test_reshape_that_copies_a_size_of_zero(pattern, shape, expected, device, rng):
    node = helper.make_node("Reshape", ["x", "p"], ["y"])
    proto = model([node], [value("x", ["n", 3, 2])], initializers=[tensor("p", np.array(pattern))])
    x = _numbers(rng, *shape)
    (y,) = run(proto, x, device=device)
    np.testing.assert_array_equal(y, x.reshape(expected))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("known", [False, True])
def test_max_pool_counts_by_columns(rank, known, device, rng):
    node = helper.make_node(
        "MaxPool", ["x"], ["y", "i"], kernel_shape=[2] * rank, strides=[2] * rank, storage_order=1
    )
    shape = [2, 3, 5, 4, 7][: rank + 2]
    declared = shape if known else ["a", "b", "c", "d", "e"][: rank + 2]
    outputs = [value("y", None), value("i", None, INT64)]
    _check(model([node], [value("x", declared)], outputs), device, _numbers(rng, *shape))


@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("rank", [1, 2])
def test_max_unpool(sized, rank, device, rng):
    settings = {"kernel_shape": [3] * rank, "strides": [2] * rank, "pads": [1] * (2 * rank)}
    pool = helper.make_node("MaxPool", ["x"], ["p", "i"], **settings)
    names = ["p", "i", "s"] if sized else ["p", "i"]
    unpool = helper.make_node("MaxUnpool", names, ["y"], **settings)
    shape = [2, 3, 7, 9][: rank + 2]
    sizes = np.array([2, 3, *[n + 1 for n in shape[2:]]])
    proto = model(
        [pool, unpool],
        [value("x", ["a", "b", "c", "d"][: rank + 2])],
        initializers=[tensor("s", sizes)] if sized else [],
    )
    x = _numbers(rng, *shape)
    # onnx.reference puts the values where they were and fills up at the ends; ONNX Runtime takes
    # the indices for places in the larger tensor.
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    (y,) = run(proto, x, device=device)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("shaped", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_conv_transpose_finds_its_padding(mode, shaped, seed, device):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 3))
    sizes, kernel = rng.integers(2, 6, rank), rng.integers(1, 5, rank)
    strides = rng.integers(1, 4, rank)
    settings: dict[str, object] = {"auto_pad": mode, "strides": strides.tolist()}
    if shaped:
        longest = strides * (sizes - 1) + kernel
        settings["output_shape"] = [int(rng.integers(max(n - 2, 1), n + 1)) for n in longest]
    else:
        strides = np.minimum(strides, kernel)  # else ONNX Runtime pads on the other side
        settings["strides"] = strides.tolist()
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **settings)
    w = rng.standard_normal((2, 3, *kernel)).astype(np.float32)
    declared = ["n", 2, *["h", "w"][:rank]]
    proto = model([node], [value("x", declared)], initializers=[tensor("w", w)])
    x = rng.standard_normal((2, 2, *sizes)).astype(np.float32)
    _check(proto, device, x)


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("seed", range(6))
def test_average_of_windows_that_reach_out(include, seed, device):
    """ONNX counts padding or not, and never what lies beyond it."""
    rng = np.random.default_rng(seed)
    kernel, stride = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    begin, end = (int(n) for n in rng.integers(0, kernel, 2))
    size = int(rng.integers(kernel, 11))
    x = rng.standard_normal((2, 3, size)).astype(np.float32)
    starts = range(-begin, min(size, size + end - kernel + stride), stride)
    expected = np.zeros((2, 3, len(starts)), np.float32)
    for i, start in enumerate(starts):
        low, high = max(start, 0), min(start + kernel, size)
        count = min(start + kernel, size + end) - start if include else max(high - low, 1)
        expected[:, :, i] = x[:, :, low : max(high, low)].sum(2) / count
    for declared in ((2, 3, size), ("a", "b", "c")):
        node = helper.make_node(
            "AveragePool", ["x"], ["y"], kernel_shape=[kernel], strides=[stride],
            pads=[begin, end], ceil_mode=1, count_include_pad=include,
        )  # fmt: skip
        (y,) = run(model([node], [value("x", declared)]), x, device=device)
        np.testing.assert_allclose(y, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("kind", ["AveragePool", "MaxPool"])
def test_windows_larger_than_the_whole_input(kind, device, rng):
    """Exporters write them for the mean of each channel; one that overhangs by a stride is none."""
    attributes = {"kernel_shape": [16, 9], "strides": [16, 4], "pads": [0, 2, 0, 2], "ceil_mode": 1}
    if kind == "AveragePool":
        attributes["count_include_pad"] = 1
    proto = model([helper.make_node(kind, ["x"], ["y"], **attributes)], [value("x", list("abcd"))])
    for shape in ((1, 3, 7, 5), (2, 5, 3, 7), (1, 16, 19, 2), (1, 3, 1, 12)):
        x = rng.standard_normal(shape).astype(np.float32)
        (y,) = run(proto, x, device=device)
        (want,) = onnxruntime_outputs(proto, x)
        np.testing.assert_allclose(y, want, 1e-5, 1e-6)
    with pytest.raises(ShapeError, match="window of 9 .* is larger than the input of 1 padded"):
        run(proto, rng.standard_normal((1, 3, 7, 1)).astype(np.float32), device=device)


@pytest.mark.parametrize("auto_pad", ["NOTSET", "VALID"])
@pytest.mark.parametrize("seed", range(4))
def test_norm_of_windows_that_reach_out(auto_pad, seed, device):
    rng = np.random.default_rng(seed)
    kernel, stride = int(rng.integers(2, 5)), int(rng.integers(1, 5))
    size = int(rng.integers(kernel, 11))
    x = rng.standard_normal((2, 3, size)).astype(np.float32)
    node = helper.make_node(
        "LpPool", ["x"], ["y"], kernel_shape=[kernel], strides=[stride], p=2, ceil_mode=1,
        auto_pad=auto_pad,
    )  # fmt: skip
    starts = range(0, min(size, size - kernel + stride), stride)
    expected = np.stack([np.sqrt((x[:, :, s : s + kernel] ** 2).sum(2)) for s in starts], 2)
    (y,) = run(model([node], [value("x", ["a", "b", "c"])]), x, device=device)
    np.testing.assert_allclose(y, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("known", [False, True])
def test_group_normalization_by_groups(known, device, rng):
    """Opset 18 has a scale and a bias per group, where opset 21 has them per channel."""
    x = rng.standard_normal((2, 6, 5)).astype(np.float32)
    scale, bias = rng.standard_normal((2, 3)).astype(np.float32)
    node = helper.make_node(
        "GroupNormalization", ["x", "s", "b"], ["y"], num_groups=3, epsilon=1e-3
    )
    proto = model(
        [node],
        [value("x", x.shape if known else ["n", "c", "l"])],
        initializers=[tensor("s", scale), tensor("b", bias)],
        opset=18,
    )
    grouped = x.astype(np.float64).reshape(2, 3, 10)
    spread = grouped - grouped.mean(2, keepdims=True)
    expected = spread / np.sqrt(grouped.var(2, keepdims=True) + 1e-3)
    expected = (expected * scale[:, None] + bias[:, None]).reshape(x.shape)
    (y,) = run(proto, x, device=device)
    np.testing.assert_allclose(y, expected, 1e-4, 1e-5)


ROUNDINGS: dict[str, Callable[[Fraction], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_floor": lambda place: math.ceil(place - Fraction(1, 2)),
    "round_prefer_ceil": lambda place: math.floor(place + Fraction(1, 2)),
}


@pytest.mark.parametrize("seed", range(12))
def test_resize_about_the_centre(seed, device):
    """Elements on an edge are found as exact fractions say.

    ONNX Runtime and onnx.reference round the way there, each otherwise.
    """
    rng = np.random.default_rng(seed)
    size = int(rng.integers(3, 12))
    scale = float(rng.choice([0.25, 0.5, 0.75, 1.5, 2.5, 1.25]))
    rounding = str(rng.choice(list(ROUNDINGS)))
    node = helper.make_node(
        "Resize", ["x", "", "s"], ["y"], mode="nearest", nearest_mode=rounding,
        coordinate_transformation_mode="half_pixel_symmetric",
    )  # fmt: skip
    scales = tensor("s", np.array([1, scale], np.float32))
    proto = model([node], [value("x", ["a", "b"])], initializers=[scales])
    x = np.arange(size, dtype=np.float32).reshape(1, size)
    resized, half = int(size * scale), Fraction(1, 2)
    if resized:
        offset = Fraction(size, 2) * (1 - resized / (Fraction(scale) * size))
        places = [offset + (i + half) / Fraction(scale) - half for i in range(resized)]
        expected = [[min(max(ROUNDINGS[rounding](place), 0), size - 1) for place in places]]
        (y,) = run(proto, x, device=device)
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("antialias", [0, 1])
def test_resize_to_nothing(mode, antialias, device, rng):
    antialias = antialias if mode != "nearest" else 0
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode=mode, antialias=antialias)
    proto = model([node], [value("x", ["a", "b"]), value("s", [2], TensorProto.INT64)])
    x = rng.standard_normal((3, 4)).astype(np.float32)
    for sizes in ([0, 6], [3, 0], [0, 4]):
        (y,) = run(proto, x, np.array(sizes), device=device)
        assert list(y.shape) == sizes


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("shape", [["o", "i", "k", 3], [None] * 4, [4, 2, "k", "l"]])
def test_grouped_weights_of_unknown_sizes(operator, shape, device, rng):
    node = helper.make_node(operator, ["x", "w"], ["y"], group=2, strides=[2, 1])
    proto = model([node], [value("x", [1, 4, "h", "v"]), value("w", shape)])
    for outputs, kernel in ((4, 2), (4 if shape[0] == 4 else 6, 3)):
        first = (outputs, 2) if operator == "Conv" else (4, 2 if shape[1] == 2 else outputs)
        x = rng.standard_normal((1, 4, 5, 6)).astype(np.float32)
        w = rng.standard_normal((*first, kernel, 3)).astype(np.float32)
        _check(proto, device, x, w)


@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceL2"])
@pytest.mark.parametrize("keep", [0, 1])
def test_reduction_by_axes_that_may_be_none(operator, keep, device, rng):
    """No axes are all axes, also where an input says so at inference."""
    node = helper.make_node(operator, ["x", "a"], ["y"], keepdims=keep)
    proto = model([node], [value("x", [2, 3, 4]), value("a", ["n"], INT64)])
    for axes in ([], [1], [0, -1]):
        x = rng.standard_normal((2, 3, 4)).astype(np.float32)
        _check(proto, device, x, np.array(axes, np.int64))


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("axis", "condition"),
    [(0, "1011"), (0, "0011"), (1, "10100"), (-1, "0101"), (None, "1010110"), (1, "01"), (0, "")],
)
def test_compress_by_a_condition_longer_than_the_axis(
    known, constant, axis, condition, device, rng
):
    x, chosen = _numbers(rng, 2, 3), np.array([bit == "1" for bit in condition], bool)
    settings = {} if axis is None else {"axis": axis}
    inputs = [value("x", (2, 3) if known else ["a", "b"])]
    if not constant:
        inputs.append(value("c", (len(chosen),) if known else ["c"], TensorProto.BOOL))
    proto = model(
        [helper.make_node("Compress", ["x", "c"], ["y"], **settings)],
        inputs,
        initializers=[tensor("c", chosen)] if constant else [],
    )
    limit = x.size if axis is None else x.shape[axis]
    expected = np.compress(chosen[:limit], x, axis)
    for _ in range(2):
        (y,) = run(proto, *([x] if constant else [x, chosen]), device=device)
        np.testing.assert_array_equal(y, expected)


REDUCTIONS = ["ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2", "ReduceSumSquare", "ReduceProd"]


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize("axes", [[], [1], [-2], [0, 1]])
def test_axes_that_are_an_input(op, noop, axes, device, rng):
    node = helper.make_node(op, ["x", "a"], ["y"], noop_with_empty_axes=noop)
    proto = model([node], [value("x", ["n", 3]), value("a", ["k"], INT64)])
    _check(proto, device, _numbers(rng, 2, 3) - 2, np.array(axes, np.int64))


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (0, 0), (2, 3)])
@pytest.mark.parametrize("known", [False, True])
def test_hardmax_of_nothing(opset, axis, shape, known, device, rng):
    node = helper.make_node("Hardmax", ["x"], ["y"], axis=axis)
    proto = model([node], [value("x", shape if known else ["a", "b"])], opset=opset)
    _check(proto, device, _numbers(rng, *shape))


@pytest.mark.parametrize("numbers", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"inverse": 1}, {"onesided": 1}])
def test_transforms_of_real_or_complex_numbers(numbers, settings, device, rng):
    node = helper.make_node("DFT", ["x"], ["y"], axis=1, **settings)
    proto = model([node], [value("x", ["b", 8, "c"])], opset=17)
    x = rng.standard_normal((2, 8, numbers)).astype(np.float32)
    _check(proto, device, x)
    if "inverse" in settings:
        return
    stft = helper.make_node("STFT", ["x", "s", "w"], ["y"], onesided=settings.get("onesided", 0))
    window = np.array([0.5, 1, 0.25, 2], np.float32)
    constants = [tensor("s", np.array(2)), tensor("w", window)]
    proto = model([stft], [value("x", ["b", "t", "c"])], initializers=constants, opset=17)
    _check(proto, device, x)


def test_sizes_that_do_not_agree_are_refused_when_they_are_known(device, rng):
    """Behind NonZero sizes are the data's; who does not take them says so, by its name."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["i"]),
        helper.make_node("ReverseSequence", ["i", "l"], ["y"], name="turn", batch_axis=1),
    ]
    nodes[1].attribute.append(helper.make_attribute("time_axis", 0))
    proto = model(nodes, [value("x", ["n"]), value("l", ["k"], INT64)], [value("y", None, INT64)])
    x = np.array([0, 3, 0, 4, 5], np.float32)
    for _ in range(2):
        with pytest.raises(ShapeError, match=r"'turn' \(ReverseSequence.*sizes 3 and 2 do not"):
            run(proto, x, np.array([1, 1]), device=device)
        (y,) = run(proto, x, np.array([1, 1, 1]), device=device)
        np.testing.assert_array_equal(y, [[1, 3, 4]])


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_of_five_axes(mode, device, rng):
    """More axes than images have, which are known to change only when the sizes are."""
    node = helper.make_node(
        "Resize", ["x", "", "", "s"], ["y"], mode=mode,
        coordinate_transformation_mode="align_corners", nearest_mode="floor",
    )  # fmt: skip
    sizes = tensor("s", np.array([4, 1, 5, 3, 4]))
    proto = model([node], [value("x", list("abcde"))], initializers=[sizes])
    for shape in ((2, 1, 3, 2, 3), (3, 1, 5, 2, 5), (2, 1, 3, 2, 3)):
        x = rng.standard_normal(shape).astype(np.float32)
        (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
        (y,) = run(proto, x, device=device)
        np.testing.assert_allclose(y, expected, 1e-4, 1e-5)
