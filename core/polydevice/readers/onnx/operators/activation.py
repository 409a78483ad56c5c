"""Activation functions, softmax and its relatives."""

from __future__ import annotations

from polydevice.node import Port
from polydevice.ops.activation import (
    Elu,
    Gelu,
    GeluApproximation,
    HardSigmoid,
    PRelu,
    Selu,
    Sigmoid,
    Swish,
)
from polydevice.ops.arithmetic import Add, Divide, Maximum, Minimum, Multiply, Subtract
from polydevice.ops.comparison import Greater, Less
from polydevice.ops.reshape import Reshape
from polydevice.ops.select import Select
from polydevice.ops.softmax import LogSoftmax, SoftMax
from polydevice.ops.split import Split
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.reshape import (
    flattened,
    reshaped_like,
    vector_of_scalar,
)


@translates("LeakyRelu")
def leaky_relu(n: OnnxNode) -> Port:
    """PReLU with one slope."""
    x = n.input(0)
    return n.emit(PRelu(), x, n.like(n.attribute("alpha", 0.01), x))


@translates("PRelu")
def prelu(n: OnnxNode) -> Port:
    """The slope is broadcast as NumPy does it; before opset 7 it had one element per channel."""
    x, slope = n.input(0), n.input(1)
    if x.element_type.is_integer:
        product = n.emit(Multiply(), x, slope)
        return n.emit(Select(), n.emit(Less(), x, n.like(0, x)), product, x)
    per_channel = n.version < 7  # as the core takes it
    if not per_channel and slope.desc.rank == 1 and slope.shape != (1,) and n.rank(x) > 1:
        # The core takes a single axis for the channels; leading ones say which axis is meant.
        pattern = [1] * (n.rank(x) - 1) + [-1]
        slope = n.emit(Reshape(special_zero=False), slope, pattern)
    return n.emit(PRelu(), x, slope)


@translates("Elu")
def elu(n: OnnxNode) -> Port:
    """alpha * (exp(x) - 1) below zero."""
    return n.emit(Elu(float(n.attribute("alpha", 1.0))), n.input(0))


@translates("Celu")
def celu(n: OnnxNode) -> Port:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)) = alpha * Elu(x / alpha) below zero."""
    x = n.input(0)
    alpha = float(n.attribute("alpha", 1.0))
    if alpha == 1.0:
        return n.emit(Elu(1.0), x)
    factor = n.like(alpha, x)
    below = n.emit(Multiply(), n.emit(Elu(1.0), n.emit(Divide(), x, factor)), factor)
    zero = n.like(0, x)
    return n.emit(Add(), n.emit(Maximum(), x, zero), n.emit(Minimum(), below, zero))


@translates("Selu")
def selu(n: OnnxNode) -> Port:
    """gamma * Elu(x, alpha)."""
    x = n.input(0)
    alpha = n.attribute("alpha", 1.6732632423543772)
    gamma = n.attribute("gamma", 1.0507009873554805)
    return n.emit(Selu(), x, n.like(alpha, x), n.like(gamma, x))


@translates("HardSigmoid")
def hard_sigmoid(n: OnnxNode) -> Port:
    """clamp(alpha * x + beta, 0, 1)."""
    x = n.input(0)
    alpha, beta = n.attribute("alpha", 0.2), n.attribute("beta", 0.5)
    return n.emit(HardSigmoid(), x, n.like(alpha, x), n.like(beta, x))


@translates("Gelu")
@translates("Gelu", domain="com.microsoft")
def gelu(n: OnnxNode) -> Port:
    """Exact, or approximated by tanh."""
    tanh = n.attribute("approximate", "none") == "tanh"
    return n.emit(Gelu(GeluApproximation.TANH if tanh else GeluApproximation.ERF), n.input(0))


@translates("QuickGelu", domain="com.microsoft")
def quick_gelu(n: OnnxNode) -> Port:
    """x * sigmoid(alpha * x)."""
    return _swish(n, n.attribute("alpha", 1.702))


@translates("Swish")
def swish(n: OnnxNode) -> Port:
    """x * sigmoid(alpha * x)."""
    return _swish(n, n.attribute("alpha", 1.0))


def _swish(n: OnnxNode, alpha: float) -> Port:
    x = n.input(0)
    if alpha == 1.0:
        return n.emit(Swish(), x)
    return n.emit(Multiply(), x, n.emit(Sigmoid(), n.emit(Multiply(), x, n.like(alpha, x))))


@translates("ThresholdedRelu")
def thresholded_relu(n: OnnxNode) -> Port:
    """x above alpha, else 0."""
    x = n.input(0)
    above = n.emit(Greater(), x, n.like(n.attribute("alpha", 1.0), x))
    return n.emit(Select(), above, x, n.like(0, x))


@translates("Shrink")
def shrink(n: OnnxNode) -> Port:
    """x + bias below -lambd, x - bias above lambd, else 0."""
    x = n.input(0)
    bias, limit = n.attribute("bias", 0.0), n.attribute("lambd", 0.5)
    zero = n.like(0, x)
    below = n.emit(Less(), x, n.like(-limit, x))
    above = n.emit(Greater(), x, n.like(limit, x))
    high = n.emit(Select(), above, n.emit(Subtract(), x, n.like(bias, x)), zero)
    return n.emit(Select(), below, n.emit(Add(), x, n.like(bias, x)), high)


@translates("Softmax", "LogSoftmax")
def softmax(n: OnnxNode) -> Port:
    """Before opset 13 over all axes from `axis` on, since then along `axis` alone.

    That of a scalar is that of one element.
    """
    return softmax_of(n, n.input(0), n.version, n.attribute("axis", 1 if n.version < 13 else -1))


def softmax_of(n: OnnxNode, x: Port, version: int, axis: int) -> Port:
    """Emit what the operator of this version computes of x; n tells whether its logarithm."""
    kind = LogSoftmax if n.op_type == "LogSoftmax" else SoftMax
    if x.desc.rank == 0:
        return reshaped_like(n, n.emit(kind(0), vector_of_scalar(n, x)), x)
    if version >= 13:
        return n.emit(kind(axis), x)
    rank = n.rank(x)
    axis = axis + rank if axis < 0 else axis
    if axis == rank - 1:
        return n.emit(kind(axis), x)
    return reshaped_like(n, n.emit(kind(1), flattened(n, x, axis)), x)


@translates("FastGelu", domain="com.microsoft")
def fast_gelu(n: OnnxNode) -> Port:
    """Gelu by tanh, of x + bias."""
    x = n.input(0)
    bias = n.optional(1)
    x = x if bias is None else n.emit(Add(), x, bias)
    return n.emit(Gelu(GeluApproximation.TANH), x)


@translates("BiasGelu", domain="com.microsoft")
def bias_gelu(n: OnnxNode) -> Port:
    """Exact Gelu of x + bias."""
    return n.emit(Gelu(), n.emit(Add(), n.input(0), n.input(1)))


@translates("BiasSplitGelu", domain="com.microsoft")
def bias_split_gelu(n: OnnxNode) -> Port:
    """Half of x + bias times Gelu of the other half."""
    halves = n.emit_all(Split(2), n.emit(Add(), n.input(0), n.input(1)), -1)
    return n.emit(Multiply(), halves[0], n.emit(Gelu(), halves[1]))
