"""CpuVariable: a request's variable as users see and set it."""

from __future__ import annotations

from polydevice.dtype import Array
from polydevice.errors import BlobError
from polydevice.network import Network
from polydevice.profiling import VariableState
from polydevice_cpu.plan.context import Context


class CpuVariable(VariableState):
    """One variable of one request."""

    def __init__(self, name: str, context: Context) -> None:
        """Look at the variable `name` of a request's context."""
        self.name = name
        self._context = context

    @property
    def state(self) -> Array:
        """The value; raises BlobError before the first inference or after `reset`."""
        known = self._context.variables.get(self.name)
        if known is None:
            raise BlobError(
                f"variable {self.name!r} has its initial value, which the network computes; "
                "infer once, or assign an array"
            )
        return known

    @state.setter
    def state(self, value: Array) -> None:
        known = self._context.variables.get(self.name)
        if known is not None and known.dtype != value.dtype:
            raise BlobError(
                f"variable {self.name!r} has element type {known.dtype}, not {value.dtype}"
            )
        self._context.variables[self.name] = value.copy()

    def reset(self) -> None:
        """Return to the initial value."""
        self._context.variables.pop(self.name, None)


def variables(network: Network, context: Context) -> list[CpuVariable]:
    """Return the variables of a network for one request."""
    return [CpuVariable(name, context) for name in network.state_variables()]
