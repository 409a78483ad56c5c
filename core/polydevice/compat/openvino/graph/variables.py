"""Variable: a value that a model keeps between inferences."""

from __future__ import annotations

from typing import Any

from polydevice.compat.openvino.surface import Surface
from polydevice.compat.openvino.types.element_type import Type
from polydevice.compat.openvino.types.shapes import PartialShape


class VariableInfo(Surface):
    """What describes a variable."""

    def __init__(self, variable_id: str = "") -> None:
        """Keep the name."""
        self.variable_id = variable_id
        self.data_shape: PartialShape | None = None
        self.data_type: Type | None = None


class Variable(Surface):
    """A value that a model keeps between inferences."""

    def __init__(self, variable_info: Any) -> None:
        """Describe a variable."""
        given = isinstance(variable_info, VariableInfo)
        self.info = variable_info if given else VariableInfo(str(variable_info))

    def get_info(self) -> VariableInfo:
        """Return the description."""
        return self.info

    def update(self, variable_info: VariableInfo) -> None:
        """Take another description."""
        self.info = variable_info
