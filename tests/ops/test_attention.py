"""Attention, compared with OpenVINO and with a softmax worked out step by step."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

from polydevice.errors import NetworkError
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.testing.op_case import OpCase, network_of
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RANDOM = np.random.default_rng(47)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def qkv(batch=(2, 3), queries=5, keys=7, size=8, values=6):
    return [floats(*batch, queries, size), floats(*batch, keys, size), floats(*batch, keys, values)]


def by_hand(q, k, v, bias=0.0, scale=None):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * (scale or 1 / np.sqrt(q.shape[-1])) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ v).astype(np.float32)


def test_plain(device):
    inputs = qkv(values=8)
    check(openvino_case(ScaledDotProductAttention(), *inputs), device)
    inputs = qkv()
    check(OpCase(ScaledDotProductAttention(), inputs, [by_hand(*inputs)]), device)


def test_causal(device):
    inputs = qkv(queries=6, keys=6, values=8)
    check(openvino_case(ScaledDotProductAttention(causal=True), *inputs), device)


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (2, 1, 5, 7)])
def test_masks(shape, device):
    q, k, v = qkv(values=8)
    bias = floats(*shape)
    op = ScaledDotProductAttention()
    check(openvino_case(op, q, k, v, bias), device)
    visible = RANDOM.random(shape) < 0.7
    visible[..., 0] = True
    check(OpCase(op, [q, k, v, visible], [by_hand(q, k, v, np.where(visible, 0, -np.inf))]), device)


def test_scale(device):
    q, k, v = qkv()
    scale, zero = np.array(0.3, np.float32), np.array(0.0, np.float32)
    expected = by_hand(q, k, v, scale=0.3)
    check(OpCase(ScaledDotProductAttention(), [q, k, v, zero, scale], [expected]), device)
    one = scale.reshape(1)
    check(OpCase(ScaledDotProductAttention(), [q, k, v, zero, one], [expected]), device)


@pytest.mark.parametrize("shape", [(1, 3, 1, 1), (2, 3, 5, 1), (1, 1, 1, 1), (1, 3, 5, 1)])
@pytest.mark.parametrize("causal", [False, True])
def test_sinks(shape, causal, device):
    inputs = [*qkv(values=8), floats(5, 7), np.array(0.3, np.float32), floats(*shape) + 2]
    check(openvino_case(ScaledDotProductAttention(causal=causal), *inputs), device)


def test_a_sink_of_narrow_floats(device):
    """The sink is one more key, whose value is 0."""
    q, k, v = qkv(values=8)
    scale, sink = np.array(0.5, np.float32), floats(1, 3, 1, 1)
    scores = q @ k.swapaxes(-1, -2) * scale
    scores = np.concatenate([scores, np.broadcast_to(sink, (2, 3, 5, 1))], -1)
    weights = np.exp(scores)
    expected = (weights / weights.sum(-1, keepdims=True))[..., :-1] @ v
    zero = np.array(0.0, np.float32)
    inputs = [x.astype(np.float16) for x in (q, k, v, zero, scale, sink)]
    case = OpCase(ScaledDotProductAttention(), inputs, [expected.astype(np.float16)])
    check(dataclasses.replace(case, tolerance=(1e-2, 1e-2)), device)


def test_a_row_that_sees_nothing_but_the_sink_is_zero(device):
    q, k, v = qkv(values=8)
    mask, scale = np.full((5, 7), -np.inf, np.float32), np.array(1.0, np.float32)
    inputs = [q, k, v, mask, scale, floats(1, 3, 1, 1)]
    check(OpCase(ScaledDotProductAttention(), inputs, [np.zeros((2, 3, 5, 8), np.float32)]), device)


def test_large_scores_do_not_overflow(device):
    q, k, v = (x * 100 for x in qkv(batch=(1,)))
    check(OpCase(ScaledDotProductAttention(), [q, k, v], [by_hand(q, k, v)]), device)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats(dtype, device):
    q, k, v = (x.astype(dtype) for x in qkv())
    expected = by_hand(q, k, v).astype(dtype)
    check(OpCase(ScaledDotProductAttention(), [q, k, v], [expected]), device)


def test_what_does_not_fit_is_refused():
    q, k, v = qkv()
    with pytest.raises(NetworkError, match="do not fit"):
        network_of(OpCase(ScaledDotProductAttention(), [q, k[..., :3], v], []))
    with pytest.raises(NetworkError, match="mask is i64"):
        mask = np.zeros((5, 7), np.int64)
        network_of(OpCase(ScaledDotProductAttention(), [q, k, v, mask], []))
    scale = np.array(1.0, np.float32)
    mask = np.zeros((5, 7), np.float32)
    with pytest.raises(NetworkError, match=r"sink \[3,1,1\] has not the rank"):
        network_of(OpCase(ScaledDotProductAttention(), [q, k, v, mask, scale, floats(3, 1, 1)], []))
    with pytest.raises(NetworkError, match="7 inputs are given"):
        network_of(OpCase(ScaledDotProductAttention(), [q, k, v, mask, scale, scale, scale], []))
