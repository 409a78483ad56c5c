"""Logical operations; all are pointwise. Zero is false, anything else is true."""

from __future__ import annotations

from polydevice.ops.op import operation
from polydevice.ops.pointwise import BinaryPointwise, UnaryPointwise


@operation("LogicalAnd")
class LogicalAnd(BinaryPointwise):
    """Whether both are true.

    Inputs:  a, b  broadcastable, same type
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset1 LogicalAnd
    """


@operation("LogicalOr")
class LogicalOr(BinaryPointwise):
    """Whether at least one is true.

    Inputs:  a, b  broadcastable, same type
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset1 LogicalOr
    """


@operation("LogicalXor")
class LogicalXor(BinaryPointwise):
    """Whether exactly one is true.

    Inputs:  a, b  broadcastable, same type
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset1 LogicalXor
    """


@operation("Xor")
class Xor(LogicalXor):
    """Whether exactly one is true; opset1's second name for LogicalXor.

    Inputs:  a, b  broadcastable, same type
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset1 Xor
    """


@operation("LogicalNot", onnx="Not")
class LogicalNot(UnaryPointwise):
    """Whether it is false.

    Inputs:  x  any shape
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 LogicalNot; ONNX Not-1
    """

    takes_booleans = True
