"""Operators with random attributes and odd shapes, compared with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.onnx.models import model, onnxruntime_outputs, run, tensor, value

Rng = np.random.Generator
Case = tuple[onnx.NodeProto, dict[str, np.ndarray], set[str]]
"""A node, its inputs, and the names of those that are stored in the model."""

CASES: dict[str, Callable[[Rng], Case]] = {}
REPEATS = 12


def case(function: Callable[[Rng], Case]) -> Callable[[Rng], Case]:
    CASES[function.__name__] = function
    return function


def _f(rng: Rng, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def _window(rng: Rng, rank: int, kernel: list[int]) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "strides": rng.integers(1, 4, rank).tolist(),
        "dilations": rng.integers(1, 3, rank).tolist(),
    }
    mode = rng.choice(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if mode == "NOTSET":
        # at most half the kernel, which ONNX Runtime asks of pooling
        attributes["pads"] = [int(rng.integers(0, k // 2 + 1)) for k in kernel * 2]
    else:
        attributes["auto_pad"] = str(mode)
        attributes["dilations"] = [1] * rank  # what "same" means with them is disputed
    return attributes


@case
def conv(rng: Rng) -> Case:
    rank, groups = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 3]))
    kernel = rng.integers(1, 4, rank).tolist()
    sizes = rng.integers(7, 11, rank).tolist()
    inputs = {
        "x": _f(rng, 2, groups * 2, *sizes),
        "w": _f(rng, groups * 3, 2, *kernel),
        "b": _f(rng, groups * 3),
    }
    node = helper.make_node("Conv", list(inputs), ["y"], group=groups, **_window(rng, rank, kernel))
    return node, inputs, {"w", "b"} if rng.random() < 0.7 else set()


@case
def conv_transpose(rng: Rng) -> Case:
    rank, groups = int(rng.integers(1, 3)), int(rng.choice([1, 1, 2]))
    kernel = rng.integers(1, 4, rank).tolist()
    strides = rng.integers(1, 4, rank).tolist()
    inputs = {
        "x": _f(rng, 2, groups * 2, *rng.integers(3, 6, rank)),
        "w": _f(rng, groups * 2, 3, *kernel),
    }
    attributes: dict[str, Any] = {"strides": strides, "group": groups}
    if rng.random() < 0.5:
        attributes["pads"] = [int(rng.integers(0, k)) for k in kernel * 2]
        attributes["output_padding"] = [int(rng.integers(0, s)) for s in strides]
        attributes["dilations"] = rng.integers(1, 3, rank).tolist()
    return helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes), inputs, {"w"}


@case
def pooling(rng: Rng) -> Case:
    rank = int(rng.integers(1, 4))
    kernel = rng.integers(2, 4, rank).tolist()
    name = str(rng.choice(["MaxPool", "AveragePool"]))
    attributes = _window(rng, rank, kernel)
    # a longer step with auto_pad would ask for negative padding, which ONNX Runtime refuses
    attributes["strides"] = [min(pair) for pair in zip(attributes["strides"], kernel, strict=True)]
    attributes["ceil_mode"] = int(rng.integers(0, 2)) if "pads" in attributes else 0
    if name == "AveragePool":
        attributes["count_include_pad"] = int(rng.integers(0, 2))
        if attributes["ceil_mode"]:  # ONNX Runtime divides overhanging windows by another number
            attributes["count_include_pad"] = 0
        del attributes["dilations"]
    x = {"x": _f(rng, 2, 3, *rng.integers(6, 10, rank))}
    return helper.make_node(name, ["x"], ["y"], kernel_shape=kernel, **attributes), x, set()


@case
def pad(rng: Rng) -> Case:
    shape = rng.integers(3, 6, 3).tolist()
    mode = str(rng.choice(["constant", "edge", "reflect", "wrap"]))
    inputs = {"x": _f(rng, *shape), "p": rng.integers(0, 3, 6)}
    if mode == "constant":
        inputs["v"] = np.float32(rng.standard_normal())
        inputs["p"] = rng.integers(-1, 3, 6)
    return helper.make_node("Pad", list(inputs), ["y"], mode=mode), inputs, {"p"}


@case
def slicing(rng: Rng) -> Case:
    axes = rng.permutation(3)[: rng.integers(1, 4)]
    count = len(axes)
    inputs = {
        "x": _f(rng, 4, 5, 6),
        "s": rng.integers(-4, 8, count),  # not before the first one: see np.arange(4)[-6:-6:-2]
        "e": rng.integers(-8, 8, count),
        "a": axes,
        "t": rng.choice([-2, -1, 1, 2], count),
    }
    stored = {"s", "e", "a", "t"} if rng.random() < 0.6 else set()
    return helper.make_node("Slice", list(inputs), ["y"]), inputs, stored


@case
def gathering(rng: Rng) -> Case:
    axis = int(rng.integers(-3, 3))
    x = _f(rng, 3, 4, 5)
    size = x.shape[axis]
    if rng.random() < 0.5:
        inputs = {"x": x, "i": rng.integers(-size, size, (2, 3))}
        return helper.make_node("Gather", ["x", "i"], ["y"], axis=axis), inputs, set()
    inputs = {"x": x, "i": rng.integers(-size, size, (3, 2, 5) if axis in (1, -2) else (2, 2, 2))}
    return helper.make_node("GatherElements", ["x", "i"], ["y"], axis=axis), inputs, set()


@case
def scattering(rng: Rng) -> Case:
    axis = int(rng.integers(0, 3))
    reduction = str(rng.choice(["none", "add", "mul", "max", "min"]))
    x = _f(rng, 4, 4, 4)
    indices = np.stack([rng.permutation(4)[:2] for _ in range(12)]).reshape(3, 4, 2)
    if reduction != "none":
        indices = rng.integers(0, 4, (3, 4, 2))  # repeated ones too
    inputs = {"x": x, "i": np.moveaxis(indices, 2, axis), "u": _f(rng, 3, 4, 2)}
    inputs["u"] = np.moveaxis(inputs["u"], 2, axis)
    node = helper.make_node("ScatterElements", list(inputs), ["y"], axis=axis, reduction=reduction)
    return node, inputs, set()


@case
def reducing(rng: Rng) -> Case:
    names = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"]
    axes = rng.permutation(4)[: rng.integers(0, 4)] - 2
    axes = np.unique(axes % 4) if rng.random() < 0.5 else axes
    inputs = {"x": _f(rng, 2, 3, 4, 5), "a": axes}
    node = helper.make_node(
        f"Reduce{rng.choice(names)}",
        ["x", "a"],
        ["y"],
        keepdims=int(rng.integers(0, 2)),
        noop_with_empty_axes=0,
    )
    return node, inputs, {"a"} if rng.random() < 0.7 else set()


@case
def resizing(rng: Rng) -> Case:
    mode = str(rng.choice(["nearest", "linear", "cubic"]))
    coordinates = ["half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners"]
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": str(rng.choice(coordinates)),
    }
    if mode == "nearest":
        kinds = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        attributes["nearest_mode"] = str(rng.choice(kinds))
    if mode == "cubic":
        attributes["cubic_coeff_a"] = float(rng.choice([-0.75, -0.5]))
        attributes["exclude_outside"] = int(rng.integers(0, 2))
    inputs = {"x": _f(rng, 1, 2, 5, 7)}
    # whole factors and sizes: elsewhere the last bit of a coordinate decides which one is nearest
    if rng.random() < 0.5:
        inputs["s"] = np.array([1, 1, *rng.choice([0.5, 1.5, 2, 3], 2)], np.float32)
        names = ["x", "", "s"]
        if attributes["coordinate_transformation_mode"] == "align_corners":
            inputs["s"][2:] = rng.integers(1, 4, 2)
    else:
        inputs["z"] = np.array([1, 2, *rng.choice([5, 7, 10, 14], 2)])
        names = ["x", "", "", "z"]
    return helper.make_node("Resize", names, ["y"], **attributes), inputs, {"s", "z"}


@case
def products(rng: Rng) -> Case:
    kind = rng.integers(0, 3)
    if kind == 0:
        a, b = _f(rng, 2, 1, 3, 4), _f(rng, 5, 4, 2)
        return helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": a, "b": b}, set()
    if kind == 1:
        ta, tb = (int(v) for v in rng.integers(0, 2, 2))
        inputs = {
            "a": _f(rng, *((4, 3) if ta else (3, 4))),
            "b": _f(rng, *((5, 4) if tb else (4, 5))),
            "c": _f(rng, *[(5,), (1, 5), (3, 1), (3, 5), ()][rng.integers(0, 5)]),
        }
        node = helper.make_node(
            "Gemm",
            list(inputs),
            ["y"],
            transA=ta,
            transB=tb,
            alpha=0.5,
            beta=float(rng.integers(3)),
        )
        return node, inputs, {"b"}
    equation = str(rng.choice(["bij,bjk->bik", "bij,bkj->bki", "bij,bjk->", "...ij,...jk->...ik"]))
    shapes = {"bij,bkj->bki": ((2, 3, 4), (2, 5, 4))}.get(equation, ((2, 3, 4), (2, 4, 5)))
    inputs = {"a": _f(rng, *shapes[0]), "b": _f(rng, *shapes[1])}
    return helper.make_node("Einsum", ["a", "b"], ["y"], equation=equation), inputs, set()


@case
def top_k(rng: Rng) -> Case:
    axis = int(rng.integers(-3, 3))
    x = rng.permutation(60).astype(np.float32).reshape(3, 4, 5)
    inputs = {"x": x, "k": np.array([rng.integers(1, 4)])}
    node = helper.make_node(
        "TopK", ["x", "k"], ["y", "i"], axis=axis, largest=int(rng.integers(0, 2)), sorted=1
    )
    return node, inputs, {"k"} if rng.random() < 0.5 else set()


@case
def normalization(rng: Rng) -> Case:
    kind = rng.integers(0, 4)
    x = _f(rng, 2, 6, 3, 4)
    c = {name: _f(rng, 6) for name in ("s", "b")}
    if kind == 0:
        inputs = {"x": x, **c, "m": _f(rng, 6), "v": np.abs(_f(rng, 6)) + 0.1}
        return helper.make_node("BatchNormalization", list(inputs), ["y"]), inputs, set("sbmv")
    if kind == 1:
        return (
            helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"]),
            {"x": x, **c},
            set(),
        )
    if kind == 2:
        inputs = {"x": x, "s": _f(rng, 3, 4), "b": _f(rng, 3, 4)}
        return helper.make_node("LayerNormalization", list(inputs), ["y"], axis=2), inputs, set()
    return helper.make_node("LRN", ["x"], ["y"], size=int(rng.choice([1, 3, 5]))), {"x": x}, set()


@case
def movement(rng: Rng) -> Case:
    kind = rng.integers(0, 6)
    x = _f(rng, 2, 8, 4, 6)
    if kind == 0:
        mode = str(rng.choice(["DCR", "CRD"]))
        return (
            helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2, mode=mode),
            {"x": x},
            set(),
        )
    if kind == 1:
        return helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=2), {"x": x}, set()
    if kind == 2:
        perm = rng.permutation(4).tolist()
        return helper.make_node("Transpose", ["x"], ["y"], perm=perm), {"x": x}, set()
    if kind == 3:
        inputs = {"x": x, "s": np.array([3, 5])}
        return helper.make_node("Split", ["x", "s"], ["y", "z"], axis=1), inputs, {"s"}
    if kind == 4:
        inputs = {"x": x[:1, :, :1], "s": np.array([3, 1, 4, 6])}
        return helper.make_node("Expand", ["x", "s"], ["y"]), inputs, set()
    inputs = {"x": x, "k": np.array(int(rng.integers(-2, 3)))}
    node = helper.make_node("Trilu", ["x", "k"], ["y"], upper=int(rng.integers(0, 2)))
    return node, inputs, {"k"} if rng.random() < 0.5 else set()


@case
def quantization(rng: Rng) -> Case:
    axis = int(rng.integers(0, 3))
    kind = rng.choice([np.uint8, np.int8])
    x = _f(rng, 3, 4, 5) * 3
    size = x.shape[axis]
    scale = (rng.random(size) * 0.1 + 0.01).astype(np.float32)
    zero = rng.integers(0, 50, size).astype(kind)
    if rng.random() < 0.5:
        node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], axis=axis)
        return node, {"x": x, "s": scale, "z": zero}, {"s", "z"}
    q = rng.integers(0, 100, x.shape).astype(kind)
    node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], axis=axis)
    return node, {"x": q, "s": scale, "z": zero}, {"s", "z"}


@case
def integer_products(rng: Rng) -> Case:
    a = rng.integers(0, 256, (4, 7)).astype(np.uint8)
    b = rng.integers(-128, 128, (7, 3)).astype(np.int8)
    if rng.random() < 0.5:
        inputs = {"a": a, "b": b, "p": np.uint8(rng.integers(256)), "q": np.int8(3)}
        return helper.make_node("MatMulInteger", list(inputs), ["y"]), inputs, set("bpq")
    x = rng.integers(0, 256, (1, 2, 6, 7)).astype(np.uint8)
    w = rng.integers(0, 256, (3, 2, 3, 2)).astype(np.uint8)
    inputs = {"x": x, "w": w, "p": np.uint8(rng.integers(256)), "q": np.uint8(120)}
    return (
        helper.make_node("ConvInteger", list(inputs), ["y"], pads=[1, 0, 1, 1]),
        inputs,
        set("wpq"),
    )


@case
def suppression(rng: Rng) -> Case:
    corners = rng.random((1, 20, 4)).astype(np.float32)
    corners[..., 2:] = corners[..., :2] + 0.3
    inputs = {
        "b": corners,
        "s": rng.permutation(40).astype(np.float32).reshape(1, 2, 20) / 40,
        "n": np.array([int(rng.integers(1, 8))]),
        "i": np.array([0.3], np.float32),
        "t": np.array([0.2], np.float32),
    }
    return helper.make_node("NonMaxSuppression", list(inputs), ["y"]), inputs, set("nit")


@case
def stft(rng: Rng) -> Case:
    length, step = int(rng.integers(5, 13)), int(rng.integers(2, 6))
    kind = str(rng.choice(["flat", "real", "both sides", "complex"]))
    size = int(rng.integers(20, 40))
    shape = {"flat": (2, size), "complex": (2, size, 2)}.get(kind, (2, size, 1))
    inputs = {"x": _f(rng, *shape), "step": np.array(step), "w": _f(rng, length)}
    names = list(inputs)
    if rng.random() < 0.5:
        inputs["length"] = np.array(length)
        names = list(inputs) if rng.random() < 0.5 else ["x", "step", "", "length"]
    onesided = int(kind in ("flat", "real"))
    node = helper.make_node("STFT", names, ["y"], onesided=onesided)
    inputs = {name: array for name, array in inputs.items() if name in names}
    return node, inputs, {name for name in names if name not in ("x", "")}


@pytest.mark.parametrize("repeat", range(REPEATS))
@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str, repeat: int) -> None:
    rng = np.random.default_rng([sum(name.encode()), repeat])
    node, inputs, stored = CASES[name](rng)
    feeds = {k: np.asarray(v) for k, v in inputs.items() if k not in stored}
    proto = model(
        [node],
        [value(k, v.shape, helper.np_dtype_to_tensor_dtype(v.dtype)) for k, v in feeds.items()],
        [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in node.output],
        initializers=[tensor(k, v) for k, v in inputs.items() if k in stored],
        opset=19,
    )
    for output in proto.graph.output:
        output.ClearField("type")
    expected = onnxruntime_outputs(proto, *feeds.values())
    results = run(proto, *feeds.values())
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype, node
        assert result.shape == wanted.shape, node
        np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=2e-5, err_msg=str(node))


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    "wanted", [[10], [11], [8]]
)  # paddings of 1, 0 and 3: odd ones have a side
def test_transposed_convolution_to_a_size(auto_pad, wanted, device, rng) -> None:
    x, w = _f(rng, 2, 2, 5), _f(rng, 2, 3, 3)
    node = helper.make_node(
        "ConvTranspose", ["x", "w"], ["y"], strides=[2], output_shape=wanted, auto_pad=auto_pad
    )
    proto = model([node], [value("x", x.shape)], [value("y", None)], initializers=[tensor("w", w)])
    (expected,) = onnxruntime_outputs(proto, x)
    (y,) = run(proto, x, device=device)
    np.testing.assert_allclose(y, expected, 1e-4, 1e-5)
