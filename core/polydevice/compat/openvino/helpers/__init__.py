"""``openvino.helpers``: elements narrower than a byte, packed and unpacked."""

from __future__ import annotations

from typing import Any

import numpy as np

from polydevice.compat.openvino.types.element_type import element_of
from polydevice.compat.openvino.types.packing import packed, unpacked
from polydevice.dtype import Array

__all__ = ["pack_data", "unpack_data"]


def pack_data(array: Array, type: Any) -> Array:  # noqa: A002 - its name
    """Return elements narrower than a byte next to each other in bytes.

    Raises:
        ValueError: elements of a byte or more.
    """
    element = element_of(type)
    if element.bits >= 8:
        raise ValueError(f"{element} has no elements narrower than a byte")
    return packed(np.asarray(array), element).view(np.uint8)


def unpack_data(array: Array, type: Any, shape: Any) -> Array:  # noqa: A002 - its name
    """Return each element in a byte of its own; the inverse of `pack_data`."""
    element = element_of(type)
    sizes = tuple(int(size) for size in shape)
    values = unpacked(np.asarray(array).reshape(-1).view(np.uint8), element, int(np.prod(sizes)))
    return values.astype(np.int8 if element.is_signed else np.uint8).reshape(sizes)
