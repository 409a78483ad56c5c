"""Pooling of planar tensors: by code for channels last where oneDNN has plain loops for planes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.windows import maxima
from polydevice_cpu.algorithms.by_machine.windows.axis import Axis
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.onednn.library import library
from tests.cpu import models
from tests.cpu.loading import image, load
from tests.cpu.machine_code import with_avx512
from tests.guard_pages import SIDES, guarded

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
    "beyond the padding": {
        "kernel_shape": [3, 4],
        "strides": [2, 3],
        "pads": [1, 0, 0, 1],
        "ceil_mode": 1,
    },
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


PARTS = {
    "3x3": {"kernel_shape": [3, 3], "pads": [1] * 4},
    "half as many": {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]},
    "only before": {"kernel_shape": [3, 2], "pads": [1, 1, 0, 0], "strides": [2, 1]},
    "rounded up": {"kernel_shape": [2, 3], "pads": [0, 1, 0, 1], "strides": [3, 2], "ceil_mode": 1},
    "a row": {"kernel_shape": [3], "pads": [1, 0]},
    "a volume": {"kernel_shape": [2, 3, 1], "pads": [0, 1, 0, 1, 1, 0]},
}


@pytest.mark.parametrize("window", PARTS)
@pytest.mark.parametrize("counts", [0, 1, None])
@pytest.mark.parametrize("last", [False, True])
def test_some_of_the_channels_are_pooled_by_code(core, window, counts, last):
    """They lie with gaps: between places where channels are last, between images where not."""
    attributes = PARTS[window]
    sizes = [9, 11, 6][-len(attributes["kernel_shape"]) :]
    weights = {"sizes": np.array([8, 17, 7]), "w": image(1, 32, 4, *[1] * len(sizes))}
    kind = "MaxPool" if counts is None else "AveragePool"
    if counts is not None:
        attributes = attributes | {"count_include_pad": counts}
    nodes = [
        ("Conv", ["x", "w"], ["all"], {}),
        ("Split", ["all" if last else "x", "sizes"], ["a", "b", "c"], {"axis": 1}),
        (kind, ["b"], ["p"], attributes),
        ("Relu", ["p"], ["y"], {}),
    ]
    model = models.build(
        nodes[0 if last else 1 :], {"x": [2, 4 if last else 32, *sizes]}, ["y"], weights
    )
    executable = load(core, model)
    for number in range(2):
        x = image(number, 2, 4 if last else 32, *sizes)
        (want,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(executable.infer({"x": x})["y"], want, rtol=1e-5, atol=1e-6)
    assert "numpy" not in {step.implementation for step in executable.latest_plan().steps}


PLACES = {
    "2x2, side by side": ({"kernel_shape": [2, 2], "strides": [2, 2]}, (3, 5, 9, 47)),
    "3x3": ({"kernel_shape": [3, 3], "pads": [1] * 4}, (1, 3, 17, 18)),
    "3x3, half as many": ({"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]},
                          (2, 3, 18, 70)),
    "a row, rounded up": ({"kernel_shape": [5], "strides": [3], "ceil_mode": 1}, (4, 3, 101)),
    "dilated": ({"kernel_shape": [2, 3], "dilations": [3, 2], "pads": [1, 2, 1, 2]}, (1, 2, 9, 40)),
    "a volume": ({"kernel_shape": [2, 3, 4], "strides": [1, 2, 2], "pads": [0, 1, 2, 1, 1, 3]},
                 (2, 2, 5, 6, 21)),
    "as large as the picture": ({"kernel_shape": [7, 9], "pads": [3, 4, 3, 4]}, (1, 2, 7, 9)),
    "far apart": ({"kernel_shape": [1, 2], "strides": [5, 7]}, (1, 40, 21, 140)),
    "one": ({"kernel_shape": [1, 1]}, (1, 1, 1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("window", PLACES)
@pytest.mark.parametrize("threads", [1, 3])
def test_where_maxima_are(core, window, threads):
    """Of few different numbers, so that many are equal: the first one counts."""
    attributes, shape = PLACES[window]
    nodes = [("MaxPool", ["x"], ["y", "where"], attributes)]
    names = ["n", "c", *"dhw"[-len(shape) + 2 :]]
    model = models.build(nodes, {"x": names}, ["y", "where"], {}, opset=12)
    request = load(core, model, CPU_THREADS_NUM=threads).create_infer_request()
    for more in range(3):
        sizes = [n + more for n in shape]
        x = np.random.default_rng(more).integers(-3, 4, sizes).astype(np.float32)
        found = request.infer({"x": x})
        for name, want in zip(("y", "where"), models.answer(model, {"x": x}), strict=True):
            np.testing.assert_array_equal(found[name], want)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("step", "width"), [(1, 33), (2, 31), (2, 32), (3, 50), (16, 16)])
@with_avx512
def test_code_of_maxima_stays_within_its_memory(axis, kind, side, step, width):
    """And counts from where it is asked to; windows of 3 with a gap, over both ends."""
    axes = [Axis(4, 3, 2, 1, 1, 0), maxima.Axis(width, width // step, 3, step, 2, 3)]
    planes, shape = 6, (6, 4, width)
    x = guarded(side, 4 * math.prod(shape)).view(np.float32).reshape(shape)
    x[...] = np.random.default_rng(step).permutation(x.size).reshape(shape)
    base = np.int32([[0, 1, 2, 3, 4, 5], [0, 1, 2, 0, 1, 2], [0] * 6][axis]) * 4 * width
    results = (planes, 3, width // step)
    values, where = (
        guarded(side, np.dtype(each).itemsize * math.prod(results)).view(each).reshape(results)
        for each in (np.float32, kind)
    )
    code = maxima.code_of(axes, planes, base, np.dtype(kind).itemsize)
    assert code.bound([address_of(each) for each in (x, values, where)])() == 0
    padded = np.pad(x, ((0, 0), (0, 0), (3, 3 + 2 * step)), constant_values=-1)
    for plane, row, column in np.ndindex(results):
        read = padded[plane, row : row + 2, column * step :][:, :5:2]
        assert values[plane, row, column] == read.max()
    in_plane = where - base[:, None, None]
    read = x.reshape(planes, -1)[np.arange(planes)[:, None, None], in_plane]
    np.testing.assert_array_equal(read, values)


def test_nan_is_the_largest_and_the_lowest_number_has_a_place(core):
    window = {"kernel_shape": [1, 3], "strides": [1, 3]}
    nodes = [("MaxPool", ["x"], ["y", "where"], window)]
    model = models.build(nodes, {"x": [1, 1, "h", "w"]}, ["y", "where"], {}, opset=12)
    request = load(core, model).create_infer_request()
    nan, inf = np.nan, np.inf
    x = np.float32([[[[1, nan, 2, nan, nan, 7, -inf, 4, nan, -inf, inf, -inf]]]])
    found = request.infer({"x": x})
    np.testing.assert_array_equal(found["y"].ravel(), np.float32([nan, nan, nan, inf]))
    assert found["where"].ravel().tolist() == [1, 3, 8, 10]
    x = np.float32([[[[-inf, -inf, -inf, 3, 4, 5]]]])  # what code refuses
    found = request.infer({"x": x})
    assert found["y"].ravel().tolist() == [-inf, 5]
    assert found["where"].ravel().tolist() == [0, 5]


@pytest.mark.parametrize("threads", [1, 2])
def test_what_one_of_several_threads_refuses_is_computed(core, threads):
    """Windows of infinities alone, of which machine code knows no place, among many others."""
    window = {"kernel_shape": [3, 3]}
    model = models.build([("MaxPool", ["x"], ["y", "i"], window)], {"x": ["n", 64, "h", "w"]},
                         ["y", "i"], {})  # fmt: skip
    executable = load(core, model, CPU_THREADS_NUM=threads)
    x = np.random.default_rng(1).normal(size=(2, 64, 38, 39)).astype(np.float32)
    for _ in range(3):
        wanted = models.answer(model, {"x": x})
        for got, want in zip(executable.infer({"x": x}).values(), wanted, strict=True):
            np.testing.assert_array_equal(got, want)
        x[:, :, :4, :4] = -np.inf
