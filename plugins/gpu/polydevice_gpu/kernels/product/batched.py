"""Products of two variables, batched: through local memory, or in the registers of sub-groups."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from polydevice.dtype import ElementType
from polydevice.ops.op import Op
from polydevice.shape import happen_to_be_equal
from polydevice.symbolic_size import largest
from polydevice.symbolic_trace import chosen
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.addressing import aligned_widths
from polydevice_gpu.kernels.gemm.gemm import Pace, Tile
from polydevice_gpu.kernels.gemm.matmul_shape import (
    Matrices,
    declare_factors,
    is_float_pair,
    matrices,
)
from polydevice_gpu.kernels.gemm.subgroups import (
    block_read,
    declare_lanes,
    has_size,
    subgroup_tile,
)
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, follow
from polydevice_gpu.kernels.reason import (
    LOCAL_MEMORY_IS_FASTER,
    NO_FLOATS,
    NO_LOCAL_MEMORY,
    NO_SUB_GROUPS,
    ON_PROCESSORS,
    unless,
)
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, planar

_FEWEST_RESULTS = 64
"""Results of one product of a batch below which even the smallest tile is nearly empty."""


class BatchedProduct(SingleLaunch):
    """What both have in common: work-groups of tiles in one line, and their expected time.

    Attributes:
        tiles: the modes, BM rows by BN columns, and how fast they take their steps.
        lacking: what a device lacks that no tile fits.
    """

    tiles: Sequence[Tile]
    lacking: ClassVar[str]

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Floats, any layout; products that fill a part of a tile, and a tile that runs."""
        if not is_float_pair(node):
            return NO_FLOATS
        if not any(self.mode_supports(node, mode, target) for mode in self.modes):
            return self.lacking
        shape = matrices(node)
        some = chosen(lambda: shape.m * shape.n >= _FEWEST_RESULTS)
        return unless((some, "its results leave a tile nearly empty"))

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """In the order of the inputs if that leaves columns side by side."""
        layout = follow(node.output, node.own_inputs)
        beside = happen_to_be_equal(layout.pitches[-1], 1)
        return [layout if beside else planar(node.output.shape)]

    def expected_us(self, node: GpuNode, number: int, target: Target) -> float:
        """Return the expected time of a mode without what all of them take."""
        shape = matrices(node)
        mode, pace = self.tiles[number]
        if not self.mode_supports(node, mode, target):
            return math.inf
        groups = shape.batches * math.prod(_counts(shape, mode))
        share = -(-groups // target.compute_units)
        steps = -(-shape.k // self.step_of(mode))
        return steps * max(pace.alone_us, share * pace.shared_us)

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The tile with the least expected time."""
        return min(range(len(self.modes)), key=lambda n: self.expected_us(node, n, target))

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Declare factors and tiles; one line of work-groups."""
        shape, threads = matrices(call.node), self.threads(mode)
        declare_factors(call, shape)
        tiles_m, tiles_n = _counts(shape, mode)
        call.define(**mode)
        self.declare_engine(call, shape, mode)
        call.scalars(COUNT=shape.k, M=shape.m, N=shape.n, TILES_M=tiles_m, TILES_N=tiles_n)
        call.result(shape.result, (4,))
        call.dispatch((shape.batches * tiles_m * tiles_n * threads,), (threads,))

    @abstractmethod
    def threads(self, mode: Mode) -> int:
        """Return the work-items of a group."""

    @abstractmethod
    def step_of(self, mode: Mode) -> int:
        """Return the terms that a work-group takes at a time."""

    @abstractmethod
    def declare_engine(self, call: Call, shape: Matrices, mode: Mode) -> None:
        """Declare what one .cl file needs and the other does not."""


def _counts(shape: Matrices, mode: Mode) -> tuple[int, int]:
    """Return how many tiles lie above and beside each other; one where there is nothing."""
    rows, columns = -(-shape.m // mode["BM"]), -(-shape.n // mode["BN"])
    return largest([rows, 1]), largest([columns, 1])


class BatchedTiled(BatchedProduct):
    """A work-group copies strips of both factors to local memory and multiplies them there."""

    lacking = NO_LOCAL_MEMORY

    # Rows and columns of a tile and of a work-item's share. The paces are those of gemm_tiled on
    # an H100 for tiles of that area, as nothing was measured with batched_tiled yet.
    tiles = (
        ({"BM": 16, "BN": 64, "TM": 4, "TN": 4}, Pace(0.6, 0.25)),
        ({"BM": 64, "BN": 16, "TM": 4, "TN": 4}, Pace(0.6, 0.25)),
        ({"BM": 32, "BN": 64, "TM": 4, "TN": 4}, Pace(0.55, 0.38)),
        ({"BM": 128, "BN": 128, "TM": 8, "TN": 8}, Pace(1.7, 1.7)),
        ({"BM": 64, "BN": 64, "TM": 4, "TN": 4}, Pace(0.75, 0.62)),
    )
    modes = tuple(tile for tile, _ in tiles)

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """The group and its strips fit the device."""
        bytes_needed = 4 * self.step_of(mode) * (mode["BM"] + 4 + mode["BN"] + 4)
        return (
            self.threads(mode) <= target.max_work_group_size
            and bytes_needed <= target.local_memory_bytes
        )

    def threads(self, mode: Mode) -> int:
        """One per share of the tile."""
        return mode["BM"] // mode["TM"] * (mode["BN"] // mode["TN"])

    def step_of(self, mode: Mode) -> int:
        """BK in the .cl file."""
        return 16

    def declare_engine(self, call: Call, shape: Matrices, mode: Mode) -> None:
        """Factors are read along whatever lies side by side."""
        call.define(TERMS_FIRST_A=shape.a.pitches[-2] != 1, TERMS_FIRST_B=shape.b.pitches[-1] != 1)


class BatchedSubgroup(BatchedProduct):
    """Lanes own columns; each holds one term of every row, which all lanes get in turn."""

    lacking = NO_SUB_GROUPS

    # Not measured on a GPU, as the paces of gemm_subgroup.
    tiles = (
        subgroup_tile(8, 8, 4, 4, Pace(0.27, 0.08)),
        subgroup_tile(16, 8, 2, 4, Pace(0.5, 0.16)),
        subgroup_tile(16, 4, 1, 4, Pace(0.45, 0.06)),
        subgroup_tile(32, 8, 2, 4, Pace(1.1, 0.6)),
        subgroup_tile(32, 8, 1, 4, Pace(1.0, 0.38)),
        subgroup_tile(64, 8, 1, 4, Pace(2.0, 1.5)),
    )
    modes = tuple(tile for tile, _ in tiles)

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """There are such sub-groups."""
        return has_size(target, mode)

    def yields(self, node: GpuNode, target: Target) -> str:
        """Say where lanes do not read columns side by side, or local memory should be faster.

        Always on processor cores, where matmul_vector is.
        """
        if not target.is_throughput:
            return ON_PROCESSORS
        if matrices(node).b.pitches[-1] != 1:
            return "columns of its second factor do not lie side by side"
        other = BatchedTiled()
        own, others = (
            kernel.expected_us(node, kernel.default_mode(node, target), target)
            for kernel in (self, other)
        )
        return unless((own <= others, LOCAL_MEMORY_IS_FASTER))

    def threads(self, mode: Mode) -> int:
        """All lanes of all sub-groups."""
        return mode["SG"] * mode["SUBS"]

    def step_of(self, mode: Mode) -> int:
        """One term for each lane."""
        return mode["SG"]

    def declare_engine(self, call: Call, shape: Matrices, mode: Mode) -> None:
        """Declare the lanes, and how they read columns at once."""
        declare_lanes(call, mode, "float")
        storage = call.node.inputs[1].storage
        unit = 2 if storage is ElementType.f16 else 1  # block reads begin at whole words
        sizes = (*shape.batch, shape.k, shape.n)
        if aligned_widths(shape.b, sizes, shape.groups(), (unit,))[unit]:
            block = block_read(call.target, storage, "in1 + (i)", mode["TN"])
            if block is not None:
                call.define(**{"IN1_BLOCK(i)": block})
