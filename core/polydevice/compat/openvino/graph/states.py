"""read_value and assign: the nodes that read and write variables."""

from __future__ import annotations

from typing import Any

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.graph.node import Node, make, port_of, shown_as
from polydevice.compat.openvino.graph.variables import Variable
from polydevice.compat.openvino.types.element_type import element_of
from polydevice.compat.openvino.types.shapes import core_shape
from polydevice.ops.op import find_operation, format_attribute
from polydevice.ops.state import Assign, ReadValue


class _Stateful(Node):
    __slots__ = ()

    def get_variable_id(self) -> str:
        """Return the name of the variable."""
        op = self._node.op
        assert isinstance(op, (Assign, ReadValue))
        return op.variable_id


@shown_as(Assign)
class assign(_Stateful):  # noqa: N801 - its name
    """Writes a variable."""

    __slots__ = ()

    def __init__(self, new_value: Any, variable: Any, name: str = "") -> None:
        """Write a value into a variable, given by its name or as a Variable."""
        super().__init__(assign_of(new_value, variable, name or None)._node)


@shown_as(ReadValue)
class read_value(_Stateful):  # noqa: N801 - its name
    """Reads a variable."""

    __slots__ = ()

    def __init__(self, new_value: Any, variable: Variable | None = None) -> None:
        """Read a variable that begins with a value: ``read_value([value,] variable)``."""
        if variable is None:
            new_value, variable = None, new_value
        info = variable.get_info()
        made = _stateful(
            "ReadValue", new_value, info.variable_id, info.data_type, info.data_shape, None
        )
        super().__init__(made._node)


def _name_of(variable: Any) -> str:
    return variable.info.variable_id if isinstance(variable, Variable) else str(variable)


def read_value_of(
    init_value: Any = None,
    variable_id: str = "",
    variable_type: Any = None,
    variable_shape: Any = None,
    name: str | None = None,
) -> Node:
    """Make a node that reads a variable; ``read_value(variable_id, type, shape)`` without a start.

    Raises:
        RuntimeError: type and shape do not fit the initial value.
    """
    if isinstance(init_value, str):
        init_value, variable_id, variable_type, variable_shape = (
            None,
            init_value,
            variable_id or variable_type,
            variable_shape if variable_id == "" else variable_type,
        )
    return _stateful("ReadValue", init_value, variable_id, variable_type, variable_shape, name)


def assign_of(new_value: Any, variable: Any, name: str | None = None) -> Node:
    """Make a node that writes a variable, given by its name or as a Variable."""
    return _stateful("Assign", new_value, _name_of(variable), None, None, name)


@translated
def _stateful(
    kind: str, value: Any, variable_id: str, element: Any, shape: Any, name: str | None
) -> Node:
    attributes = {"variable_id": variable_id}
    if element is not None:
        attributes["variable_type"] = element_of(element).value
    if shape is not None:
        sizes = core_shape(shape)
        attributes["variable_shape"] = "..." if sizes is None else format_attribute(sizes)
    op = find_operation(kind, "opset6").from_ir(attributes, 6)
    return make(op, [] if value is None else [port_of(value)], name)
