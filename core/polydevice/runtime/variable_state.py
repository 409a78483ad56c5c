"""VariableState: a variable (ReadValue, Assign) that a request keeps between inferences."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import BlobError, RequestBusyError, ShapeError
from polydevice.locks import attempts
from polydevice.runtime.variable import RequestVariable
from polydevice.shape import Shape, merge


class VariableState:
    """A variable that a request keeps between inferences, which may be used between them only.

    Attributes:
        name: the variable's id.
        desc: element type, and the shapes that it may have.
    """

    def __init__(self, variable: RequestVariable, busy: threading.Lock) -> None:
        """Show a variable; `busy` is held while its request runs."""
        self.name = variable.name
        self.desc = variable.desc
        self._variable = variable
        self._busy = busy

    @contextmanager
    def _idle(self) -> Iterator[None]:
        for taken in attempts(self._busy):
            if taken:
                break
            raise RequestBusyError(
                f"the request that keeps variable {self.name!r} is running; wait() for it"
            )
        try:
            yield
        finally:
            self._busy.release()

    @property
    def state(self) -> Array:
        """The value, a copy; assigning an array of the same type replaces it with a copy of that.

        Raises:
            BlobError: it still has its initial value, which only an inference computes; or an
                array of another type or shape is assigned.
            RequestBusyError: while the request runs.
        """
        with self._idle():
            value = self._variable.get()
        if value is None:
            raise BlobError(
                f"variable {self.name!r} has its initial value, which the network computes; "
                "infer once, or assign an array"
            )
        return value

    @state.setter
    def state(self, value: Array) -> None:
        value = np.asarray(value)
        if value.dtype != self.desc.element_type.dtype:
            raise BlobError(
                f"variable {self.name!r} has element type {self.desc.element_type}, not "
                f"{value.dtype}"
            )
        try:
            merge(self.desc.shape, Shape(value.shape))
        except ShapeError as error:
            raise BlobError(
                f"variable {self.name!r} has shape {self.desc.shape}, not {Shape(value.shape)}: "
                f"{error}"
            ) from None
        with self._idle():
            self._variable.set(np.array(value, order="C"))

    def reset(self) -> None:
        """Return to the initial value with the next inference.

        Raises:
            RequestBusyError: while the request runs.
        """
        with self._idle():
            self._variable.reset()
