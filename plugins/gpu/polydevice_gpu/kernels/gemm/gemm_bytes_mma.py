"""Products of bytes on matrix units, sums in i32."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.byte_terms import zero_of
from polydevice_gpu.kernels.gemm.convolution_shape import has_channels_inside
from polydevice_gpu.kernels.gemm.gemm import (
    ConvolutionProduct,
    MatmulProduct,
    Pace,
    Product,
    tile_modes,
)
from polydevice_gpu.kernels.gemm.gemm_bytes import declare_bytes
from polydevice_gpu.kernels.gemm.gemm_mma import MmaEngine
from polydevice_gpu.kernels.kernel import Mode
from polydevice_gpu.kernels.launch import Launch, Weights
from polydevice_gpu.kernels.reason import NO_UNIT, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout

# As of gemm_mma, whose steps are as many bytes, and whose paces these are.
_TILES = (
    ({"BM": 128, "BN": 128, "WARPS_M": 2, "WARPS_N": 4, "STAGES": 2}, Pace(0.3, 0.2)),
    ({"BM": 128, "BN": 64, "WARPS_M": 2, "WARPS_N": 2, "STAGES": 3}, Pace(0.28, 0.098)),
    ({"BM": 64, "BN": 64, "WARPS_M": 2, "WARPS_N": 2, "STAGES": 4}, Pace(0.25, 0.062)),
    ({"BM": 32, "BN": 64, "WARPS_M": 1, "WARPS_N": 4, "STAGES": 4}, Pace(0.23, 0.056)),
)
PIECE = 16
"""Terms that a copy brings."""


def declare_matrix_bytes(product: Product, call: Call, mode: Mode, *, outside: bool) -> None:
    """Declare what matrix units need beyond tiles.

    Args:
        product: what is multiplied.
        call: the launch.
        mode: of the launch.
        outside: whether pieces that lie outside of the input are copied from somewhere.
    """
    tile = mode["BN"]
    declare_bytes(product, call, -(-product.sizes(call.node)[1] // tile) * tile)
    zero = zero_of(call.node)
    if zero and outside:
        fill = np.full(PIECE, zero).astype(np.int16).astype(np.uint8)
        form = Weights(call.node.inputs[1], f"fill of {zero}", lambda _: fill, ElementType.u8)
        call.buffer("FILL", form, "uchar")


def _interleaved(matrix: Array) -> Array:
    """Order every 16 columns so that a lane's four results are neighbours.

    A lane has columns 2 t and 2 t + 1 of each tile of 8 columns. Of two tiles those shall be the
    neighbours 4 t to 4 t + 3.
    """
    columns, terms = matrix.shape
    lanes = matrix.reshape(columns // 16, 4, 2, 2, terms)
    return np.asarray(lanes.transpose(0, 2, 1, 3, 4).reshape(columns, terms))


class BytesMmaEngine(MmaEngine):
    """A work-group of warps computes a tile with mma.sync, fed by cp.async and ldmatrix."""

    name = "gemm_bytes_mma"
    source = "gemm/gemm_bytes_mma.cl"
    tiles = _TILES
    modes = tile_modes(_TILES)
    step = 64
    alignment = PIECE

    def widths(self) -> tuple[int, ...]:
        """Results leave in vectors of four."""
        return (4,)

    def form(self, node: GpuNode, columns: int, terms: int) -> Weights:
        """[column, term], the columns in the order in which lanes have them."""
        make = self.padded(node, columns, terms)
        form = f"{self.kind_of_weights(node)} {columns}x{terms} interleaved"
        return Weights(
            node.inputs[1], form, lambda array: _interleaved(make(array)), ElementType.i8
        )

    def comes_in_pieces(self, node: GpuNode) -> bool:
        """Whether data can be copied in pieces of 16 terms."""
        return self.channels(node) % PIECE == 0

    def declare_engine(self, call: Call, mode: Mode) -> None:
        """Declare the sign, and what stands for pixels outside."""
        declare_matrix_bytes(self, call, mode, outside=not mode["GATHERED"])

    def misfit(self, node: GpuNode, target: Target) -> str:
        """Say why a product does not fit the units."""
        return unless((target.matrix_unit, NO_UNIT), (self.sizes(node)[2] > 0, "it has no terms"))


class ConvolutionBytesMma(BytesMmaEngine, ConvolutionProduct):
    """Convolution of bytes on matrix units; terms that come in no pieces are gathered."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Any size."""
        return self.no_product(node) or self.misfit(node, target)

    def accepts_layout(self, node: GpuNode, index: int, layout: Layout, target: Target) -> bool:
        """Aligned only where terms come in pieces."""
        if self.comes_in_pieces(node) or index not in self.input_layouts(node, target):
            return super().accepts_layout(node, index, layout, target)
        return has_channels_inside(layout)

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Say whether terms come in pieces."""
        gathered = not self.comes_in_pieces(node)
        return super().launches(node, {**mode, "GATHERED": gathered}, target)


class MatmulBytesMma(BytesMmaEngine, MatmulProduct):
    """Product of bytes with a constant matrix on matrix units."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Terms in pieces of 16; others take long to gather."""
        pieces = f"{self.channels(node)} terms are no multiple of {PIECE}"
        return (
            self.no_product(node)
            or self.misfit(node, target)
            or unless((self.comes_in_pieces(node), pieces))
        )

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Terms always come in pieces."""
        return super().launches(node, {**mode, "GATHERED": False}, target)
