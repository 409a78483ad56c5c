"""EmbeddingBag and segment operations."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import InferenceError
from polydevice.ops.embedding import (
    BagReduction,
    EmbeddingBagOffsets,
    EmbeddingBagOffsetsSum,
    EmbeddingBagPacked,
    EmbeddingBagPackedSum,
    EmbeddingSegmentsSum,
    EmptySegment,
    SegmentMax,
    SparseFillEmptyRows,
)
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc, desc_of
from polydevice.testing.op_case import OpCase
from polydevice_cpu.implement import run
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(30)
TABLE = RNG.standard_normal((7, 3)).astype(np.float32)
INDICES = np.array([0, 2, 3, 6, 1, 1, 5], np.int32)
WEIGHTS = RNG.standard_normal(7).astype(np.float32)


@pytest.mark.parametrize("default", [None, -1, 4])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("offsets", [(0, 2, 2, 6), (0, 1), (0, 0, 5)])
def test_bags_with_offsets(device, default, weighted, offsets):
    inputs = [TABLE, INDICES, np.array(offsets, np.int32)]
    if default is not None or weighted:
        inputs.append(np.array(-1 if default is None else default, np.int32))
    if weighted:
        inputs.append(WEIGHTS)
    check(openvino_case(EmbeddingBagOffsetsSum(), *inputs, constants={3}), device)
    check(openvino_case(EmbeddingBagOffsets(), *inputs, constants={3}), device)


def test_mean_of_bags_with_offsets(device):
    op = EmbeddingBagOffsets(reduction=BagReduction.MEAN)
    check(openvino_case(op, TABLE, INDICES, np.array([0, 3, 4], np.int32)), device)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_packed_bags(device, weighted, dtype):
    table = (TABLE * 10).astype(dtype)
    inputs = [table, INDICES[:6].reshape(2, 3)]
    if weighted:
        inputs.append((WEIGHTS[:6].reshape(2, 3) * 10).astype(dtype))
    check(openvino_case(EmbeddingBagPackedSum(), *inputs), device)
    check(openvino_case(EmbeddingBagPacked(), *inputs), device)


def test_mean_of_packed_bags(device):
    op = EmbeddingBagPacked(reduction=BagReduction.MEAN)
    check(openvino_case(op, TABLE, INDICES[:6].reshape(3, 2)), device)


# OpenVINO reads out of bounds for a default of -1 here
@pytest.mark.parametrize(("default", "weighted"), [(None, False), (4, False), (4, True)])
def test_segments(device, default, weighted):
    inputs = [TABLE, INDICES, np.int32([0, 0, 2, 2, 2, 4, 4]), np.array(6, np.int32)]
    if default is not None or weighted:
        inputs.append(np.array(-1 if default is None else default, np.int32))
    if weighted:
        inputs.append(WEIGHTS)
    check(openvino_case(EmbeddingSegmentsSum(), *inputs, constants={3, 4}), device)


def test_a_row_outside_the_table_is_refused():
    for op, *others in (
        (EmbeddingBagOffsetsSum(), np.array([0])),
        (EmbeddingSegmentsSum(), np.array([0]), np.array(1)),
    ):
        with pytest.raises(InferenceError, match=r"index 7 is outside \[0, 7\)"):
            run(op, [TABLE, np.array([7]), *others])
    with pytest.raises(InferenceError, match="ascend"):
        run(EmbeddingBagOffsetsSum(), [TABLE, INDICES, np.array([3, 1])])


@pytest.mark.parametrize("fill", list(EmptySegment))
@pytest.mark.parametrize("count", [None, 3, 6])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_segment_max(device, fill, count, dtype):
    x = (RNG.standard_normal((6, 2)) * 10 - 20).astype(dtype)
    inputs = [x, np.array([0, 0, 2, 2, 4, 4], np.int32)]
    if count is not None:
        inputs.append(np.array(count, np.int32))
    op = SegmentMax(fill_mode=fill)
    check(openvino_case(op, *inputs, constants={1, 2}), device)


def test_sparse_fill_empty_rows(device):
    inputs = [
        np.float32([1, 2, 3]),
        np.array([5, 6]),
        np.array([[0, 1], [2, 3], [2, 5]]),
        np.float32(9),
    ]
    expected = [
        np.array([[0, 1], [1, 0], [2, 3], [2, 5], [3, 0], [4, 0]]),
        np.float32([1, 9, 2, 3, 9, 9]),
        np.array([False, True, False, True, True]),
    ]
    check(OpCase(SparseFillEmptyRows(), inputs, expected, constants={1, 3}), device)


def test_unknown_sizes():
    table = TensorDesc(ElementType.f32, Shape([None, 3]))
    unknown = TensorDesc(ElementType.i32, Shape([None]))
    offsets = TensorDesc(ElementType.i32, Shape([Dim(1, 5)]))
    y = EmbeddingBagOffsetsSum().infer([table, unknown, offsets])[0]
    assert y.shape == Shape([Dim(1, 5), 3])
    y = EmbeddingSegmentsSum().infer([table, unknown, unknown, desc_of(np.array(4))])[0]
    assert y.shape == Shape([4, 3])
    y = SegmentMax(fill_mode=EmptySegment.ZERO).infer([table, unknown])[0]
    assert y.shape == Shape([None, 3])


def test_no_segments_make_no_rows(device):
    inputs = [np.zeros((0, 3), np.float32), np.zeros(0, np.int64)]
    op = SegmentMax(fill_mode=EmptySegment.ZERO)
    check(OpCase(op, inputs, [np.zeros((0, 3), np.float32)]), device)
