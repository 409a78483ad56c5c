"""Transposed convolutions: as matrix products, and what oneDNN fuses into its own."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from polydevice_cpu.processor import has_bf16
from tests.cpu import models
from tests.cpu.loading import image, load
from tests.cpu.machine_code import are_sigmoids_apart
from tests.cpu.quantised_graphs import Graph, activated, check, final, reference, spread

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")

TAILS = {
    "ReLU": [("Relu", ["c"], ["y"], {})],
    "a sum": [("Add", ["z", "c"], ["d"], {}), ("Relu", ["d"], ["y"], {})],
    "a factor a channel": [("Mul", ["c", "s"], ["d"], {}), ("Sigmoid", ["d"], ["y"], {})],
    "a slope a channel": [("PRelu", ["c", "s"], ["y"], {})],
    "itself": [("Sigmoid", ["c"], ["d"], {}), ("Mul", ["c", "d"], ["y"], {})],
}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("kernel", [(2, 2), (1, 4), (3, 2), (4,)], ids=str)
def test_windows_side_by_side_for_any_shape(core, tail, kernel):
    rng = np.random.default_rng([sum(kernel), len(tail)])
    source, channels = (int(n) for n in rng.choice([1, 3, 8, 17, 24], 2))
    names = ["h", "w"][: len(kernel)]
    weights = {
        "k": rng.standard_normal((source, channels, *kernel)).astype(np.float32),
        "b": rng.standard_normal(channels).astype(np.float32),
        "s": rng.standard_normal((channels, *[1] * len(kernel))).astype(np.float32),
    }
    node = ("ConvTranspose", ["x", "k", "b"], ["c"], {"strides": list(kernel)})
    inputs = {"x": ["n", source, *names]}
    if tail == "a sum":
        inputs["z"] = ["n", channels, *[f"{name}z" for name in names]]
    model = models.build([node, *TAILS[tail]], inputs, ["y"], weights)
    executable = load(core, model)
    request = executable.create_infer_request()
    for number in range(5):
        sizes = [int(n) for n in rng.integers(1, 12, len(kernel))]
        given = {"x": image(number, int(rng.integers(1, 4)), source, *sizes) - np.float32(0.5)}
        if "z" in inputs:
            whole = [n * step for n, step in zip(sizes, kernel, strict=True)]
            given["z"] = image(number + 9, len(given["x"]), channels, *whole)
        (want,) = models.answer(model, given)
        np.testing.assert_allclose(request.infer(given)["y"], want, rtol=1e-4, atol=1e-4)
    used = {step.implementation for step in executable.latest_plan().steps}
    assert not any(name.startswith(("conv:", "brg_conv", "ref")) for name in used)


FEW = {
    "9x9": ([9, 9], {"strides": [3, 3], "pads": [4] * 4, "output_padding": [2, 2]}),
    "a row of frames": ([16], {"strides": [8]}),
    "a row, cropped": ([64], {"strides": [32], "pads": [16, 16]}),
    "twice as large": ([4, 4], {"strides": [2, 2], "pads": [1] * 4}),
    "3x3, longer": ([3, 3], {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}),
    "cropped at one end": ([5, 2], {"strides": [3, 1], "pads": [2, 0, 0, 1]}),
    "gaps": ([2, 3], {"strides": [4, 3], "output_padding": [2, 0]}),
    "no multiple": ([3, 3], {"strides": [2, 2]}),
    "a volume": ([4, 4, 4], {"strides": [2, 2, 2], "pads": [1] * 6}),
}  # fmt: skip


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("window", FEW)
def test_few_results(core, window, known):
    """Convolutions with more channels, for sizes that are known at load or not."""
    kernel, attributes = FEW[window]
    rng = np.random.default_rng([len(window), known])
    source = int(rng.choice([1, 3, 17, 32]))
    channels = 1 if len(kernel) == 1 else int(rng.integers(1, 5))
    weights = {
        "k": rng.standard_normal((source, channels, *kernel)).astype(np.float32),
        "b": rng.standard_normal(channels).astype(np.float32),
    }
    node = ("ConvTranspose", ["x", "k", "b"], ["c"], attributes)
    names = [5, 7, 3][: len(kernel)] if known else ["d", "h", "w"][: len(kernel)]
    shape = [2 if known else "n", source, *names]
    model = models.build([node, ("Relu", ["c"], ["y"], {})], {"x": shape}, ["y"], weights)
    executable = load(core, model)
    request = executable.create_infer_request()
    for number in range(3):
        sizes = names if known else [int(n) for n in rng.integers(2, 12, len(kernel))]
        given = {"x": image(number, 2, source, *sizes) - np.float32(0.5)}
        (want,) = models.answer(model, given)
        np.testing.assert_allclose(request.infer(given)["y"], want, rtol=1e-4, atol=1e-4)
    used = {step.implementation for step in executable.latest_plan().steps}
    if window in ("a row of frames", "a row, cropped", "twice as large"):
        assert not any(name.startswith(("conv:", "brg_conv", "ref")) for name in used)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("window", FEW)
def test_few_results_of_bytes(core, window, known):
    """The same of quantised layers, in whose padding the zero point is what the source has."""
    kernel, attributes = FEW[window]
    g = Graph(np.random.default_rng([len(window), known, 5]))
    rng, kind = g.rng, final(g.rng)
    source = int(rng.choice([1, 3, 17, 32]))
    channels = 1 if len(kernel) == 1 else int(rng.integers(1, 9))
    w = g.weights((source, channels, *kernel), 1)
    y = g.emit("ConvTranspose", g.source(kind), w, **attributes)
    if rng.random() < 0.5:
        bias = rng.normal(size=(channels, *[1] * len(kernel))).astype(np.float32)
        y = g.emit("Add", y, g.store(bias))
    result = g.quantised(activated(g, y), kind, 0.1)
    names = [5, 7, 3][: len(kernel)] if known else ["d", "h", "w"][: len(kernel)]
    model = g.model([2 if known else "n", source, *names], kind, {result: kind})
    executable = load(core, model)
    request = executable.create_infer_request()
    for _ in range(3):
        sizes = names if known else [int(n) for n in rng.integers(2, 12, len(kernel))]
        feed = {"x": spread(rng, (2, source, *sizes), kind)}
        (ours,), (theirs,) = request.infer(feed).values(), reference(model, feed)
        away = np.abs(ours.astype(int) - theirs)
        assert away.max() <= 1
        assert (away > 0).mean() < 0.01 + 2 / away.size
    if window in ("a row of frames", "a row, cropped", "twice as large"):
        used = {step.implementation for step in executable.latest_plan().steps}
        assert not any(name.startswith(("conv:", "brg_conv", "ref")) for name in used)


@pytest.mark.skipif(not has_bf16(), reason="the processor does not compute with bfloat16")
def test_few_results_in_bfloat16(core):
    weights = {"k": image(1, 8, 1, 16) - np.float32(0.5)}
    node = ("ConvTranspose", ["x", "k"], ["y"], {"strides": [8]})
    model = models.build([node], {"x": ["n", 8, "l"]}, ["y"], weights)
    request = load(core, model, ENFORCE_BF16="YES").create_infer_request()
    given = {"x": image(2, 1, 8, 31) - np.float32(0.5)}
    (want,) = models.answer(model, given)
    np.testing.assert_allclose(request.infer(given)["y"], want, atol=2**-7 * np.abs(want).max())


@pytest.mark.parametrize(
    ("source", "result", "window"),
    [
        (12, 4, {"kernel": [3], "strides": [3]}),  # a row is as long as in the source
        (4, 2, {"kernel": [1, 2], "strides": [1, 2]}),
        (8, 2, {"kernel": [2, 2], "strides": [2, 2]}),
        (5, 3, {"kernel": [2], "strides": [3], "dilations": [2]}),  # gaps within windows
        (5, 3, {"kernel": [2, 3], "strides": [4, 3], "dilations": [3, 1]}),
        (5, 3, {"kernel": [2, 1], "strides": [3, 4]}),  # gaps between windows
        (5, 3, {"kernel": [1, 1], "strides": [1, 1], "dilations": [2, 3]}),
    ],
)
def test_windows_that_only_look_side_by_side_and_rows_of_one_length(core, source, result, window):
    rng = np.random.default_rng(source)
    kernel, axes = window["kernel"], len(window["kernel"])
    k = rng.standard_normal((source, result, *kernel)).astype(np.float32)
    b = rng.standard_normal(result).astype(np.float32)
    attributes = {name: value for name, value in window.items() if name != "kernel"}
    nodes = [("ConvTranspose", ["x", "k", "b"], ["c"], attributes), ("Relu", ["c"], ["y"], {})]
    for sizes in (["n", source, *"hw"[:axes]], [2, source, *(4, 3)[:axes]]):
        model = models.build(nodes, {"x": sizes}, ["y"], {"k": k, "b": b})
        request = load(core, model).create_infer_request()
        for number in range(2):
            x = image(number, 2, source, *(4, 3)[:axes]) - np.float32(0.5)
            (want,) = models.answer(model, {"x": x})
            np.testing.assert_allclose(request.infer({"x": x})["y"], want, rtol=1e-4, atol=1e-4)


def test_code_that_is_right_for_one_window_is_not_taken_for_another(core):
    """oneDNN 3.2 adds the bias once for every part of a long sum, which a short one is not."""
    for kernel, pad in ((8, 0), (16, 4)):
        weights = {"k": image(1, 96, 32, kernel, kernel) - 0.5, "b": image(2, 32)}
        window = {"strides": [8, 8], "pads": [pad] * 4}
        nodes = [("ConvTranspose", ["x", "k", "b"], ["c"], window), ("Relu", ["c"], ["y"], {})]
        weights = {name: x.astype(np.float32) for name, x in weights.items()}
        model = models.build(nodes, {"x": [1, 96, 4, 1]}, ["y"], weights)
        x = image(3, 1, 96, 4, 1) - np.float32(0.5)
        (want,) = models.answer(model, {"x": x})
        got = load(core, model).create_infer_request().infer({"x": x})["y"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not has_bf16(), reason="no bfloat16 on this processor")
@pytest.mark.parametrize("channels", [24, 96])
def test_products_of_few_terms_stay_in_f32(core, channels):
    """And what they alone read is written so."""
    rng = np.random.default_rng(channels)
    weights = {
        "w": rng.normal(0, 0.3, (channels, 16, 1, 1)).astype(np.float32),
        "k": rng.normal(0, 0.1, (channels, 12, 2, 2)).astype(np.float32),
    }
    nodes = [
        ("Conv", ["x", "w"], ["c"], {}),
        ("Relu", ["c"], ["r"], {}),
        ("ConvTranspose", ["r", "k"], ["y"], {"strides": [2, 2]}),
    ]
    model, x = models.build(nodes, {"x": [1, 16, 9, 13]}, ["y"], weights), image(1, 1, 16, 9, 13)
    executable = load(core, model, ENFORCE_BF16="YES")
    got = executable.create_infer_request().infer({"x": x})["y"]
    (want,) = models.answer(model, {"x": x})
    assert np.abs(got - want).max() < 0.03 * np.abs(want).max()
    steps = [step for step in executable.latest_plan().steps if step.type.startswith("Conv")]
    types = [str(step.arguments[step.outputs[0]].dtype) for step in steps]
    assert types == ["float32" if channels == 24 else "bfloat16"] * 2


@pytest.mark.parametrize("function", ["Sigmoid", "Elu"])
@pytest.mark.parametrize("channels", [1, 3])
def test_functions_behind_short_rows_are_computed_by_themselves(core, channels, function):
    rng = np.random.default_rng(channels)
    weights = {"k": rng.normal(0, 0.3, (24, channels, 2, 2)).astype(np.float32)}
    nodes = [
        ("ConvTranspose", ["x", "k"], ["c"], {"strides": [2, 2]}),
        (function, ["c"], ["y"], {}),
    ]
    model, x = models.build(nodes, {"x": [1, 24, 9, 13]}, ["y"], weights), image(1, 1, 24, 9, 13)
    executable = load(core, model)
    got = executable.create_infer_request().infer({"x": x})["y"]
    np.testing.assert_allclose(got, models.answer(model, {"x": x})[0], rtol=1e-4, atol=1e-5)
    types = [step.type for step in executable.latest_plan().steps]
    is_apart = function == "Sigmoid" and are_sigmoids_apart()
    assert (function in types) is (channels == 1 or is_apart), types


@pytest.mark.parametrize("seed", range(12))
def test_transposed_convolutions_of_small_groups_are_within_a_step(core, seed):
    """In f32, since steps are longer than 1 and oneDNN's code for bytes is slow there."""
    g = Graph(np.random.default_rng(seed))
    rng = g.rng
    dtype, kind = final(rng), final(rng)
    groups, channels, outputs, stride = (int(n) for n in rng.integers((2, 1, 1, 1), (20, 3, 3, 4)))
    shape = (int(rng.integers(1, 3)), groups * channels, *rng.integers(4, 9, 2).tolist())
    w = g.weights((groups * channels, outputs, 4, 3), 0)
    bias = g.store(rng.normal(size=groups * outputs).astype(np.float32))
    pads = rng.integers(0, 2, 4).tolist()
    y = g.emit(
        "ConvTranspose", g.source(dtype), w, bias, strides=[stride, 2], pads=pads, group=groups
    )
    result = g.quantised(activated(g, y), kind, 0.2)
    model = g.model(shape, dtype, {result: kind})
    found = check(core, model, {"x": spread(rng, shape, dtype)}, {result: 1}, least="")
    assert not any("IntegerProduct" in step for step in found)
