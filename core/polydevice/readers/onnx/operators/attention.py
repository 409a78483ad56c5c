"""ONNX's Attention, as one ScaledDotProductAttention where that says the same.

Shapes in brackets: B batch, S queries, T keys, N heads, G groups of heads, H head size.
"""

from __future__ import annotations

import math

from polydevice.dtype import ElementType
from polydevice.node import STEPS_REASON, Node, Port
from polydevice.ops.arithmetic import Add, Subtract
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.broadcast import Broadcast, BroadcastMode
from polydevice.ops.comparison import Equal, Less, LessEqual
from polydevice.ops.concat import Concat
from polydevice.ops.generate import Range
from polydevice.ops.logical import LogicalAnd, LogicalNot
from polydevice.ops.pad import Pad
from polydevice.ops.reduce import ReduceLogicalOr, ReduceMax
from polydevice.ops.reshape import Reshape, Unsqueeze
from polydevice.ops.select import Select
from polydevice.ops.softmax import SoftMax
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.microsoft_attention import join_heads, split_heads
from polydevice.readers.onnx.operators.reshape import joined, part_of_shape
from polydevice.readers.onnx.operators.topk import axis_size

_SHARED_PAST = 24
"""The opset that brought lengths of caches, and masks of fewer keys than there are."""


@translates("Attention", since=23)
def attention(n: OnnxNode) -> list[Port | None]:
    """One operation where nothing else of its steps is wanted than the result."""
    heads, groups = _heads(n, 0, "q_num_heads"), _heads(n, 1, "kv_num_heads")
    reason = _why_in_steps(n, heads, groups)
    if reason or heads is None or groups is None:
        made = list(n.definition())
        _note(made[0], reason)
        return made
    q, k, v = (_by_heads(n, n.input(i), heads if i == 0 else groups) for i in range(3))
    past_k, past_v = n.optional(4), n.optional(5)
    if past_k is not None and past_v is not None:
        k, v = n.emit(Concat(2), past_k, k), n.emit(Concat(2), past_v, v)
    y = _Masked(n, q, k, v, groups).result(heads)
    return [join_heads(n, y) if n.rank(n.input(0)) == 3 else y, k, v]


def _heads(n: OnnxNode, index: int, name: str) -> int | None:
    """Return how many heads an input has; None where only inference tells."""
    shape = n.input(index).shape
    if shape is not None and len(shape) == 4:
        return shape[1] if isinstance(shape[1], int) else None
    given = n.attribute(name)
    return None if given is None else int(given)


def _why_in_steps(n: OnnxNode, heads: int | None, groups: int | None) -> str:
    """Say what keeps it from being one operation; "" where nothing does."""
    q, k, v = (n.input(i) for i in range(3))
    scale = n.attribute("scale")
    stated = n.attribute("softmax_precision")
    exact = (ElementType.f16, ElementType.f32)
    least = {ElementType.f32: (1,), ElementType.f16: (1, 10)}
    mask, past = n.optional(3), [n.optional(i) is not None for i in (4, 5)]
    checks = (
        (heads is None or groups is None, "the number of its heads is not known ahead"),
        (not heads or not groups or heads % groups != 0, f"{groups} heads do not divide {heads}"),
        (n.wants(3), "its scores are an output"),
        (n.attribute("softcap", 0.0) != 0, "its scores have a cap (softcap)"),
        (q.element_type not in exact, f"it is computed in {q.element_type}"),
        (
            any(port.element_type is not q.element_type for port in (k, v)),
            "queries, keys and values differ in type",
        ),
        (
            stated is not None and stated not in least.get(q.element_type, ()),
            "its softmax has a precision of its own",
        ),
        (scale is not None and not (scale > 0 and math.isfinite(scale)), f"its scale is {scale}"),
        (past[0] != past[1], "it has past keys or past values, not both"),
        (mask is not None and not mask.desc.rank, "its mask has no known axes"),
        (
            {port.desc.rank for port in (q, k, v)} not in ({3}, {4}),
            "its inputs have no known rank",
        ),
    )
    return next((reason for holds, reason in checks if holds), "")


def _note(y: Port | None, reason: str) -> None:
    """Note at the softmax of the steps why they are steps."""
    found: set[Node] = set()
    todo = [] if y is None else [y.node]
    while todo:
        node = todo.pop()
        if isinstance(node.op, SoftMax):
            node.rt_info[STEPS_REASON] = reason
            return
        ahead = {port.node for port in node.inputs} - found
        found |= ahead
        todo += ahead


def _by_heads(n: OnnxNode, x: Port, heads: int) -> Port:
    """[B, S, N * H] → [B, N, S, H]; what has heads stays as it is."""
    return split_heads(n, x, heads) if n.rank(x) == 3 else x


class _Masked:
    """Attention of queries [B, N, S, H] to keys and values [B, G, T, H], and what hides keys.

    Attributes:
        queries, keys: S and T.
        given: the mask that is an input.
        lengths: how many keys of each item are there, [B].
        causal: whether queries see keys up to their own place only.
        windows: how many keys before and behind its own place a query sees; -1 for all.
    """

    def __init__(self, n: OnnxNode, q: Port, k: Port, v: Port, groups: int) -> None:
        self.n, self.q, self.k, self.v, self.groups = n, q, k, v, groups
        self.queries, self.keys = axis_size(n, q, 2), axis_size(n, k, 2)
        self.lengths = n.optional(6)
        self.given = n.optional(3)
        self.causal = bool(n.attribute("is_causal", 0)) and not self._sees_all()
        self.windows = tuple(n.attribute(f"{side}_window_size", -1) for side in ("left", "right"))

    def _sees_all(self) -> bool:
        """Whether a single query comes behind all keys but its own."""
        shapes = (self.q.shape, self.n.input(1).shape)
        lengths = [None if s is None else s[-2] for s in shapes]
        return self.lengths is None and lengths == [1, 1] and self.n.optional(4) is not None

    def result(self, heads: int) -> Port:
        """Emit the attention, [B, N, S, H]; queries that see nothing get zeros."""
        n, q, times = self.n, self.q, heads // self.groups
        scale = n.attribute("scale")
        if self.causal and times == 1 and self._is_triangle():
            scaled = [] if scale is None else [n.like(0, q), n.like(scale, q)]
            return n.emit(ScaledDotProductAttention(causal=True), q, self.k, self.v, *scaled)
        mask = self._mask()
        hides_all = self.given is not None or self.lengths is not None or max(self.windows) >= 0
        blind = self._blind(mask) if mask is not None and hides_all else None
        if mask is not None and times > 1:
            mask = self._for_groups(mask, times)
        optional = [] if mask is None else [mask]
        if scale is not None:
            optional = [n.like(0, q) if mask is None else mask, n.like(scale, q)]
        grouped = q if times == 1 else self._grouped(q)
        y = n.emit(ScaledDotProductAttention(), grouped, self.k, self.v, *optional)
        if times > 1:
            y = n.emit(Reshape(special_zero=False), y, self._with_sizes_of_values())
        return y if blind is None else n.emit(Select(), blind, n.like(0, y), y)

    def _is_triangle(self) -> bool:
        """Whether query i sees keys up to i, and nothing else is hidden or added."""
        return max(self.windows) < 0 and all(self.n.optional(i) is None for i in (3, 4, 6))

    def _mask(self) -> Port | None:
        """Return what hides keys, boolean, or is added to scores; None for nothing."""
        n, given = self.n, self._given()
        seen = [*self._unpadded(), *self._around_query()]
        if given is not None and given.element_type is ElementType.boolean:
            seen, given = [given, *seen], None
        kept = None
        for part in seen:
            kept = part if kept is None else n.emit(LogicalAnd(), kept, part)
        if given is None or kept is None:
            return kept if given is None else given
        hidden = n.emit(Select(), kept, n.like(0, given), n.like(-math.inf, given))
        return n.emit(Add(), given, hidden)

    def _given(self) -> Port | None:
        """Return the mask that is an input, for all keys, boolean or in the type of queries."""
        n, mask = self.n, self.given
        if mask is None:
            return None
        if mask.element_type is not ElementType.boolean:
            mask = n.convert(mask, self.q.element_type)
        length = None if mask.shape is None else mask.shape[-1]
        total = None if self.k.shape is None else self.k.shape[2]
        if n.version < _SHARED_PAST or (length == total and isinstance(length, int)):
            return mask
        missing = n.emit(Subtract(), self.keys, axis_size(n, mask, -1))
        others = [0] * (n.rank(mask) - 1)
        ends = joined(n, others, n.emit(Unsqueeze(), missing, [0]))
        far = n.like(mask.element_type is not ElementType.boolean and -math.inf, mask)
        return n.emit(Pad(), mask, [0, *others], ends, far)

    def _unpadded(self) -> list[Port]:
        """Return which keys are there, in caches of which that is said; [B, 1, 1, T]."""
        if self.lengths is None:
            return []
        places = self.n.emit(Range(ElementType.i64), 0, self.keys, 1)
        return [self.n.emit(Less(), places, self._of_items(self.lengths))]

    def _of_items(self, lengths: Port) -> Port:
        """[B] → [B, 1, 1, 1]."""
        return self.n.emit(Unsqueeze(), lengths, [1, 2, 3])

    def _around_query(self) -> list[Port]:
        """Return which keys stand where a query sees them; each [S, T] or [B, 1, S, T]."""
        n, (left, right) = self.n, self.windows
        if not self.causal and max(self.windows) < 0:
            return []
        rows = n.emit(Range(ElementType.i64), 0, self.queries, 1)
        columns = n.emit(Range(ElementType.i64), 0, self.keys, 1)
        past = n.optional(4)
        if past is not None:
            rows = n.emit(Add(), rows, axis_size(n, past, 2))
        rows = n.emit(Unsqueeze(), rows, [1])
        if past is None and self.lengths is not None:
            ahead = n.emit(Subtract(), self._of_items(self.lengths), self.queries)
            rows = n.emit(Add(), rows, ahead)
        seen = [n.emit(LessEqual(), columns, rows)] if self.causal else []
        if left >= 0:
            seen.append(n.emit(LessEqual(), n.emit(Subtract(), rows, left), columns))
        if right >= 0:
            seen.append(n.emit(LessEqual(), columns, n.emit(Add(), rows, right)))
        return seen

    def _blind(self, mask: Port) -> Port:
        """Return which queries see no key: the mask's shape with one column."""
        n = self.n
        if mask.element_type is ElementType.boolean:
            seen = n.emit(ReduceLogicalOr(keep_dims=True), mask, [-1])
            return n.emit(LogicalNot(), seen)
        most = n.emit(ReduceMax(keep_dims=True), mask, [-1])
        return n.emit(Equal(), most, n.like(-math.inf, mask))

    # Queries of a group's heads lie below each other: so they share its keys without a copy.

    def _grouped(self, x: Port) -> Port:
        """[B, N, S, …] → [B, G, N / G * S, …]."""
        shape = joined(self.n, [0, self.groups, -1], part_of_shape(self.n, x, 3, 4))
        return self.n.emit(Reshape(special_zero=True), x, shape)

    def _for_groups(self, mask: Port, times: int) -> Port:
        """Repeat a mask's rows for the heads of a group; one of every head is grouped."""
        n, rank = self.n, self.n.rank(mask)
        if _is_by_head(mask):
            whole = joined(n, part_of_shape(n, self.q, 0, 3), [1])
            return self._grouped(n.emit(Broadcast(BroadcastMode.BIDIRECTIONAL), mask, whole))
        if rank < 2 or (mask.shape is not None and mask.shape[-2] == 1):
            return mask
        rows = joined(n, [times], part_of_shape(n, self.q, 2, 3), [1])
        apart = n.emit(Unsqueeze(), mask, [rank - 2])
        apart = n.emit(Broadcast(BroadcastMode.BIDIRECTIONAL), apart, rows)
        shape = joined(n, [0] * (rank - 2), [-1], part_of_shape(n, mask, rank - 1, rank))
        return n.emit(Reshape(special_zero=True), apart, shape)

    def _with_sizes_of_values(self) -> Port:
        """Return the shape of the result, [4]."""
        n = self.n
        return joined(n, part_of_shape(n, self.q, 0, 3), part_of_shape(n, self.v, 3, 4))


def _is_by_head(mask: Port) -> bool:
    """Whether heads have masks of their own, or may have."""
    return mask.shape is not None and len(mask.shape) > 2 and mask.shape[-3] != 1
