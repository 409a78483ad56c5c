"""Products of rows that are normalised on the way, so that no launch does so before them."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.ops.matmul import MatMul
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.byte_terms import declare_sums
from polydevice_gpu.kernels.gemm.gemm import Pace, Tile, tile_modes
from polydevice_gpu.kernels.gemm.gemm_wgmma import MatmulWgmma
from polydevice_gpu.kernels.gemm.matmul_shape import declare_factors, matrices
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.product.gemm_warps import FEW_ROWS, MOST_ROWS
from polydevice_gpu.kernels.reason import NO_HALF, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import NormalizedMatMul

# As of `gemm_wgmma`, for few rows: products are awaited one step later, while rows are gathered. On
# an H200 ViT-B/16 took 0.694 ms launch by launch with the first tile, 0.664 with the second and
# 0.643 with the third, which has a processor for itself; and 0.885 with twelve stages of the first.
_TILES = (
    ({"BM": 64, "BN": 64, "BK": 64, "STAGES": 6, "TALL": 1, "LATE": 1}, Pace(0.22, 0.175, 2)),
    ({"BM": 64, "BN": 128, "BK": 64, "STAGES": 4, "TALL": 1, "LATE": 1}, Pace(0.33, 0.26, 2)),
    ({"BM": 64, "BN": 128, "BK": 64, "STAGES": 9, "TALL": 1, "LATE": 1}, Pace(0.3, 0.3, 1)),
)


@kernel(NormalizedMatMul)
class NormalizedWgmma(MatmulWgmma):
    """Sums and squares of rows are gathered while the matrix units of warp groups multiply."""

    tiles: Sequence[Tile] = _TILES
    modes = tuple(mode for mode in tile_modes(_TILES) if mode["SPLIT"] == 1)
    few = 0

    def is_alone(self, mode: Mode) -> bool:
        """Never: a tile leaves registers for others."""
        return False

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Half data, terms and columns in pieces of 8."""
        return super().refuses(node, target) or unless(
            (node.inputs[0].storage is ElementType.f16, NO_HALF),
            (self.leaves_in_eights(node), "its columns are no multiple of 8"),
        )

    def yields(self, node: GpuNode, target: Target) -> str:
        """Many rows: larger tiles compute them faster, and nobody waits for their launch.

        Few: a stage of one launch for one row of 768 and 3072 columns took 12.8 us on an H200.
        """
        rows = self.sizes(node)[0]
        return unless(
            (rows <= MOST_ROWS, f"{rows} rows fill larger tiles"),
            (rows > FEW_ROWS, f"{rows} rows leave tiles empty"),
        )

    def declare_engine(self, call: Call, mode: Mode) -> None:
        """Declare what rows and columns get in the end."""
        super().declare_engine(call, mode)
        _, _, sums, shift = call.node.own_inputs
        call.define(NORMALIZED=True)
        call.scalars(EPSILON=call.node.operation(NormalizedMatMul).eps)
        call.buffer("COLUMN_SUMS", sums, "float")
        call.buffer("SHIFTS", shift, "float")


@kernel(NormalizedMatMul)
class NormalizedMatmulRef(SingleLaunch):
    """One work-item computes one element of the result, and mean and deviation of its row."""

    def describe(self, call: Call, op: MatMul, mode: Mode) -> None:
        """Loop over K."""
        node = call.node
        shape = matrices(node)
        declare_factors(call, shape)
        call.tensor("IN3", node.inputs[3], [(0,)])
        call.scalars(COUNT=shape.k, EPSILON=node.operation(NormalizedMatMul).eps)
        declare_sums(call, "IN0_C")
        call.result(shape.result)
        call.dispatch((shape.n, shape.m, shape.batches))
