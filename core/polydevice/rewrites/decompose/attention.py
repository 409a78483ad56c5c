"""What attention is made of: two products around a softmax.

Scale and mask come behind the first product, where a device can take them along with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.concat import Concat
from polydevice.ops.matmul import MatMul
from polydevice.ops.select import Select
from polydevice.ops.softmax import SoftMax
from polydevice.rewrites.facts import rank_of, shape_of, size_of
from polydevice.rewrites.rule import decomposes


@decomposes(ScaledDotProductAttention)
def _attention(build: Emitter, op: ScaledDotProductAttention, inputs: Sequence[Port]) -> list[Port]:
    query, key, value, *optional = inputs
    scores = build.emit(MatMul(transpose_b=True), query, key)
    scores = build.emit(Multiply(), scores, _scale(build, query, optional))
    mask = _mask(build, op, query, key, optional)
    if mask is not None:
        scores = build.emit(Add(), scores, mask)
    if len(optional) > 2:
        weights = _with_sink(build, scores, optional[2])
    else:
        weights = build.emit(SoftMax(axis=rank_of(scores) - 1), scores)
    return build.emit_all(MatMul(), weights, value)


def _scale(build: Emitter, query: Port, optional: Sequence[Port]) -> Port:
    if len(optional) < 2:
        return build.like(1 / math.sqrt(max(size_of(query, -1), 1)), query)
    # A tensor of one element must not raise the rank of the scores.
    return optional[1] if optional[1].desc.rank == 0 else build.reshape(optional[1], ())


def _mask(
    build: Emitter, op: ScaledDotProductAttention, query: Port, key: Port, optional: Sequence[Port]
) -> Port | None:
    """Return what is added to the scores."""
    if op.causal:
        hidden = np.arange(size_of(key, -2)) > np.arange(size_of(query, -2))[:, np.newaxis]
        return build.like(np.where(hidden, -np.inf, 0.0), query)
    if not optional or optional[0].element_type is not ElementType.boolean:
        return optional[0] if optional else None
    seen, unseen = build.like(0.0, query), build.like(-np.inf, query)
    return build.emit(Select(), optional[0], seen, unseen)


def _with_sink(build: Emitter, scores: Port, sink: Port) -> Port:
    """Give the softmax one more column of scores, which is dropped afterwards."""
    *rows, keys = shape_of(scores)
    column = build.emit(Broadcast(), sink, [*rows, 1])
    last = len(rows)
    together = build.emit(SoftMax(axis=last), build.emit(Concat(axis=last), scores, column))
    return build.split(together, last, [keys, 1])[0]
