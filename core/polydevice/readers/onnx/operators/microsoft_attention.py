"""ONNX Runtime's fused attention: Attention, MultiHeadAttention, GroupQueryAttention, Rotary….

All become ScaledDotProductAttention behind what makes its queries, keys, values and mask.
Shapes in brackets: B batch, S queries, T keys, N heads, H head size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dtype import ElementType
from polydevice.errors import ModelFormatError
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Divide, Multiply, Subtract
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.comparison import Less, LessEqual
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.gather import Gather
from polydevice.ops.generate import Range
from polydevice.ops.logical import LogicalAnd
from polydevice.ops.math import Sqrt, Tanh
from polydevice.ops.matmul import MatMul
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.select import Select
from polydevice.ops.slice import Slice
from polydevice.ops.softmax import SoftMax
from polydevice.ops.split import Split, VariadicSplit
from polydevice.ops.transpose import Transpose
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.reshape import joined
from polydevice.readers.onnx.operators.topk import axis_size

_MS = "com.microsoft"


def split_heads(n: OnnxNode, x: Port, heads: int) -> Port:
    """[B, S, N * H] → [B, N, S, H]."""
    parted = n.emit(Reshape(special_zero=True), x, [0, 0, heads, -1])
    return n.emit(Transpose(), parted, [0, 2, 1, 3])


def join_heads(n: OnnxNode, x: Port) -> Port:
    """[B, N, S, H] → [B, S, N * H]."""
    return n.emit(Reshape(special_zero=True), n.emit(Transpose(), x, [0, 2, 1, 3]), [0, 0, -1])


def attend(
    n: OnnxNode, q: Port, k: Port, v: Port, bias: Port | None, sink: Port | None = None
) -> Port:
    """softmax(scale * q·kᵀ + bias)·v for [B, N, S or T, H]; `scale` is an attribute.

    A `sink` [B, N, S, 1] holds the scores of one more key, whose value is 0.
    """
    if n.attribute("softcap", 0.0) or sink is not None:
        return _attend_in_steps(n, q, k, v, bias, sink)
    scale = n.attribute("scale", 0.0)
    optional = [] if bias is None else [bias]
    if scale:
        optional = [n.like(0, q) if bias is None else bias, n.like(scale, q)]
    return n.emit(ScaledDotProductAttention(), q, k, v, *optional)


def _attend_in_steps(
    n: OnnxNode, q: Port, k: Port, v: Port, bias: Port | None, sink: Port | None
) -> Port:
    """Attention with scores below `softcap`, or with a sink, which the operation cannot say."""
    scale = n.attribute("scale", 0.0)
    if scale:
        q = n.emit(Multiply(), q, n.like(scale, q))
    else:
        size = n.emit(Convert(q.element_type), axis_size(n, q, -1))
        q = n.emit(Divide(), q, n.emit(Sqrt(), size))
    scores = n.emit(MatMul(transpose_b=True), q, k)
    if n.attribute("softcap", 0.0):
        cap = n.like(n.attribute("softcap"), scores)
        scores = n.emit(Multiply(), n.emit(Tanh(), n.emit(Divide(), scores, cap)), cap)
    if bias is not None:
        scores = n.emit(Add(), scores, bias)
    if sink is not None:
        scores = n.emit(Concat(3), sink, scores)
    weights = n.emit(SoftMax(-1), scores)
    if sink is not None:
        weights = n.emit(Slice(), weights, [1], [2**31 - 1], [1], [3])
    return n.emit(MatMul(), weights, v)


def mask_bias(n: OnnxNode, kept: Port, kind: ElementType) -> Port:
    """Return 0 where the boolean mask holds and a large negative number elsewhere."""
    filler = float(n.attribute("mask_filter_value", -10000.0))
    zero, far = n.value(np.asarray(0.0), kind), n.value(np.asarray(filler), kind)
    return n.emit(Select(), kept, zero, far)


def padding_mask(n: OnnxNode, mask: Port, batch: Port, keys: Port) -> Port:
    """Return what a mask of any form keeps, as boolean [B, 1, S or 1, T].

    [B] holds numbers of keys, [2 * B] where keys end and, behind that, where they begin; [B, T] and
    [B, S, T] are 0 for keys that are left out.
    """
    if mask.desc.rank == 1:
        places = n.emit(Range(ElementType.i64), 0, keys, 1)
        known = n.emit(Convert(ElementType.i64), mask)
        none = n.emit(Broadcast(), 0, n.emit(Unsqueeze(), batch, [0]))
        rows = n.emit(
            Reshape(special_zero=False),
            n.emit(Concat(0), known, none),
            joined(n, [-1], n.emit(Unsqueeze(), batch, [0]), [1]),
        )
        ends, begins = (n.emit(Gather(), rows, row, 0) for row in (0, 1))
        mask = n.emit(
            LogicalAnd(), n.emit(Less(), places, ends), n.emit(LessEqual(), begins, places)
        )
    else:
        mask = n.emit(Convert(ElementType.boolean), mask)
    axes = {2: [1, 2], 3: [1]}.get(n.rank(mask))
    if axes is None:
        raise n.unsupported(f"a mask of rank {mask.desc.rank}")
    return n.emit(Unsqueeze(), mask, axes)


def causal_mask(n: OnnxNode, queries: Port, keys: Port, past: Port | None) -> Port:
    """Return whether query i sees key j: j <= i + past keys; boolean [S, T].

    The last query sees all keys, as ONNX Runtime has it; there are more of them where a single
    query comes with all keys so far.
    """
    count = n.emit(Subtract(), queries, n.value(np.int64(1)))
    first, end = (0, count) if past is None else (past, n.emit(Add(), past, count))
    rows = n.emit(Range(ElementType.i64), first, end, 1)
    rows = n.emit(Concat(0), rows, n.emit(Unsqueeze(), keys, [0]))
    columns = n.emit(Range(ElementType.i64), 0, keys, 1)
    return n.emit(LessEqual(), columns, n.emit(Unsqueeze(), rows, [1]))


def _total_bias(
    n: OnnxNode, q: Port, k: Port, mask: Port | None, extra: Port | None, past: Port | None
) -> Port | None:
    """Combine padding mask, causal mask and given bias; `past` [B, N, past keys, H]."""
    keys = axis_size(n, k, 2)
    parts: list[Port] = [] if extra is None else [extra]
    if mask is not None:
        kept = padding_mask(n, mask, axis_size(n, q, 0), keys)
        parts.append(mask_bias(n, kept, q.element_type))
    if n.attribute("unidirectional", 0):
        before = None if past is None else axis_size(n, past, 2)
        kept = causal_mask(n, axis_size(n, q, 2), keys, before)
        limits = np.finfo(np.float16 if q.element_type is ElementType.f16 else np.float32)
        far = n.like(limits.min, q)
        parts.append(n.emit(Select(), kept, n.like(0, q), far))
    total = None
    for part in parts:
        total = part if total is None else n.emit(Add(), total, part)
    return total


@translates("Attention", domain=_MS)
def attention(n: OnnxNode) -> list[Port]:
    """Projections of one input to queries, keys and values, then attention."""
    x, weights, bias = n.input(0), n.input(1), n.optional(2)
    mask, past, extra = n.optional(3), n.optional(4), n.optional(5)
    if n.attribute("do_rotary", 0) or n.optional(6) is not None:
        raise n.unsupported("rotary embedding and shared past buffers are not supported")
    return attend_to_itself(n, x, weights, bias, mask, past, extra)


def attend_to_itself(
    n: OnnxNode,
    x: Port,
    weights: Port,
    bias: Port | None,
    mask: Port | None,
    past: Port | None,
    extra: Port | None,
) -> list[Port]:
    """Emit what Attention computes: projections [I, 3 * N * H] of x, then attention."""
    heads = n.required("num_heads")
    projected = n.emit(MatMul(), x, weights)
    if bias is not None:
        projected = n.emit(Add(), projected, bias)
    sizes = n.attribute("qkv_hidden_sizes")
    if sizes:
        if len(sizes) != 3:
            raise ModelFormatError(f"qkv_hidden_sizes has {len(sizes)} numbers; legal: 3")
        if (past is not None or n.wants(1)) and sizes[1] != sizes[2]:
            raise n.unsupported(
                f"past or present keys and values of different sizes, {sizes[1:]} in "
                "qkv_hidden_sizes; they are halves of one tensor. Leave them out"
            )
        parts = n.emit_all(VariadicSplit(), projected, 2, sizes)
    else:
        parts = n.emit_all(Split(3), projected, 2)
    q, k, v = (split_heads(n, part, heads) for part in parts)
    present = past_k = None
    if past is not None:
        past_k, past_v = (n.emit(Squeeze(), half, [0]) for half in n.emit_all(Split(2), past, 0))
        k, v = n.emit(Concat(2), past_k, k), n.emit(Concat(2), past_v, v)
    if n.wants(1):
        present = n.emit(Concat(0), *(n.emit(Unsqueeze(), part, [0]) for part in (k, v)))
    y = join_heads(n, attend(n, q, k, v, _total_bias(n, q, k, mask, extra, past_k)))
    return [y] if present is None else [y, present]


@translates("MultiHeadAttention", domain=_MS)
def multi_head_attention(n: OnnxNode) -> list[Port | None]:
    """Attention of projected queries, keys and values, which may be packed into one input."""
    heads = n.required("num_heads")
    q, k, v = _unpacked(n, heads)
    past_k, past_v = n.optional(6), n.optional(7)
    if past_k is not None and past_v is not None:
        k, v = n.emit(Concat(2), past_k, k), n.emit(Concat(2), past_v, v)
    mask = n.optional(4)
    if mask is not None and mask.desc.rank == 1:  # [3 * B + 2] begins with the numbers of keys
        mask = n.emit(Slice(), mask, [0], n.emit(Unsqueeze(), axis_size(n, q, 0), [0]), [1], [0])
    bias = _total_bias(n, q, k, mask, n.optional(5), past_k)
    return [join_heads(n, attend(n, q, k, v, bias)), k, v]


def _unpacked(n: OnnxNode, heads: int) -> tuple[Port, Port, Port]:
    """Return queries, keys and values as [B, N, S or T, H], biases added."""
    query, key, value, bias = n.input(0), n.optional(1), n.optional(2), n.optional(3)
    if query.desc.rank == 5:  # [B, S, N, 3, H]
        packed = [n.emit(Squeeze(), part, [3]) for part in n.emit_all(Split(3), query, 3)]
        q, k, v = (n.emit(Transpose(), part, [0, 2, 1, 3]) for part in packed)
        return q, k, v
    if key is None:
        raise n.unsupported("keys are missing")
    if key.desc.rank == 5:  # [B, T, N, 2, H]
        packed = [n.emit(Squeeze(), part, [3]) for part in n.emit_all(Split(2), key, 3)]
        k, v = (n.emit(Transpose(), part, [0, 2, 1, 3]) for part in packed)
        return split_heads(n, query, heads), k, v
    if value is None:
        raise n.unsupported("values are missing")
    parts = [query, key, value]
    if bias is not None:
        sizes = [axis_size(n, part, -1) if part.desc.rank == 3 else None for part in parts]
        if None in sizes:
            raise n.unsupported("a bias needs keys and values of rank 3")
        lengths = joined(n, *(n.emit(Unsqueeze(), size, [0]) for size in sizes if size))
        biases = n.emit_all(VariadicSplit(), bias, 0, lengths)
        parts = [n.emit(Add(), part, add) for part, add in zip(parts, biases)]
    q, k, v = (part if part.desc.rank == 4 else split_heads(n, part, heads) for part in parts)
    return q, k, v


def rotate(n: OnnxNode, x: Port, cos: Port, sin: Port, size: int | None, interleaved: bool) -> Port:
    """Rotate the first `size` elements of each head of [B, N, S, H]; cos, sin [B, 1, S, size/2].

    All of them without a size.
    """
    rest = None
    if size is not None and x.shape is not None and x.shape[-1] != size:
        x, rest = n.emit_all(VariadicSplit(), x, 3, [size, -1])
    if interleaved:
        first, second = (n.emit(Slice(), x, [start], [2**31 - 1], [2], [3]) for start in (0, 1))
    else:
        first, second = n.emit_all(Split(2), x, 3)
    turned = [
        n.emit(Subtract(), n.emit(Multiply(), first, cos), n.emit(Multiply(), second, sin)),
        n.emit(Add(), n.emit(Multiply(), first, sin), n.emit(Multiply(), second, cos)),
    ]
    if interleaved:
        pairs = n.emit(Concat(4), *(n.emit(Unsqueeze(), part, [4]) for part in turned))
        y = n.emit(Reshape(special_zero=True), pairs, [0, 0, 0, -1 if size is None else size])
    else:
        y = n.emit(Concat(3), *turned)
    return y if rest is None else n.emit(Concat(3), y, rest)


@translates("RotaryEmbedding", domain=_MS)
def microsoft_rotary_embedding(n: OnnxNode) -> Port:
    """Rotate pairs of elements by angles that depend on the position."""
    x, positions, cos, sin = (n.input(i) for i in range(4))
    if positions.desc.rank == 1:
        # One offset for all items: positions are offset, offset + 1, …
        steps = n.emit(Range(ElementType.i64), 0, axis_size(n, x, 2 if n.rank(x) > 3 else 1), 1)
        positions = n.emit(Unsqueeze(), n.emit(Add(), steps, positions), [0])
    heads, size = n.attribute("num_heads", 0), n.attribute("rotary_embedding_dim", 0)
    if not size:
        if cos.shape is None or not isinstance(cos.shape[-1], int):
            raise n.unsupported("the cosines need a known shape")
        size = 2 * cos.shape[-1]
    if n.rank(x) == 3 and not heads:
        if x.shape is None or not isinstance(x.shape[2], int):
            raise n.unsupported("num_heads is needed where the hidden size is not known")
        heads = x.shape[2] // size
    return _embedded(n, x, (cos, sin), positions, heads, size)


@translates("RotaryEmbedding", since=23)
def rotary_embedding(n: OnnxNode) -> Port:
    """The same of whole heads or their first elements; without positions of an angle for each."""
    heads, size = n.attribute("num_heads", 0), n.attribute("rotary_embedding_dim", 0)
    if n.rank(n.input(0)) == 3 and not heads:
        raise n.unsupported("num_heads is needed where the input has rank 3")
    angles = n.input(1), n.input(2)
    return _embedded(n, n.input(0), angles, n.optional(3), heads, size or None)


def _embedded(
    n: OnnxNode,
    x: Port,
    tables: Sequence[Port],
    positions: Port | None,
    heads: int,
    size: int | None,
) -> Port:
    """Rotate heads of x, [B, N, S, H] or [B, S, N * H], by cosines and sines."""
    flat = n.rank(x) == 3
    if flat:
        x = split_heads(n, x, heads)
    if positions is not None:
        tables = [n.emit(Gather(), table, positions, 0) for table in tables]
    angles = [n.emit(Unsqueeze(), table, [1]) for table in tables]
    y = rotate(n, x, angles[0], angles[1], size, bool(n.attribute("interleaved", 0)))
    return join_heads(n, y) if flat else y
