"""Interpolate in every mode, against OpenVINO; Resize against onnx.reference and literals."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import onnx
import onnx.reference
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.interpolate import (
    CoordinateMode,
    Interpolate,
    Interpolate1,
    Interpolate4,
    InterpolateMode,
    KeepAspectRatio,
    NearestMode,
    Resize,
    ShapeCalculation,
)
from polydevice.ops.resampling import source_coordinates
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc, desc_of
from polydevice.testing.op_case import OpCase
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(10)
OPENVINO_COORDINATES = [
    CoordinateMode.HALF_PIXEL,
    CoordinateMode.PYTORCH_HALF_PIXEL,
    CoordinateMode.ASYMMETRIC,
    CoordinateMode.TF_HALF_PIXEL_FOR_NN,
    CoordinateMode.ALIGN_CORNERS,
]
SIZES = [(3, 5), (11, 9), (5, 14), (5, 7), (1, 1)]


def image(shape=(2, 3, 5, 7), dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def resize_to(op, x, sizes, axes=(2, 3), **settings):
    inputs = [x, np.array(sizes, np.int64), np.array(axes, np.int64)]
    return openvino_case(op, *inputs, constants={1, 2}, **settings)


def sized(mode, coordinates=CoordinateMode.HALF_PIXEL, **attributes):
    return Interpolate(
        mode=mode,
        shape_calculation_mode=ShapeCalculation.SIZES,
        coordinate_transformation_mode=coordinates,
        **attributes,
    )


@pytest.mark.parametrize("coordinates", OPENVINO_COORDINATES)
@pytest.mark.parametrize("nearest", list(NearestMode))
def test_nearest(device, coordinates, nearest):
    op = sized(InterpolateMode.NEAREST, coordinates, nearest_mode=nearest)
    for sizes in SIZES:
        check(resize_to(op, image(), sizes), device)


@pytest.mark.parametrize("coordinates", OPENVINO_COORDINATES)
@pytest.mark.parametrize(
    "mode", [InterpolateMode.LINEAR, InterpolateMode.LINEAR_ONNX, InterpolateMode.CUBIC]
)
@pytest.mark.parametrize("sizes", SIZES)
def test_filters(device, coordinates, mode, sizes):
    check(resize_to(sized(mode, coordinates), image(), sizes), device)


@pytest.mark.parametrize("coordinates", [CoordinateMode.HALF_PIXEL, CoordinateMode.ASYMMETRIC])
@pytest.mark.parametrize("sizes", [(2, 3), (3, 14), (9, 9)])
def test_antialias(device, coordinates, sizes):
    op = sized(InterpolateMode.LINEAR, coordinates, antialias=True)
    # the reference implementation: the CPU plugin takes other weights when it shrinks
    check(resize_to(op, image(), sizes, reference=True), device)


@pytest.mark.parametrize("mode", [InterpolateMode.BILINEAR_PILLOW, InterpolateMode.BICUBIC_PILLOW])
@pytest.mark.parametrize("sizes", [(2, 3), (11, 4), (10, 14), (5, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_pillow(device, mode, sizes, dtype):
    x = (image() * 60 + 100).clip(0, 255).astype(dtype)
    # the reference implementation: the CPU plugin rounds integers differently
    case = resize_to(sized(mode, cube_coeff=-0.5), x, sizes, reference=True)
    if dtype is np.uint8 and device != "CPU":
        # One pass over both axes rounds once; the reference rounds between its two passes too.
        case = replace(case, tolerance=(0.0, 1.0))
    check(case, device)


@pytest.mark.parametrize(
    ("mode", "shape", "axes", "sizes"),
    [
        (InterpolateMode.NEAREST, (2, 3, 4, 5, 6), (2, 3, 4), (8, 3, 9)),
        (InterpolateMode.LINEAR_ONNX, (2, 3, 4, 5, 6), (2, 3, 4), (8, 3, 9)),
        (InterpolateMode.LINEAR, (2, 3, 4, 5, 6), (2, 3, 4), (8, 3, 9)),
        (InterpolateMode.LINEAR_ONNX, (4, 7), (0, 1), (6, 3)),
        (InterpolateMode.NEAREST, (1, 4, 5, 3), (1, 2), (7, 9)),
        (InterpolateMode.LINEAR_ONNX, (2, 3, 9), (2,), (14,)),
        (InterpolateMode.CUBIC, (3, 8), (1,), (5,)),
        (InterpolateMode.CUBIC, (1, 6, 62, 70), (1, 2), (9, 80)),  # rows large enough to be slices
        (InterpolateMode.NEAREST, (2, 3, 5, 7), (0, 1, 2, 3), (2, 4, 10, 3)),
    ],
)
def test_other_ranks_and_axes(device, mode, shape, axes, sizes):
    if mode is InterpolateMode.LINEAR_ONNX and len(shape) == 3:
        # OpenVINO wants all axes here, or none
        x = image(shape)
        expected = resize_to(sized(mode), x[:, :, None], (1, *sizes), axes=(2, 3)).answers()[0]
        inputs = [x, np.array(sizes), np.array(axes)]
        check(OpCase(sized(mode), inputs, [expected[:, :, 0]], constants={1, 2}), device)
        return
    check(resize_to(sized(mode), image(shape), sizes, axes), device)


def test_doubles_keep_their_digits(device):
    """A quarter of the way between neighbours, to 13 digits: weights are exact, sums doubles."""
    places = np.clip((np.arange(14) + 0.5) / 2 - 0.5, 0, 6)

    def expected(inputs):
        rows = np.apply_along_axis(lambda row: np.interp(places, np.arange(7), row), 3, inputs[0])
        return [rows]

    inputs = [image(dtype=np.float64), np.array([14], np.int64), np.array([3], np.int64)]
    op = sized(InterpolateMode.LINEAR)
    check(OpCase(op, inputs, expected, tolerance=(1e-13, 1e-14), constants={1, 2}), device)


@pytest.mark.parametrize(
    ("mode", "coordinates"),
    list(
        itertools.product(
            [InterpolateMode.NEAREST, InterpolateMode.LINEAR_ONNX, InterpolateMode.CUBIC],
            [CoordinateMode.HALF_PIXEL, CoordinateMode.ASYMMETRIC],
        )
    ),
)
@pytest.mark.parametrize("scales", [(2.0, 2.0), (0.5, 1.3), (1.7, 0.61)])
def test_scales(device, mode, coordinates, scales):
    op = Interpolate(
        mode=mode,
        shape_calculation_mode=ShapeCalculation.SCALES,
        coordinate_transformation_mode=coordinates,
    )
    inputs = [image(), np.array(scales, np.float32), np.array([2, 3], np.int64)]
    check(openvino_case(op, *inputs, constants={1, 2}), device)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(
    "mode",
    [InterpolateMode.NEAREST, InterpolateMode.LINEAR_ONNX, InterpolateMode.CUBIC],
)
def test_integers(device, mode, dtype):
    x = RNG.integers(0, 120, (1, 2, 5, 7)).astype(dtype)
    # Sums in f32 may fall on either side of a half; OpenVINO's reference implementation cuts off.
    check(resize_to(sized(mode), x, (8, 10), tolerance=(0, 1), reference=False), device)


def test_half_precision(device):
    x = image(dtype=np.float16)
    check(resize_to(sized(InterpolateMode.LINEAR_ONNX), x, (9, 4)), device)


@pytest.mark.parametrize("by", list(ShapeCalculation))
@pytest.mark.parametrize("pads", [((), ()), ((0, 0, 1, 2), (0, 0, 2, 0))])
def test_the_version_of_opset4(device, by, pads):
    op = Interpolate4(
        mode=InterpolateMode.LINEAR_ONNX,
        shape_calculation_mode=by,
        pads_begin=pads[0] or (0, 0, 0, 0),
        pads_end=pads[1] or (0, 0, 0, 0),
    )
    inputs = [image(), np.array([11, 3]), np.array([1.5, 0.7], np.float32), np.array([2, 3])]
    check(openvino_case(op, *inputs, constants={1, 2, 3}), device)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic", "linear_onnx"])
@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("sizes", [(10, 14), (3, 4), (7, 5)])
def test_the_version_of_opset1(device, mode, align, sizes):
    op = Interpolate1(axes=(2, 3), mode=mode, align_corners=align, antialias=False)
    inputs = [image(), np.array(sizes, np.int64)]
    check(openvino_case(op, *inputs, constants={1}), device)


@pytest.mark.parametrize(
    ("mode", "size", "resized", "at", "shows"),
    [
        (CoordinateMode.HALF_PIXEL, 7, 9, 4, 3),
        (CoordinateMode.PYTORCH_HALF_PIXEL, 7, 9, 4, 3),
        (CoordinateMode.HALF_PIXEL_SYMMETRIC, 7, 9, 4, 3),
        (CoordinateMode.TF_HALF_PIXEL_FOR_NN, 7, 9, 4, 3.5),
        (CoordinateMode.ASYMMETRIC, 7, 49, 21, 3),
    ],
)
def test_positions_of_given_sizes_are_exact(mode, size, resized, at, shows):
    """Worked by hand: (4 + 1/2) * 7 / 9 - 1/2 = 3; by a rounded 9 / 7 it is less than 3."""
    assert source_coordinates(mode, size, resized, resized / size, wide=True)[at] == shows


def test_unknown_sizes():
    x = TensorDesc(ElementType.f32, Shape([None, 3, Dim(4, 6), 8]))
    axes = desc_of(np.array([2, 3]))
    scales = desc_of(np.float32([2, 0.5]))
    op = Interpolate(mode=InterpolateMode.NEAREST, shape_calculation_mode=ShapeCalculation.SCALES)
    assert op.infer([x, scales, axes])[0].shape == Shape([None, 3, Dim(8, 12), 4])
    sizes = TensorDesc(ElementType.i64, Shape([2]))
    op = sized(InterpolateMode.NEAREST)
    assert op.infer([x, sizes, axes])[0].shape == Shape([None, 3, None, None])


def test_refuses():
    x = TensorDesc(ElementType.f32, Shape([1, 3, 4, 8]))
    with pytest.raises(ShapeError, match="2 axes"):
        sized(InterpolateMode.NEAREST).infer([x, desc_of(np.array([4])), desc_of(np.array([2, 3]))])
    with pytest.raises(ShapeError, match="two axes"):
        sized(InterpolateMode.BICUBIC_PILLOW).infer([x, desc_of(np.array([4] * 4))])


def onnx_case(op: Resize, x, *, scales=None, sizes=None, roi=None) -> OpCase:
    """Make a case whose answer comes from onnx.reference."""
    attributes = {
        "mode": {"linear_onnx": "linear"}.get(op.mode.value, op.mode.value),
        "coordinate_transformation_mode": op.coordinate_transformation_mode.value,
        "nearest_mode": op.nearest_mode.value,
        "antialias": int(op.antialias),
        "cubic_coeff_a": op.cube_coeff,
        "exclude_outside": int(op.exclude_outside),
        "extrapolation_value": op.extrapolation_value,
        "keep_aspect_ratio_policy": op.keep_aspect_ratio_policy.value,
    }
    if op.axes is not None:
        attributes["axes"] = list(op.axes)
    names = [
        "x",
        "roi" if roi is not None else "",
        "scales" if scales is not None else "",
        "sizes" if sizes is not None else "",
    ]
    node = onnx.helper.make_node("Resize", names, ["y"], **attributes)
    given = {"x": x}
    if roi is not None:
        given["roi"] = np.array(roi, np.float32)
    if scales is not None:
        given["scales"] = np.array(scales, np.float32)
    if sizes is not None:
        given["sizes"] = np.array(sizes, np.int64)
    target = given.get("scales", given.get("sizes"))
    inputs = [x, target] + ([given["roi"]] if roi is not None else [])
    floats = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [
            onnx.helper.make_tensor_value_info(
                n, onnx.TensorProto.INT64 if n == "sizes" else floats, None
            )
            for n in given
        ],
        [onnx.helper.make_tensor_value_info("y", floats, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)])

    def expected(values):
        feeds = given | {"x": values[0]} | ({"roi": values[2]} if roi is not None else {})
        return onnx.reference.ReferenceEvaluator(model).run(None, feeds)

    return OpCase(op, inputs, expected, constants={1})


@pytest.mark.parametrize(
    "coordinates",
    [
        CoordinateMode.HALF_PIXEL,
        CoordinateMode.HALF_PIXEL_SYMMETRIC,
        CoordinateMode.ALIGN_CORNERS,
        CoordinateMode.ASYMMETRIC,
    ],
)
@pytest.mark.parametrize("mode", [InterpolateMode.LINEAR, InterpolateMode.CUBIC])
@pytest.mark.parametrize(("antialias", "exclude"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("scales", [(0.6, 0.8), (2.3, 0.5)])
def test_onnx_filters(device, coordinates, mode, antialias, exclude, scales):
    op = Resize(
        mode=mode,
        coordinate_transformation_mode=coordinates,
        antialias=antialias,
        exclude_outside=exclude and mode is InterpolateMode.CUBIC,
    )
    # onnx.reference is wrong where rounding errors push a position off an element; not here
    check(onnx_case(op, image((1, 1, 6, 8)), scales=(1, 1, *scales)), device)


def test_a_scale_that_leaves_the_size_moves_positions_all_the_same(device):
    """Three elements times 1.3 are three, of the positions 0, 1 / 1.3 and 2 / 1.3."""
    coordinates = CoordinateMode.ASYMMETRIC
    op = Resize(mode=InterpolateMode.LINEAR, coordinate_transformation_mode=coordinates)
    x = np.array([[[[0, 13, 26]]]], np.float32)
    scales = np.array([1, 1, 1, 1.3], np.float32)
    check(OpCase(op, [x, scales], [[[[[0, 10, 20]]]]], constants={1}), device)


@pytest.mark.parametrize(
    "mode", [InterpolateMode.LINEAR, InterpolateMode.CUBIC, InterpolateMode.NEAREST]
)
def test_onnx_crop_and_resize(device, mode):
    op = Resize(
        mode=mode,
        coordinate_transformation_mode=CoordinateMode.TF_CROP_AND_RESIZE,
        extrapolation_value=10.0,
    )
    roi = (0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7)
    check(onnx_case(op, image((1, 1, 6, 7)), sizes=(1, 1, 3, 4), roi=roi), device)


@pytest.mark.parametrize("policy", list(KeepAspectRatio))
@pytest.mark.parametrize("mode", [InterpolateMode.LINEAR, InterpolateMode.NEAREST])
def test_onnx_aspect_ratio(device, policy, mode):
    op = Resize(mode=mode, axes=(2, 3), keep_aspect_ratio_policy=policy)
    check(onnx_case(op, image((1, 1, 4, 6)), sizes=(7, 8)), device)
