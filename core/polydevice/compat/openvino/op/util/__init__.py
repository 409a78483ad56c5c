"""``openvino.op.util``: variables, and what ties bodies to their nodes."""

from __future__ import annotations

from polydevice.compat.openvino.graph.descriptions import (
    BodyOutputDescription,
    ConcatOutputDescription,
    InvariantInputDescription,
    MergedInputDescription,
    SliceInputDescription,
)
from polydevice.compat.openvino.graph.variables import Variable, VariableInfo
from polydevice.compat.openvino.surface import missing

__all__ = [
    "BodyOutputDescription",
    "ConcatOutputDescription",
    "InvariantInputDescription",
    "MergedInputDescription",
    "SliceInputDescription",
    "Variable",
    "VariableInfo",
]


def __getattr__(name: str) -> object:
    raise missing(name, "op.util")
