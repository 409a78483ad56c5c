"""Broadcast and Tile."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.interval import Interval
from polydevice.ops.broadcast import Broadcast, BroadcastMode, Tile
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc, desc_of
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(9)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("mode", "shape", "target"),
    [
        ("numpy", (1, 3), (2, 4, 3)),
        ("numpy", (), (2, 3)),
        ("numpy", (5, 1, 1), (5, 2, 3)),
        ("bidirectional", (2, 1, 4), (3, 1)),
        ("bidirectional", (4,), (2, 1, 1)),
        ("bidirectional", (1,), (2, 3)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_])
def test_broadcast(device, mode, shape, target, dtype):
    x = RNG.integers(0, 9, shape).astype(dtype)
    op = Broadcast(mode=BroadcastMode(mode))
    check(openvino_case(op, x, ints(*target), constants={1}), device)


@pytest.mark.parametrize(
    ("shape", "target", "axes"),
    [((3,), (3, 4), (0,)), ((2, 5), (2, 3, 5, 4), (0, 2)), ((1, 4), (7, 3, 4), (0, 2))],
)
def test_broadcast_explicit(device, shape, target, axes):
    x = RNG.standard_normal(shape).astype(np.float32)
    op = Broadcast(mode=BroadcastMode.EXPLICIT)
    check(openvino_case(op, x, ints(*target), ints(*axes), constants={1, 2}), device)


def test_broadcast_of_unknown_sizes():
    x = TensorDesc(ElementType.f32, Shape([None, 1]))
    target = TensorDesc(ElementType.i64, Shape([2]), np.array([Interval(2, 4), 3], object))
    assert Broadcast().infer([x, target])[0].shape == Shape([Dim(2, 4), 3])
    op = Broadcast(mode=BroadcastMode.BIDIRECTIONAL)
    assert op.infer([x, target])[0].shape == Shape([Dim(), 3])


def test_broadcast_refuses():
    x = TensorDesc(ElementType.f32, Shape([2, 3]))
    with pytest.raises(ShapeError, match="broadcast"):
        Broadcast().infer([x, desc_of(ints(2, 4))])
    with pytest.raises(ShapeError, match="broadcast"):
        Broadcast().infer([x, desc_of(ints(3))])
    with pytest.raises(ShapeError, match="place"):
        op = Broadcast(mode=BroadcastMode.EXPLICIT)
        op.infer([x, desc_of(ints(2, 3)), desc_of(ints(0))])


@pytest.mark.parametrize(
    ("shape", "repeats"),
    [
        ((2, 3), (1, 2)),
        ((2, 3), (2, 1, 3)),
        ((2, 1, 3), (2,)),
        ((5,), (3,)),
        ((1, 4, 2, 2), (2, 1, 3, 1)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_tile(device, shape, repeats, dtype):
    x = RNG.integers(0, 100, shape).astype(dtype)
    check(openvino_case(Tile(), x, ints(*repeats), constants={1}), device)


def test_tile_of_unknown_sizes():
    x = TensorDesc(ElementType.f32, Shape([Dim(1, 3), 2]))
    assert Tile().infer([x, desc_of(ints(2, 2, 1))])[0].shape == Shape([2, Dim(2, 6), 2])
    with pytest.raises(ShapeError, match="negative"):
        Tile().infer([x, desc_of(ints(1, -1))])
