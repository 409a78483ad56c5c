"""``openvino.op``: the nodes that programs make by class."""

from __future__ import annotations

from polydevice.compat.openvino.node import Constant, Parameter, Result
from polydevice.compat.openvino.surface import missing

__all__ = ["Constant", "Parameter", "Result"]


def __getattr__(name: str) -> object:
    raise missing(name, "op")
