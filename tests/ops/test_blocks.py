"""DepthToSpace, SpaceToDepth, BatchToSpace, SpaceToBatch, ShuffleChannels."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.blocks import (
    BatchToSpace,
    DepthMode,
    DepthToSpace,
    ShuffleChannels,
    SpaceToBatch,
    SpaceToDepth,
)
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc, desc_of
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(11)


def values(shape, dtype=np.float32):
    return RNG.integers(0, 200, shape).astype(dtype)


@pytest.mark.parametrize("mode", list(DepthMode))
@pytest.mark.parametrize(
    ("shape", "block"),
    [((2, 12, 3, 5), 2), ((1, 18, 2, 1), 3), ((2, 16, 2, 3, 2), 2), ((1, 6, 4), 2)],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64])
def test_depth_to_space_and_back(device, mode, shape, block, dtype):
    x = values(shape, dtype)
    check(openvino_case(DepthToSpace(mode=mode, block_size=block), x), device)
    wide = values((shape[0], 3, *(n * block for n in shape[2:])), dtype)
    check(openvino_case(SpaceToDepth(mode=mode, block_size=block), wide), device)


def test_depth_to_space_of_unknown_sizes():
    x = TensorDesc(ElementType.f32, Shape([None, 8, Dim(1, 4), 3]))
    y = DepthToSpace(mode=DepthMode.BLOCKS_FIRST, block_size=2).infer([x])[0]
    assert y.shape == Shape([None, 2, Dim(2, 8), 6])
    with pytest.raises(ShapeError, match="multiple"):
        DepthToSpace(mode=DepthMode.BLOCKS_FIRST, block_size=3).infer([x])


def test_onnx_names_of_the_modes():
    made = DepthToSpace.from_onnx({"blocksize": 2}, 13)
    assert made.mode is DepthMode.BLOCKS_FIRST
    made = DepthToSpace.from_onnx({"blocksize": 2, "mode": "CRD"}, 13)
    assert made == DepthToSpace(mode=DepthMode.DEPTH_FIRST, block_size=2)


@pytest.mark.parametrize(
    ("shape", "block", "begin", "end"),
    [
        ((8, 3, 4, 2), (1, 1, 2, 2), (0, 0, 1, 0), (0, 0, 0, 1)),
        ((12, 2, 3, 3), (1, 2, 3, 2), (0, 1, 2, 0), (0, 0, 1, 2)),
        ((6, 5), (1, 3), (0, 1), (0, 2)),
        ((4, 3, 2, 2, 3), (1, 1, 2, 1, 2), (0, 0, 0, 0, 1), (0, 0, 1, 0, 0)),
    ],
)
def test_batch_to_space_and_back(device, shape, block, begin, end):
    lists = [np.array(v, np.int64) for v in (block, begin, end)]
    check(openvino_case(BatchToSpace(), values(shape), *lists, constants={1, 2, 3}), device)
    sizes = (
        2,
        *(
            n * b - p - q
            for n, b, p, q in zip(shape[1:], block[1:], begin[1:], end[1:], strict=True)
        ),
    )
    check(openvino_case(SpaceToBatch(), values(sizes), *lists, constants={1, 2, 3}), device)


def test_batch_to_space_refuses():
    x = TensorDesc(ElementType.f32, Shape([6, 3]))
    lists = [desc_of(np.array(v)) for v in ((1, 4), (0, 0), (0, 0))]
    with pytest.raises(ShapeError, match="multiple"):
        BatchToSpace().infer([x, *lists])
    with pytest.raises(ShapeError, match="multiple"):
        SpaceToBatch().infer([x, *lists])
    with pytest.raises(ShapeError, match="exceed"):
        BatchToSpace().infer([x, *(desc_of(np.array(v)) for v in ((1, 2), (0, 4), (0, 4)))])


@pytest.mark.parametrize(
    ("shape", "axis", "group"), [((2, 12, 3, 5), 1, 3), ((4, 6), -1, 2), ((6, 2, 2), 0, 6)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_shuffle_channels(device, shape, axis, group, dtype):
    op = ShuffleChannels(axis=axis, group=group)
    check(openvino_case(op, values(shape, dtype)), device)
