"""Reverse, ReverseSequence and Roll."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import InferenceError, ShapeError
from polydevice.ops.reverse import Reverse, ReverseSequence, Roll
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice.testing.op_case import OpCase
from polydevice_cpu.implement import run
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(12)


def values(shape, dtype=np.float32):
    return RNG.integers(0, 200, shape).astype(dtype)


@pytest.mark.parametrize(
    ("mode", "axes"),
    [
        ("index", np.array([0, -1])),
        ("index", np.array([1])),
        ("mask", np.array([True, False, True])),
    ],
)
def test_reverse(device, mode, axes):
    op, x = Reverse(mode=mode), values((3, 4, 5))
    check(openvino_case(op, x, axes, constants={1}, reference=True), device)


@pytest.mark.parametrize(
    ("shape", "batch", "seq"),
    [((3, 5), 0, 1), ((5, 3), 1, 0), ((2, 3, 4, 3), 3, 1), ((3, 6, 2), -3, -2)],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_reverse_sequence(device, shape, batch, seq, dtype):
    lengths = RNG.integers(1, shape[seq] + 1, shape[batch]).astype(np.int32)
    op = ReverseSequence(batch_axis=batch, seq_axis=seq)
    check(openvino_case(op, values(shape, dtype), lengths), device)


def test_reverse_sequence_refuses():
    x = TensorDesc(ElementType.f32, Shape([2, 3]))
    with pytest.raises(ShapeError, match="both"):
        ReverseSequence(batch_axis=1).infer([x, TensorDesc(ElementType.i32, Shape([2]))])
    with pytest.raises(InferenceError, match="length 4"):
        run(ReverseSequence(), [values((2, 3)), np.array([1, 4])])


def test_reverse_sequence_from_onnx_has_the_axes_exchanged():
    assert ReverseSequence.from_onnx({}, 10) == ReverseSequence(batch_axis=1, seq_axis=0)


@pytest.mark.parametrize(
    ("shift", "axes"), [([2], [0]), ([-1, 3], [1, -1]), ([1, 2, 3], [0, 0, 2]), ([100], [1])]
)
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_roll(device, shift, axes, dtype):
    inputs = [values((4, 3, 5), dtype), np.array(shift, np.int64), np.array(axes, np.int64)]
    check(openvino_case(Roll(), *inputs, constants={1, 2}), device)


def test_roll_by_one_shift_for_all_axes(device):
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    inputs = [x, np.array(1), np.array([0, 1])]
    check(OpCase(Roll(), inputs, [np.float32([[3, 2], [1, 0]])], constants={1, 2}), device)
