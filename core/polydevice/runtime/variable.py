"""RequestVariable: what a device keeps of a variable for one request."""

from __future__ import annotations

from abc import ABC, abstractmethod

from polydevice.dtype import Array
from polydevice.tensor import TensorDesc


class RequestVariable(ABC):
    """A variable (ReadValue, Assign) of one request; users see it as a `VariableState`.

    Its methods are called between inferences only.

    Attributes:
        name: the variable's id.
        desc: element type, and the shapes that it may have.
    """

    def __init__(self, name: str, desc: TensorDesc) -> None:
        """Describe a variable; a device implements how it is kept."""
        self.name = name
        self.desc = desc

    @abstractmethod
    def get(self) -> Array | None:
        """Return a copy of the value; None while only an inference can tell it."""

    @abstractmethod
    def set(self, value: Array) -> None:
        """Keep an array of the right type and shape, which nobody else holds."""

    @abstractmethod
    def reset(self) -> None:
        """Return to the initial value with the next inference."""
