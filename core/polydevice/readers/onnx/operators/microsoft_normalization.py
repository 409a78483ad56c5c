"""ONNX Runtime's fused normalisations: Skip…, Simplified… and EmbedLayerNormalization."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from polydevice.dtype import ElementType
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Divide, Multiply
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.convert import Convert
from polydevice.ops.gather import Gather
from polydevice.ops.generate import Range
from polydevice.ops.math import Sqrt
from polydevice.ops.quantize_linear import DequantizeLinear
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
    return _embedded(n, lambda _, rows: rows, n.optional(8))


@translates("QEmbedLayerNormalization", domain=_MS)
def q_embed_layer_normalization(n: OnnxNode) -> list[Port | None]:
    """The same of tables of 8 bits; only what is looked up is dequantised."""

    def dequantised(index: int, rows: Port) -> Port:
        return n.emit(DequantizeLinear(), rows, n.input(index + 6), n.input(index + 11))

    return _embedded(n, dequantised, None)


def _embedded(
    n: OnnxNode, values: Callable[[int, Port], Port], positions: Port | None
) -> list[Port | None]:
    """Emit the sum of what is looked up, normalised.

    Args:
        n: the node.
        values: returns what rows of the input of this number stand for.
        positions: of words; None where they count up from 0.
    """
    ids, segments, mask = n.input(0), n.optional(1), n.optional(7)
    if positions is None:
        steps = n.emit(Range(ElementType.i64), 0, axis_size(n, ids, 1), 1)
        positions = n.emit(Unsqueeze(), steps, [0])

    def taken(index: int, rows: Port) -> Port:
        return values(index, n.emit(Gather(), n.input(index), rows, 0))

    total = n.emit(Add(), taken(2, ids), taken(3, positions))
    if segments is not None and n.optional(4) is not None:
        total = n.emit(Add(), total, taken(4, segments))
    y = layer_norm(n, total, values(5, n.input(5)), values(6, n.input(6)))
    counts = None
    if n.wants(1) and mask is not None:
        counts = n.emit(ReduceSum(keep_dims=False), n.emit(Convert(ElementType.i32), mask), [1])
    elif n.wants(1):  # ONNX Runtime counts none
        items = n.emit(Unsqueeze(), axis_size(n, ids, 0), [0])
        counts = n.emit(Broadcast(), np.zeros((), np.int32), items)
    return [y, counts, total]
