"""Values of ONNX's container types: Python lists outside, arrays of objects in the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.tensor import TensorDesc


def to_array(value: Any, desc: TensorDesc) -> Array:
    """Return a value in the form that the runtime uses.

    Args:
        value: an array, or what NumPy makes one of; a list of them for a sequence; None for an
            empty optional.
        desc: what the input is.
    """
    if desc.kind == "tensor":
        array = np.asarray(value)
        return array.astype(object) if array.dtype.kind in "UST" else array
    if desc.kind == "sequence":
        return _objects([np.asarray(item) for item in value])
    if value is None:
        return _objects([])
    item = np.asarray(value) if desc.kind == "optional" else _objects(list(value))
    return _objects([item])


def from_array(array: Array, desc: TensorDesc) -> Any:
    """Return a value of the runtime as Python sees it; a copy."""
    if desc.kind == "tensor":
        return array.copy()
    if desc.kind == "sequence":
        return [np.array(item) for item in array]
    if desc.kind.endswith("maps"):
        return [dict(item) for item in array]
    if not len(array):
        return None
    item = array[0]
    return np.array(item) if desc.kind == "optional" else [np.array(part) for part in item]


def _objects(items: Sequence[Any]) -> Array:
    array = np.empty(len(items), object)
    for index, item in enumerate(items):
        array[index] = item
    return array
