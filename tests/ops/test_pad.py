"""Pad."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.pad import Pad, PadMode
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc, desc_of
from polydevice.testing.op_case import OpCase
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(6)
MODES = [mode for mode in PadMode if mode is not PadMode.WRAP]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("shape", "begin", "end"),
    [
        ((5,), (2,), (3,)),
        ((3, 4), (1, 2), (2, 0)),
        ((2, 3, 5, 4), (0, 0, 1, 2), (0, 0, 3, 1)),
        ((2, 3, 5, 4), (1, 2, 0, 0), (0, 1, 0, 3)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int8])
def test_pad(device, mode, shape, begin, end, dtype):
    x = RNG.integers(-100, 100, shape).astype(dtype)
    inputs = [x, ints(*begin), ints(*end)]
    if mode is PadMode.CONSTANT:
        inputs.append(np.array(7, dtype))
    elif mode is PadMode.REFLECT:
        limit = [n - 1 for n in shape]
        inputs[1:] = [np.minimum(inputs[1], limit), np.minimum(inputs[2], limit)]
    check(openvino_case(Pad(pad_mode=mode), *inputs, constants={1, 2, 3}), device)


@pytest.mark.parametrize("mode", [PadMode.CONSTANT, PadMode.EDGE])
@pytest.mark.parametrize(
    ("begin", "end"), [((-1, 2), (2, -3)), ((-2, 0), (-1, -1)), ((1, 1), (-3, 0))]
)
def test_negative_pads_cut(device, mode, begin, end):
    x = RNG.standard_normal((5, 6)).astype(np.float32)
    inputs = [x, ints(*begin), ints(*end)]
    if mode is PadMode.CONSTANT:
        inputs.append(np.array(1.5, np.float32))
    case = openvino_case(Pad(pad_mode=mode), *inputs, constants={1, 2, 3}, reference=True)
    check(case, device)


def test_pad_without_value_gives_zeros(device):
    x = np.ones((2,), np.float32)
    case = OpCase(Pad(), [x, ints(1), ints(2)], [np.float32([0, 1, 1, 0, 0])], constants={1, 2})
    check(case, device)


def test_pad_wraps(device):
    x = np.arange(3, dtype=np.int32)
    expected = np.pad(x, (4, 5), mode="wrap")
    case = OpCase(Pad(pad_mode=PadMode.WRAP), [x, ints(4), ints(5)], [expected], constants={1, 2})
    check(case, device)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (PadMode.CONSTANT, [0, 0, 0]),
        (PadMode.EDGE, [1, 1, 1]),
        (PadMode.WRAP, [3, 1, 2]),  # 2^40 is 1 modulo 3
    ],
)
@pytest.mark.parametrize("before", [True, False], ids=["added before", "cut before"])
def test_pads_beyond_int32_that_cancel_out(device, mode, expected, before):
    if not before:
        expected = {PadMode.EDGE: [3, 3, 3], PadMode.WRAP: [2, 3, 1]}.get(mode, expected)
    far = 2**40 if before else -(2**40)
    inputs = [np.float32([1, 2, 3]), ints(far), ints(-far)]
    check(OpCase(Pad(pad_mode=mode), inputs, [np.float32(expected)], constants={1, 2}), device)


def test_pad_of_unknown_sizes():
    x = TensorDesc(ElementType.f32, Shape([Dim(2, 4), 3]))
    (y,) = Pad().infer([x, desc_of(ints(1, 0)), desc_of(ints(2, 0))])
    assert y.shape == Shape([Dim(5, 7), 3])
    (y,) = Pad().infer([x, TensorDesc(ElementType.i64, Shape([2])), desc_of(ints(2, 0))])
    assert y.shape == Shape([None, None])


def test_pad_refuses():
    x = TensorDesc(ElementType.f32, Shape([2, 3]))
    with pytest.raises(ShapeError, match="exceed"):
        Pad(pad_mode=PadMode.REFLECT).infer([x, desc_of(ints(2, 0)), desc_of(ints(0, 0))])
    with pytest.raises(ShapeError, match="fit"):
        Pad().infer([x, desc_of(ints(2)), desc_of(ints(0, 0))])
    with pytest.raises(ShapeError, match="cut"):
        Pad().infer([x, desc_of(ints(-2, 0)), desc_of(ints(-1, 0))])
