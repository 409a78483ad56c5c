"""Conversions between element types."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.node import Port
from polydevice.ops.convert import BitCast, Convert
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.protos.element_types import element_type_of


@translates("Cast", "CastLike")
def cast(n: OnnxNode) -> Port:
    """To the type of the attribute, or of the second input."""
    x = n.input(0)
    named = n.op_type == "Cast"
    kind = element_type_of(n.required("to")) if named else n.input(1).element_type
    return x if kind is x.element_type else n.emit(_convert(n, kind), x)


def _convert(n: OnnxNode, kind: ElementType) -> Convert:
    saturate = bool(n.attribute("saturate", 1))
    return Convert(kind, saturate, n.attribute("round_mode", "up"))


@translates("BitCast")
def bit_cast(n: OnnxNode) -> Port:
    """The same bits as another type."""
    return n.emit(BitCast(element_type_of(n.required("to"))), n.input(0))
