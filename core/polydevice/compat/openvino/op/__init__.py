"""``openvino.op``: the nodes that programs make by class."""

from __future__ import annotations

from polydevice.compat.openvino.graph.states import assign, read_value
from polydevice.compat.openvino.graph.terminals import Constant, Parameter, Result
from polydevice.compat.openvino.models.bodies import if_op, loop, tensor_iterator
from polydevice.compat.openvino.op import util
from polydevice.compat.openvino.surface import missing

__all__ = [
    "Constant",
    "Parameter",
    "Result",
    "assign",
    "if_op",
    "loop",
    "read_value",
    "tensor_iterator",
    "util",
]


def __getattr__(name: str) -> object:
    raise missing(name, "op")
