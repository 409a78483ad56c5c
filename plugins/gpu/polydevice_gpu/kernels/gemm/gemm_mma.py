"""Products on matrix units: half data, sums in float."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.gemm.convolution_shape import has_channels_inside
from polydevice_gpu.kernels.gemm.gemm import (
    ConvolutionProduct,
    MatmulProduct,
    Pace,
    Product,
    Tile,
    tile_modes,
)
from polydevice_gpu.kernels.kernel import Mode
from polydevice_gpu.kernels.launch import Launch, Weights
from polydevice_gpu.kernels.reason import NO_FLOATS, NO_HALF, NO_UNIT, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.layout import Layout

# Rows and columns of a tile, warps along each, stages of the copy pipeline (47 KiB at most).
_TILES = (
    ({"BM": 128, "BN": 128, "WARPS_M": 2, "WARPS_N": 4, "STAGES": 2}, Pace(0.3, 0.2)),
    ({"BM": 128, "BN": 64, "WARPS_M": 2, "WARPS_N": 2, "STAGES": 3}, Pace(0.28, 0.098)),
    ({"BM": 64, "BN": 64, "WARPS_M": 2, "WARPS_N": 2, "STAGES": 4}, Pace(0.25, 0.062)),
    ({"BM": 32, "BN": 64, "WARPS_M": 1, "WARPS_N": 4, "STAGES": 4}, Pace(0.23, 0.056)),
)


class MmaEngine(Product):
    """A work-group of warps computes a tile with mma.sync, fed by cp.async and ldmatrix."""

    name = "gemm_mma"
    source = "gemm/gemm_mma.cl"
    tiles: Sequence[Tile] = _TILES
    modes = tile_modes(_TILES)
    step = 32
    joins_parts = True
    writes_tiles = True
    joining_us = 10.0  # ResNet-50, batch 1, inputs there, H100: 0.73 ms with 3, 0.69 with 6, 0.62
    alignment = 8

    def widths(self) -> tuple[int, ...]:
        """Results leave in eights, or in pairs where columns are no multiple of 8."""
        return (2, 8)

    def leaves_in_eights(self, node: GpuNode) -> bool:
        """Whether eight neighbouring results are stored at once.

        Pairs alone took twice the time of the products where terms are few: 6304x3072x768 on an
        H200 123 us, of which 54 for the stores.
        """
        return self.sizes(node)[1] % 8 == 0

    def declare_engine(self, call: Call, mode: Mode) -> None:
        """Say how results leave."""
        call.define(WIDE=self.leaves_in_eights(call.node))

    def threads(self, mode: Mode) -> int:
        """32 per warp."""
        return 32 * mode["WARPS_M"] * mode["WARPS_N"]

    def form(self, node: GpuNode, columns: int, terms: int) -> Weights:
        """[column, term] of half."""
        form = f"{self.kind_of_weights(node)} {columns}x{terms}"
        make = self.padded(node, columns, terms)
        return Weights(node.inputs[1], form, make, ElementType.f16, only_moves=True)

    def comes_in_pieces(self, node: GpuNode) -> bool:
        """Whether half data can be copied in pieces of 8 terms."""
        return node.inputs[0].storage is ElementType.f16 and self.channels(node) % 8 == 0

    def has_unit(self, target: Target) -> bool:
        """Whether the device has the matrix units."""
        return target.matrix_unit

    def misfit(self, node: GpuNode, target: Target) -> str:
        """Say why a product does not fit the units: they give pairs of columns."""
        columns = self.sizes(node)[1]
        return unless(
            (self.has_unit(target), NO_UNIT), (columns % 2 == 0, f"{columns} columns are odd")
        )


class ConvolutionMma(MmaEngine, ConvolutionProduct):
    """Convolution on matrix units.

    Terms that do not come in pieces are gathered one by one: few or odd channels, as those of
    pictures, and f32 inputs of networks in f16, in any layout. They are rounded to half on the way.
    """

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Half data, or float data whose result is half."""
        kinds = (node.inputs[0].storage, node.output.storage)
        half = kinds[0] is ElementType.f16 or kinds == (ElementType.f32, ElementType.f16)
        return self.no_product(node) or self.misfit(node, target) or unless((half, NO_HALF))

    def accepts_layout(self, node: GpuNode, index: int, layout: Layout, target: Target) -> bool:
        """Aligned only where terms come in pieces."""
        if self.comes_in_pieces(node) or index not in self.input_layouts(node, target):
            return super().accepts_layout(node, index, layout, target)
        return has_channels_inside(layout)

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Say whether terms come in pieces."""
        gathered = not self.comes_in_pieces(node)
        return super().launches(node, {**mode, "GATHERED": gathered}, target)


class MatmulMma(MmaEngine, MatmulProduct):
    """Product with a constant matrix on matrix units."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Half data, or float data of a network in half; terms in pieces of 8."""
        return no_half_product(self, node) or self.misfit(node, target)

    def input_storage(self, node: GpuNode, target: Target) -> dict[int, ElementType]:
        """Half, also where the network's input is float."""
        return {0: ElementType.f16}

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Terms always come in pieces."""
        return super().launches(node, {**mode, "GATHERED": False}, target)


def no_half_product(product: MatmulProduct, node: GpuNode) -> str:
    """Say why a product with a constant matrix is none of half data in pieces of 8 terms.

    Weights that are stored as half say that the network computes in half, whatever the type of its
    inputs.
    """
    return product.no_product(node) or unless(
        (node.inputs[1].storage is ElementType.f16, NO_HALF),
        (compute_type(node.inputs[0].storage) == "float", NO_FLOATS),
        (product.channels(node) % 8 == 0, f"{product.channels(node)} terms are no multiple of 8"),
    )
