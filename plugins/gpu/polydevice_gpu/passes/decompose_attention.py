"""What attention is made of where no kernel takes it whole: two products around a softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import ElementType
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.concat import Concat
from polydevice.ops.matmul import MatMul
from polydevice.ops.select import Select
from polydevice.ops.softmax import SoftMax
from polydevice.ops.split import VariadicSplit
from polydevice_gpu.graph import Value
from polydevice_gpu.kernels.attention.attention import is_fusible
from polydevice_gpu.passes.decompose import decomposes, reshape

if TYPE_CHECKING:
    from polydevice_gpu.passes.lower import Builder


@decomposes(ScaledDotProductAttention, when=lambda op, inputs: not is_fusible(op, inputs))
def _attention(
    build: Builder, op: ScaledDotProductAttention, inputs: Sequence[Value]
) -> list[Value]:
    query, key, value, *optional = inputs
    kind = query.element_type
    if len(optional) > 1:
        scale = reshape(build, optional[1], ())
    else:
        size = 1 / math.sqrt(max(query.shape[-1], 1))
        scale = build.constant(np.asarray(size, kind.dtype), kind)
    scores = build.one(MatMul(transpose_b=True), build.one(Multiply(), query, scale), key)
    hidden = np.asarray(-np.inf, kind.dtype)
    if op.causal:
        later = np.arange(key.shape[-2]) > np.arange(query.shape[-2])[:, np.newaxis]
        mask = np.where(later, hidden, np.asarray(0, kind.dtype))
        scores = build.one(Add(), scores, build.constant(mask, kind))
    elif optional and optional[0].element_type is ElementType.boolean:
        scores = build.one(Select(), optional[0], scores, build.constant(hidden, kind))
    elif optional:
        scores = build.one(Add(), scores, optional[0])
    if len(optional) > 2:  # one more column of scores, dropped after the softmax
        shape = build.constant(np.array([*scores.shape[:-1], 1], np.int64))
        sink = build.one(Broadcast(), optional[2], shape)
        together = build.one(SoftMax(axis=-1), build.one(Concat(axis=-1), scores, sink))
        axis, lengths = (np.asarray(v, np.int64) for v in (-1, [key.shape[-2], 1]))
        weights, _ = build.add(
            VariadicSplit(), together, build.constant(axis), build.constant(lengths)
        )
    else:
        weights = build.one(SoftMax(axis=-1), scores)
    return build.add(MatMul(), weights, value)
