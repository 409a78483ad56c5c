"""Attention: softmax(query x key) x value as one operation."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.pointwise import common_type
from polydevice.shape import Shape, bounds, broadcast, broadcast_dim, merge_dim
from polydevice.tensor import TensorDesc


@operation("ScaledDotProductAttention", since=13)
class ScaledDotProductAttention(Op):
    """softmax(scale * query·keyᵀ + mask)·value.

    With `causal` a query sees keys up to its own position, and the mask is ignored. A boolean mask
    hides what is false. The scale is 1 / sqrt(E) when it is left out. The sink is a score more in
    every row, which takes its share of the softmax and has no value.

    Inputs:  query  [..., L, E], floating point
             key    [..., S, E], same type
             value  [..., S, V], same type
             mask   optional, broadcastable to [..., L, S], boolean or same type
             scale  optional, one element, same type
             sink   optional, rank of query, broadcastable to [..., L, 1], same type
    Outputs: y      [..., L, V], their type
    Raises:  ShapeError if shapes do not fit
    Source:  OpenVINO opset13 ScaledDotProductAttention; the sink came with OpenVINO 2025.3
    """

    numbers_at = (4,)

    causal: bool = attribute(default=False)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return [..., L, V]."""
        self.check_count(inputs, 3, 6)
        query, key, value, *optional = inputs
        common_type(self, query, key)
        kind = common_type(self, query, value)
        mask = optional[0] if optional and not self.causal else None
        legal = (ElementType.boolean, ElementType.dynamic, kind)
        if mask is not None and mask.element_type not in legal:
            raise ElementTypeError(
                f"{self.type}: the mask is {mask.element_type}; it must be boolean or {kind}"
            )
        sink = optional[2] if len(optional) > 2 else None
        if sink is not None:
            common_type(self, query, sink)
        shapes = query.shape, key.shape, value.shape
        if None in shapes:
            return [TensorDesc(kind)]
        q, k, v = (s for s in shapes if s is not None)
        if min(len(q), len(k), len(v)) < 2:
            raise ShapeError(f"{self.type} needs rank 2 or more, not {q}, {k} and {v}")
        try:
            merge_dim(q[-1], k[-1])
            merge_dim(k[-2], v[-2])
            batch = broadcast(broadcast(Shape(q[:-2]), Shape(k[:-2])), Shape(v[:-2]))
            if sink is not None:
                _check_sink(sink.shape, q)
            if mask is not None and mask.shape is not None:
                batch = broadcast(batch, Shape(mask.shape[:-2]))
                for size, wanted in zip(reversed(mask.shape), (k[-2], q[-2]), strict=False):
                    broadcast_dim(size, wanted)
        except ShapeError as error:
            raise ShapeError(
                f"{self.type}: query {q}, key {k} and value {v} do not fit: {error}"
            ) from None
        if batch is None or (mask is not None and mask.shape is None):
            return [TensorDesc(kind)]
        return [TensorDesc(kind, Shape([*batch, q[-2], v[-1]]))]


def _check_sink(sink: Shape | None, query: Shape) -> None:
    if sink is None:
        return
    if len(sink) != len(query):
        raise ShapeError(f"sink {sink} has not the rank of the query")
    for size, wanted in zip(sink, (*query[:-1], 1), strict=True):
        low, high = bounds(size)
        if low > 1 or high == 0:
            merge_dim(size, wanted)
