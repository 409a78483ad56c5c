"""Pooling in windows and to a given size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polydevice.dtype import ElementType
from polydevice.ops import pooling
from polydevice.ops.op import Op
from polydevice.ops.window import RoundingType
from polydevice.testing.op_case import OpCase
from tests.gpu.kernel_cases.data import Cases, Data, ints
from tests.ops.openvino_oracle import openvino_case


def poolings(data: Data) -> Iterator[OpCase]:
    for channels in (3, 16):
        x = data(2, channels, 9, 12)
        window = {"kernel": (3, 2), "strides": (2, 3), "pads_begin": (1, 0), "pads_end": (1, 1)}
        yield openvino_case(pooling.MaxPool(**window), x)
        yield openvino_case(pooling.AvgPool(**window, exclude_pad=True), x)
        yield openvino_case(
            pooling.AvgPool(**window, exclude_pad=False, rounding_type=RoundingType.CEIL), x
        )
    yield openvino_case(pooling.MaxPool(kernel=(2, 2, 2)), data(1, 4, 3, 5, 4))
    for kind in (np.uint8, np.int8):
        limits = np.iinfo(kind)
        x = data.random.integers(limits.min, limits.max + 1, (2, 16, 9, 12)).astype(kind)
        yield openvino_case(pooling.MaxPool(**window), x)
    draw = data.random.integers
    for rank in (1, 2, 3):
        kernel = draw(1, 4, rank)
        begin, end = draw(0, kernel), draw(0, kernel)
        window = {
            name: tuple(map(int, values))
            for name, values in (
                ("kernel", kernel), ("strides", draw(1, 4, rank)), ("pads_begin", begin),
                ("pads_end", end),
            )
        }  # fmt: skip
        x = data(int(draw(1, 3)), int(draw(1, 4)) * 4, *map(int, kernel + draw(1, 8, rank)))
        yield openvino_case(pooling.MaxPool(**window), x)
        yield openvino_case(pooling.AvgPool(**window, exclude_pad=bool(draw(2))), x)
    # Windows that reach beyond both sides, of so many elements that loops take those inside alone.
    wide = {"kernel": (11, 8), "strides": (2, 3), "pads_begin": (7, 3), "pads_end": (4, 6)}
    for channels in (3, 16):
        x = data(2, channels, 6, 5)
        yield openvino_case(pooling.MaxPool(**wide), x)
        for exclude in (True, False):
            yield openvino_case(
                pooling.AvgPool(**wide, exclude_pad=exclude, rounding_type=RoundingType.CEIL), x
            )


def max_pool_with_indices(data: Data) -> Iterator[OpCase]:
    op = pooling.MaxPoolWithIndices(
        kernel=(2, 3), strides=(1, 2), dilations=(1, 1), pads_begin=(0, 1), pads_end=(0, 1), axis=2
    )
    yield openvino_case(op, data(2, 3, 5, 6))


def adaptive(data: Data) -> Iterator[OpCase]:
    x = data(2, 3, 7, 8)
    yield openvino_case(pooling.AdaptiveAvgPool(), x, ints(3, 5), constants={1})


def adaptive_max(data: Data) -> Iterator[OpCase]:
    # OpenVINO's indices are i64, which its CPU plugin does not compute; i32 it does.
    op = pooling.AdaptiveMaxPool(index_element_type=ElementType.i32)
    yield openvino_case(op, data(2, 3, 7, 8), ints(3, 5), constants={1})


CASES: dict[type[Op], Cases] = {
    pooling.AvgPool: poolings,
    pooling.MaxPool: poolings,
    pooling.MaxPoolWithIndices: max_pool_with_indices,
    pooling.AdaptiveAvgPool: adaptive,
    pooling.AdaptiveMaxPool: adaptive_max,
}
