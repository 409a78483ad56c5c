"""Normalisations."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Divide, Multiply, SquaredDifference
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.comparison import Equal
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.math import Sqrt
from polydevice.ops.normalization import (
    LRN,
    MVN,
    BatchNormInference,
    EpsMode,
    GroupNormalization,
)
from polydevice.ops.reduce import ReduceL1, ReduceL2, ReduceMean
from polydevice.ops.reshape import Reshape, Unsqueeze
from polydevice.ops.select import Select
from polydevice.readers.onnx.catalog import Translated, translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.convolution import per_channel
from polydevice.readers.onnx.operators.topk import axis_size


@translates("BatchNormalization")
def batch_normalization(n: OnnxNode) -> Translated:
    """By stored statistics, or in training mode by those of the batch."""
    x = n.input(0)
    scale, bias, mean, variance = (_as(n, n.input(i), x.element_type) for i in range(1, 5))
    if n.version < 9 and n.attribute("spatial", 1) == 0:
        raise n.unsupported("spatial=0 (statistics per element) is not supported")
    op = BatchNormInference(float(n.attribute("epsilon", 1e-5)))
    if not n.attribute("training_mode", 0):
        return n.emit(op, x, scale, bias, mean, variance)
    axes = [0, *range(2, n.rank(x))]
    momentum = n.attribute("momentum", 0.9)
    now = n.emit(ReduceMean(keep_dims=True), x, axes)
    spread = n.emit(ReduceMean(keep_dims=False), n.emit(SquaredDifference(), x, now), axes)
    centre = n.emit(ReduceMean(keep_dims=False), x, axes)
    y = n.emit(op, x, scale, bias, centre, spread)
    return [
        y,
        _running(n, n.input(3), centre, momentum),
        _running(n, n.input(4), spread, momentum),
    ]


def _as(n: OnnxNode, port: Port, element_type: ElementType) -> Port:
    return port if port.element_type is element_type else n.emit(Convert(element_type), port)


def _running(n: OnnxNode, old: Port, new: Port, momentum: float) -> Port:
    """old * momentum + new * (1 - momentum)."""
    new = _as(n, new, old.element_type)
    kept = n.emit(Multiply(), old, n.like(momentum, old))
    return n.emit(Add(), kept, n.emit(Multiply(), new, n.like(1 - momentum, old)))


@translates("InstanceNormalization")
def instance_normalization(n: OnnxNode) -> Port:
    """Mean and variance of each channel of each item."""
    x, scale, bias = n.input(0), n.input(1), n.input(2)
    rank = n.rank(x)
    op = MVN(True, float(n.attribute("epsilon", 1e-5)), EpsMode.INSIDE_SQRT)
    y = n.emit(op, x, list(range(2, rank)))
    scaled = n.emit(Multiply(), y, per_channel(n, scale, rank))
    return n.emit(Add(), scaled, per_channel(n, bias, rank))


@translates("GroupNormalization", since=18)
def group_normalization_18(n: OnnxNode) -> Port:
    """The first version: scale and bias per group."""
    x, groups = n.input(0), n.required("num_groups")
    each = n.emit(Divide(), axis_size(n, x, 1), groups)
    matrix = n.emit(Concat(0), n.value([groups]), n.emit(Unsqueeze(), each, [0]))
    scale, bias = (_repeated(n, n.input(i), matrix) for i in (1, 2))
    return n.emit(GroupNormalization(groups, float(n.attribute("epsilon", 1e-5))), x, scale, bias)


def _repeated(n: OnnxNode, vector: Port, matrix: Port) -> Port:
    """Repeat each element of [G] so that there is one for each item of a [G, n] matrix."""
    rows = n.emit(Broadcast(), n.emit(Unsqueeze(), vector, [1]), matrix)
    return n.emit(Reshape(special_zero=False), rows, [-1])


@translates("GroupNormalization", since=21)
def group_normalization(n: OnnxNode) -> Port:
    """Mean and variance of each group of channels; scale and bias per channel."""
    x, scale, bias = n.input(0), n.input(1), n.input(2)
    op = GroupNormalization(n.required("num_groups"), float(n.attribute("epsilon", 1e-5)))
    return n.emit(op, x, scale, bias)


@translates("LayerNormalization")
def layer_normalization(n: OnnxNode) -> Translated:
    """Mean and variance over the axes from `axis` on, computed in float32.

    ONNX has it since opset 17; ONNX Runtime writes it into optimised models of any opset.
    """
    x = n.input(0)
    if x.desc.rank is None or n.attribute("stash_type", 1) != 1:
        return n.definition()
    axis = n.attribute("axis", -1)
    y = layer_norm(n, x, n.input(1), n.optional(2), axis)
    return [y, *_statistics(n, x, axis)] if n.wants(1) or n.wants(2) else y


def _statistics(n: OnnxNode, x: Port, axis: int) -> tuple[Port, Port]:
    """Emit mean and reciprocal deviation over the axes from `axis` on, in f32."""
    rank = n.rank(x)
    axes = list(range(axis + rank if axis < 0 else axis, rank))
    if x.element_type is not ElementType.f32:
        x = n.emit(Convert(ElementType.f32), x)
    mean = n.emit(ReduceMean(keep_dims=True), x, axes)
    squares = n.emit(SquaredDifference(), x, mean)
    variance = n.emit(ReduceMean(keep_dims=True), squares, axes)
    epsilon = n.value(np.float32(n.attribute("epsilon", 1e-5)))
    deviation = n.emit(Sqrt(), n.emit(Add(), variance, epsilon))
    return mean, n.emit(Divide(), n.value(np.float32(1)), deviation)


def layer_norm(n: OnnxNode, x: Port, scale: Port, bias: Port | None, axis: int = -1) -> Port:
    """Emit a layer normalisation over the axes from `axis` on."""
    rank = n.rank(x)
    axes = list(range(axis + rank if axis < 0 else axis, rank))
    op = MVN(True, float(n.attribute("epsilon", 1e-5)), EpsMode.INSIDE_SQRT)
    y = n.emit(Multiply(), n.emit(op, x, axes), scale)
    return y if bias is None else n.emit(Add(), y, bias)


@translates("MeanVarianceNormalization")
def mean_variance_normalization(n: OnnxNode) -> Port:
    """(x - mean) / (deviation + 1e-9)."""
    axes = n.attribute("axes") or [0, 2, 3]
    return n.emit(MVN(True, 1e-9, EpsMode.OUTSIDE_SQRT), n.input(0), axes)


@translates("LRN")
def lrn(n: OnnxNode) -> Port:
    """Normalise by the squares of neighbouring channels."""
    op = LRN(
        float(n.attribute("alpha", 1e-4)),
        float(n.attribute("beta", 0.75)),
        int(n.required("size")),
        float(n.attribute("bias", 1.0)),
    )
    return n.emit(op, n.input(0), [1])


@translates("LpNormalization")
def lp_normalization(n: OnnxNode) -> Port:
    """x over its p-norm along an axis; 0 where the norm is 0."""
    x, p = n.input(0), n.attribute("p", 2)
    if p not in (1, 2):
        raise n.unsupported(f"p {p} is not 1 or 2")
    kind = ReduceL1 if p == 1 else ReduceL2
    norm = n.emit(kind(keep_dims=True), x, [n.attribute("axis", -1)])
    zero = n.like(0, x)
    is_zero = n.emit(Equal(), norm, zero)
    safe = n.emit(Select(), is_zero, n.like(1, x), norm)
    return n.emit(Select(), is_zero, zero, n.emit(Divide(), x, safe))
