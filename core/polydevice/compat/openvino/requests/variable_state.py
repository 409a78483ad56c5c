"""VariableState: what a request keeps between inferences."""

from __future__ import annotations

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.graph.tensor import Tensor
from polydevice.compat.openvino.surface import Surface
from polydevice.runtime.variable_state import VariableState as CoreState


class VariableState(Surface):
    """A variable that a request keeps between inferences."""

    def __init__(self, state: CoreState) -> None:
        """Show core's."""
        self._state = state

    @property
    def name(self) -> str:
        """The name."""
        return self._state.name

    @property
    def state(self) -> Tensor:
        """The value, a copy; assigning a tensor replaces it. Raises RuntimeError before a run."""
        return self._read()

    @state.setter
    def state(self, tensor: Tensor) -> None:
        self._write(tensor)

    @translated
    def _read(self) -> Tensor:
        return Tensor._of(self._state.state, self._state.desc.element_type)

    @translated
    def _write(self, tensor: Tensor) -> None:
        self._state.state = tensor._memory()

    @translated
    def reset(self) -> None:
        """Return to the initial value."""
        self._state.reset()

    def __repr__(self) -> str:
        return f"<VariableState: {self.name}>"
