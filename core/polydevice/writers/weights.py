"""The weights file of an IR: constants packed one after the other, equal ones once."""

from __future__ import annotations

import hashlib
from typing import IO

import numpy as np

from polydevice.dtype import Array, ElementType

ALIGNMENT_BYTES = 64
"""Every constant starts on a multiple of this, so that a reader can use it where it lies."""


class WeightsWriter:
    """Writes constants to a file and tells where each of them lies."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._end = 0
        self._known: dict[tuple[int, bytes], int] = {}

    def add(self, value: Array, element_type: ElementType) -> tuple[int, int]:
        """Write a constant's elements, unless the same bytes are there; return (offset, size)."""
        data = packed(value, element_type)
        key = len(data), hashlib.blake2b(data, digest_size=32).digest()
        if key in self._known:
            return self._known[key], len(data)
        padding = -self._end % ALIGNMENT_BYTES
        offset = self._end + padding
        self._file.write(bytes(padding))
        self._file.write(data)
        self._end = offset + len(data)
        self._known[key] = offset
        return offset, len(data)


def packed(value: Array, element_type: ElementType) -> memoryview | bytes:
    """Return a constant's bytes as IR files store them; the inverse of the reader's unpacking."""
    if element_type is ElementType.string:
        return _packed_strings(value)
    flat = np.ascontiguousarray(value).reshape(-1)
    if element_type.bits >= 8:
        raw: memoryview = flat.view(np.uint8).data
        return raw if flat.size else b""
    bits = element_type.bits
    if bits == 1:
        return np.packbits(flat != 0).tobytes()
    if element_type in (ElementType.i4, ElementType.i2):
        codes = flat.astype(np.int8).view(np.uint8)
    elif element_type is ElementType.f4e2m1:
        codes = flat.view(np.uint8)
    else:
        codes = flat.astype(np.uint8)
    per_byte = 8 // bits
    rows = np.zeros((-(-flat.size // per_byte), per_byte), np.uint8)
    rows.reshape(-1)[: flat.size] = codes & ((1 << bits) - 1)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    joined: Array = np.bitwise_or.reduce(rows << shifts, axis=1).astype(np.uint8)
    return joined.tobytes()


def _packed_strings(value: Array) -> bytes:
    texts = [
        item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape")
        for item in value.reshape(-1)
    ]
    ends = np.cumsum([0, *map(len, texts)])
    head = np.array([len(texts), *ends], "<i4")
    return head.tobytes() + b"".join(texts)
