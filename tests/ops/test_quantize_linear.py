"""ONNX's linear quantisation by its formulas: per tensor, per axis, and per block."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.testing.op_case import OpCase
from tests.ops.check import check

RANDOM = np.random.default_rng(23)
TYPES = [np.uint8, np.int8, np.uint16, np.int16, ml_dtypes.int4, ml_dtypes.uint4]
SHAPE = (3, 7, 2)
WAYS = {
    "tensor": ((), 1, 0),
    "one": ((1,), 1, 0),
    "axis": ((7,), -2, 0),
    "block": ((3, 3, 2), 1, 3),
    "part of a block": ((3, 1, 2), 1, 9),
}


def _spread(values, axis, block):
    """Bring scales or zero points to the shape of x."""
    if block:
        return np.repeat(values, block, axis)[:, : SHAPE[1]]
    return values.reshape(-1, 1) if values.size > 1 else values.reshape(())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", TYPES)
def test_linear_quantisation(dtype, way, device):
    shape, axis, block = WAYS[way]
    limits = ml_dtypes.iinfo(dtype)
    scale = np.asarray(2.0 ** RANDOM.integers(-4, 1, shape), np.float32)  # quotients are exact
    zero = np.asarray(RANDOM.integers(max(limits.min, -7), 8, shape), np.int32)
    x = (RANDOM.integers(-300, 300, SHAPE) / 16).astype(np.float32)
    scales, zeros = _spread(scale, axis, block), _spread(zero, axis, block)
    whole = np.clip(np.round(x / scales) + zeros, limits.min, limits.max)
    inputs = [x, scale, zero.astype(dtype)]
    op = QuantizeLinear(axis=axis, block_size=block)
    check(OpCase(op, inputs, [whole.astype(dtype)], constants={1, 2}), device)
    held = RANDOM.integers(limits.min, limits.max, SHAPE, endpoint=True)
    inputs = [held.astype(dtype), scale, zero.astype(dtype)]
    op = DequantizeLinear(axis=axis, block_size=block)
    check(OpCase(op, inputs, [((held - zeros) * scales).astype(np.float32)]), device)


def test_scales_that_are_known_at_inference_only(device):
    x, scale = RANDOM.normal(size=SHAPE).astype(np.float32), np.float32(0.25)
    wanted = [np.clip(np.round(x / scale), 0, 255).astype(np.uint8)]
    check(OpCase(QuantizeLinear(), [x, np.array(scale)], wanted), device)
    sums = RANDOM.integers(-(2**20), 2**20, SHAPE).astype(np.int32)
    scales = np.float32([0.5, 2, 1, 4, 0.25, 8, 1])
    wanted = [sums * scales.reshape(7, 1)]
    check(OpCase(DequantizeLinear(axis=1), [sums, scales], wanted), device)
