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
from polydevice.ops.comparison import LessEqual
from polydevice.ops.concat import Concat
from polydevice.ops.generate import Range
from polydevice.ops.matmul import MatMul
from polydevice.ops.reshape import ShapeOf, Squeeze, Unsqueeze
from polydevice.ops.select import Select
from polydevice.ops.slice import Slice
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
        columns, rows = (_counted(build, port) for port in (key, query))
        mask = build.emit(LessEqual(), columns, build.emit(Unsqueeze(), rows, [1]))
    elif not optional or optional[0].element_type is not ElementType.boolean:
        return optional[0] if optional else None
    else:
        mask = optional[0]
    seen, unseen = build.like(0.0, query), build.like(-np.inf, query)
    return build.emit(Select(), mask, seen, unseen)


def _counted(build: Emitter, x: Port) -> Port:
    """Count the rows of matrices, of which nothing else need be known: 0, 1, … along one axis."""
    axis = rank_of(x) - 2
    size = build.emit(Slice(), build.emit(ShapeOf(), x), [axis], [axis + 1], [1], [0])
    return build.emit(Range(ElementType.i64), 0, build.emit(Squeeze(), size, [0]), 1)


def _with_sink(build: Emitter, scores: Port, sink: Port) -> Port:
    """Give the softmax one more column of scores, which is dropped afterwards."""
    *rows, keys = shape_of(scores)
    column = build.emit(Broadcast(), sink, [*rows, 1])
    last = len(rows)
    together = build.emit(SoftMax(axis=last), build.emit(Concat(axis=last), scores, column))
    return build.split(together, last, [keys, 1])[0]
