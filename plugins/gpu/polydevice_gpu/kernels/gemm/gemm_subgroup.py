"""Products whose factors sub-groups keep in registers, without local memory."""

from __future__ import annotations

import math

from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.gemm.gemm import (
    ConvolutionProduct,
    MatmulProduct,
    Pace,
    Product,
    tile_modes,
)
from polydevice_gpu.kernels.gemm.gemm_tiled import ConvolutionTiled, MatmulTiled
from polydevice_gpu.kernels.gemm.half_arithmetic import can_compute, in_half, pays
from polydevice_gpu.kernels.gemm.subgroups import (
    block_read,
    declare_lanes,
    has_size,
    subgroup_tile,
)
from polydevice_gpu.kernels.kernel import Mode
from polydevice_gpu.kernels.launch import Weights
from polydevice_gpu.kernels.reason import (
    LOCAL_MEMORY_IS_FASTER,
    NO_FLOATS,
    NO_SUB_GROUPS,
    ON_PROCESSORS,
    unless,
)
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type

# The paces are not measured, as no GPU with sub-group functions was there: those of gemm_tiled, for
# shares of as many elements, and less alone, as nobody waits at barriers.
_TILES = (
    subgroup_tile(8, 8, 4, 8, Pace(0.27, 0.15)),
    subgroup_tile(8, 8, 2, 4, Pace(0.25, 0.045)),
    subgroup_tile(16, 8, 4, 8, Pace(0.55, 0.55)),
    subgroup_tile(16, 8, 2, 4, Pace(0.5, 0.16)),
    subgroup_tile(16, 4, 1, 4, Pace(0.45, 0.06)),
    subgroup_tile(32, 8, 2, 4, Pace(1.1, 0.6)),
    subgroup_tile(32, 8, 1, 4, Pace(1.0, 0.38)),
    subgroup_tile(64, 8, 1, 4, Pace(2.0, 1.5)),
)
_ALL_TILES = (*_TILES, *in_half(_TILES[2:6]))


class SubgroupEngine(Product):
    """Lanes own columns; each holds one term of every row, which all lanes get in turn."""

    name = "gemm_subgroup"
    source = "gemm/gemm_subgroup.cl"
    tiles = _ALL_TILES
    modes = tile_modes(_ALL_TILES)

    def expected_us(self, node: GpuNode, number: int, target: Target) -> float:
        """Expect nothing of half where the device does not say that it is faster."""
        if not pays(self.modes[number], target):
            return math.inf
        return super().expected_us(node, number, target)

    def widths(self) -> tuple[int, ...]:
        """Lanes read and write side by side, each single elements."""
        return ()

    def threads(self, mode: Mode) -> int:
        """All lanes of all sub-groups."""
        return mode["SG"] * mode["SUBS"]

    def step_of(self, mode: Mode) -> int:
        """One term for each lane."""
        return mode["SG"]

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """There are such sub-groups; every part has at least 64 terms, one part for processors."""
        enough = target.is_throughput and 64 * mode["SPLIT"] <= self.sizes(node)[2]
        return (
            (mode["SPLIT"] == 1 or enough)
            and has_size(target, mode)
            and can_compute(node, mode, target)
        )

    def form(self, node: GpuNode, columns: int, terms: int) -> Weights:
        """[term, column] in the type of the weights."""
        return self.term_rows(node, columns, terms, node.inputs[1].storage)

    def declare_engine(self, call: Call, mode: Mode) -> None:
        """Declare the lanes, and how they read weights at once."""
        kind = "half" if mode.get("HALF") else "float"
        declare_lanes(call, mode, kind)
        storage = call.node.inputs[1].storage
        block = block_read(call.target, storage, "filter + (i)", mode["TN"], kind)
        if block is not None:
            call.define(**{"FILTER_BLOCK(i)": block})

    def misfit(self, node: GpuNode, target: Target) -> str:
        """Say why not: sub-groups of a size that some mode has, and floats."""
        return unless(
            (any(has_size(target, tile) for tile, _ in self.tiles), NO_SUB_GROUPS),
            (compute_type(node.inputs[0].storage) == "float", NO_FLOATS),
        )

    def slower_than(self, other: Product, node: GpuNode, target: Target) -> str:
        """Say where more time is expected than through local memory; always on processor cores.

        There convolution_direct is faster: its vectors need nothing from each other.
        """
        if not target.is_throughput:
            return ON_PROCESSORS
        own, others = (
            engine.expected_us(node, engine.default_mode(node, target), target)
            for engine in (self, other)
        )
        return unless((own <= others, LOCAL_MEMORY_IS_FASTER))


class ConvolutionSubgroup(SubgroupEngine, ConvolutionProduct):
    """Convolution in the registers of sub-groups."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Any size; floats."""
        return self.no_product(node) or self.misfit(node, target)

    def yields(self, node: GpuNode, target: Target) -> str:
        """Say where local memory is expected to be faster."""
        return self.slower_than(ConvolutionTiled(), node, target)


class MatmulSubgroup(SubgroupEngine, MatmulProduct):
    """Product with a constant matrix in the registers of sub-groups."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Any size; floats."""
        return self.no_product(node) or self.misfit(node, target)

    def yields(self, node: GpuNode, target: Target) -> str:
        """Say where local memory is expected to be faster."""
        return self.slower_than(MatmulTiled(), node, target)
