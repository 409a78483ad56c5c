"""ONNX Runtime's GroupQueryAttention, whose keys and values lie in a cache.

Shapes in brackets: B batch, S queries, T keys, N heads, G groups of heads, H head size.
"""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Maximum, Multiply, Subtract
from polydevice.ops.broadcast import Broadcast, BroadcastMode, Tile
from polydevice.ops.comparison import Less, LessEqual
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.gather import Gather
from polydevice.ops.generate import Range
from polydevice.ops.logical import LogicalAnd
from polydevice.ops.reshape import Reshape, ShapeOf, Unsqueeze
from polydevice.ops.select import Select
from polydevice.ops.slice import Slice
from polydevice.ops.split import VariadicSplit
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.microsoft_attention import (
    attend,
    join_heads,
    rotate,
    split_heads,
)
from polydevice.readers.onnx.operators.reshape import joined, part_of_shape
from polydevice.readers.onnx.operators.topk import axis_size


@translates("GroupQueryAttention", domain="com.microsoft")
def group_query_attention(n: OnnxNode) -> list[Port]:
    """Attention in which several query heads share one key and value head.

    Every item of the batch has as many keys as `seqlens_k` + 1 says, the new ones among them. These
    follow the old ones in the cache, which is as long as the past or, if that is more, as
    `total_sequence_length`: a past that is longer is a buffer with room for what is to come.
    """
    if n.attribute("kv_cache_bit_width", 0) or n.attribute("sliding_window_cache", 0):
        raise n.unsupported("caches of few bits, or of a window alone, are not supported")
    heads, groups = n.required("num_heads"), n.required("kv_num_heads")
    query, key, value = n.input(0), n.optional(1), n.optional(2)
    if key is None or value is None:
        q, k, v = _split_packed(n, query, heads, groups)
    else:
        q = split_heads(n, query, heads)
        k, v = split_heads(n, key, groups), split_heads(n, value, groups)
    places = _Places(n, axis_size(n, q, 2))
    q, k = _rotated(n, q, k, places)
    past_k, past_v = n.optional(3), n.optional(4)
    present = [k, v]
    if past_k is not None and past_v is not None:
        rows = places.rows(past_k, groups)
        present = [_written(n, past_k, k, rows), _written(n, past_v, v, rows)]
        k, v = (places.first(cache, 2) for cache in present)
    # Queries of a group's heads lie below each other: so they share its keys without a copy.
    times = heads // groups
    bias = _bias(n, q, places, times)
    sink = n.optional(11)
    if sink is None and n.attribute("smooth_softmax", 0):
        sink = n.value(np.zeros(heads), q.element_type)
    if sink is not None:
        sink = _grouped(n, _spread(n, n.emit(Unsqueeze(), sink, [0, 2, 3]), q), groups)
    y = attend(n, _grouped(n, q, groups), k, v, bias, sink)
    y = n.emit(Reshape(special_zero=False), y, n.emit(ShapeOf(), q))
    return [join_heads(n, y), *present]


class _Places:
    """Where the queries of every item stand among its keys, and where keys are written.

    Attributes:
        length: S.
        total: T, the number of keys of the longest item.
        known: number of keys of every item [B, 1].
        before: number of those before its first query [B, 1].
        queries: positions of its queries [B, S].
    """

    def __init__(self, n: OnnxNode, length: Port) -> None:
        self.n, self.length = n, length
        whole = [n.emit(Convert(ElementType.i64), n.input(place)) for place in (5, 6)]
        self.total = n.emit(Reshape(special_zero=False), whole[1], [])
        self.known = n.emit(Reshape(special_zero=False), n.emit(Add(), whole[0], 1), [-1, 1])
        # The queries of a prompt, which has no keys before it, may be more: they are padded.
        self.before = n.emit(Maximum(), n.emit(Subtract(), self.known, length), 0)
        self.queries = n.emit(Add(), self.before, n.emit(Range(ElementType.i64), 0, length, 1))

    def rows(self, cache: Port, groups: int) -> Port:
        """Return which rows of [B * G * (past + S)] make up the new cache: [B, G, its length]."""
        n = self.n
        past = axis_size(n, cache, 2)
        columns = n.emit(Range(ElementType.i64), 0, n.emit(Maximum(), past, self.total), 1)
        ahead = n.emit(Subtract(), columns, self.before)
        fresh = n.emit(
            LogicalAnd(), n.emit(LessEqual(), 0, ahead), n.emit(Less(), ahead, self.length)
        )
        sources = n.emit(Select(), fresh, n.emit(Add(), ahead, past), columns)
        count = n.emit(Multiply(), axis_size(n, cache, 0), groups)
        firsts = n.emit(Range(ElementType.i64), 0, count, 1)
        firsts = n.emit(Multiply(), firsts, n.emit(Add(), past, self.length))
        firsts = n.emit(Reshape(special_zero=False), firsts, [-1, groups, 1])
        return n.emit(Add(), n.emit(Unsqueeze(), sources, [1]), firsts)

    def first(self, x: Port, axis: int) -> Port:
        """Return the elements of the first T keys along an axis."""
        end = self.n.emit(Unsqueeze(), self.total, [0])
        return self.n.emit(Slice(), x, [0], end, [1], [axis])

    def seen(self, causal: bool, window: int, times: int) -> Port:
        """Return whether a query takes a key into account; boolean [B, 1, times * S, T]."""
        n = self.n
        columns = n.emit(Range(ElementType.i64), 0, self.total, 1)
        rows = self.queries if times == 1 else n.emit(Tile(), self.queries, [1, times])
        rows = n.emit(Unsqueeze(), rows, [2])
        kept = n.emit(Less(), columns, n.emit(Unsqueeze(), self.known, [2]))
        if causal:
            kept = n.emit(LogicalAnd(), kept, n.emit(LessEqual(), columns, rows))
        if window > 0:
            oldest = n.emit(Subtract(), rows, window)
            kept = n.emit(LogicalAnd(), kept, n.emit(Less(), oldest, columns))
        return n.emit(Unsqueeze(), kept, [1])


def _written(n: OnnxNode, cache: Port, new: Port, rows: Port) -> Port:
    """Return the rows of the cache and of what is new that `rows` names."""
    both = n.emit(Concat(2), cache, new)
    size = part_of_shape(n, cache, 3, 4)
    flat = n.emit(Reshape(special_zero=False), both, joined(n, [-1], size))
    return n.emit(Gather(), flat, rows, 0)


def _bias(n: OnnxNode, q: Port, places: _Places, times: int) -> Port:
    """Return what is added to the scores: what is given, and much less where a key is hidden."""
    causal, window = bool(n.attribute("causal", 1)), n.attribute("local_window_size", -1)
    far = np.finfo(np.float16 if q.element_type is ElementType.f16 else np.float32).min
    kept = places.seen(causal, window, times)
    bias = n.emit(Select(), kept, n.like(0, q), n.like(far, q))
    given = n.optional(10)
    if given is None:
        return bias
    spread = _spread(n, places.first(given, 3), q)
    return n.emit(Add(), bias, _grouped(n, spread, n.required("kv_num_heads")))


def _spread(n: OnnxNode, x: Port, q: Port) -> Port:
    """[B or 1, N or 1, S or 1, …] → [B, N, S, …]."""
    shape = joined(n, part_of_shape(n, q, 0, 3), [1])
    return n.emit(Broadcast(BroadcastMode.BIDIRECTIONAL), x, shape)


def _grouped(n: OnnxNode, x: Port, groups: int) -> Port:
    """[B, N, S, …] → [B, G, N / G * S, …]."""
    shape = joined(n, [0, groups, -1], part_of_shape(n, x, 3, 4))
    return n.emit(Reshape(special_zero=True), x, shape)


def _rotated(n: OnnxNode, q: Port, k: Port, places: _Places) -> list[Port]:
    """Rotate queries and keys by their positions, which may be given, where `do_rotary` is set."""
    *_, given = (n.optional(place) for place in (7, 8, 9))  # there where nothing is rotated, too
    if not n.attribute("do_rotary", 0):
        return [q, k]
    cos, sin = n.input(7), n.input(8)
    if cos.shape is None or not isinstance(cos.shape[1], int):
        raise n.unsupported("the cosines need a known shape")
    positions = places.queries if given is None else given
    angles = [n.emit(Unsqueeze(), n.emit(Gather(), t, positions, 0), [1]) for t in (cos, sin)]
    pairs = bool(n.attribute("rotary_interleaved", 0))
    return [rotate(n, t, angles[0], angles[1], 2 * cos.shape[1], pairs) for t in (q, k)]


def _split_packed(n: OnnxNode, packed: Port, heads: int, groups: int) -> list[Port]:
    """Split [B, S, (N + 2 * groups) * H]."""
    parts = split_heads(n, packed, heads + 2 * groups)
    return n.emit_all(VariadicSplit(), parts, 1, [heads, groups, groups])
