"""Products on the matrix units of warp groups: half data from local memory, sums in float."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.processor.strips import row_major
from polydevice.symbolic_trace import chosen
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.gemm.gemm import (
    ConvolutionProduct,
    MatmulProduct,
    Pace,
    Tile,
    tile_modes,
)
from polydevice_gpu.kernels.gemm.gemm_mma import MmaEngine, no_half_product
from polydevice_gpu.kernels.kernel import Mode
from polydevice_gpu.kernels.launch import Launch, Weights
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.target import Target

# Rows and columns of a tile, terms of a step, stages of the copy pipeline, and how
# many times 64 rows a warp group has: with two, three groups of 168 registers share a processor.
# Paces are those of an H200, stores left out, met within 10 %.
# The last three, whose only group takes a processor's 224 KiB, await products one step later: 4096
# cubed 241 -> 203 us by that. Tried there and slower: 256 by 128, 128 by 128 likewise, steps of
# 16 terms, copies that stay in the processor's own cache, and rows that go to registers instead of
# local memory, with columns copied in bulk behind one barrier or not.
_TILES = (
    ({"BM": 64, "BN": 128, "BK": 64, "STAGES": 2, "TALL": 1}, Pace(0.35, 0.247, 4)),
    ({"BM": 64, "BN": 192, "BK": 32, "STAGES": 3, "TALL": 1}, Pace(0.32, 0.225, 4)),
    ({"BM": 64, "BN": 64, "BK": 64, "STAGES": 3, "TALL": 1}, Pace(0.22, 0.165, 4)),
    ({"BM": 128, "BN": 128, "BK": 32, "STAGES": 3, "TALL": 2}, Pace(0.42, 0.232, 3)),
    ({"BM": 128, "BN": 256, "BK": 64, "STAGES": 4, "TALL": 1, "LATE": 1}, Pace(0.75, 0.75, 1)),
    ({"BM": 128, "BN": 192, "BK": 64, "STAGES": 5, "TALL": 1, "LATE": 1}, Pace(0.54, 0.54, 1)),
    ({"BM": 256, "BN": 192, "BK": 64, "STAGES": 4, "TALL": 2, "LATE": 1}, Pace(1.16, 1.16, 1)),
)

_STORED_PER_US = 3.2e6
_BETWEEN_US = 0.7
_BESIDE_US = 0.5
"""That groups take longer to begin where they share processors."""
_BYTES_PER_US = 12.6e6
"""What an H200's cache gives to tiles."""


def without_tall_parts(modes: Sequence[Mode]) -> tuple[Mode, ...]:
    """Terms are split only where warp groups have 64 rows, and groups share processors."""
    return tuple(m for m in modes if m["SPLIT"] == 1 or (m["TALL"] == 1 and "LATE" not in m))


class WgmmaEngine(MmaEngine):
    """A work-group of warp groups computes a tile with wgmma, fed by cp.async.

    It stands before the units of warps: on an H200 those took longer at all of 13 products from
    256x128x512 to 8192x8192x8192, by 1 to 60 %.

    Attributes:
        element_bytes: of an element of either factor.
        few: work-groups for each processor that find room with twice the stages.
    """

    name = "gemm_wgmma"
    source = "gemm/gemm_wgmma.cl"
    tiles: Sequence[Tile] = _TILES
    modes = without_tall_parts(tile_modes(_TILES))
    start_us = 4.0
    joining_us = 2.0
    element_bytes = 2
    few = 2

    def step_of(self, mode: Mode) -> int:
        """32 or 64 terms."""
        return mode["BK"]

    def threads(self, mode: Mode) -> int:
        """A warp group of 128 for every 64 rows."""
        return 2 * mode["BM"] // mode["TALL"]

    def is_alone(self, mode: Mode) -> bool:
        """Whether a work-group has a processor for itself."""
        return "LATE" in mode

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Copy twice as many stages ahead where processors have few groups.

        ResNet-50 and BERT-base, f16, batch 1, H200: 0.478 -> 0.432 and 0.658 -> 0.588 ms, before
        there were tiles of 128 rows for a warp group, which stay as they are. Of bytes, batch 32:
        products of 6272 rows 21 -> 17 and 12 -> 10 us.
        """
        rows, columns, _ = self.sizes(node)
        groups = -(-rows // mode["BM"]) * -(-columns // mode["BN"]) * mode["SPLIT"]
        alone = self.is_alone(mode)
        may_double = not alone and mode["TALL"] == 1
        if may_double and chosen(lambda: groups <= self.few * target.compute_units):
            mode = {**mode, "STAGES": 2 * mode["STAGES"]}
        found = super().launches(node, mode, target)
        if alone:  # it takes all local memory and registers: no part of other launches
            found = [dataclasses.replace(launch, body=None) for launch in found]
        return found

    def form(self, node: GpuNode, columns: int, terms: int) -> Weights:
        """[column, term] of half, columns in the order of `for_eights` if need be."""
        plain = super().form(node, columns, terms)
        if not self.leaves_in_eights(node):
            return plain
        padded = self.padded(node, columns, terms)
        return Weights(
            plain.value,
            f"{plain.form} for eights",
            lambda array: for_eights(padded(array)),
            plain.storage,
            plain.only_moves,
        )

    def expected_us(self, node: GpuNode, number: int, target: Target) -> float:
        """Return the expected time of a mode: no tile is faster than the cache can fill it."""
        rows, columns, terms = self.sizes(node)
        mode = self.modes[number]
        tiles = -(-rows // mode["BM"]) * -(-columns // mode["BN"])
        moved = 1.0 * tiles * (mode["BM"] + mode["BN"]) * terms * self.element_bytes
        moving = self.start_us + moved / _BYTES_PER_US
        computing = super().expected_us(node, number, target)
        if self.is_alone(mode):  # nobody computes while a processor's only group begins and stores
            computing += tiles // target.compute_units * _BETWEEN_US
        elif tiles * mode["SPLIT"] > target.compute_units:
            computing += _BESIDE_US
        stored = rows * columns * self.element_bytes / 2
        return max(moving, computing) + stored / _STORED_PER_US

    def has_unit(self, target: Target) -> bool:
        """Whether the device has the matrix units of warp groups."""
        return target.warp_group_unit


def for_eights(matrix: Array) -> Array:
    """Return [column, …] so that a work-item of the units gets eight neighbours.

    It gets columns 2l, 2l + 1, 2l + 8, 2l + 9 … of a product; so these trade places in every 32.
    """
    columns, *rest = matrix.shape
    parts = row_major(matrix).reshape(columns // 32, 4, 4, 2, *rest)
    return np.ascontiguousarray(parts.swapaxes(1, 2)).reshape(matrix.shape)


class ConvolutionWgmma(WgmmaEngine, ConvolutionProduct):
    """Convolution on matrix units of warp groups."""

    modes = tuple(mode for mode in WgmmaEngine.modes if "LATE" not in mode)

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
