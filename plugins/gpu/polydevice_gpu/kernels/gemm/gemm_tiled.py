"""Products through tiles in local memory, for any device that really has some."""

from __future__ import annotations

import math

from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.gemm.convolution_shape import has_channels_inside
from polydevice_gpu.kernels.gemm.gemm import (
    ConvolutionProduct,
    MatmulProduct,
    Pace,
    Product,
    tile_modes,
)
from polydevice_gpu.kernels.gemm.half_arithmetic import can_compute, in_half, pays
from polydevice_gpu.kernels.kernel import Mode
from polydevice_gpu.kernels.launch import Weights
from polydevice_gpu.kernels.reason import NO_FLOATS, NO_LOCAL_MEMORY, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type

# Rows and columns of a tile and of a work-item's share.
_TILES = (
    ({"BM": 128, "BN": 128, "TM": 8, "TN": 8}, Pace(1.7, 1.7)),
    ({"BM": 128, "BN": 64, "TM": 8, "TN": 4}, Pace(1.5, 1.05)),
    ({"BM": 64, "BN": 64, "TM": 4, "TN": 4}, Pace(0.75, 0.62)),
    ({"BM": 32, "BN": 64, "TM": 4, "TN": 4}, Pace(0.55, 0.38)),
    ({"BM": 64, "BN": 16, "TM": 4, "TN": 4}, Pace(0.6, 0.25)),
)
_ALL_TILES = (*_TILES, *in_half(_TILES))


class TiledEngine(Product):
    """A work-group copies strips of both factors to local memory and multiplies them there."""

    name = "gemm_tiled"
    source = "gemm/gemm_tiled.cl"
    tiles = _ALL_TILES
    modes = tile_modes(_ALL_TILES)
    step = 16

    def expected_us(self, node: GpuNode, number: int, target: Target) -> float:
        """Expect nothing of half where the device does not say that it is faster."""
        if not pays(self.modes[number], target):
            return math.inf
        return super().expected_us(node, number, target)

    def widths(self) -> tuple[int, ...]:
        """Vectors of four."""
        return (4,)

    def threads(self, mode: Mode) -> int:
        """One per share of the tile."""
        return mode["BM"] // mode["TM"] * (mode["BN"] // mode["TN"])

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """The group and its two strips of each factor fit the device."""
        bytes_needed = 2 * 4 * self.step * (mode["BM"] + 4 + mode["BN"])
        return (
            super().mode_supports(node, mode, target)
            and can_compute(node, mode, target)
            and self.threads(mode) <= target.max_work_group_size
            and bytes_needed <= target.local_memory_bytes
        )

    def form(self, node: GpuNode, columns: int, terms: int) -> Weights:
        """[term, column] in the type of the weights."""
        return self.term_rows(node, columns, terms, node.inputs[1].storage)

    def declare_engine(self, call: Call, mode: Mode) -> None:
        """Tell the kernel whether four terms can be read at once."""
        call.define(TERMS_AT_ONCE=self._at_once(call.node))

    def _at_once(self, node: GpuNode) -> int:
        x = node.inputs[0]
        inside = x.rank < 3 or has_channels_inside(x.placed)
        if isinstance(self, MatmulProduct):
            inside = x.placed.pitches[-1] == 1
        return 4 if inside and self.channels(node) % 4 == 0 else 1

    def misfit(self, node: GpuNode, target: Target) -> str:
        """Say why not: local memory, floats, and terms, as the first step is not counted."""
        return unless(
            (target.local_memory_bytes >= 16384, NO_LOCAL_MEMORY),
            (compute_type(node.inputs[0].storage) == "float", NO_FLOATS),
            (self.sizes(node)[2] > 0, "it has no terms"),
        )


class ConvolutionTiled(TiledEngine, ConvolutionProduct):
    """Convolution through local memory."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Any size; floats."""
        return self.no_product(node) or self.misfit(node, target)


class MatmulTiled(TiledEngine, MatmulProduct):
    """Product with a constant matrix through local memory."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Any size; floats."""
        return self.no_product(node) or self.misfit(node, target)
