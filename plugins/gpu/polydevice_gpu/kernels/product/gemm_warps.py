"""Products of few rows on matrix units: warps of a group take other terms of the same tile."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.gemm.gemm_mma import MatmulMma, no_half_product
from polydevice_gpu.kernels.kernel import Mode
from polydevice_gpu.kernels.launch import Weights
from polydevice_gpu.kernels.reason import NO_UNIT, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target

# Rows and columns of a tile, warps along columns and along terms, steps in registers.
_TILES = (
    {"BM": 32, "BN": 24, "ACROSS": 1, "ALONG": 8, "DEPTH": 3},
    {"BM": 32, "BN": 48, "ACROSS": 1, "ALONG": 8, "DEPTH": 3},
    {"BM": 32, "BN": 48, "ACROSS": 2, "ALONG": 4, "DEPTH": 3},
    {"BM": 32, "BN": 72, "ACROSS": 1, "ALONG": 8, "DEPTH": 2},
    {"BM": 32, "BN": 96, "ACROSS": 2, "ALONG": 4, "DEPTH": 3},
    {"BM": 64, "BN": 24, "ACROSS": 1, "ALONG": 8, "DEPTH": 3},
    {"BM": 64, "BN": 96, "ACROSS": 2, "ALONG": 4, "DEPTH": 2},
    {"BM": 16, "BN": 8, "ACROSS": 1, "ALONG": 8, "DEPTH": 4},
    {"BM": 16, "BN": 32, "ACROSS": 1, "ALONG": 8, "DEPTH": 4},
    {"BM": 16, "BN": 64, "ACROSS": 1, "ALONG": 8, "DEPTH": 3},
)

MOST_ROWS = 256
"""Larger products are faster with both factors in local memory."""
_WIDE = 2
"""So are those of so many times more columns than terms: on an H200, weights outside its cache,
197x3072x768 took 10.3 us there and 12.5 here, 197x2304x768 7.6 and 11.9."""
FEW_ROWS = 16
"""That fill a tile of warps, and leave most of one of a warp group empty."""
_START_US, _ROWS_PER_US, _COLUMNS_PER_US = 4.2, 55e3, 80e3
"""Measured on an H200: bytes that a processor reads of rows (for each warp across) and columns."""
_MOST_STAGES = 4
"""Steps of rows in tiles that are copied ahead into local memory. On an H200 128x768x3072 took 6.0
us with four, 6.6 and 6.7 with three and five, 7.0 by registers; 197x768x3072 8.4, and 8.9."""
_SUMS_BYTES = 46 << 10
"""Of sums that warps add up, at most: FLOATS of gemm_warps.cl."""
_PIECE_BYTES = 512
"""That a warp copies at once."""


class MatmulWarps(MatmulMma):
    """Product of few rows with a constant matrix."""

    name = "gemm_warps"
    source = "product/gemm_warps.cl"
    modes = tuple({**tile, "SPLIT": 1} for tile in _TILES)
    reads_tiles = True

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Half data, or float data of a network in half; terms in pieces of 8."""
        return no_half_product(self, node) or unless((target.matrix_unit, NO_UNIT))

    def yields(self, node: GpuNode, target: Target) -> str:
        """Many rows, or many columns for each term."""
        rows, columns, terms = self.sizes(node)
        wide = columns > _WIDE * terms and rows > FEW_ROWS
        return unless(
            (rows <= MOST_ROWS, f"{rows} rows fill tiles in local memory"),
            (not wide, f"{columns} columns of {terms} terms fill tiles in local memory"),
        )

    def form(self, node: GpuNode, columns: int, terms: int) -> Weights:
        """[column / 8, term / 32, column % 8, term % 32] of half."""
        make = self.padded(node, columns, terms)
        return Weights(
            node.inputs[1],
            f"{self.kind_of_weights(node)} {columns}x{terms} for warps",
            lambda array: for_warps(make(array)),
            ElementType.f16,
            only_moves=True,
        )

    def widths(self) -> tuple[int, ...]:
        """Results leave in fours."""
        return (4,)

    def declare_engine(self, call: Call, mode: Mode) -> None:
        """Declare how rows lie; those in tiles are copied ahead where local memory holds enough."""
        memory = call.node.inputs[0].memory
        tiled = memory is not None and memory.row_tiles > 0
        pieces = 2 * mode["BM"] // 16 + mode["BN"] // mode["ACROSS"] // 8
        stage_bytes = mode["ACROSS"] * mode["ALONG"] * pieces * _PIECE_BYTES
        stages = (call.target.declared_local_bytes - _SUMS_BYTES) // stage_bytes
        stages = min(stages, _MOST_STAGES) if tiled else 0
        call.define(TILED=tiled, STAGES=stages if stages > 1 else 0)

    def step_of(self, mode: Mode) -> int:
        """32 for every warp along terms."""
        return 32 * mode["ALONG"]

    def threads(self, mode: Mode) -> int:
        """32 per warp."""
        return 32 * mode["ACROSS"] * mode["ALONG"]

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Any size."""
        return True

    def expected_us(self, node: GpuNode, number: int, target: Target) -> float:
        """Return the expected time of a mode: what a processor reads for its tiles."""
        rows, columns, terms = self.sizes(node)
        mode = self.modes[number]
        groups = -(-rows // mode["BM"]) * -(-columns // mode["BN"])
        rounds = -(-groups // target.compute_units)
        rows_read = 2.0 * mode["BM"] * mode["ACROSS"] * terms / _ROWS_PER_US
        columns_read = 2.0 * mode["BN"] * terms / _COLUMNS_PER_US
        return _START_US + rounds * (rows_read + columns_read)


def for_warps(matrix: Array) -> Array:
    """Return [column, term] so that eight columns of 32 terms are neighbours."""
    columns, terms = matrix.shape
    parts = matrix.reshape(columns // 8, 8, terms // 32, 32)
    return np.ascontiguousarray(parts.swapaxes(1, 2)).reshape(matrix.shape)
