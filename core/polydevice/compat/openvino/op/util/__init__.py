"""``openvino.op.util``: variables, and what ties bodies to their nodes."""

from __future__ import annotations

from polydevice.compat.openvino.descriptions import (
    BodyOutputDescription,
    ConcatOutputDescription,
    InvariantInputDescription,
    MergedInputDescription,
    SliceInputDescription,
)
from polydevice.compat.openvino.surface import missing
from polydevice.compat.openvino.variables import Variable, VariableInfo

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
