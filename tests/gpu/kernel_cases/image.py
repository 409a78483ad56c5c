"""Sizes and colours of images."""

from __future__ import annotations

from collections.abc import Iterator

from polydevice.ops import color, interpolate
from polydevice.ops.op import Op
from polydevice.testing.op_case import OpCase
from polydevice_gpu.ops import Resample
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


def colors(op: type[Op]) -> Cases:
    def cases(data: Data) -> Iterator[OpCase]:
        image = data.random.uniform(0, 255, (2, 9, 8, 1)).astype(data.dtype)
        yield openvino_case(op(), image, tolerance=(1e-3, 1e-2 if data.dtype == "f4" else 0.2))

    return cases


CASES: dict[type[Op], Cases] = {
    Resample: resamplings,
    color.NV12toRGB: colors(color.NV12toRGB),
    color.NV12toBGR: colors(color.NV12toBGR),
    color.I420toRGB: colors(color.I420toRGB),
    color.I420toBGR: colors(color.I420toBGR),
}
