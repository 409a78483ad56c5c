"""Sizes and colours of images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.ops import color, interpolate
from polydevice.ops.op import Op
from polydevice.testing.op_case import OpCase, Oracle
from polydevice_gpu.ops import Resample
from polydevice_gpu.resize_ops import PlacedResize, Places
from tests.gpu.kernel_cases.data import Cases, Data, ints
from tests.ops.openvino_oracle import openvino_case


def resamplings(data: Data) -> Iterator[OpCase]:
    for mode in ("nearest", "linear_onnx", "cubic"):
        op = interpolate.Interpolate(
            mode=interpolate.InterpolateMode(mode),
            shape_calculation_mode=interpolate.ShapeCalculation.SIZES,
        )
        yield openvino_case(
            op, data(2, 3, 5, 6), ints(11, 4), ints(2, 3), constants={1, 2},
            tolerance=(2e-2, 2e-2) if data.dtype == "f2" else None,
        )  # fmt: skip
        for kept in (19, 9, 5):  # longer than vectors, and no multiple of them
            yield openvino_case(
                op, data(2, 5, 6, kept), ints(17, 4), ints(1, 2), constants={1, 2},
                tolerance=(2e-2, 2e-2) if data.dtype == "f2" else None,
            )  # fmt: skip


def placed_resizes(data: Data) -> Iterator[OpCase]:
    """What OpenVINO makes of the same interpolation; places by sizes, and by scales."""
    ways = interpolate.CoordinateMode
    tolerance = (2e-2, 2e-2) if data.dtype == "f2" else None
    for way, places in {
        ways.HALF_PIXEL: Places.CENTRES,
        ways.PYTORCH_HALF_PIXEL: Places.CENTRES_OR_FIRST,
        ways.ASYMMETRIC: Places.CORNERS,
        ways.ALIGN_CORNERS: Places.ENDS,
    }.items():
        for shape, sizes in (((2, 5, 6, 19), (17, 4)), ((3, 7, 3, 5), (1, 9)), ((1, 4, 6), (9, 2))):
            whole = interpolate.Interpolate(
                mode=interpolate.InterpolateMode.LINEAR_ONNX,
                coordinate_transformation_mode=way,
                shape_calculation_mode=interpolate.ShapeCalculation.SIZES,
            )
            case = openvino_case(
                whole, data(*shape), ints(*sizes), ints(1, 2), constants={1, 2}, tolerance=tolerance
            )
            x, wanted, _ = case.inputs
            op, expected = PlacedResize(axes=(1, 2), places=places), _first_and(case, ints(1, 2))
            yield OpCase(op, (x, wanted), expected, tolerance, constants={1})
        if way is not ways.ALIGN_CORNERS:
            scales = (2.0, 0.5)
            whole = interpolate.Interpolate(
                mode=interpolate.InterpolateMode.LINEAR_ONNX,
                coordinate_transformation_mode=way,
                shape_calculation_mode=interpolate.ShapeCalculation.SCALES,
            )
            given = np.array(scales, np.float32)
            case = openvino_case(
                whole, data(2, 3, 5, 6), given, ints(2, 3), constants={1, 2}, tolerance=tolerance
            )
            op = PlacedResize(axes=(2, 3), places=places, scales=scales)
            expected = _first_and(case, ints(2, 3), given)
            yield OpCase(op, (case.inputs[0], ints(10, 3)), expected, tolerance, constants={1})


def nearest_and_cubic(data: Data) -> Iterator[OpCase]:
    """Likewise of places in f32 of the nearest element, and of cubic ones."""
    ways, modes = interpolate.CoordinateMode, interpolate.InterpolateMode
    tolerance = (2e-2, 2e-2) if data.dtype == "f2" else None
    kinds = [(modes.NEAREST, rounding) for rounding in interpolate.NearestMode]
    for way, places in {
        ways.HALF_PIXEL: Places.CENTRES,
        ways.PYTORCH_HALF_PIXEL: Places.CENTRES_OR_FIRST,
        ways.ASYMMETRIC: Places.CORNERS,
        ways.ALIGN_CORNERS: Places.ENDS,
        ways.TF_HALF_PIXEL_FOR_NN: Places.BEHIND_CORNERS,
    }.items():
        for mode, rounding in (*kinds, (modes.CUBIC, interpolate.NearestMode.FLOOR)):
            whole = interpolate.Interpolate(
                mode=mode,
                coordinate_transformation_mode=way,
                nearest_mode=rounding,
                shape_calculation_mode=interpolate.ShapeCalculation.SIZES,
            )
            sizes = ints(17, 4), ints(1, 9), ints(6, 19)
            for wanted in sizes:
                x = data(2, 3, 6, 7)
                axes = ints(2, 3)
                case = openvino_case(whole, x, wanted, axes, constants={1, 2}, tolerance=tolerance)
                cubic = mode is modes.CUBIC
                op = PlacedResize(
                    *((2, 3), places),
                    nearest=None if cubic else rounding,
                    in_floats=True,
                    cube=whole.cube_coeff if cubic else None,
                )
                expected = _first_and(case, ints(2, 3))
                yield OpCase(op, (x, wanted), expected, tolerance, constants={1})


def all_placed(data: Data) -> Iterator[OpCase]:
    yield from placed_resizes(data)
    yield from nearest_and_cubic(data)


def _first_and(case: OpCase, axes: Array, target: Array | None = None) -> Oracle:
    """What a case expects of its first input, with other ones in the place of the second."""
    assert callable(case.expected)

    def expected(values: Sequence[Array]) -> Sequence[Any]:
        assert callable(case.expected)
        return case.expected([values[0], values[1] if target is None else target, axes])

    return expected


def colors(op: type[Op]) -> Cases:
    def cases(data: Data) -> Iterator[OpCase]:
        image = data.random.uniform(0, 255, (2, 9, 8, 1)).astype(data.dtype)
        yield openvino_case(op(), image, tolerance=(1e-3, 1e-2 if data.dtype == "f4" else 0.2))

    return cases


CASES: dict[type[Op], Cases] = {
    Resample: resamplings,
    PlacedResize: all_placed,
    color.NV12toRGB: colors(color.NV12toRGB),
    color.NV12toBGR: colors(color.NV12toBGR),
    color.I420toRGB: colors(color.I420toRGB),
    color.I420toBGR: colors(color.I420toBGR),
}
