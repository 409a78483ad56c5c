"""Products that measure the rows which they make, and those that normalise rows by that."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.ops.matmul import MatMul
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.byte_terms import declare_sums
from polydevice_gpu.kernels.gemm.gemm import Pace, Tile, tile_modes
from polydevice_gpu.kernels.gemm.gemm_wgmma import MatmulWgmma
from polydevice_gpu.kernels.gemm.matmul_shape import declare_factors, matrices
from polydevice_gpu.kernels.kernel import Kernel, Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.launch import Launch
from polydevice_gpu.kernels.product.gemm_warps import MatmulWarps
from polydevice_gpu.kernels.product.matmul import MatmulRef
from polydevice_gpu.kernels.product.normalized import NormalizedWgmma
from polydevice_gpu.kernels.reason import NO_HALF, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, planar
from polydevice_gpu.measured_ops import MeasuredGather, MeasuredMatMul, MomentsMatMul
from polydevice_gpu.views import integers

# As of `NormalizedWgmma`, always awaited late. On an H200 ViT-B/16 took 0.561 ms with tiles of
# 64x128 and nine stages, 0.541 with the second one. Thirteen stages of the first one leave no room
# for what runs beside: BERT-base took 0.462 ms, 0.449 if no product measured rows.
_TILES = (
    ({"BM": 64, "BN": 64, "BK": 64, "STAGES": 6, "TALL": 1}, Pace(0.22, 0.175, 2)),
    ({"BM": 64, "BN": 96, "BK": 64, "STAGES": 11, "TALL": 1}, Pace(0.25, 0.25, 1)),
)

_LEAST_WIDTH = 24
"""Of a tile whose columns are a slot: a product that normalises reads all slots of its rows."""


_ITEMS = 64
"""Work-items for a row of a table."""
_MOST_HELD = 8
"""Fours of such a row that each of them keeps."""


@kernel(MeasuredMatMul)
class MeasuredWarps(MatmulWarps):
    """The group that adds up what its warps have of a tile measures its rows, too."""

    modes = tuple(mode for mode in MatmulWarps.modes if mode["BN"] % _LEAST_WIDTH == 0)

    def refuses(self, node: GpuNode, target: Target) -> str:
        """As for other products; what is measured is half, in fours."""
        return super().refuses(node, target) or unless(
            (node.output.storage is ElementType.f16, NO_HALF),
            (node.output.shape[-1] % 4 == 0, "its columns are no multiple of 4"),
        )

    def yields(self, node: GpuNode, target: Target) -> str:
        """Never: whoever made it so chose this kernel."""
        return ""

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Rows in memory order."""
        return [planar(value.shape) for value in node.outputs]

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Tiles as wide as slots."""
        return mode["BN"] == node.operation(MeasuredMatMul).width

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """Of those tiles the one with the least expected time."""
        able = [n for n, m in enumerate(self.modes) if self.mode_supports(node, m, target)]
        return min(able, key=lambda n: self.expected_us(node, n, target))

    def declare_engine(self, call: Call, mode: Mode) -> None:
        """Declare where moments go."""
        super().declare_engine(call, mode)
        call.define(MEASURED=True, IN_HALVES=True)
        _declare_moments(call, "OUT1")


@kernel(MeasuredGather)
class MeasuredGatherRef(SingleLaunch):
    """A work-group fetches a row, which it keeps in registers until its mean is known."""

    name = "measured_gather_ref"
    source = "product/measured_gather_ref.cl"

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Rows of a table, which fit into a work-group's registers."""
        x, indices, axis = node.own_inputs
        batch = node.operation(MeasuredGather).batch_dims % (indices.rank + 1)
        is_first = axis.constant is not None and x.rank == 2 and not batch
        return unless(
            (is_first and not normalize_axis(integers(node, 2)[0], 2), "it is no row of a table"),
            (node.output.storage in {ElementType.f16, ElementType.f32}, "it is no f16 or f32"),
            (x.shape[-1] % 4 == 0, "its columns are no multiple of 4"),
            (x.shape[-1] <= _ITEMS * 4 * _MOST_HELD, "its rows do not fit into registers"),
        )

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Rows in memory order."""
        return {0: planar(node.inputs[0].shape)}

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Rows in memory order."""
        return [planar(value.shape) for value in node.outputs]

    def describe(self, call: Call, op: MeasuredGather, mode: Mode) -> None:
        """Coordinates: the row, and the column in it."""
        x, indices, _ = call.node.own_inputs
        y = call.node.output
        rows, columns = y.elements // y.shape[-1], y.shape[-1]
        call.tensor("IN0", x, [(0,), (1,)], (4,))
        call.tensor("IN1", indices, [tuple(range(indices.rank))])
        call.scalars(AXIS=x.shape[0])
        call.define(
            ITEMS=_ITEMS,
            COUNT=columns,
            HELD=-(-columns // (4 * _ITEMS)),
            NEGATIVE=op.negative_indices,
            IN_HALVES=y.storage is ElementType.f16,
        )
        call.result([tuple(range(y.rank - 1)), (y.rank - 1,)], (4,))
        _declare_moments(call, "OUT1")
        call.dispatch((_ITEMS, rows), (_ITEMS, 1))


@kernel(MomentsMatMul)
class MomentsWgmma(NormalizedWgmma):
    """Before rows are stored, mean and deviation of each are joined from those of its slots."""

    name = "moments_wgmma"
    source = "product/moments_wgmma.cl"
    tiles: Sequence[Tile] = _TILES
    modes = tuple(mode for mode in tile_modes(_TILES) if mode["SPLIT"] == 1)

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Rows in memory order; both moments of a slot side by side."""
        return {**super().input_layouts(node, target), 4: planar(node.inputs[4].shape)}

    def declare_engine(self, call: Call, mode: Mode) -> None:
        """Declare what rows and columns get in the end."""
        MatmulWgmma.declare_engine(self, call, mode)
        _, _, sums, shift, _ = call.node.own_inputs
        op = call.node.operation(MomentsMatMul)
        rows, _, terms = self.sizes(call.node)
        # All tiles have as many rows: 197 as four of 50, not as three of 64 and one of 5.
        call.scalars(SPREAD=-(-rows // -(-rows // mode["BM"])), EPSILON=op.eps)
        call.define(SLOTS=-(-terms // op.width), WIDTH=op.width)
        call.buffer("COLUMN_SUMS", sums, "float")
        call.buffer("SHIFTS", shift, "float")
        _declare_moments(call, "IN4")


@kernel(MeasuredMatMul)
class MeasuredMatmulRef(Kernel):
    """A work-item computes an element of the result; then one measures a slot of a row."""

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return the product and what measures it."""
        reference = MatmulRef()
        product = Call(reference.name, reference.source, node, target)
        reference.describe(product, node.op, mode)
        y, moments = node.outputs
        call = Call(self.name, self.source, node, target)
        call.tensor("IN0", y, [tuple(range(y.rank - 1)), (y.rank - 1,)])
        call.define(WIDTH=node.operation(MeasuredMatMul).width)
        call.scalars(COLUMNS=y.shape[-1])
        _declare_moments(call, "OUT1")
        rows, slots, _ = moments.shape
        call.dispatch((slots, rows))
        return [product.launch(), call.launch()]


@kernel(MomentsMatMul)
class MomentsMatmulRef(SingleLaunch):
    """One work-item computes one element of the result, of what was measured of its row."""

    def describe(self, call: Call, op: MatMul, mode: Mode) -> None:
        """Loop over K."""
        node = call.node
        shape = matrices(node)
        declare_factors(call, shape)
        call.tensor("IN3", node.inputs[3], [(0,)])
        _declare_moments(call, "IN4")
        moments = node.operation(MomentsMatMul)
        call.scalars(COUNT=shape.k, M=shape.m, EPSILON=moments.eps)
        call.define(WIDTH=moments.width)
        declare_sums(call, "IN0_C")
        call.result(shape.result)
        call.dispatch((shape.n, shape.m, shape.batches))


def _declare_moments(call: Call, role: str) -> None:
    """Declare moments by row, slot, and which of the two."""
    value = call.node.outputs[1] if role == "OUT1" else call.node.inputs[4]
    groups: Sequence[tuple[int, ...]] = [(0,), (1,), (2,)]
    call.tensor(role, value, groups, (2,))
