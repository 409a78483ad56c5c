"""How matrices of 4 and 8 bits lie for code that multiplies bytes.

Of a panel of 64 columns, four terms of a column lie next to each other, as four bytes; of 4 bits,
each byte has besides, in its upper half, what belongs to the term four behind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polydevice.dtype import Array

LANES, VECTORS = 16, 4
COLUMNS = LANES * VECTORS
"""Of a panel."""

TOGETHER = {4: 8, 8: 4}
"""Terms that are unpacked at once, by bits."""

CENTERS = {4: 8, 8: 128}
"""What is added to integers with a sign, so that bytes have none."""


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix of integers: (bytes - center) * scales, of [columns, terms].

    Attributes:
        bits: of an integer.
        integers: [panels, bytes], u8.
        scales: [panels, blocks, 64] f32; 0 of columns that there are not.
        columns: how many there are.
        terms: how many there are of each.
    """

    bits: int
    integers: Array
    scales: Array
    columns: int
    terms: int

    @property
    def blocks(self) -> int:
        """How many scales each column has."""
        blocks: int = self.scales.shape[1]
        return blocks

    @property
    def block(self) -> int:
        """How many terms have one scale."""
        return self.terms // self.blocks

    @property
    def panels(self) -> int:
        """How many panels there are."""
        return len(self.integers)

    @property
    def bytes_of_term(self) -> int:
        """What the integers of a term of a panel take, on average."""
        return COLUMNS * self.bits // 8


def packed(q: Array, bits: int, center: int) -> Array:
    """Return integers [columns, terms] as a `Matrix` has them.

    Args:
        q: one a byte, with or without a sign.
        bits: 4 or 8.
        center: what is to be subtracted; then they fit into signed ones of as many bits.
    """
    columns, terms = q.shape
    panels, together = -(-columns // COLUMNS), TOGETHER[bits]
    whole = np.zeros((panels * COLUMNS, terms), np.uint8)
    # In bytes, which wrap: what is subtracted is the center, less what all integers have added.
    least = np.array(center - CENTERS[bits]).astype(np.int16).astype(np.uint8)
    np.subtract(q.view(np.uint8), least, out=whole[:columns])
    parted = whole.reshape(panels, COLUMNS, terms // together, together // 4, 4)
    turned = parted.transpose(0, 2, 3, 1, 4)  # [panels, terms at once, halves, columns, 4]
    made = turned[:, :, 0] if bits == 8 else turned[:, :, 0] | turned[:, :, 1] << 4
    return np.ascontiguousarray(made).reshape(panels, -1)


MOST_TERMS, LEAST_TERMS = 1024, 64
"""Of a block, if it can be divided so: a panel's are unpacked at once, to 128 KB."""


def size_of_blocks(block: int) -> int:
    """Return how many terms have one scale where blocks of so many are divided, if they can be."""
    sizes = (block // parts for parts in range(1, block // 8 + 1) if block % (8 * parts) == 0)
    size = next((each for each in sizes if each <= MOST_TERMS), block)
    return size if size >= min(LEAST_TERMS, block) else block


def spread(scales: Array, block: int) -> Array:
    """Return scales [columns, blocks] as a `Matrix` has them, those of long blocks several times.

    Args:
        scales: as the model has them.
        block: how many terms have one.
    """
    scales = scales.repeat(block // size_of_blocks(block), axis=1)
    columns, blocks = scales.shape
    panels = -(-columns // COLUMNS)
    whole = np.zeros((panels * COLUMNS, blocks), np.float32)
    whole[:columns] = scales
    return np.ascontiguousarray(whole.reshape(panels, COLUMNS, blocks).swapaxes(1, 2))


def as_floats(matrix: Matrix) -> Array:
    """Return it as numbers, [columns, terms] f32."""
    bits, together = matrix.bits, TOGETHER[matrix.bits]
    parted = matrix.integers.reshape(matrix.panels, -1, 1, COLUMNS, 4)
    if bits == 4:
        parted = np.concatenate([parted & 15, parted >> 4], axis=2)
    terms = parted.transpose(0, 3, 1, 2, 4).reshape(-1, parted.shape[1] * together)
    numbers = terms[: matrix.columns].astype(np.float32) - np.float32(CENTERS[bits])
    scales = matrix.scales.swapaxes(1, 2).reshape(-1, matrix.blocks)[: matrix.columns]
    parts: Array = numbers.reshape(matrix.columns, matrix.blocks, -1)
    parts *= scales[..., np.newaxis]
    return parts.reshape(matrix.columns, -1)
