"""Elements of fewer bits than a byte, next to each other in bytes and one by one."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array, ElementType


def unpacked(memory: Array, element: ElementType, count: int) -> Array:
    """Return elements of fewer bits than a byte, one in each element of the array.

    Raises:
        RuntimeError: the memory is too small.
    """
    if memory.size * 8 < count * element.bits:
        raise RuntimeError(f"{memory.size} bytes cannot hold {count} elements of {element}")
    if element.bits >= 8:
        return memory.view(element.dtype)[:count]
    bits = np.unpackbits(memory, bitorder="big" if element.bits == 1 else "little")
    weights = 1 << np.arange(element.bits, dtype=np.uint8)
    values = bits.reshape(-1, element.bits)[:count] @ weights
    if element.is_signed:
        values = values.astype(np.int8)
        values -= (values >> (element.bits - 1)) << element.bits
    return values.astype(element.dtype)


def packed(values: Array, element: ElementType) -> Array:
    """Return elements of fewer bits than a byte next to each other in bytes."""
    numbers = values.astype(np.int8).view(np.uint8).reshape(-1, 1)
    bits = (numbers >> np.arange(element.bits, dtype=np.uint8)) & 1
    memory = np.packbits(bits.reshape(-1), bitorder="big" if element.bits == 1 else "little")
    return memory.view(np.int8 if element.is_signed else np.uint8)
