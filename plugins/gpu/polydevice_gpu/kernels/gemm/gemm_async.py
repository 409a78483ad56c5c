"""Products in float whose local memory is filled by asynchronous copies."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.gemm.gemm import (
    CHANNELS_SIDE_BY_SIDE,
    ConvolutionProduct,
    MatmulProduct,
    Pace,
    Product,
    tile_modes,
)
from polydevice_gpu.kernels.kernel import Mode
from polydevice_gpu.kernels.launch import Weights
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.target import Target

# Rows and columns of a tile and of a work-item's share, stages of the copy pipeline. Tiles of 128
# by 128 are no faster where they fit (39 TFLOP/s on an H100, as 64 by 64), and fit less often.
_TILES = (
    ({"BM": 128, "BN": 64, "TM": 8, "TN": 8, "STAGES": 3}, Pace(0.95, 0.84)),
    ({"BM": 64, "BN": 64, "TM": 8, "TN": 8, "STAGES": 4}, Pace(0.9, 0.42)),
    ({"BM": 32, "BN": 64, "TM": 4, "TN": 4, "STAGES": 4}, Pace(0.425, 0.32)),
    ({"BM": 32, "BN": 32, "TM": 4, "TN": 4, "STAGES": 4}, Pace(0.35, 0.16)),
    ({"BM": 64, "BN": 16, "TM": 4, "TN": 4, "STAGES": 4}, Pace(0.4, 0.18)),
)


class AsyncEngine(Product):
    """A work-group multiplies strips of both factors while cp.async brings the next ones."""

    name = "gemm_async"
    source = "gemm/gemm_async.cl"
    tiles = _TILES
    modes = tile_modes(_TILES)
    step = 16
    joins_parts = True
    joining_us = 3.0  # ResNet-50's kernels, batch 1, H100: 0.87 ms with 3, 0.97 with 6 and 10
    alignment = 4

    def widths(self) -> tuple[int, ...]:
        """Results leave in vectors of four."""
        return (4,)

    def threads(self, mode: Mode) -> int:
        """One per share of the tile."""
        return mode["BM"] // mode["TM"] * (mode["BN"] // mode["TN"])

    def form(self, node: GpuNode, columns: int, terms: int) -> Weights:
        """[term, column] of float."""
        return self.term_rows(node, columns, terms, ElementType.f32)

    def misfit(self, node: GpuNode, target: Target) -> str:
        """Say why copies cannot bring the factors: float data in pieces of 4 terms."""
        terms = self.channels(node)
        return unless(
            (target.async_copy, "the device has no asynchronous copies"),
            (node.inputs[0].storage is ElementType.f32, "its values are not stored as f32"),
            (terms % 4 == 0, f"{terms} terms are no multiple of 4"),
        )


class ConvolutionAsync(AsyncEngine, ConvolutionProduct):
    """Convolution in float with asynchronous copies."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Float data, channels in pieces of 4, and so many that they are laid side by side."""
        channels = node.inputs[0].shape[1]
        many = channels >= CHANNELS_SIDE_BY_SIDE
        return (
            self.no_product(node)
            or self.misfit(node, target)
            or unless((many, f"its {channels} channels do not lie side by side"))
        )


class MatmulAsync(AsyncEngine, MatmulProduct):
    """Product with a constant matrix in float with asynchronous copies."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Float data, terms in pieces of 4."""
        return self.no_product(node) or self.misfit(node, target)
