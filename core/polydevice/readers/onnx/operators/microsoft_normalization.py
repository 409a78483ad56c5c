"""ONNX Runtime's fused normalisations: Skip…, Simplified… and EmbedLayerNormalization."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Divide, Multiply
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.convert import Convert
from polydevice.ops.gather import Gather
from polydevice.ops.generate import Range
from polydevice.ops.math import Sqrt
from polydevice.ops.reduce import ReduceMean, ReduceSum
from polydevice.ops.reshape import Unsqueeze
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.normalization import layer_norm
from polydevice.readers.onnx.operators.topk import axis_size

_MS = "com.microsoft"


def rms_norm(n: OnnxNode, x: Port, scale: Port, axis: int = -1) -> Port:
    """x / sqrt(mean(x²) + epsilon) * scale over the axes from `axis` on, in f32 at least."""
    rank = n.rank(x)
    axes = list(range(axis + rank if axis < 0 else axis, rank))
    kind = x.element_type
    wide = x
    if kind in (ElementType.f16, ElementType.bf16):
        wide = n.emit(Convert(ElementType.f32), x)
    mean = n.emit(ReduceMean(keep_dims=True), n.emit(Multiply(), wide, wide), axes)
    epsilon = n.like(n.attribute("epsilon", 1e-5), wide)
    y = n.emit(Divide(), wide, n.emit(Sqrt(), n.emit(Add(), mean, epsilon)))
    y = y if wide is x else n.emit(Convert(kind), y)
    return n.emit(Multiply(), y, scale)


def _skipped(n: OnnxNode, bias: Port | None) -> Port:
    """Return input + skip + bias."""
    x = n.emit(Add(), n.input(0), n.input(1))
    return x if bias is None else n.emit(Add(), x, bias)


@translates("SkipLayerNormalization", domain=_MS)
def skip_layer_normalization(n: OnnxNode) -> list[Port | None]:
    """Layer normalisation of input + skip + bias; the sum is the fourth output."""
    x = _skipped(n, n.optional(4))
    return [layer_norm(n, x, n.input(2), n.optional(3)), None, None, x]


@translates("SkipSimplifiedLayerNormalization", domain=_MS)
def skip_simplified_layer_normalization(n: OnnxNode) -> list[Port | None]:
    """The same without a mean; the sum is the fourth output."""
    x = _skipped(n, n.optional(3))
    return [rms_norm(n, x, n.input(2)), None, None, x]


@translates("SimplifiedLayerNormalization")
@translates("SimplifiedLayerNormalization", domain=_MS)
def simplified_layer_normalization(n: OnnxNode) -> Port:
    """x over the root of its mean square."""
    return rms_norm(n, n.input(0), n.input(1), n.attribute("axis", -1))


@translates("EmbedLayerNormalization", domain=_MS)
def embed_layer_normalization(n: OnnxNode) -> list[Port | None]:
    """Sum of word, position and segment embeddings, normalised; numbers of unmasked words."""
    ids, segments = n.input(0), n.optional(1)
    words, places, kinds = n.input(2), n.input(3), n.optional(4)
    mask, positions = n.optional(7), n.optional(8)
    if positions is None:
        steps = n.emit(Range(ElementType.i64), 0, axis_size(n, ids, 1), 1)
        positions = n.emit(Unsqueeze(), steps, [0])
    total = n.emit(Add(), n.emit(Gather(), words, ids, 0), n.emit(Gather(), places, positions, 0))
    if segments is not None and kinds is not None:
        total = n.emit(Add(), total, n.emit(Gather(), kinds, segments, 0))
    y = layer_norm(n, total, n.input(5), n.input(6))
    counts = None
    if n.wants(1) and mask is not None:
        counts = n.emit(ReduceSum(keep_dims=False), n.emit(Convert(ElementType.i32), mask), [1])
    elif n.wants(1):  # ONNX Runtime counts none
        items = n.emit(Unsqueeze(), axis_size(n, ids, 0), [0])
        counts = n.emit(Broadcast(), np.zeros((), np.int32), items)
    return [y, counts, total]
