"""ROIAlign and ROIPooling of the CPU device, by machine code and without; ONNX Runtime judges."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from polydevice.errors import InferenceError
from polydevice.ops.roi import ROIAlign, RoiMode, ROIPooling
from polydevice_cpu.algorithms.by_machine.regions import pooled
from polydevice_cpu.algorithms.by_machine.regions.kernel import Bins
from polydevice_cpu.implement import run
from polydevice_cpu.lowering import roi as lowering
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.ops.roi import aligning, pooling
from polydevice_cpu.plan.step import MACHINE_CODE
from tests.cpu.loading import load
from tests.cpu.machine_code import with_avx512
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

F = np.float32
RNG = np.random.default_rng(31)


def boxes(count, high, wide, scale=1.0):
    """Boxes of any size, some partly and some wholly outside a picture."""
    start = RNG.uniform(-0.6, 1.1, (count, 2)) * (wide, high)
    extent = RNG.uniform(0.02, 1.2, (count, 2)) * (wide, high)
    return (np.concatenate([start, start + extent], 1) / scale).astype(F)


def model_of(kind, rows, columns, *, channels="c", **given):
    """A model of x, r and, for RoiAlign, i."""
    if kind == "MaxRoiPool":
        node = ("MaxRoiPool", ["x", "r"], ["y"], {"pooled_shape": [rows, columns], **given})
        return build([node], {"x": ["n", channels, "h", "v"], "r": ["b", 5]}, ["y"], {})
    kinds = {"output_height": rows, "output_width": columns, **given}
    nodes = [("Cast", ["f"], ["i"], {"to": 7}), ("RoiAlign", ["x", "r", "i"], ["y"], kinds)]
    inputs = {"x": ["n", channels, "h", "v"], "r": ["b", 4], "f": ["b"]}
    return build(nodes, inputs, ["y"], {})


def feed_of(kind, images, channels, high, wide, count, scale):
    """Pictures and regions; RoiAlign's images as floats, which the model casts."""
    x = RNG.normal(size=(images, channels, high, wide)).astype(F)
    number, given = RNG.integers(0, images, count).astype(F), boxes(count, high, wide, scale)
    if kind == "MaxRoiPool":
        return {"x": x, "r": np.concatenate([number[:, None], given], 1)}
    return {"x": x, "r": given, "f": number}


ALIGNED = [
    {"mode": mode, "sampling_ratio": ratio, "coordinate_transformation_mode": how}
    for mode in ("avg", "max")
    for ratio in (0, 1, 3)
    for how in ("half_pixel", "output_half_pixel")
]


@pytest.mark.parametrize("by_machine", [True, False])
@pytest.mark.parametrize("given", ALIGNED, ids=lambda given: "-".join(map(str, given.values())))
def test_aligned_regions(core, monkeypatch, given, by_machine):
    if not by_machine:
        for module in (pooled, lowering):
            monkeypatch.setattr(module, "has_avx512", lambda: False)
    executable = None
    model = model_of("RoiAlign", 3, 5, spatial_scale=0.5, **given)
    executable = load(core, model)
    sizes = (1, 1, 7, 9, 1), (2, 8, 20, 11, 12), (3, 150, 5, 6, 4), (1, 300, 13, 13, 30)
    for images, channels, high, wide, count in sizes:
        feed = feed_of("RoiAlign", images, channels, high, wide, count, 0.5)
        (want,) = answer(model, feed)
        got = executable.infer(feed)["y"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("by_machine", [True, False])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 7), (6, 5)])
def test_maxima_of_elements(core, monkeypatch, rows, columns, by_machine):
    if not by_machine:
        for module in (pooled, lowering):
            monkeypatch.setattr(module, "has_avx512", lambda: False)
    model = model_of("MaxRoiPool", rows, columns, spatial_scale=0.25)
    executable = load(core, model)
    sizes = (1, 1, 7, 9, 1), (2, 8, 20, 11, 12), (3, 150, 5, 6, 4), (1, 300, 13, 13, 30)
    for images, channels, high, wide, count in sizes:
        feed = feed_of("MaxRoiPool", images, channels, high, wide, count, 0.25)
        feed["r"][:, 1:] = feed["r"][:, 1:].clip(0)  # ONNX Runtime cuts what is negative otherwise
        (want,) = answer(model, feed)
        np.testing.assert_array_equal(executable.infer(feed)["y"], want)


@pytest.mark.parametrize("kind", ["RoiAlign", "MaxRoiPool"])
def test_regions_behind_a_convolution_in_threads(core, kind):
    """Which leaves channels in blocks, and of which there are enough to be shared."""
    model = onnx.load_from_string(model_of(kind, 7, 7, channels=40, spatial_scale=0.5))
    for node in model.graph.node:
        node.input[:] = ["a" if name == "x" else name for name in node.input]
    model.graph.node.insert(0, onnx.helper.make_node("Conv", ["x", "w"], ["a"]))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 8
    weight = RNG.normal(size=(40, 8, 1, 1)).astype(F)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    executable = load(core, model.SerializeToString(), CPU_THREADS_NUM=3)
    for high, wide, count in ((12, 17, 60), (9, 30, 3), (12, 17, 61)):
        feed = feed_of(kind, 2, 8, high, wide, count, 0.5)
        feed["r"][:, -4:] = feed["r"][:, -4:].clip(0)
        (want,) = answer(model.SerializeToString(), feed)
        got = executable.infer(feed)["y"]
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())


OPS = {
    Bins.SUMS: ROIAlign(2, 3, 2, 1.0, RoiMode.AVG),
    Bins.MAXIMA: ROIAlign(2, 3, 2, 1.0, RoiMode.MAX, onnx_maximum=True),
    Bins.MAXIMA_OF_SAMPLES: ROIAlign(2, 3, 2, 1.0, RoiMode.MAX),
    Bins.MAXIMA_OF_ELEMENTS: ROIPooling(2, 3, 1.0),
}


def code_and_numpy(bins, arrays, monkeypatch, result):
    """What code writes to the result, and what NumPy computes."""
    op = OPS[bins]
    how = pooling(op) if bins is Bins.MAXIMA_OF_ELEMENTS else aligning(op)
    picture, rois, *images = arrays
    kind = images[0].dtype if images else None
    code = pooled.code_of(how, picture.shape, len(rois), kind)
    last = guarded("after", picture.nbytes).view(F).reshape(np.moveaxis(picture, 1, -1).shape)
    last[...] = np.moveaxis(picture, 1, -1)
    call = code.bound([address_of(each) for each in (last, rois, *images, result)])
    assert call() == 0
    with monkeypatch.context() as patch:
        patch.setattr(pooled, "has_avx512", lambda: False)
        (want,) = run(op, arrays)
    return result, want


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("bins", Bins)
@pytest.mark.parametrize("channels", [1, 15, 16, 17, 33, 70, 128, 200])
def test_code_stays_within_its_memory(monkeypatch, side, bins, channels):
    count = 9
    picture = RNG.normal(size=(2, channels, 6, 5)).astype(F)
    given = boxes(count, 6, 5)
    numbers = RNG.integers(0, 2, count)
    if bins is Bins.MAXIMA_OF_ELEMENTS:
        given = np.concatenate([numbers[:, None].astype(F), given], 1)
    rois = guarded(side, given.nbytes).view(F).reshape(given.shape)
    rois[...] = given
    kind = np.int32 if channels % 2 else np.int64
    images = guarded(side, count * np.dtype(kind).itemsize).view(kind)
    images[:] = numbers
    result = guarded(side, 4 * count * channels * 6).view(F).reshape(count, channels, 2, 3)
    arrays = [picture, rois] if bins is Bins.MAXIMA_OF_ELEMENTS else [picture, rois, images]
    got, want = code_and_numpy(bins, arrays, monkeypatch, result)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@with_avx512
@pytest.mark.parametrize("bins", Bins)
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_comes_through(monkeypatch, bins, special):
    """As by NumPy, which makes NaN of a sum's whole row of bins; there ONNX Runtime judges."""
    picture = np.zeros((1, 20, 9, 9), F) - 1
    picture[0, ::3, 4, 4] = special
    given = np.array([[2.05, 2.1, 6.15, 6.2], [0.1, 0.1, 1.7, 1.8], [3.1, 3.1, 5.2, 5.4]], F)
    if bins is Bins.MAXIMA_OF_ELEMENTS:
        arrays = [picture, np.concatenate([np.zeros((3, 1), F), given], 1)]
    else:
        arrays = [picture, given, np.zeros(3, np.int64)]
    result = np.full((3, 20, 2, 3), 7, F)
    got, want = code_and_numpy(bins, arrays, monkeypatch, result)
    if bins is Bins.SUMS:
        how = {"sampling_ratio": 2, "coordinate_transformation_mode": "output_half_pixel"}
        model = model_of("RoiAlign", 2, 3, **how)
        (want,) = answer(model, {"x": picture, "r": given, "f": np.zeros(3, F)})
    np.testing.assert_allclose(got, want, rtol=1e-5)
    if np.isnan(special):
        assert np.isnan(got[0, ::3]).any()
        assert not np.isnan(got[1]).any()


@with_avx512
def test_code_computes_a_network(core):
    for kind in ("RoiAlign", "MaxRoiPool"):
        executable = load(core, model_of(kind, 2, 2))
        executable.infer(feed_of(kind, 1, 5, 9, 9, 3, 1.0))
        steps = {step.type: step.implementation for step in executable.latest_plan().steps}
        assert MACHINE_CODE in {steps.get("ROIAlign"), steps.get("ROIPooling")}


@pytest.mark.parametrize("kind", ["RoiAlign", "MaxRoiPool"])
def test_regions_of_no_image_and_nowhere_are_refused(core, kind):
    executable = load(core, model_of(kind, 2, 2))
    column = {"MaxRoiPool": "r", "RoiAlign": "f"}[kind]
    for bad in (2.0, -1.0):
        feed = feed_of(kind, 2, 5, 9, 9, 4, 1.0)
        feed[column].reshape(4, -1)[3, 0] = bad
        with pytest.raises(InferenceError, match="batch has 2"):
            executable.infer(feed)
    for bad in (np.nan, np.inf, 3e9):
        feed = feed_of(kind, 2, 5, 9, 9, 4, 1.0)
        feed["r"][2, -1] = bad
        with pytest.raises(InferenceError, match="too large"):
            executable.infer(feed)
    feed = feed_of(kind, 2, 5, 9, 9, 4, 1.0)
    (want,) = answer(model_of(kind, 2, 2), feed)
    np.testing.assert_allclose(executable.infer(feed)["y"], want, rtol=1e-4, atol=1e-5)


def test_bins_of_many_samples(core):
    """Of a region far larger than the picture, with a sample for each element."""
    model = model_of("RoiAlign", 2, 2, sampling_ratio=0)
    feed = feed_of("RoiAlign", 2, 5, 9, 9, 4, 1.0)
    feed["r"][1] = [-300, -200, 250, 310]
    (want,) = answer(model, feed)
    got = load(core, model).infer(feed)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["RoiAlign", "MaxRoiPool"])
def test_no_regions(core, kind):
    executable = load(core, model_of(kind, 2, 3))
    feed = feed_of(kind, 2, 5, 9, 9, 4, 1.0)
    feed.update({name: feed[name][:0] for name in ("r", "f") if name in feed})
    assert executable.infer(feed)["y"].shape == (0, 5, 2, 3)


def detector(*, is_planned, has_result):
    """Regions that suppression leaves, pooled of a convolution's map; perhaps multiplied."""
    how = {"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.5}
    nodes = [
        ("Conv", ["x", "w"], ["a"], {}),
        ("Relu", ["a"], ["f"], {}),
        ("NonMaxSuppression", ["b", "s", "most", "overlap"], ["kept"], {}),
        ("Gather", ["kept", "two"], ["number"], {"axis": 1}),
        ("Squeeze", ["b", "first"], ["all"], {}),
        ("Gather", ["all", "number"], ["r"], {"axis": 0}),
        ("Gather", ["kept", "zero"], ["i"], {"axis": 1}),
        ("RoiAlign", ["f", "r", "i"], ["pooled"], how),
        ("Flatten", ["pooled"], ["rows"], {}),
        ("MatMul" if is_planned else "Mul", ["rows", "m"], ["y"], {}),
    ]
    weights = {
        "w": RNG.normal(size=(20, 8, 1, 1)).astype(F),
        "most": np.array([30]),
        "overlap": np.array([0.3], F),
        "two": np.array(2),
        "zero": np.array(0),
        "first": np.array([0]),
        "m": RNG.normal(size=(120, 7) if is_planned else (1, 120)).astype(F),
    }
    inputs = {"x": [1, 8, "h", "v"], "b": [1, "n", 4], "s": [1, 1, "n"]}
    return build(nodes, inputs, ["y", "f"] if has_result else ["y"], weights)


@pytest.mark.parametrize("is_planned", [True, False])
@pytest.mark.parametrize("has_result", [True, False])
def test_regions_that_only_data_tells(core, is_planned, has_result):
    """Pictures of which are given channels last, unless something else reads them."""
    model = detector(is_planned=is_planned, has_result=has_result)
    executable = load(core, model)
    for high, wide, count in ((12, 17, 60), (9, 30, 5), (12, 17, 50), (40, 30, 40), (9, 9, 9)):
        given = boxes(count, 2 * high, 2 * wide)
        feed = {
            "x": RNG.normal(size=(1, 8, high, wide)).astype(F),
            "b": given[None],
            "s": RNG.uniform(size=(1, 1, count)).astype(F),
        }
        for want, name in zip(answer(model, feed), ["y", "f"], strict=False):
            for _ in range(4):  # parts have plans once sizes repeat
                got = executable.infer(feed)[name]
                np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("wrong", [7, np.nan, np.inf, 1e9])
def test_what_one_of_several_threads_refuses_is_refused(core, threads, mode, wrong):
    """An image that there is not, or a region nowhere, among a hundred."""
    model = model_of("RoiAlign", 7, 7, mode=mode)
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, 64, 38, 39)).astype(np.float32)
    r = np.sort(rng.uniform(0, 30, (100, 2, 2)), 1).reshape(100, 4).astype(np.float32)
    images = rng.integers(0, 2, 100).astype(np.float32)
    feed = {"x": x, "r": r, "f": images}
    executable = load(core, model, CPU_THREADS_NUM=threads)
    (want,) = answer(model, feed)
    for _ in range(2):
        got = executable.infer(feed)["y"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    if wrong == 7:
        images[50] = wrong
    else:
        r[50, 2:] = wrong
    with pytest.raises(InferenceError, match="region"):
        executable.infer(feed)
