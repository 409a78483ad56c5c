"""Linear quantisation, and operators on quantised values."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice.node import Port
from polydevice.ops.activation import Clamp, PRelu, Sigmoid
from polydevice.ops.arithmetic import Add, Divide, Maximum, Minimum, Multiply, Subtract
from polydevice.ops.comparison import Equal
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.math import Round
from polydevice.ops.matmul import MatMul
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.ops.reduce import ReduceMax, ReduceMean, ReduceMin
from polydevice.ops.select import Select
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.activation import softmax_of
from polydevice.readers.onnx.operators.convolution import (
    convolve,
    in_channels_first,
    shifted,
)
from polydevice.readers.onnx.operators.pooling import average
from polydevice.readers.onnx.protos.element_types import element_type_of


def _destination(n: OnnxNode) -> ElementType:
    code = n.attribute("output_dtype", 0)
    return element_type_of(code) if code else ElementType.dynamic


@translates("QuantizeLinear")
@translates("QuantizeLinear", domain="com.microsoft")
def quantize_linear(n: OnnxNode) -> Port:
    """round(x / scale) + zero point."""
    op = QuantizeLinear(
        n.attribute("axis", 1),
        n.attribute("block_size", 0),
        _destination(n),
        bool(n.attribute("saturate", 1)),
    )
    return n.emit(op, *n.required_inputs())


@translates("DequantizeLinear")
@translates("DequantizeLinear", domain="com.microsoft")
def dequantize_linear(n: OnnxNode) -> Port:
    """(x - zero point) * scale."""
    op = DequantizeLinear(n.attribute("axis", 1), n.attribute("block_size", 0), _destination(n))
    return n.emit(op, *n.required_inputs())


def dequantized(n: OnnxNode, first: int, axis: int = 1, x: Port | None = None) -> Port:
    """Dequantise input `first` with its scale and zero point, the two inputs behind it.

    Args:
        n: the node.
        first: number of the input.
        axis: of the scale, where that is no single number.
        x: what stands for the input.
    """
    zero = n.optional(first + 2)
    x = n.input(first) if x is None else x
    return n.emit(DequantizeLinear(axis), x, n.input(first + 1), *([] if zero is None else [zero]))


def requantized(n: OnnxNode, y: Port, scale: int, axis: int = 1) -> Port:
    """Quantise with the scale and zero point at inputs `scale` and `scale` + 1."""
    zero = n.optional(scale + 1)
    return n.emit(QuantizeLinear(axis), y, n.input(scale), *([] if zero is None else [zero]))


@translates("QLinearConv")
@translates("QLinearConv", domain="com.microsoft")
def qlinear_conv(n: OnnxNode) -> Port:
    """Convolution of quantised values: dequantise, convolve, quantise.

    Devices recognise the pattern and compute in integers. The bias is in units of the product of
    both scales. ONNX Runtime's own may have channels behind everything, but for the weights.
    """

    def convolved(x: Port) -> Port:
        w, bias = dequantized(n, 3, axis=0), n.optional(8)
        if bias is not None:
            scale = n.emit(Multiply(), n.input(1), n.input(4))
            bias = n.emit(DequantizeLinear(0), bias, scale)
        return requantized(n, convolve(n, dequantized(n, 0, x=x), w, bias), 6)

    return in_channels_first(n, convolved, last=bool(n.attribute("channels_last", 0)))


@translates("QLinearMatMul")
def qlinear_matmul(n: OnnxNode) -> Port:
    """Product of quantised matrices; scales per row of A, per column of B."""
    a = dequantized(n, 0, axis=-2)
    b = dequantized(n, 3, axis=-1)
    return requantized(n, n.emit(MatMul(), a, b), 6, axis=-2)


_BINARY = {"QLinearAdd": Add, "QLinearMul": Multiply}


@translates(*_BINARY, domain="com.microsoft")
def qlinear_binary(n: OnnxNode) -> Port:
    """Sum or product of quantised values."""
    y = n.emit(_BINARY[n.op_type](), dequantized(n, 0), dequantized(n, 3))
    return requantized(n, y, 6)


@translates("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", domain="com.microsoft")
def qlinear_unary(n: OnnxNode) -> Port:
    """An activation of quantised values."""
    x = dequantized(n, 0)
    if n.op_type == "QLinearSigmoid":
        y = n.emit(Sigmoid(), x)
    elif n.op_type == "QLinearSoftmax":
        y = softmax_of(n, x, n.required("opset"), n.attribute("axis", -1))
    else:
        y = n.emit(PRelu(), x, n.like(n.attribute("alpha", 0.01), x))
    return requantized(n, y, 3)


@translates("QLinearGlobalAveragePool", domain="com.microsoft")
def qlinear_global_average_pool(n: OnnxNode) -> Port:
    """Average over the spatial axes of quantised values."""
    x = dequantized(n, 0)
    axes = list(range(1, n.rank(x) - 1) if n.attribute("channels_last", 0) else range(2, n.rank(x)))
    return requantized(n, n.emit(ReduceMean(keep_dims=True), x, axes), 3)


@translates("QLinearAveragePool", domain="com.microsoft")
def qlinear_average_pool(n: OnnxNode) -> Port:
    """Average of each window of quantised values."""

    def pooled(x: Port) -> Port:
        return requantized(n, average(n, dequantized(n, 0, x=x)), 3)

    return in_channels_first(n, pooled, last=bool(n.attribute("channels_last", 0)))


@translates("QLinearWhere", domain="com.microsoft")
def qlinear_where(n: OnnxNode) -> Port:
    """Choice between two quantised values."""
    y = n.emit(Select(), n.input(0), dequantized(n, 1), dequantized(n, 4))
    return requantized(n, y, 7)


@translates("QGemm", domain="com.microsoft")
def qgemm(n: OnnxNode) -> Port:
    """alpha * A * B + C; C in units of alpha and both scales; quantised where Y has a scale."""
    transposed = bool(n.attribute("transB", 0))
    a, b = dequantized(n, 0), dequantized(n, 3, axis=0 if transposed else 1)
    y = n.emit(MatMul(bool(n.attribute("transA", 0)), transposed), a, b)
    c = n.optional(6)
    if c is not None:
        scale = n.emit(Multiply(), n.input(1), n.input(4))
        wide = n.emit(Convert(y.element_type), c)
        y = n.emit(Add(), y, n.emit(Multiply(), wide, scale))
    alpha = n.attribute("alpha", 1.0)
    if alpha != 1.0:
        y = n.emit(Multiply(), y, n.like(alpha, y))
    return y if n.optional(7) is None else requantized(n, y, 7)


@translates("QLinearConcat", domain="com.microsoft")
def qlinear_concat(n: OnnxNode) -> Port:
    """Concatenation of values, each with its own scale."""
    parts = [dequantized(n, index) for index in range(2, len(n.inputs), 3)]
    return requantized(n, n.emit(Concat(n.required("axis")), *parts), 0)


@translates("DynamicQuantizeMatMul", domain="com.microsoft")
def dynamic_quantize_matmul(n: OnnxNode) -> Port:
    """Product of A, rounded to 256 levels of its own range, and 8-bit weights."""
    a = n.input(0)
    scale, zero = _range(n, a)
    bytes_ = n.emit(QuantizeLinear(), a, scale, zero)
    y = _product_of_bytes(n, (bytes_, scale, zero), (n.input(1), n.input(2), n.optional(3)))
    bias = n.optional(4)
    return y if bias is None else n.emit(Add(), y, bias)


@translates("DynamicQuantizeLinear")
def dynamic_quantize_linear(n: OnnxNode) -> list[Port]:
    """Numbers rounded to 256 levels of their own range, its scale and zero point."""
    x = n.input(0)
    scale, zero = _range(n, x)
    return [n.emit(QuantizeLinear(), x, scale, zero), scale, zero]


def _range(n: OnnxNode, x: Port) -> tuple[Port, Port]:
    """Scale and zero point of DynamicQuantizeLinear-11: the range of x and 0 in 255 steps.

    Without a range the scale is 1, as ONNX Runtime has it; ONNX divides 0 by 0 there.
    """
    axes = list(range(n.rank(x)))
    nothing, steps = (n.value(np.float32(number)) for number in (0, 255))
    low = n.emit(Minimum(), n.emit(ReduceMin(), x, axes), nothing)
    high = n.emit(Maximum(), n.emit(ReduceMax(), x, axes), nothing)
    scale = n.emit(Divide(), n.emit(Subtract(), high, low), steps)
    scale = n.emit(Select(), n.emit(Equal(), scale, nothing), np.float32(1), scale)
    level = n.emit(Subtract(), nothing, n.emit(Divide(), low, scale))
    whole = n.emit(Round(), n.emit(Clamp(0.0, 255.0), level))
    return scale, n.emit(Convert(ElementType.u8), whole)


_Bytes = tuple[Port, Port, Port | None]
"""Integers of 8 bits, their scale and their zero point."""


def _product_of_bytes(n: OnnxNode, a: _Bytes, b: _Bytes) -> Port:
    """The sums of products of integers, times both scales."""
    left, right = (shifted(n, integers, zero) for integers, _, zero in (a, b))
    sums = n.emit(Convert(a[1].element_type), n.emit(MatMul(), left, right))
    return n.emit(Multiply(), sums, n.emit(Multiply(), a[1], b[1]))


@translates("MatMulIntegerToFloat", domain="com.microsoft")
def matmul_integer_to_float(n: OnnxNode) -> Port:
    """Product of 8-bit integers with scales, result in floating point."""
    scale, zero, bias = n.input(2), n.optional(4), n.optional(6)
    if scale.desc.constant is None and scale.desc.rank == 0:  # what DynamicQuantizeLinear computes
        right = n.input(1), n.input(3), n.optional(5)
        y = _product_of_bytes(n, (n.input(0), scale, zero), right)
    else:
        a = n.emit(DequantizeLinear(-2), n.input(0), scale, *([] if zero is None else [zero]))
        zero = n.optional(5)
        b = n.emit(DequantizeLinear(-1), n.input(1), n.input(3), *([] if zero is None else [zero]))
        y = n.emit(MatMul(), a, b)
    return y if bias is None else n.emit(Add(), y, bias)
