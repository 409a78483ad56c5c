"""Linear quantisation, and operators on quantised values."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.network import Port
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.element_types import element_type_of
from polydevice.readers.onnx.node import OnnxNode


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


def dequantized(n: OnnxNode, first: int, axis: int = 1) -> Port:
    """Dequantise input `first` with its scale and zero point, the two inputs behind it."""
    zero = n.optional(first + 2)
    inputs = [n.input(first), n.input(first + 1), *([] if zero is None else [zero])]
    return n.emit(DequantizeLinear(axis), *inputs)


def requantized(n: OnnxNode, y: Port, scale: int, axis: int = 1) -> Port:
    """Quantise with the scale and zero point at inputs `scale` and `scale` + 1."""
    zero = n.optional(scale + 1)
    return n.emit(QuantizeLinear(axis), y, n.input(scale), *([] if zero is None else [zero]))
