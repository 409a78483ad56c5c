"""Products on the matrix units of warp groups: half data from local memory, sums in float."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Mode
from polydevice_gpu.kernels.product.gemm import (
    ConvolutionProduct,
    MatmulProduct,
    Pace,
    tile_modes,
)
from polydevice_gpu.kernels.product.gemm_mma import MmaEngine, no_half_product
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.target import Target

# Rows and columns of a tile, terms of a step, stages of the copy pipeline: 48 KiB at most. Paces
# are fitted to an H200's times of 15 products from 128x768x768 to 8192x8192x8192, met within 10 %.
# Tried there and slower: 256 columns (one group for each processor), 192 columns by 128 rows, steps
# of 16 terms, copies that stay in the processor's own cache.
_TILES = (
    ({"BM": 128, "BN": 128, "BK": 32, "STAGES": 3}, Pace(0.35, 0.295)),
    ({"BM": 64, "BN": 128, "BK": 64, "STAGES": 2}, Pace(0.44, 0.3)),
    ({"BM": 64, "BN": 192, "BK": 32, "STAGES": 3}, Pace(0.32, 0.255)),
    ({"BM": 64, "BN": 64, "BK": 64, "STAGES": 3}, Pace(0.22, 0.19)),
)


class WgmmaEngine(MmaEngine):
    """A work-group of warp groups computes a tile with wgmma, fed by cp.async.

    It stands before the units of warps: on an H200 those took longer at all of 13 products from
    256x128x512 to 8192x8192x8192, by 1 to 60 %.
    """

    name = "gemm_wgmma"
    source = "product/gemm_wgmma.cl"
    tiles = _TILES
    modes = tile_modes(_TILES)
    start_us = 4.0
    joining_us = 2.0

    def step_of(self, mode: Mode) -> int:
        """32 or 64 terms."""
        return mode["BK"]

    def threads(self, mode: Mode) -> int:
        """A warp group of 128 for every 64 rows."""
        return 2 * mode["BM"]

    def has_unit(self, target: Target) -> bool:
        """Whether the device has the matrix units of warp groups."""
        return target.warp_group_unit


class ConvolutionWgmma(WgmmaEngine, ConvolutionProduct):
    """Convolution on matrix units of warp groups."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Half data, channels in pieces of 8."""
        pieces = unless((self.comes_in_pieces(node), "its values are no half in pieces of 8"))
        return self.no_product(node) or self.misfit(node, target) or pieces


class MatmulWgmma(WgmmaEngine, MatmulProduct):
    """Product with a constant matrix on matrix units of warp groups."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Half data, or float data of a network in half; terms in pieces of 8."""
        return no_half_product(self, node) or self.misfit(node, target)

    def input_storage(self, node: GpuNode, target: Target) -> dict[int, ElementType]:
        """Half, also where the network's input is float."""
        return {0: ElementType.f16}
