"""MatMul: matrix products, batched."""

from __future__ import annotations

import math

from polydevice.dtype import Array
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op
from polydevice.symbolic_trace import gains
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.byte_terms import declare_sums, is_float_or_byte_product
from polydevice_gpu.kernels.convolution.convolution import (
    best_mode,
    dispatch_tiles,
    pack_weights,
    tile_modes,
    vector_lanes,
)
from polydevice_gpu.kernels.convolution.convolution_bytes import MatmulBytes
from polydevice_gpu.kernels.convolution.convolution_words import MatmulWords
from polydevice_gpu.kernels.gemm.gemm_async import MatmulAsync
from polydevice_gpu.kernels.gemm.gemm_bytes import MatmulOfBytes
from polydevice_gpu.kernels.gemm.gemm_bytes_mma import MatmulBytesMma
from polydevice_gpu.kernels.gemm.gemm_bytes_wgmma import MatmulBytesWgmma
from polydevice_gpu.kernels.gemm.gemm_fed import MatmulFed
from polydevice_gpu.kernels.gemm.gemm_mma import MatmulMma
from polydevice_gpu.kernels.gemm.gemm_subgroup import MatmulSubgroup
from polydevice_gpu.kernels.gemm.gemm_tiled import MatmulTiled
from polydevice_gpu.kernels.gemm.gemm_wgmma import MatmulWgmma
from polydevice_gpu.kernels.gemm.matmul_shape import declare_factors, is_float_pair, matrices
from polydevice_gpu.kernels.geometry import Geometry
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.launch import Weights
from polydevice_gpu.kernels.product.batched import BatchedSubgroup, BatchedTiled
from polydevice_gpu.kernels.product.few_rows import MatmulFewRows
from polydevice_gpu.kernels.product.gemm_warps import MatmulWarps
from polydevice_gpu.kernels.reason import NO_FLOATS, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, ordered, planar
from polydevice_gpu.ops import IntegerMatMul
from polydevice_gpu.rounded_ops import RoundedMatMul

_MANY_ROWS = 1 << 16
"""For which tiles are as large as they can be."""


def _serves_all(target: Target) -> bool:
    """Whether one program takes all numbers of rows, with a path of its own for few.

    384x1536, ms of CPU time on PoCL, behind it a program for each number: 1 row 0.19 and 0.17, 2
    0.22 and 0.20, 4 0.25 and 0.36, 6 0.36 and 0.45; 64 by 1024x4096 13.4 and 15.1.
    """
    return target.sizes_vary and not target.is_throughput


def _lanes(target: Target, n: int) -> int:
    lanes = vector_lanes(target)
    while lanes > 4 and n <= lanes // 2:
        lanes //= 2
    return lanes


kernel(MatMul)(MatmulFewRows)
kernel(MatMul)(MatmulWarps)
kernel(MatMul)(MatmulFed)
kernel(MatMul)(MatmulWgmma)
kernel(MatMul)(MatmulMma)
kernel(MatMul)(MatmulAsync)
kernel(MatMul)(MatmulSubgroup)
kernel(MatMul)(MatmulTiled)


kernel(IntegerMatMul)(MatmulBytesWgmma)
kernel(IntegerMatMul)(MatmulBytesMma)
kernel(IntegerMatMul)(MatmulOfBytes)
kernel(IntegerMatMul)(MatmulBytes)
kernel(RoundedMatMul)(MatmulWords)


@kernel(MatMul, IntegerMatMul)
class MatmulPacked(SingleLaunch):
    """Constant second factor: the product is a 1x1 convolution of rows, and runs as one."""

    source = "convolution/convolution_direct.cl"
    name = "convolution_direct"
    modes = tile_modes((4, 8, 16), (1, 2, 4, 6, 7, 8))

    def refuses(self, node: GpuNode, target: Target) -> str:
        """One constant matrix for all batches; floats."""
        b = node.inputs[1]
        if b.constant is None:
            return "its second factor is no constant"
        return unless(
            (is_float_pair(node) or is_float_or_byte_product(node), NO_FLOATS),
            (math.prod(b.shape[:-2]) == 1 and b.rank > 1, "its constant is not one matrix"),
        )

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Rows in memory order."""
        return {0: planar(node.inputs[0].shape)}

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Rows in memory order."""
        return [planar(node.output.shape)]

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """As for a convolution of that many pixels, of as many as can be where these vary."""
        shape = matrices(node)
        rows = _MANY_ROWS if _serves_all(target) else shape.batches * shape.m
        return best_mode(self.modes, _lanes(target, shape.n), rows, target)

    def describe(self, call: Call, op: MatMul, mode: Mode) -> None:
        """Rows are pixels, columns are channels."""
        node, lanes = call.node, mode["LANES"]
        a, b = node.inputs[0], node.inputs[1]
        shape = matrices(node)
        call.pointer("IN0", a)
        call.access("IN0", a.storage)
        rows = tuple(range(len(shape.batch) + 1))
        factor = [(), (), (), rows, (len(rows),)]
        call.index("IN0", a, shape.a, (*shape.batch, shape.m, shape.k), factor)

        def packed(array: Array) -> Array:
            matrix = array.reshape(array.shape[-2:])
            matrix = matrix if op.transpose_b else matrix.T
            return pack_weights(matrix.reshape(1, shape.n, shape.k, 1), 1, lanes)

        name = f"matrix{op.transpose_b} in blocks of {lanes}"
        form = Weights(b, name, packed, b.storage, only_moves=True)
        call.weights("FILTER", form, (lanes,))
        Geometry.of((1,), (1,), (1,), (0,)).declare(call)
        total = shape.batches * shape.m
        call.scalars(IN_Z=1, IN_Y=1, IN_X=total, OUT_Z=1, OUT_Y=1, OUT_X=total)
        blocks, tiles = -(-shape.n // lanes), -(-total // mode["PIXELS"])
        call.define(LANES=lanes, PIXELS=mode["PIXELS"])
        declare_sums(call)
        call.define(GROUPED=False, WHOLE_BLOCKS=shape.n % lanes == 0)
        call.define(SERVES_ALL=_serves_all(call.target))
        call.scalars(CHANNELS=shape.n, GROUP_IN=shape.k, GROUP_OUT=shape.n)
        call.scalars(BLOCKS=blocks, TILES=tiles)
        batch, m_axis, n_axis = shape.result
        call.result([(), (), (), (*batch, *m_axis), tuple(n_axis)], (lanes,))
        dispatch_tiles(call, blocks, tiles, 1)


kernel(MatMul)(BatchedSubgroup)
kernel(MatMul)(BatchedTiled)


@kernel(MatMul)
class MatmulVector(SingleLaunch):
    """One work-item computes ROWS rows of LANES columns; the second factor may change."""

    modes = tuple({"LANES": n, "ROWS": r} for n in (4, 8, 16) for r in (1, 2, 4, 8))

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Floats, at least four columns."""
        if not is_float_pair(node):
            return NO_FLOATS
        columns = matrices(node).n
        few = gains(lambda: bool(columns < 4))  # what is made for more computes fewer, too
        return unless((not few and node.inputs[1].rank > 1, f"it has only {columns} columns"))

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Columns of the second factor side by side."""
        op, b = node.operation(MatMul), node.inputs[1]
        column = b.rank - 2 if op.transpose_b else b.rank - 1
        if b.placed.pitches[column] == 1:
            return {}
        order = [axis for axis in range(b.rank) if axis != column]
        return {1: ordered(b.shape, [*order, column])}

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The device's vectors; as many rows as there are, up to eight."""
        shape = matrices(node)
        lanes = _lanes(target, shape.n)
        rows = max(r for r in (1, 2, 4, 8) if r <= max(shape.m, 1))
        return list(self.modes).index({"LANES": lanes, "ROWS": rows})

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Vectors of the second factor's columns times single elements of the first."""
        node, lanes, rows = call.node, mode["LANES"], mode["ROWS"]
        shape = matrices(node)
        declare_factors(call, shape, lanes)
        # One program for all sizes, where a work-item asks whether its block is whole.
        whole = not call.target.sizes_vary and shape.n % lanes == 0
        call.define(LANES=lanes, ROWS=rows, WHOLE_BLOCKS=whole)
        blocks, tiles = -(-shape.n // lanes), -(-shape.m // rows)
        call.scalars(COUNT=shape.k, M=shape.m, N=shape.n, BLOCKS=blocks, TILES=tiles)
        call.result(shape.result, (lanes,))
        dispatch_tiles(call, blocks, tiles, shape.batches)


@kernel(MatMul, IntegerMatMul, RoundedMatMul)
class MatmulRef(SingleLaunch):
    """One work-item computes one element of the result."""

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Loop over K."""
        node = call.node
        shape = matrices(node)
        declare_factors(call, shape)
        call.scalars(COUNT=shape.k)
        declare_sums(call, "IN0_C")
        call.result(shape.result)
        call.dispatch((shape.n, shape.m, shape.batches))
