"""Keys: numbers of 32 bits in the order in which elements are wanted, that of the first largest."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from polydevice_cpu.algorithms.by_machine.instructions import ADD, Instructions

KINDS: dict[np.dtype[Any], str] = {np.dtype(np.float32): "f4", np.dtype(np.int32): "i4"}
"""Types of elements that become keys."""

HIGHEST = (1 << 31) - 1
NAN = HIGHEST - 1
"""What NaN becomes before bits are turned: above infinity, and so that no key of a float is 0."""


def turn_of(*, descending: bool) -> int:
    """Return the bits that are turned, for the largest elements to be first or the smallest."""
    return -(1 << 31) if descending else HIGHEST


def append_key(
    code: Instructions, kind: str, key: int, spare: int, given: tuple[int, int, int, int], mask: int
) -> None:
    """Append what makes keys of elements; NaN becomes the largest.

    Args:
        code: to append to.
        kind: of elements.
        key: the vector that they are in.
        spare: another one.
        given: vectors of `turn_of`, of `HIGHEST`, of `NAN`, and of zeros.
        mask: one that may be changed.
    """
    turn, highest, nan, zero = given
    if kind == "f4":
        code.vector(0xC2, mask, key, key, is_memory=False, last_byte=3)  # what is no number
        code.of_vectors(ADD, key, key, zero)  # -0 becomes 0, its equal
        code.vector(0x72, 4, spare, key, prefix=1, is_memory=False, last_byte=31)  # vpsrad
        code.vector(0xDB, spare, spare, highest, prefix=1, is_memory=False)
        code.vector(0xEF, key, key, spare, prefix=1, is_memory=False)
        code.vector(0x28, key, 0, nan, is_memory=False, mask=mask)
    code.vector(0xEF, key, key, turn, prefix=1, is_memory=False)


def pair(low: int, high: int) -> int:
    """Return two numbers of 4 bytes as one of 8."""
    return int(struct.unpack("<q", struct.pack("<2i", low, high))[0])
