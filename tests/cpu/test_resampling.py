"""Resizing as matrix products, in whatever order axes lie, against ONNX Runtime."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest

from polydevice.ops.interpolate import (
    CoordinateMode,
    Interpolate,
    InterpolateMode,
    NearestMode,
    ShapeCalculation,
)
from polydevice_cpu.algorithms import roi_align
from polydevice_cpu.lowering import interpolate
from polydevice_cpu.onednn.library import library
from tests.cpu import models
from tests.cpu.loading import image, load

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")

MODES = {
    "corners": {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    "cubic": {"mode": "cubic", "coordinate_transformation_mode": "half_pixel"},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 0.5, 2), (1, 1, 1, 4)], ids=str)
@pytest.mark.parametrize("known", [True, False])
def test_behind_a_convolution(core, known, scales, mode):
    """Channels lie next to each other there; sizes that change are computed by NumPy or so."""
    weights = {
        "k": np.random.default_rng(1).standard_normal((16, 3, 3, 3)).astype(np.float32),
        "s": np.float32(scales),
    }
    nodes = [
        ("Conv", ["x", "k"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("Resize", ["c", "", "s"], ["r"], MODES[mode]),
        ("Relu", ["r"], ["y"], {}),
    ]
    shape = [1, 3, 12, 10] if known else [1, 3, "h", "w"]
    model = models.build(nodes, {"x": shape}, ["y"], weights)
    executable = load(core, model)
    request = executable.create_infer_request()
    for number, size in enumerate([(12, 10)] * 2 if known else [(12, 10), (8, 6), (10, 10)]):
        given = {"x": image(number, 1, 3, *size) - np.float32(0.5)}
        (want,) = models.answer(model, given)
        np.testing.assert_allclose(request.infer(given)["y"], want, rtol=1e-4, atol=1e-4)
    if known:
        steps = executable.latest_plan().steps
        assert "numpy" not in {step.implementation for step in steps if step.type == "Resize"}


@pytest.mark.parametrize("mode", InterpolateMode)
def test_short_axes_tell_how_long_ones_are_resized(mode):
    short, seen = interpolate.SHORT, 0
    for coordinates, nearest in itertools.product(CoordinateMode, NearestMode):
        op = Interpolate(
            mode=mode,
            shape_calculation_mode=ShapeCalculation.SCALES,
            coordinate_transformation_mode=coordinates,
            nearest_mode=nearest,
        )
        for scales in ((2, 2), (1, 4), (8, 2), (1.5, 2)):
            constants = [np.float32(scales), np.array([2, 3])]
            if interpolate._repeats(op, constants):
                found = resized(op, constants, 1, 3, short, short)
                for sizes in ((9, 60), (33, 9), (100, 17)):
                    assert resized(op, constants, 1, 3, *sizes) == found
                seen += 1
    assert seen == len(interpolate._BY_STEPS) * len(NearestMode) * 3


@pytest.mark.parametrize("seed", range(60))
def test_tables_say_what_is_told_without_them(seed):
    random = np.random.default_rng(seed)
    rank = int(random.integers(3, 6))
    sizes = tuple(map(int, random.choice([1, 2, 3, 5, 8, 17, 40, 100, 300], rank)))
    axes = random.permutation(rank)[: random.integers(1, rank + 1)]
    wanted = [int(random.choice([1, 3, sizes[axis], 2 * sizes[axis], 33, 120])) for axis in axes]
    for is_exact, coordinates in itertools.product((False, True), CoordinateMode):
        op = Interpolate(
            mode=InterpolateMode.LINEAR_ONNX,
            shape_calculation_mode=ShapeCalculation.SIZES,
            coordinate_transformation_mode=coordinates,
            exact=is_exact,
        )
        is_told, found = interpolate._told(op, sizes, [np.array(wanted), axes])
        assert is_told or coordinates is not CoordinateMode.ALIGN_CORNERS
        if is_told and coordinates is CoordinateMode.ALIGN_CORNERS:
            assert found is None  # tables are right always
        elif is_told:
            assert found == resized(op, [np.array(wanted), axes], *sizes)
            assert coordinates is CoordinateMode.HALF_PIXEL


@pytest.mark.parametrize("coordinates", ["align_corners", "half_pixel", "pytorch_half_pixel"])
def test_pictures_of_the_sizes_of_others(core, coordinates):
    how = {"mode": "linear", "coordinate_transformation_mode": coordinates}
    nodes = [
        ("Conv", ["x", "k"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("Shape", ["z"], ["sizes"], {}),
        ("Resize", ["c", "", "", "sizes"], ["r"], how),
        ("Relu", ["r"], ["y"], {}),
    ]
    weights = {"k": np.random.default_rng(1).standard_normal((5, 3, 3, 3)).astype(np.float32)}
    inputs = {"x": ["n", 3, "h", "w"], "z": ["n", 5, "i", "j"]}
    model = models.build(nodes, inputs, ["y"], weights)
    request = load(core, model).create_infer_request()
    sizes = [
        (7, 9, 14, 18),
        (1, 8, 5, 1),
        (6, 6, 6, 13),
        (300, 4, 280, 9),
        (2, 3, 9, 3),
        (9, 1, 1, 4),
    ]
    for number, (*before, high, wide) in enumerate(sizes):
        given = {"x": image(number, 2, 3, *before), "z": image(0, 2, 5, high, wide)}
        (want,) = models.answer(model, given)
        np.testing.assert_allclose(request.infer(given)["y"], want, rtol=1e-4, atol=2e-4)


def resized(op, constants, *sizes):
    """Whether oneDNN's linear or its nearest is the same, if one is, and which axes change."""
    tables = interpolate._tables(op, sizes, constants)
    linear = None if tables is None else interpolate._linear(tables, sizes)
    return linear, [table.axis for table in tables or ()]


@pytest.mark.parametrize("few", [0, 99])
@pytest.mark.parametrize("channels", [1, 5, 12])
def test_regions_sampled_point_by_point_and_by_products(core, monkeypatch, few, channels):
    """Against ONNX Runtime, over images of a batch, partly outside and beyond."""
    monkeypatch.setattr(roi_align, "FEW_CHANNELS", few)
    rng = np.random.default_rng(channels)
    node = onnx.helper.make_node(
        "RoiAlign",
        ["x", "rois", "images"],
        ["y"],
        output_height=3,
        output_width=4,
        sampling_ratio=2,
        spatial_scale=0.5,
        coordinate_transformation_mode="half_pixel",
    )
    kinds = {"x": 1, "rois": 1, "images": 7}
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()],
        [onnx.helper.make_tensor_value_info("y", 1, None)],
    )
    imports = [onnx.helper.make_opsetid("", 16)]
    content = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    corner = rng.uniform(-20, 40, (70, 2))
    feed = {
        "x": rng.normal(size=(3, channels, 13, 17)).astype(np.float32),
        "rois": np.concatenate([corner, corner + rng.uniform(0, 30, (70, 2))], 1).astype(
            np.float32
        ),
        "images": rng.integers(0, 3, 70),
    }
    (want,) = onnxruntime.InferenceSession(content).run(None, feed)
    got = load(core, content).infer(feed)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [9, "n"])
@pytest.mark.parametrize("padding", [None, "reflect", "constant"])
@pytest.mark.parametrize("channels", [3, 8, 24])
def test_bytes_that_a_convolution_of_integers_reads(core, channels, padding, size):
    """Enlarged with their channels side by side; ONNX Runtime judges."""
    rng = np.random.default_rng(channels)
    constants = {
        "scales": np.float32([1, 1, 2, 3]), "s": np.float32(0.02), "z": np.uint8(120),
        "ws": rng.uniform(0.01, 0.02, 5).astype(np.float32), "wz": np.zeros(5, np.int8),
        "w": rng.integers(-128, 128, (5, channels, 3, 3)).astype(np.int8), "ys": np.float32(0.4),
        "pads": np.array([0, 0, 1, 2, 0, 0, 3, 1]),
    }  # fmt: skip
    resized = {
        "mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor",
    }  # fmt: skip
    nodes = [("Resize", ["x", "", "scales"], ["r"], resized)]
    read = "r"
    if padding is not None:
        given = ["r", "pads", "z"] if padding == "constant" else ["r", "pads"]
        nodes.append(("Pad", given, ["p"], {"mode": padding}))
        read = "p"
    parameters = [read, "s", "z", "w", "ws", "wz", "ys", "z"]
    nodes.append(("QLinearConv", parameters, ["y"], {}))
    model = models.build(nodes, {"x": [2, channels, size, 7]}, ["y"], constants, 13, np.uint8)
    request = load(core, model).create_infer_request()
    for rows in (9, 9) if size == 9 else (9, 4, 9):
        x = rng.integers(0, 256, (2, channels, rows, 7)).astype(np.uint8)
        (wanted,) = models.answer(model, {"x": x})
        found = request.infer({"x": x})["y"]
        assert found.dtype == np.uint8
        assert np.abs(found.astype(int) - wanted).max() <= 1  # where both round halves their way
        assert (found == wanted).mean() > 0.99
