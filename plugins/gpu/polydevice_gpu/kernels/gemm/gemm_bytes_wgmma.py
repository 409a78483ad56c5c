"""Products of bytes on the matrix units of warp groups, sums in i32."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.gemm.gemm import (
    ConvolutionProduct,
    MatmulProduct,
    Pace,
    Tile,
    tile_modes,
)
from polydevice_gpu.kernels.gemm.gemm_bytes_mma import PIECE, declare_matrix_bytes
from polydevice_gpu.kernels.gemm.gemm_wgmma import WgmmaEngine, for_eights
from polydevice_gpu.kernels.kernel import Mode
from polydevice_gpu.kernels.launch import Weights
from polydevice_gpu.kernels.reason import NO_UNIT, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target

# As of half, of which steps of as many bytes take as long.
_TILES: tuple[Tile, ...] = (
    ({"BM": 128, "BN": 128, "BK": 64, "STAGES": 3, "TALL": 1}, Pace(0.35, 0.263, 2)),
    ({"BM": 64, "BN": 128, "BK": 128, "STAGES": 2, "TALL": 1}, Pace(0.44, 0.247, 4)),
    ({"BM": 64, "BN": 192, "BK": 64, "STAGES": 3, "TALL": 1}, Pace(0.32, 0.225, 4)),
    ({"BM": 64, "BN": 64, "BK": 128, "STAGES": 3, "TALL": 1}, Pace(0.22, 0.165, 4)),
)


class BytesWgmmaEngine(WgmmaEngine):
    """As of half, with twice the terms in a step."""

    name = "gemm_bytes_wgmma"
    source = "gemm/gemm_bytes_wgmma.cl"
    tiles = _TILES
    modes = tile_modes(_TILES)
    alignment = PIECE
    element_bytes = 1

    def widths(self) -> tuple[int, ...]:
        """Results leave in eights."""
        return (8,)

    def form(self, node: GpuNode, columns: int, terms: int) -> Weights:
        """[column, term], columns in the order of `for_eights`."""
        make = self.padded(node, columns, terms)
        form = f"{self.kind_of_weights(node)} {columns}x{terms} bytes for eights"
        return Weights(node.inputs[1], form, lambda array: for_eights(make(array)), ElementType.i8)

    def declare_engine(self, call: Call, mode: Mode) -> None:
        """Declare the sign, and what stands for pixels outside."""
        declare_matrix_bytes(self, call, mode, outside=True)

    def misfit(self, node: GpuNode, target: Target) -> str:
        """Say why a product does not fit the units: what comes and leaves in pieces."""
        _, columns, terms = self.sizes(node)
        return unless(
            (self.has_unit(target), NO_UNIT),
            (terms > 0, "it has no terms"),
            (columns % 8 == 0, f"{columns} columns are no multiple of 8"),
            (
                self.channels(node) % PIECE == 0,
                f"{self.channels(node)} terms are no multiple of {PIECE}",
            ),
        )


class ConvolutionBytesWgmma(BytesWgmmaEngine, ConvolutionProduct):
    """Convolution of bytes on matrix units of warp groups."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Channels in pieces."""
        return self.no_product(node) or self.misfit(node, target)


class MatmulBytesWgmma(BytesWgmmaEngine, MatmulProduct):
    """Product of bytes with a constant matrix on matrix units of warp groups."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Terms and columns in pieces."""
        return self.no_product(node) or self.misfit(node, target)
