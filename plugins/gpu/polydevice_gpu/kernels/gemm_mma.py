"""Convolution and MatMul on matrix units, as one product of pixels and channels."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.matmul import MatMul
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.convolution_shape import (
    convolution_geometry,
    groups_of,
    has_channels_inside,
)
from polydevice_gpu.kernels.geometry import Geometry, spatial, written_groups
from polydevice_gpu.kernels.kernel import Kernel, Mode
from polydevice_gpu.kernels.launch import Launch, Scratch, Weights
from polydevice_gpu.kernels.matmul_shape import matrices
from polydevice_gpu.kernels.source import Call, Groups
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, channels_last, planar

STEP = 32
"""Terms that one stage holds."""

# Rows and columns of a tile, warps along each, stages of the copy pipeline (48 KiB at most), and
# how much of the unit's peak a tile reaches when there are enough of them (from the first row,
# 310 TFLOP/s at 4096^3 on an H100, scaled by bytes fetched per product).
TILES = (
    ({"BM": 128, "BN": 128, "WARPS_M": 2, "WARPS_N": 4, "STAGES": 3}, 1.0),
    ({"BM": 128, "BN": 64, "WARPS_M": 2, "WARPS_N": 2, "STAGES": 4}, 0.8),
    ({"BM": 64, "BN": 64, "WARPS_M": 2, "WARPS_N": 2, "STAGES": 4}, 0.65),
    ({"BM": 32, "BN": 64, "WARPS_M": 1, "WARPS_N": 4, "STAGES": 4}, 0.45),
)
SPLITS = (1, 2, 4, 8, 16)


class GemmMma(Kernel):
    """A work-group computes a tile of pixels by channels; terms may be split over groups."""

    name = "gemm_mma"
    source = "gemm_mma.cl"
    modes = tuple({**tile, "SPLIT": split} for tile, _ in TILES for split in SPLITS)

    def sizes(self, node: GpuNode) -> tuple[int, int, int]:
        """Return rows, columns and terms of the product."""
        raise NotImplementedError

    def pack(self, node: GpuNode) -> Callable[[Array], Array]:
        """Return the function that orders weights as [column, term]."""
        raise NotImplementedError

    def declare(self, call: Call) -> Groups:
        """Declare the input and its window; return the axes behind rows and columns."""
        raise NotImplementedError

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The tile and split with the least expected time."""
        rows, columns, terms = self.sizes(node)

        def cost(index: int) -> float:
            mode, speed = self.modes[index], TILES[index // len(SPLITS)][1]
            tiles = -(-rows // mode["BM"]) * -(-columns // mode["BN"]) * mode["SPLIT"]
            steps = -(-terms // STEP // mode["SPLIT"])
            # One processor takes about 0.2 µs for a step of the largest tile; ten to fill the pipe.
            area = mode["BM"] * mode["BN"] / (128 * 128)
            waves = -(-tiles // target.compute_units)
            time = waves * (steps + 10) * 0.2 * area / speed
            if mode["SPLIT"] > 1:  # another launch, and every part is written and read
                time += 3.0 + rows * columns * 8 * mode["SPLIT"] / 1.5e6
            return time

        return min(range(len(self.modes)), key=cost)

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Every part has at least one step."""
        return mode["SPLIT"] <= -(-self.sizes(node)[2] // STEP)

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return the product, and the sum of the parts if it is split."""
        rows, columns, terms = self.sizes(node)
        split = mode["SPLIT"]
        steps = -(-terms // (STEP * split))
        padded = steps * split * STEP
        tiles_n = -(-columns // mode["BN"])
        parts = Scratch(split * rows * columns, ElementType.f32) if split > 1 else None

        def packed(array: Array) -> Array:
            matrix = self.pack(node)(array)
            full = np.zeros((tiles_n * mode["BN"], padded), np.float16)
            full[:columns, :terms] = matrix
            return full

        call = Call(self.name, self.source, node, target)
        groups = self.declare(call)
        form = f"{type(node.op).__name__} {tiles_n * mode['BN']}x{padded}"
        weights = node.inputs[1]
        call.weights("FILTER", Weights(weights, form, packed, ElementType.f16))
        call.define(**mode)
        call.scalars(ROWS=rows, COLUMNS=columns, STEPS=steps, TERMS=padded)
        if parts is not None:
            call.buffer("PARTS", parts, "float", written=True)
        else:
            call.result(groups, (2,))
        threads = 32 * mode["WARPS_M"] * mode["WARPS_N"]
        call.dispatch((tiles_n * threads, -(-rows // mode["BM"]), split), (threads, 1, 1))
        found = [call.launch()]
        if parts is not None:
            total = Call("sum_parts", "sum_parts.cl", node, target)
            total.buffer("PARTS", parts, "float")
            total.scalars(ROWS=rows, COLUMNS=columns, SPLIT=split)
            total.result(groups, (2,))
            total.dispatch((columns // 2, rows), (32, 4))
            found.append(total.launch())
        return found

    def describe(self, call: Call, mode: Mode) -> None:
        """Not used: `launches` makes one or two."""
        raise NotImplementedError


class ConvolutionMma(GemmMma):
    """Convolution without groups: pixels by output channels, terms are taps by input channels."""

    def supports(self, node: GpuNode, target: Target) -> bool:
        """Matrix units; half data and constant weights; input channels in pieces of 8."""
        groups, out, inputs = groups_of(node)
        return (
            target.matrix_unit
            and groups == 1
            and inputs % 8 == 0
            and out % 2 == 0
            and node.inputs[0].storage is ElementType.f16
            and node.inputs[1].constant is not None
        )

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Channels side by side."""
        return {0: channels_last(node.inputs[0].shape)}

    def accepts_layout(self, node: GpuNode, index: int, layout: Layout, target: Target) -> bool:
        """Channels side by side; pixels may lie further apart."""
        return not self.input_layouts(node, target).get(index) or has_channels_inside(layout, 8)

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Channels side by side."""
        return [channels_last(node.output.shape)]

    def sizes(self, node: GpuNode) -> tuple[int, int, int]:
        """Pixels, output channels, taps times input channels."""
        _, out, inputs = groups_of(node)
        pixels = node.output.elements // max(out, 1)
        return pixels, out, convolution_geometry(node).taps * inputs

    def pack(self, node: GpuNode) -> Callable[[Array], Array]:
        """Order weights as [out, tap, in]."""
        _, out, inputs = groups_of(node)
        return lambda a: a.reshape(out, inputs, -1).transpose(0, 2, 1).reshape(out, -1)

    def declare(self, call: Call) -> Groups:
        """Declare image and window."""
        node = call.node
        x, out = node.inputs[0], node.output
        call.tensor("IN0", x, written_groups(x.rank))
        convolution_geometry(node).declare(call)
        for role, value in (("IN", x), ("OUT", out)):
            z, y, width = spatial(value.shape)
            call.scalars(**{f"{role}_Z": z, f"{role}_Y": y, f"{role}_X": width})
        call.scalars(CHANNELS_IN=x.shape[1])
        return [(0, *range(2, out.rank)), (1,)]


class MatmulMma(GemmMma):
    """Product with a constant matrix: every row of every batch is a pixel."""

    def supports(self, node: GpuNode, target: Target) -> bool:
        """Matrix units; half data; one constant matrix; rows that lie in memory one by one."""
        a, b = node.inputs[0], node.inputs[1]
        if not target.matrix_unit or b.constant is None or b.rank < 2:
            return False
        shape = matrices(node)
        return (
            a.storage is ElementType.f16
            and math.prod(b.shape[:-2]) == 1
            and shape.k % 8 == 0
            and shape.n % 2 == 0
            and not (isinstance(node.op, MatMul) and node.op.transpose_a)
        )

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Rows in memory order."""
        return {0: planar(node.inputs[0].shape)}

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Rows in memory order."""
        return [planar(node.output.shape)]

    def sizes(self, node: GpuNode) -> tuple[int, int, int]:
        """All rows, columns, terms."""
        shape = matrices(node)
        return shape.batches * shape.m, shape.n, shape.k

    def pack(self, node: GpuNode) -> Callable[[Array], Array]:
        """Order weights as [column, term]."""
        op = node.op
        assert isinstance(op, MatMul)

        def ordered(array: Array) -> Array:
            matrix = array.reshape(array.shape[-2:])
            return matrix if op.transpose_b else matrix.T

        return ordered

    def declare(self, call: Call) -> Groups:
        """Declare rows as one line of pixels."""
        node = call.node
        shape = matrices(node)
        a = node.inputs[0]
        rows = tuple(range(len(shape.batch) + 1))
        call.pointer("IN0", a)
        call.access("IN0", a.storage)
        line: Groups = [(), (), (), rows, (len(rows),)]
        call.index("IN0", a, shape.a, (*shape.batch, shape.m, shape.k), line)
        Geometry.of((1,), (1,), (1,), (0,)).declare(call)
        total = shape.batches * shape.m
        call.scalars(IN_Z=1, IN_Y=1, IN_X=total, OUT_Z=1, OUT_Y=1, OUT_X=total)
        call.scalars(CHANNELS_IN=shape.k)
        batch, m_axis, n_axis = shape.result
        return [(*batch, *m_axis), tuple(n_axis)]
