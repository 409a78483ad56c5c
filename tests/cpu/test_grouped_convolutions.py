"""Grouped convolutions that run as others of the same results, and ONNX Runtime's answers."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from polydevice_cpu.processor import has_bf16
from tests.cpu import models
from tests.cpu.loading import has_avx2, image, load

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")

TAILS = {
    "HardSwish": [("HardSwish", ["c"], ["y"], {})],
    "a sum": [("Add", ["z", "c"], ["d"], {}), ("Relu", ["d"], ["y"], {})],
    "a factor a channel": [("Mul", ["c", "s"], ["d"], {}), ("Sigmoid", ["d"], ["y"], {})],
    "a slope a channel": [("PRelu", ["c", "s"], ["y"], {})],
}
WINDOWS = {
    "depth": ((3, 1, 1), {"pads": [1, 0, 0, 1, 0, 0]}),
    "depth, strided": ((3, 1, 1), {"strides": [2, 1, 1], "dilations": [2, 1, 1]}),
    "plane": ((1, 3, 3), {"pads": [0, 1, 1, 0, 1, 1]}),
    "row": ((1, 1, 5), {"strides": [1, 1, 2], "pads": [0, 0, 1, 0, 0, 3]}),
    "both": ((3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
    "both, strided": ((3, 3, 2), {"strides": [2, 2, 1], "pads": [2, 0, 1, 0, 1, 0]}),
    "both, dilated": ((2, 3, 3), {"dilations": [3, 1, 2], "pads": [1, 1, 2, 1, 1, 2]}),
    "rows skipped": ((3, 1, 1), {"strides": [1, 2, 1], "pads": [1, 0, 0, 1, 0, 0]}),
}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("window", WINDOWS)
def test_groups_of_volumes(core, window, tail):
    """The batch, and in half of the cases all sizes, are not known when the network is loaded."""
    kernel, attributes = WINDOWS[window]
    rng = np.random.default_rng([len(window), len(tail)])
    channels = int(rng.choice([3, 16, 21]))
    groups = channels if len(tail) % 2 else channels // 3 if channels % 3 == 0 else 4
    weights = {
        "k": rng.standard_normal((channels, channels // groups, *kernel)).astype(np.float32),
        "b": rng.standard_normal(channels).astype(np.float32),
        "s": rng.standard_normal((channels, 1, 1, 1)).astype(np.float32),
    }
    spatial = ("d", "h", "w") if len(window) % 2 else (9, 8, 11)
    node = ("Conv", ["x", "k", "b"], ["c"], {"group": groups, **attributes})
    inputs = {"x": ["n", channels, *spatial]}
    if tail == "a sum":
        inputs["z"] = ["n", channels, *[f"{axis}z" for axis in "dhw"]]
    model = models.build([node, *TAILS[tail]], inputs, ["y"], weights)
    plain = models.build([node], {"x": inputs["x"]}, ["c"], weights)
    request = load(core, model).create_infer_request()
    for number in range(3):
        sizes = [int(n) for n in rng.integers(7, 12, 3)] if spatial[0] == "d" else spatial
        given = {"x": image(number, 1 + number, channels, *sizes) - np.float32(0.5)}
        if "z" in inputs:
            (shape_of,) = models.answer(plain, given)
            given["z"] = image(number + 9, *shape_of.shape)
        (want,) = models.answer(model, given)
        np.testing.assert_allclose(request.infer(given)["y"], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [(3, 1, 1), (1, 3, 3), (3, 3, 3)], ids=str)
def test_no_group_is_a_matrix_product_of_its_own(core, kernel):
    """That takes 50 times as long."""
    weights = {"k": np.ones((16, 1, *kernel), np.float32)}
    node = ("Conv", ["x", "k"], ["y"], {"group": 16, "pads": [n // 2 for n in kernel] * 2})
    model = models.build([node], {"x": ["n", 16, 6, 9, 9]}, ["y"], weights)
    executable = load(core, model)
    executable.create_infer_request().infer({"x": image(1, 1, 16, 6, 9, 9)})
    used = {step.implementation for step in executable.latest_plan().steps}
    assert not any(name.startswith(("x64:gemm", "ref")) for name in used)


def test_quantised_groups_of_volumes_are_computed_in_f32(core):
    """For groups of three axes oneDNN multiplies matrices of integers, too; `explain` says so."""
    weights = {
        "xs": np.float32(0.05),
        "xz": np.uint8(120),
        "k": np.random.default_rng(3).integers(-127, 128, (16, 1, 3, 1, 1)).astype(np.int8),
        "ks": np.float32(0.01),
        "kz": np.int8(0),
    }
    nodes = [
        ("QuantizeLinear", ["x", "xs", "xz"], ["q"], {}),
        ("DequantizeLinear", ["q", "xs", "xz"], ["d"], {}),
        ("DequantizeLinear", ["k", "ks", "kz"], ["w"], {}),
        ("Conv", ["d", "w"], ["c"], {"group": 16, "pads": [1, 0, 0, 1, 0, 0]}),
        ("Relu", ["c"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": [1, 16, 6, 9, 9]}, ["y"], weights)
    given = {"x": image(1, 1, 16, 6, 9, 9)}
    executable = load(core, model)
    (want,) = models.answer(model, given)
    np.testing.assert_allclose(executable.infer(given)["y"], want, rtol=1e-4, atol=1e-4)
    used = {step.implementation for step in executable.latest_plan().steps}
    assert not any(name.startswith(("x64:gemm", "ref")) for name in used)


@pytest.mark.parametrize("pads", [(0,) * 6, (1, 1, 1, 1, 1, 1), (2, 0, 1, 0, 1, 1)], ids=str)
@pytest.mark.parametrize("zero", [0, 120])
def test_quantised_windows_of_three_axes_are_added_up_by_planes(core, rng, zero, pads):
    """Padding is the zero point."""
    weights = {
        "xs": np.float32(0.05),
        "xz": np.uint8(zero),
        "k": rng.integers(-127, 128, (16, 1, 3, 2, 3)).astype(np.int8),
        "ks": rng.uniform(0.005, 0.01, 16).astype(np.float32),
        "kz": np.zeros(16, np.int8),
    }
    nodes = [
        ("QuantizeLinear", ["x", "xs", "xz"], ["q"], {}),
        ("DequantizeLinear", ["q", "xs", "xz"], ["d"], {}),
        ("DequantizeLinear", ["k", "ks", "kz"], ["w"], {"axis": 0}),
        ("Conv", ["d", "w"], ["y"], {"group": 16, "pads": list(pads), "strides": [2, 1, 2]}),
    ]
    model = models.build(nodes, {"x": [2, 16, 6, 9, 8]}, ["y"], weights)
    given = {"x": image(1, 2, 16, 6, 9, 8)}
    executable = load(core, model)
    (want,) = models.answer(model, given)
    for _ in range(2):
        np.testing.assert_allclose(executable.infer(given)["y"], want, rtol=1e-4, atol=1e-4)
    used = {step.implementation for step in executable.latest_plan().steps}
    assert not any(name.startswith(("x64:gemm", "ref")) for name in used)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize(
    ("several", "kernel"), [(2, (3, 3)), (3, (5,)), (8, (3, 3)), (2, (3, 3, 3))]
)
def test_channels_that_become_several(core, tail, several, kernel):
    rng = np.random.default_rng([several, len(tail)])
    channels, rank = 5, len(kernel)
    weights = {
        "k": rng.standard_normal((channels * several, 1, *kernel)).astype(np.float32),
        "b": rng.standard_normal(channels * several).astype(np.float32),
        "s": rng.standard_normal((channels * several, *[1] * rank)).astype(np.float32),
    }
    attributes = {"group": channels, "pads": [1] * 2 * rank, "strides": [2] * rank}
    nodes = [("Conv", ["x", "k", "b"], ["c"], attributes), *TAILS[tail]]
    inputs = {"x": ["n", channels, *[9] * rank]}
    given = {"x": image(1, 2, channels, *[9] * rank)}
    if tail == "a sum":
        results = (9 + 2 - kernel[0]) // 2 + 1
        inputs["z"] = ["n", channels * several, *[results] * rank]
        given["z"] = image(2, 2, channels * several, *[results] * rank)
    model = models.build(nodes, inputs, ["y"], weights)
    (want,) = models.answer(model, given)
    executable = load(core, model)
    found = executable.create_infer_request().infer(given)["y"]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
    used = {step.implementation for step in executable.latest_plan().steps}
    if several != 8 and has_avx2():  # with less it has depthwise code for few functions alone
        assert not any(name.startswith(("x64:gemm", "ref")) for name in used)


@pytest.mark.parametrize(
    ("kernel", "dilations", "pads"),
    [((7, 7), (3, 3), (9, 9)), ((3, 3), (1, 12), (1, 12)), ((3,), (16,), (16,))],
)
def test_dilated_windows_that_reach_far_beyond_the_rows(core, kernel, dilations, pads):
    rng = np.random.default_rng(pads)
    weights = {
        "k": rng.standard_normal((24, 1, *kernel)).astype(np.float32),
        "b": rng.standard_normal(24).astype(np.float32),
    }
    attributes = {"group": 24, "pads": [*pads, *pads], "dilations": dilations}
    nodes = [("Conv", ["x", "k", "b"], ["c"], attributes), ("Relu", ["c"], ["y"], {})]
    model = models.build(nodes, {"x": ["n", 24, *[20] * len(kernel)]}, ["y"], weights)
    given = {"x": image(1, 2, 24, *[20] * len(kernel))}
    (want,) = models.answer(model, given)
    executable = load(core, model)
    found = executable.create_infer_request().infer(given)["y"]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
    used = {step.implementation for step in executable.latest_plan().steps}
    assert not any(name.startswith(("x64:gemm", "ref")) for name in used)


@pytest.mark.skipif(not has_bf16(), reason="no bfloat16 on this processor")
@pytest.mark.parametrize(("groups", "each"), [(8, 4), (4, 12), (4, 32)])
def test_groups_without_good_code_in_bf16_are_computed_in_f32(core, groups, each):
    """And what they alone read is written so."""
    rng = np.random.default_rng(each)
    channels = groups * each
    weights = {
        "w": rng.normal(0, 0.2, (channels, 16, 1, 1)).astype(np.float32),
        "g": rng.normal(0, 0.2, (channels, each, 3, 3)).astype(np.float32),
        "v": rng.normal(0, 0.1, (16, channels, 1, 1)).astype(np.float32),
    }
    nodes = [
        ("Conv", ["x", "w"], ["c"], {}),
        ("Relu", ["c"], ["r"], {}),
        ("Conv", ["r", "g"], ["d"], {"group": groups, "pads": [1] * 4, "strides": [2, 1]}),
        ("Conv", ["d", "v"], ["y"], {}),
    ]
    model, x = models.build(nodes, {"x": [1, 16, 15, 13]}, ["y"], weights), image(2, 1, 16, 15, 13)
    executable = load(core, model, ENFORCE_BF16="YES")
    got = executable.create_infer_request().infer({"x": x})["y"]
    (want,) = models.answer(model, {"x": x})
    assert np.abs(got - want).max() < 0.03 * np.abs(want).max()
    steps = [step for step in executable.latest_plan().steps if "Convolution" in step.type]
    assert not any(step.implementation.startswith(("jit_bf16", "x64:gemm")) for step in steps)
    if any("amx" in step.implementation for step in steps):
        kinds = [str(step.arguments[step.outputs[0]].dtype) for step in steps[:2]]
        assert kinds == (["bfloat16"] * 2 if each == 32 else ["float32"] * 2)
