"""Large products on the matrix units of warp groups, one of which copies for the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.strips import row_major
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.gemm.gemm import Pace, Tile
from polydevice_gpu.kernels.gemm.gemm_wgmma import MatmulWgmma
from polydevice_gpu.kernels.kernel import Mode
from polydevice_gpu.kernels.launch import Weights
from polydevice_gpu.kernels.target import Target

_STRIP, _STEP = 64, 64
"""Columns and terms that are copied at once."""

# Paces are those of an H200, stores left out: 4096 and 8192 cubed took 187 and 1,453 us, and 203
# and 1,553 where those who multiply copy too. Tried there and no faster: 128 by 192, 256 by 128 or
# by 192, awaiting products one step later, and barriers where copies of rows arrive themselves.
_TILES: tuple[Tile, ...] = (
    ({"BM": 128, "BN": 256, "BK": 64, "STAGES": 4, "TALL": 1}, Pace(0.7, 0.7, 1)),
)


class MatmulFed(MatmulWgmma):
    """Product with a constant matrix, a work-group for each processor."""

    name = "gemm_fed"
    source = "gemm/gemm_fed.cl"
    tiles: Sequence[Tile] = _TILES
    modes = tuple({**tile, "SPLIT": 1} for tile, _ in _TILES)
    few = 0

    def is_alone(self, mode: Mode) -> bool:
        """Always: it has most of a processor's local memory."""
        return True

    def threads(self, mode: Mode) -> int:
        """A warp group of 128 for every 64 rows, and one that copies."""
        return super().threads(mode) + 128

    def form(self, node: GpuNode, columns: int, terms: int) -> Weights:
        """In strips, columns in the order of `for_eights` if need be."""
        plain = super().form(node, columns, terms)
        form = f"{plain.form} in strips"
        return replace(plain, form=form, make=lambda array: in_strips(plain.make(array)))

    def yields(self, node: GpuNode, target: Target) -> str:
        """Products that others are expected to compute in less time."""
        other = MatmulWgmma()
        own, least = (
            kernel.expected_us(node, kernel.default_mode(node, target), target)
            for kernel in (self, other)
        )
        return "" if own < least else f"{other.name} is expected to take less time"


def in_strips(matrix: Array) -> Array:
    """Return [column, term] as [64 columns, step, column, term], as it lies in local memory.

    A step is 64 terms. Pieces of eight terms of a column are exchanged by column as the matrix
    instruction wants them (swizzle of 128 bytes).
    """
    columns, terms = matrix.shape
    pieces = row_major(matrix).reshape(columns // _STRIP, _STRIP, terms // _STEP, _STEP // 8, 8)
    column = np.arange(_STRIP)[:, None]
    piece = np.arange(_STEP // 8)[None, :] ^ (column % 8)
    return np.ascontiguousarray(pieces.swapaxes(1, 2)[:, :, column, piece])
