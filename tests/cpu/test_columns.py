"""Convolutions and pools of columns [N, C, L, 1], which primitives see as rows, and the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice_cpu import processor
from polydevice_cpu.onednn.library import library
from tests.cpu import models
from tests.cpu.machine_code import followed

needs_onednn = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")
needs_bf16 = pytest.mark.skipif(not processor.has_bf16(), reason="no bfloat16 on this processor")

F32, BF16 = (1e-4, {}), (2e-2, {"ENFORCE_BF16": "YES"})

CONVOLUTIONS = {
    "plain": (2, 13, 37, 21, (5, 1), {}),
    "pointwise": (2, 13, 37, 21, (1, 1), {}),
    "one channel": (2, 1, 101, 19, (11, 1), {"strides": [3, 1]}),
    "strided": (1, 19, 53, 16, (4, 1), {"strides": [3, 2]}),
    "dilated": (2, 16, 47, 11, (3, 1), {"dilations": [5, 1], "pads": [5, 0, 5, 0]}),
    "asymmetric": (2, 7, 31, 9, (6, 1), {"pads": [1, 0, 4, 0]}),
    "padding wider than the kernel": (1, 5, 9, 6, (2, 1), {"pads": [3, 0, 4, 0]}),
    "grouped": (2, 24, 29, 36, (3, 1), {"group": 3, "pads": [1, 0, 1, 0]}),
    "blocks of channels": (1, 64, 29, 64, (3, 1), {"group": 4, "pads": [1, 0, 1, 0]}),
    "depthwise": (2, 37, 41, 37, (7, 1), {"group": 37, "pads": [3, 0, 3, 0], "strides": [2, 1]}),
    "kernel as long as the column": (3, 8, 17, 10, (17, 1), {}),
    "kernel wider than the column": (2, 12, 23, 17, (3, 5), {"pads": [1, 2, 1, 2]}),
    "three spatial axes": (1, 9, (3, 27), 14, (2, 5, 1), {"pads": [0, 2, 0, 1, 1, 0]}),
    "column of one": (2, 12, 1, 17, (3, 1), {"pads": [1, 0, 1, 0]}),
}


def infer(model, inputs, config):
    """Two inferences that agree, and the types and shapes of the steps they took."""
    with Core() as core:
        executable = core.load_network(core.read_network(model), "CPU", config)
        request = executable.create_infer_request()
        first = [array.copy() for array in request.infer(inputs).values()]
        again = list(request.infer(inputs).values())
        for one, other in zip(first, again, strict=True):
            np.testing.assert_array_equal(one, other)
        return first, request.runner.bound.plan.steps


def check(got, want, tolerance):
    for ours, theirs in zip(got, want, strict=True):
        assert ours.shape == theirs.shape
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * scale)


def length(case):
    _, channels, lengths, filters, kernel, attributes = case
    lengths = lengths if isinstance(lengths, tuple) else (lengths,)
    return channels, lengths, filters, kernel, attributes


def random(rng, *shape):
    return rng.normal(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize("precision", [F32, pytest.param(BF16, marks=needs_bf16)], ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_and_what_is_fused(name, precision):
    """A bias, a residual, a factor per channel, a slope per channel and what ONNX Runtime says."""
    batch = CONVOLUTIONS[name][0]
    channels, lengths, filters, kernel, attributes = length(CONVOLUTIONS[name])
    tolerance, config = precision
    rng = np.random.default_rng(1)
    ones = [1] * (len(kernel) - 1)
    weights = {
        "w": random(rng, filters, channels // attributes.get("group", 1), *kernel)
        / np.float32(np.sqrt(channels * np.prod(kernel))),
        "b": random(rng, filters),
        "slope": random(rng, filters, 1, *ones),
    }
    nodes = [
        ("Conv", ["x", "w", "b"], ["biased"], attributes),
        ("Relu", ["biased"], ["y"], {}),
        ("Conv", ["x", "w"], ["plain"], attributes),
        ("Add", ["plain", "y"], ["sum"], {}),
        ("PRelu", ["sum", "slope"], ["z"], {}),
        ("Conv", ["x", "w"], ["again"], attributes),
        ("Sub", ["v", "again"], ["far"], {}),
    ]
    shape = [batch, channels, *lengths, 1]
    made = models.build(nodes[:1], {"x": shape}, ["biased"], weights)
    x = random(rng, *shape)
    extent = models.answer(made, {"x": x})[0].shape
    v = random(rng, 1, *extent[1:-2], 1, 1)  # one number per channel, known at run time only
    model = models.build(nodes, {"x": shape, "v": v.shape}, ["y", "z", "far"], weights)
    inputs = {"x": x, "v": v}
    got, _ = infer(model, inputs, config)
    check(got, models.answer(model, inputs), tolerance)


@pytest.mark.parametrize("kernel", [(4, 1), (3, 3)])
def test_weights_known_at_run_time(kernel):
    rng = np.random.default_rng(2)
    pads = [1, kernel[1] // 2, 2, kernel[1] // 2]
    inputs = {"x": random(rng, 2, 11, 35, 1), "w": random(rng, 18, 11, *kernel)}
    nodes = [("Conv", ["x", "w"], ["c"], {"pads": pads}), ("Relu", ["c"], ["y"], {})]
    model = models.build(nodes, {n: a.shape for n, a in inputs.items()}, ["y"], {})
    got, _ = infer(model, inputs, {})
    check(got, models.answer(model, inputs), 1e-4)


@pytest.mark.parametrize(
    ("channels", "filters", "attributes"),
    [
        (13, 21, {"strides": [2, 1], "pads": [1, 0, 1, 0]}),
        (16, 32, {"strides": [3, 1], "output_padding": [1, 0]}),
        (24, 12, {"group": 4, "dilations": [2, 1], "pads": [2, 0, 1, 0]}),
        (8, 8, {"group": 8, "strides": [2, 1]}),
    ],
)
def test_transposed_convolutions(channels, filters, attributes):
    rng = np.random.default_rng(3)
    w = random(rng, channels, filters // attributes.get("group", 1), 4, 1)
    nodes = [("ConvTranspose", ["x", "w", "b"], ["c"], attributes), ("Relu", ["c"], ["y"], {})]
    weights = {"w": w, "b": random(rng, filters)}
    model = models.build(nodes, {"x": [2, channels, 19, 1]}, ["y"], weights)
    inputs = {"x": random(rng, 2, channels, 19, 1)}
    got, _ = infer(model, inputs, {})
    check(got, models.answer(model, inputs), 1e-4)


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 1]},
        {"kernel_shape": [4, 1], "strides": [3, 1], "pads": [1, 0, 2, 0]},
        {"kernel_shape": [3, 1], "strides": [2, 1], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 1, 1, 1]},
    ],
)
@pytest.mark.parametrize("channels", [5, 16])
def test_pools(kind, attributes, channels):
    """Of an input in row-major order, and of what a convolution computes."""
    rng = np.random.default_rng(4)
    nodes = [
        (kind, ["x"], ["y"], attributes),
        ("Conv", ["x", "w"], ["c"], {"pads": [1, 0, 1, 0]}),
        (kind, ["c"], ["p"], attributes),
        ("Mul", ["p", "factor"], ["z"], {}),
    ]
    weights = {"w": random(rng, 16, channels, 3, 1), "factor": random(rng, 16, 1, 1)}
    model = models.build(nodes, {"x": [2, channels, 40, 1]}, ["y", "z"], weights)
    inputs = {"x": random(rng, 2, channels, 40, 1)}
    got, _ = infer(model, inputs, {})
    check(got, models.answer(model, inputs), 1e-4)


@needs_onednn
def test_a_chain_needs_no_reorders():
    rng = np.random.default_rng(5)
    weights = {
        "w0": random(rng, 32, 16, 5, 1),
        "w1": random(rng, 32, 32, 3, 1),
        "w2": random(rng, 32, 1, 3, 1),
        "b": random(rng, 32),
        "gamma": random(rng, 32),
        "beta": random(rng, 32),
        "mean": random(rng, 32),
        "variance": np.abs(random(rng, 32)) + 1,
    }
    same = {"pads": [1, 0, 1, 0]}
    nodes = [
        ("Conv", ["x", "w0"], ["c0"], {"pads": [2, 0, 2, 0]}),
        ("BatchNormalization", ["c0", "gamma", "beta", "mean", "variance"], ["n0"], {}),
        ("Relu", ["n0"], ["r0"], {}),
        ("Conv", ["r0", "w1", "b"], ["c1"], same),
        ("Add", ["c1", "r0"], ["s1"], {}),
        ("Relu", ["s1"], ["r1"], {}),
        ("MaxPool", ["r1"], ["p1"], {"kernel_shape": [2, 1], "strides": [2, 1]}),
        ("Conv", ["p1", "w2", "b"], ["c2"], {**same, "group": 32}),
        ("Sigmoid", ["c2"], ["g2"], {}),
        ("Mul", ["c2", "g2"], ["a2"], {}),
        ("Concat", ["a2", "p1"], ["y"], {"axis": 1}),
    ]
    model = models.build(nodes, {"x": [1, 16, 62, 1]}, ["y"], weights)
    inputs = {"x": random(rng, 1, 16, 62, 1)}
    got, steps = infer(model, inputs, {})
    check(got, models.answer(model, inputs), 1e-4)
    assert [step.type for step in steps] == [
        "Reorder",  # the input, to channels-last
        "Convolution+Add+ReLU",
        "Convolution+Add+ReLU",  # what is added is of the same value: it is in the weights
        "MaxPool",
        *followed("GroupConvolution+Add", "Swish"),
        "Concat",
        "Reorder",  # the output, to row-major
    ]
    shapes = [step.values[0].shape for step in steps if "Conv" in step.type]
    assert shapes == [(1, 16, 1, 62), (1, 32, 1, 62), (1, 32, 1, 31)]


@needs_onednn
def test_one_dimensional_layers_need_no_reorders():
    """Between Unsqueeze and Squeeze, with the bias behind, for a batch that is not known."""
    rng = np.random.default_rng(6)
    weights = {
        "w0": random(rng, 32, 16, 5, 1),
        "w1": random(rng, 19, 32, 3, 1),
        "b0": random(rng, 32, 1),
        "b1": random(rng, 19, 1),
        "axis": np.array([3]),
    }
    nodes = []
    for k, source in enumerate(["x", "r0"]):
        nodes += [
            ("Unsqueeze", [source, "axis"], [f"u{k}"], {}),
            ("Conv", [f"u{k}", f"w{k}"], [f"c{k}"], {"strides": [2, 1]}),
            ("Squeeze", [f"c{k}", "axis"], [f"s{k}"], {}),
            ("Add", [f"s{k}", f"b{k}"], [f"a{k}"], {}),
            ("Relu", [f"a{k}"], [f"r{k}"], {}),
        ]
    model = models.build(nodes, {"x": ["n", 16, 63]}, ["r1"], weights)
    inputs = {"x": random(rng, 3, 16, 63)}
    got, steps = infer(model, inputs, {})
    check(got, models.answer(model, inputs), 1e-4)
    assert [step.type for step in steps] == [
        "Reorder",  # the input, to channels-last
        "Convolution+Add+ReLU",
        "Convolution+Add+ReLU",
        "Reorder",  # the output, to row-major
    ]


FILTERS = {
    "a sound": ((1, 1, 700), (40,), {}),
    "strided": ((2, 1, 900), (33,), {"strides": [3]}),
    "padded": ((1, 1, 540), (64,), {"strides": [2], "pads": [5, 31]}),
    "more input than is read": ((1, 1, 2110), (64,), {"strides": [8]}),
    "to keep the size": ((1, 1, 600), (17,), {"auto_pad": "SAME_UPPER"}),
    "a column": ((3, 1, 801, 1), (50, 1), {"strides": [2, 1], "pads": [7, 0, 7, 0]}),
    "a row": ((1, 1, 1, 801), (1, 50), {"strides": [1, 2]}),
}
OTHERS = {
    "few results": ((1, 1, 200), (40,), {}),
    "few terms": ((1, 1, 700), (9,), {}),
    "strides as long as the filter": ((1, 1, 16000), (40,), {"strides": [40]}),
    "dilated": ((1, 1, 700), (40,), {"dilations": [2]}),
    "a picture": ((1, 1, 700, 3), (40, 1), {}),
    "many channels": ((1, 40, 700), (1,), {}),
    "zeros beside the row": ((1, 1, 1, 700), (1, 40), {"strides": [2, 1], "pads": [1, 0, 0, 0]}),
}


@pytest.mark.parametrize(
    "precision", [F32, pytest.param(BF16, marks=[needs_bf16, pytest.mark.full])], ids=str
)
@pytest.mark.parametrize("name", [*FILTERS, *OTHERS])
def test_long_filters_of_one_channel(name, precision, rng):
    """They compute results side by side, and answer as ever; others stay as they are."""
    shape, kernel, attributes = (FILTERS | OTHERS)[name]
    tolerance, config = precision
    terms = shape[1] * int(np.prod(kernel))
    weights = {
        "w": random(rng, 1, shape[1], *kernel) / np.float32(np.sqrt(terms)),
        "b": random(rng, 1),
    }
    nodes = [("Conv", ["x", "w", "b"], ["c"], attributes), ("Relu", ["c"], ["y"], {})]
    model = models.build(nodes, {"x": ["n", *shape[1:]]}, ["y"], weights)
    inputs = {"x": random(rng, *shape)}
    found, steps = infer(model, inputs, config)
    check(found, models.answer(model, inputs), tolerance)
    assert any("packed" in step.name for step in steps) == (name in FILTERS)
