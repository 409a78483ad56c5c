"""What tiles cover a result, and what its numbers take."""

from __future__ import annotations

from typing import NamedTuple

from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.algorithms.by_machine.windows.integers import TOGETHER, Integers
from polydevice_cpu.algorithms.by_machine.windows.tiles import Tile
from polydevice_cpu.algorithms.by_machine.windows.window_code import Bundle, lanes

TILES = {1: Tile(1, 12), 2: Tile(2, 12), 3: Tile(3, 8)}
"""Blocks of channels → what is computed at once."""

SHORT_TILES = {1: Tile(1, 10), 2: Tile(2, 6), 3: Tile(3, 4)}
"""The same of vectors of 8 numbers: 16 hold sums, weights of an element and what it multiplies."""

TILES_OF_BYTES = {1: Tile(1, 12), 2: Tile(2, 10), 3: Tile(3, 6)}
"""The same of bytes, whose sums leave room for what moves them."""

OWN_TILE = Tile(1, 8)
"""The same of channels with a source each: with more positions it takes up to half as long again,
as the blocks of a position, which lie next to each other, are then read further apart."""

OF_ONE = 8
"""So many blocks are computed at once of one position, as of a mean over all: one of 96x48x336
takes 213 us so, 545 block by block, and 209 by oneDNN's code."""

Shape = tuple[int, ...]


class Windows(NamedTuple):
    """Where windows lie, by axis: rows and columns.

    Attributes:
        sizes: of a window.
        steps: between two.
        gaps: elements left out between those of one.
        pads: how far the first one reaches over the beginning.
        is_depthwise: whether each channel of the result has one of the source. Else it has all,
            and there are no gaps between columns, or those of its group.
        groups: of channels, if each has not one.
    """

    sizes: Shape
    steps: Shape
    gaps: Shape
    pads: Shape
    is_depthwise: bool
    groups: int = 1


class Numbers(NamedTuple):
    """What numbers take.

    Attributes:
        source: bytes of one of the source.
        result: bytes of one of the result.
        together: channels of the source that a row of weights is for.
    """

    source: int
    result: int
    together: int

    @classmethod
    def of(cls, integers: Integers, *, is_own: bool = False) -> Numbers:
        """Return what bytes take, and what becomes of their sums."""
        together = 1 if is_own else TOGETHER
        return cls(integers.source.size_bytes, integers.result.size_bytes, together)


FLOATS = Numbers(4, 4, 1)


class Cover(NamedTuple):
    """What tiles are to cover, which sizes of pictures do not change.

    Attributes:
        channels: of the result; of a bundle where there are groups.
        element: bytes between two elements of a window.
        is_own: whether channels have a source each.
        is_one: whether the result is one position.
        row: channels that a row of weights has, if not as many; those of the next ones are in rows
            behind all of these.
        numbers: what these take.
        bundle: of groups of channels; None where there are no groups.
    """

    channels: int
    element: int
    is_own: bool
    is_one: bool = False
    row: int = 0
    numbers: Numbers = FLOATS
    bundle: Bundle | None = None

    def parts(self) -> list[Cover]:
        """Return what covers the channels of each row of weights."""
        row = self.row or self.channels
        starts = range(0, self.channels, row)
        return [self._replace(channels=min(row, self.channels - start)) for start in starts]

    def tiles(self) -> list[tuple[Tile, int]]:
        """Return tiles, and how many of each there are; those of what is left are at the end."""
        blocks = -(-self.channels // lanes())
        if self.is_own and not self.is_one:
            return [(OWN_TILE, blocks)]
        if self.is_own:
            tiles = [(Tile(OF_ONE, 1), blocks // OF_ONE), (Tile(blocks % OF_ONE, 1), 1)]
        elif not has_avx512():
            threes, left = divmod(blocks, 3)
            if left == 1 and threes:  # four are two pairs
                threes, left = threes - 1, 4
            tiles = [(SHORT_TILES[3], threes), (SHORT_TILES[2], left // 2)]
            tiles.append((SHORT_TILES[1], left % 2))
        else:
            is_odd = blocks % 2
            pairs = (blocks - 3 * is_odd) // 2 if blocks > 2 else blocks // 2
            known = TILES if self.numbers.source == FLOATS.source else TILES_OF_BYTES
            tiles = [(known[2], pairs), (known[3 if blocks > 2 else 1], is_odd)]
        return [(tile, count) for tile, count in tiles if tile.blocks * count]


def cover_of(given: int, channels: int, windows: Windows, numbers: Numbers = FLOATS) -> Cover:
    """Return what tiles are to cover: results of so many channels, of so many of the source."""
    is_own, size = windows.is_depthwise, numbers.source
    element = size * (given * (windows.gaps[1] + 1) if is_own else numbers.together)
    if (groups := windows.groups) > 1:
        bundle = Bundle.of(groups, given // groups, channels // groups)
        of_bundle = bundle.size * bundle.results
        return Cover(of_bundle, element, is_own, numbers=numbers, bundle=bundle)
    return Cover(channels, element, is_own, numbers=numbers)
