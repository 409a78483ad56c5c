"""Tiles: a matrix of 4 or 8 bits cut into pieces that a oneDNN product of integers reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.plan.building.weights import pack


@dataclass(frozen=True)
class Tiling:
    """How a matrix [columns, terms] is cut into tiles of [terms of a block, columns of a tile].

    Attributes:
        terms, columns: of a tile; columns beyond the matrix's are 0.
        bits: of an integer as it is kept.
        layout: of a tile as oneDNN reads it, 8 bits an element.
        runs: how many runs of elements that lie together a tile has.
        used: bytes of such a run.
    """

    terms: int
    columns: int
    bits: int
    layout: Descriptor
    runs: int
    used: int

    @classmethod
    def of(cls, terms: int, columns: int, bits: int, layout: Descriptor) -> Tiling | None:
        """Find the runs of a layout, which are equal and equally far apart; None for others."""
        marks = pack(np.ones((terms, columns), np.int8), layout)
        if marks.size == terms * columns:
            return cls(terms, columns, bits, layout, 1, marks.size)
        changes = np.flatnonzero(np.diff(marks)) + 1
        used = int(changes[0]) if len(changes) else marks.size
        runs, rest = divmod(terms * columns, used)
        if rest or marks.size % runs or used % 2 or not marks[0]:
            return None
        if not marks.reshape(runs, -1)[:, :used].all():
            return None
        return cls(terms, columns, bits, layout, runs, used)

    @property
    def is_stored(self) -> bool:
        """Whether the bytes that are kept are those that oneDNN reads."""
        return self.bits == 8 and self.runs == 1

    @property
    def tile_bytes(self) -> int:
        """Bytes of a tile as it is kept."""
        return self.terms * self.columns * self.bits // 8

    def halves(self, runs: Array) -> tuple[Array, Array]:
        """The two halves of a tile's runs [runs, used]: of as few runs as possible."""
        axis = 1 if self.runs % 2 else 0
        first, second = np.split(runs, 2, axis)
        return first, second

    def cut(self, q: Array, center: int) -> Array:
        """Return all tiles of the integers less `center` as [tile, block, bytes].

        Of two integers of 4 bits in a byte, the lower one is of the tile's first half.
        """
        columns, terms = q.shape
        tiles, blocks = -(-columns // self.columns), terms // self.terms
        made = np.empty((tiles, blocks, self.tile_bytes), np.uint8)
        for tile in range(tiles):
            some = q[tile * self.columns : (tile + 1) * self.columns]
            numbers = np.zeros((self.columns, terms), np.int8)
            numbers[: len(some)] = some.astype(np.int16) - center
            for block in range(blocks):
                part = numbers[:, block * self.terms : (block + 1) * self.terms].T
                runs = pack(part, self.layout).reshape(self.runs, -1)[:, : self.used]
                if self.bits == 4:
                    low, high = self.halves(runs)
                    runs = low & 15 | high << 4
                made[tile, block] = runs.reshape(-1)
        return made

    def spread(self, scales: Array) -> Array:
        """Return scales [columns, blocks] as [tile, block, column of it]."""
        columns, blocks = scales.shape
        tiles = -(-columns // self.columns)
        made = np.zeros((tiles * self.columns, blocks), np.float32)
        made[:columns] = scales if self.bits == 8 else scales / 16
        return np.ascontiguousarray(made.reshape(tiles, self.columns, blocks).swapaxes(1, 2))
