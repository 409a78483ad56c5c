"""Transfer: an input, output or value between host and device of one request."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice_gpu.graph import Value


class Transfer:
    """The place of a value in device memory, and a copy on the host where the types differ."""

    def __init__(self, value: Value) -> None:
        self.value = value
        assert value.memory is not None
        self.memory = value.memory
        self.elements = value.elements
        differs = value.storage.dtype != value.element_type.dtype
        self._staging = np.empty(value.shape, value.storage.dtype) if differs else None

    def to_device(self, array: Array) -> Array:
        """Return the array in the type that is stored."""
        if self._staging is None:
            return array
        np.copyto(self._staging, array, casting="unsafe")
        return self._staging

    def staging(self, array: Array) -> Array:
        """Return what to download into."""
        return array if self._staging is None else self._staging

    def finish(self, array: Array) -> None:
        """Convert what was downloaded."""
        if self._staging is not None:
            np.copyto(array, self._staging, casting="unsafe")
