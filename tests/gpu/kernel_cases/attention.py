"""Attention with masks, scales, sinks, one query and many keys."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.op import Op
from polydevice.testing.op_case import OpCase
from tests.gpu.kernel_cases.data import Cases, Data
from tests.ops.openvino_oracle import openvino_case


def attentions(data: Data) -> Iterator[OpCase]:
    attention = ScaledDotProductAttention

    def qkv(*batch: int, queries: int, keys: int, size: int, values: int = 0) -> list[Array]:
        sizes = (queries, size), (keys, size), (keys, values or size)
        return [data(*batch, *pair) for pair in sizes]

    def case(op: Op, *inputs: Array, **settings: object) -> OpCase:
        return openvino_case(op, *inputs, tolerance=(2e-3, 2e-3) if data.dtype == "f2" else None)

    yield case(attention(), *qkv(2, 3, queries=9, keys=7, size=5))
    yield case(attention(causal=True), *qkv(3, queries=37, keys=37, size=19))
    inputs = qkv(1, 2, queries=1, keys=131, size=17)
    yield case(attention(), *inputs, data(1, 1, 1, 131))
    inputs = qkv(2, 1, queries=5, keys=67, size=64)
    seen = data.random.random((2, 1, 5, 67)) < 0.6
    seen[..., 0] = True
    yield case(attention(), *inputs, seen)
    scale = np.array(0.3, data.dtype)
    mask = data(11, 1)
    yield case(attention(), *qkv(1, 1, queries=11, keys=70, size=33), mask, scale)
    # Keys enough to be cut into parts.
    sink = data(1, 2, 1, 1)
    inputs = qkv(1, 2, queries=3, keys=1201, size=8)
    zero = np.zeros((1, 1), data.dtype)
    yield case(attention(), *inputs, zero, scale, sink)


CASES: dict[type[Op], Cases] = {
    ScaledDotProductAttention: attentions,
}
