"""Pooling, compared with OpenVINO."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import InferenceError, NetworkError
from polydevice.ops.pooling import (
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    AvgPool,
    MaxPool,
    MaxPoolWithIndices,
)
from polydevice.ops.window import PadType, RoundingType
from polydevice.testing.op_case import OpCase, network_of
from polydevice_cpu.implement import run
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case, wide_case

RANDOM = np.random.default_rng(23)
CEIL, CEIL_TORCH = RoundingType.CEIL, RoundingType.CEIL_TORCH
SAME_UPPER, SAME_LOWER, VALID = PadType.SAME_UPPER, PadType.SAME_LOWER, PadType.VALID


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def attributes(kernel, strides=1, begin=0, end=0, **more):
    def each(v):
        return v if isinstance(v, tuple) else (v,) * len(kernel)

    return {"kernel": kernel, "strides": each(strides), "pads_begin": each(begin),
            "pads_end": each(end), **more}  # fmt: skip


WINDOWS = [
    ((1, 3, 8, 9), {"kernel": (2, 2), "strides": 2}),
    ((2, 3, 8, 9), {"kernel": (3, 2), "strides": (2, 1), "begin": (1, 0), "end": (1, 1)}),
    ((1, 3, 7, 10), {"kernel": (3, 3), "strides": 2, "rounding_type": CEIL}),
    ((1, 3, 7, 10), {"kernel": (3, 3), "strides": 2, "begin": 1, "end": 1, "rounding_type": CEIL}),
    ((1, 3, 7, 10), {"kernel": (3, 3), "strides": 2, "begin": (0, 1), "rounding_type": CEIL}),
    ((1, 3, 7, 10), {"kernel": (3, 4), "strides": 2, "auto_pad": SAME_UPPER}),
    ((1, 3, 7, 10), {"kernel": (3, 4), "strides": 2, "auto_pad": SAME_LOWER}),
    ((1, 3, 7, 10), {"kernel": (3, 4), "strides": 2, "auto_pad": VALID}),
    ((1, 3, 7, 10), {"kernel": (7, 10)}),
    ((1, 2, 90, 8), {"kernel": (40, 3), "strides": (3, 1), "begin": (20, 1)}),
    ((1, 2, 50, 60), {"kernel": (50, 60)}),
    ((2, 3, 20), {"kernel": (3,), "strides": 2, "begin": 1}),
    ((1, 2, 5, 6, 7), {"kernel": (2, 3, 2), "strides": (1, 2, 2), "end": 1}),
]


@pytest.mark.parametrize(("shape", "settings"), WINDOWS)
def test_max_pool(shape, settings, device):
    check(openvino_case(MaxPool(**attributes(**settings)), floats(*shape)), device)


@pytest.mark.parametrize(("shape", "settings"), WINDOWS)
@pytest.mark.parametrize("exclude_pad", [False, True])
def test_avg_pool(shape, settings, exclude_pad, device):
    op = AvgPool(**attributes(**settings), exclude_pad=exclude_pad)
    check(openvino_case(op, floats(*shape), opset=1), device)


def test_averages_of_long_windows_keep_their_precision(device):
    x = np.full((1, 2, 700, 1500), 0.1, np.float32)
    expected = np.full((1, 2, 1, 1), 0.1, np.float32)
    check(OpCase(AvgPool(**attributes((700, 1500))), [x], [expected], (5e-4, 0)), device)


@pytest.mark.parametrize("op", [MaxPoolWithIndices, AvgPool])
@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ((1, 2, 6, 7), {"kernel": (2, 2), "strides": 3, "begin": 1, "end": 1}),
        ((1, 2, 7, 7), {"kernel": (2, 2), "strides": 3, "begin": 0, "end": 1}),
        ((1, 2, 5, 8), {"kernel": (3, 3), "strides": 2, "begin": 1, "end": 1}),
    ],
)
def test_ceil_torch_leaves_windows_in_the_padding_out(op, shape, settings, device):
    made = op(**attributes(**settings), rounding_type=CEIL_TORCH)
    check(openvino_case(made, floats(*shape), opset=14), device)


@pytest.mark.parametrize(("shape", "settings"), WINDOWS)
@pytest.mark.parametrize("axis", [0, 2])
def test_max_pool_with_indices(shape, settings, axis, device):
    op = MaxPoolWithIndices(**attributes(**settings), axis=axis)
    check(openvino_case(op, floats(*shape)), device)


def test_dilated_max_pool_with_indices(device):
    op = MaxPoolWithIndices(
        **attributes((3, 2), 2, 1, 1), dilations=(2, 3), index_element_type=ElementType.i32
    )
    check(openvino_case(op, floats(2, 3, 9, 11), opset=8), device)


def test_the_first_of_equal_maxima_counts(device):
    x = np.array([[[[1, 5, 5], [5, 5, 1], [0, 0, 0]]]], np.float32)
    op = MaxPoolWithIndices(kernel=(2, 2), strides=(1, 1))
    check(OpCase(op, [x], [[[[[5, 5], [5, 5]]]], [[[[1, 1], [3, 4]]]]]), device)


def test_dilated_avg_pool(device):
    op = AvgPool(**attributes((3, 2), 2, 1, 1), dilations=(2, 3), exclude_pad=True)
    check(openvino_case(op, floats(2, 3, 9, 11)), device)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_max_pool_of_integers(dtype, device):
    x = RANDOM.integers(0, 255, (1, 2, 6, 7)).astype(dtype)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 0), (1, 0)), constant_values=np.iinfo(dtype).min)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 2), (2, 3))[:, :, ::2, ::2]
    op = MaxPool(**attributes((3, 2), 2, 1))
    check(OpCase(op, [x], [windows.max((-1, -2))]), device)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats(dtype, device):
    x = floats(1, 3, 8, 9).astype(dtype)
    for op in (MaxPool(kernel=(3, 3), strides=(2, 2)), AvgPool(kernel=(3, 3), strides=(2, 2))):
        check(wide_case(op, x, opset=1), device)


@pytest.mark.parametrize(
    ("shape", "bins"), [((2, 3, 7, 9), (3, 4)), ((1, 2, 10), (4,)), ((1, 2, 4, 5, 6), (2, 5, 3))]
)
def test_adaptive_pooling(shape, bins, device):
    x, target = floats(*shape), np.array(bins, np.int32)
    check(openvino_case(AdaptiveAvgPool(), x, target, constants={1}), device)
    # OpenVINO's CPU plugin refuses i64 indices here.
    largest = AdaptiveMaxPool(index_element_type=ElementType.i32)
    case = openvino_case(largest, x, target, constants={1})
    check(case, device)
    values, indices = case.answers()
    expected = [values, indices.astype(np.int64)]
    check(OpCase(AdaptiveMaxPool(), [x, target], expected, constants={1}), device)


def test_overhang_counts_as_asked(device):
    x = np.ones((1, 1, 5), np.float32)
    settings = attributes((3,), 2, 1, 0, rounding_type=CEIL)
    check(OpCase(AvgPool(**settings), [x], [[[[2 / 3, 1, 2 / 3]]]]), device)
    check(OpCase(AvgPool(**settings, counts_overhang=False), [x], [[[[2 / 3, 1, 1]]]]), device)


def test_empty_batch(device):
    x = floats(0, 3, 8, 8)
    check(OpCase(MaxPool(kernel=(2, 2), strides=(2, 2)), [x], [floats(0, 3, 4, 4)]), device)


def test_padding_that_would_exhaust_memory_is_refused():
    huge = 1 << 30
    op = MaxPool(**attributes((huge, huge), huge, huge, huge))
    with pytest.raises(InferenceError, match="use a smaller padding"):
        run(op, [floats(1, 1, 4, 4)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": (9, 2)}, "larger than the input"),
        ({"kernel": (0, 2)}, "kernel"),
        ({"kernel": (2, 2), "begin": -1}, "pads_begin"),
        ({"kernel": (2, 2, 2)}, "rank"),
    ],
)
def test_what_does_not_fit_is_refused(settings, message):
    with pytest.raises(NetworkError, match=message):
        network_of(OpCase(MaxPool(**attributes(**settings)), [floats(1, 3, 5, 5)], []))


def test_no_bins_are_refused():
    with pytest.raises(NetworkError, match=r"output_shape .*must be at least 1"):
        network_of(
            OpCase(AdaptiveAvgPool(), [floats(1, 3, 5, 5), np.array([2, 0])], [], constants=[1])
        )
