"""Pooling of planar tensors: by code for channels last where oneDNN has plain loops for planes."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from tests.cpu import models
from tests.cpu.loading import image, load

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")

WINDOWS = {
    "3x3": {"kernel_shape": [3, 3], "pads": [1] * 4},
    "2x2, side by side": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "a row, rounded up": {"kernel_shape": [5], "strides": [3], "ceil_mode": 1},
    "a volume": {"kernel_shape": [2, 3, 1], "pads": [0, 1, 0, 1, 1, 0]},
}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("known", [False, True])
def test_planes_are_not_pooled_by_plain_loops(core, kind, window, known):
    attributes = WINDOWS[window]
    axes = len(attributes["kernel_shape"])
    names = ["d", "h", "w"][-axes:]
    sizes = [9, 17, 14][-axes:]
    shape = [2, 3, *sizes] if known else ["n", 3, *names]
    nodes = [(kind, ["x"], ["a"], attributes), ("Relu", ["a"], ["y"], {})]
    model = models.build(nodes, {"x": shape}, ["y"], {})
    executable = load(core, model)
    request = executable.create_infer_request()
    for number in range(2 if known else 4):
        x = image(number, 2, 3, *(n + (0 if known else number) for n in sizes)) - np.float32(0.5)
        (want,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(request.infer({"x": x})["y"], want, rtol=1e-5, atol=1e-6)
    pools = [step for step in executable.latest_plan().steps if "Pool" in step.type]
    assert pools
    for step in pools:  # machine code, where a shape is new
        assert not step.implementation.startswith(("simple", "numpy"))


LARGE = {
    "5x5": ({"kernel_shape": [5, 5], "pads": [2] * 4}, 2),
    "as large as the picture": ({"kernel_shape": [7, 9], "pads": [3, 4, 3, 4]}, 2),
    "steps": ({"kernel_shape": [7, 8], "strides": [1, 2], "pads": [0, 3, 6, 1]}, 2),
    "rounded up": ({"kernel_shape": [9, 9], "strides": [2, 1], "ceil_mode": 1}, 2),
    "dilated": ({"kernel_shape": [5, 6], "dilations": [2, 1], "pads": [4, 0, 3, 2]}, 2),
    "of the input's size": ({"kernel_shape": [6, 6], "auto_pad": "SAME_LOWER"}, 2),
    "a volume": ({"kernel_shape": [3, 4, 5], "pads": [1, 1, 2, 1, 2, 2]}, 3),
    "small": ({"kernel_shape": [3, 3]}, 1),
    "few steps": ({"kernel_shape": [5, 5], "strides": [3, 3]}, 1),
}


@pytest.mark.parametrize("window", LARGE)
@pytest.mark.parametrize("channels", [1, 16])
def test_large_maxima_are_maxima_of_maxima(core, window, channels):
    attributes, parts = LARGE[window]
    names = ["d", "h", "w"][-len(attributes["kernel_shape"]) :]
    nodes = [("MaxPool", ["x"], ["y"], attributes)]
    model = models.build(nodes, {"x": ["n", channels, *names]}, ["y"], {})
    executable = load(core, model)
    request = executable.create_infer_request()
    for number in range(3):
        x = image(number, 1 + number, channels, *(9 + number, 14, 17 - number)[-len(names) :])
        (want,) = models.answer(model, {"x": x})
        np.testing.assert_array_equal(request.infer({"x": x})["y"], want)
    found = [step for step in executable.latest_plan().steps if step.type == "MaxPool"]
    assert len(found) == parts


def test_places_of_large_maxima_are_found_at_once(core):
    nodes = [("MaxPool", ["x"], ["y", "i"], {"kernel_shape": [5, 5], "pads": [2] * 4})]
    model = models.build(nodes, {"x": [1, 2, 9, 8]}, ["y", "i"], {})
    x = image(1, 1, 2, 9, 8)
    found = load(core, model).infer({"x": x})
    for mine, theirs in zip(found.values(), models.answer(model, {"x": x}), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("planes", [(1, 1), (2, 2), (1, 5)])
@pytest.mark.parametrize("kernel", [[3, 3], [1, 4], [7, 2], [9, 9], [1, 1]])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 0, 1]])
@pytest.mark.parametrize("known", [True, False])
def test_maxima_of_few_planes(core, planes, kernel, pads, known):
    pads = [min(pad, kernel[n % 2] - 1) for n, pad in enumerate(pads)]
    attributes = {"kernel_shape": kernel, "pads": pads}
    shape = [*planes, 11, 13] if known else ["n", planes[1], "h", "w"]
    model = models.build([("MaxPool", ["x"], ["y"], attributes)], {"x": shape}, ["y"], {})
    executable = load(core, model)
    for number in range(1 if known else 4):
        x = image(number, *planes, 11 + (0 if known else number), 13)
        x[..., 3, 4] = -np.inf
        (want,) = models.answer(model, {"x": x})
        np.testing.assert_array_equal(executable.infer({"x": x})["y"], want)


def test_maxima_of_minus_infinity(core):
    attributes = {"kernel_shape": [3, 3], "pads": [1] * 4}
    model = models.build([("MaxPool", ["x"], ["y"], attributes)], {"x": [1, 1, 6, 6]}, ["y"], {})
    x = np.full((1, 1, 6, 6), -np.inf, np.float32)
    np.testing.assert_array_equal(load(core, model).infer({"x": x})["y"], x)


FAR = {
    "all of it, and more": {"kernel_shape": [64, 50], "strides": [64, 50], "ceil_mode": 1},
    "beyond the end": {"kernel_shape": [4, 3], "strides": [3, 2], "ceil_mode": 1},
    "gaps": {"kernel_shape": [3, 2], "dilations": [2, 3]},
    "gaps, steps": {"kernel_shape": [3, 3], "dilations": [2, 2], "strides": [2, 3], "ceil_mode": 1},
    "gaps, padding": {"kernel_shape": [3, 2], "dilations": [1, 2], "pads": [1, 1, 0, 1]},
    "gaps, a row": {"kernel_shape": [3], "dilations": [4], "pads": [2, 1]},
}


@pytest.mark.parametrize("window", FAR)
@pytest.mark.parametrize("counts", [0, 1])
@pytest.mark.parametrize("known", [True, False])
def test_averages_of_windows_that_reach_far(core, window, counts, known):
    """Behind the end nothing counts; NumPy averages windows with gaps where sizes come late."""
    attributes = FAR[window] | {"count_include_pad": counts}
    sizes = [14, 17][-len(attributes["kernel_shape"]) :]
    shape = [2, 5, *sizes] if known else ["n", 5, *"hw"[: len(sizes)]]
    nodes = [("AveragePool", ["x"], ["a"], attributes), ("Relu", ["a"], ["y"], {})]
    model = models.build(nodes, {"x": shape}, ["y"], {}, opset=19)
    executable = load(core, model)
    for number in range(2 if known else 4):
        x = image(number, 2, 5, *(n + (0 if known else number) for n in sizes))
        (want,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(executable.infer({"x": x})["y"], want, rtol=1e-5, atol=1e-6)
    found = {step.implementation for step in executable.latest_plan().steps}
    assert not known or "numpy" not in found
