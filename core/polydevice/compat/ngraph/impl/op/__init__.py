"""``ngraph.impl.op``: the nodes that programs make by class."""

from __future__ import annotations

from polydevice.compat.openvino.graph.terminals import Constant, Parameter, Result

__all__ = ["Constant", "Parameter", "Result"]
