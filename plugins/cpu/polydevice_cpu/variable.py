"""CpuVariable: a request's variable in its context."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import Array
from polydevice.node import Node
from polydevice.ops.state import ReadValue
from polydevice.runtime.variable import RequestVariable
from polydevice.tensor import TensorDesc
from polydevice_cpu.plan.binding.context import Context


class CpuVariable(RequestVariable):
    """One variable of one request."""

    def __init__(self, name: str, desc: TensorDesc, context: Context) -> None:
        """Look at the variable `name` of a request's context."""
        super().__init__(name, desc)
        self._context = context

    def reset(self) -> None:
        """Forget the value."""
        self._context.variables.pop(self.name, None)

    def get(self) -> Array | None:
        """Return a copy of the value."""
        known = self._context.variables.get(self.name)
        return None if known is None else known.copy()

    def set(self, value: Array) -> None:
        """Keep an array."""
        self._context.variables[self.name] = value


def variables(nodes: Sequence[Node], context: Context) -> list[CpuVariable]:
    """Return the variables that nodes read, for one request."""
    return [
        CpuVariable(node.op.variable_id, node.output.desc, context)
        for node in nodes
        if isinstance(node.op, ReadValue)
    ]
