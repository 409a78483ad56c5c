"""Products of bytes on processor cores: four products are added to each of sixteen sums at once."""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op
from polydevice.symbolic_size import largest, smallest
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.addressing import Groups
from polydevice_gpu.kernels.byte_terms import EXACT_TERMS, fill_of, zero_of
from polydevice_gpu.kernels.gemm.convolution_shape import (
    convolution_geometry,
    groups_of,
    has_channels_inside,
    is_flat,
    pixel_groups,
)
from polydevice_gpu.kernels.gemm.matmul_shape import matrices
from polydevice_gpu.kernels.geometry import Geometry, spatial
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch
from polydevice_gpu.kernels.launch import Weights
from polydevice_gpu.kernels.reason import VARIABLE_WEIGHTS, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, channels_last, planar
from polydevice_gpu.ops import IntegerMatMul

_REGISTERS = 24
"""Most vectors of sums of a work-item; of 32 the others are for factors."""

_LARGEST_SPAN = 2048
"""Pixels that a work-item puts together, in its own memory."""
_LEAST_OF_GROUP = 4
"""Output channels of a group from which on vectors of sums pay, a quarter of their lanes."""

NO_INSTRUCTION = "the device has no vectors of sums of products of bytes"


def lacking_of(weights: Array) -> Array:
    """What weights have more than i8 holds: [groups, outputs] of [groups, outputs, ...]."""
    if weights.dtype == np.int8:
        return np.zeros(weights.shape[:2], np.int8)
    wide = weights.reshape(*weights.shape[:2], -1).astype(np.int64)
    if not wide.size:
        return np.zeros(weights.shape[:2], np.int64)
    more: Array = np.maximum(wide.max(-1) - 127, 0) + np.minimum(wide.min(-1) + 128, 0)
    return more


class BytesDirect(SingleLaunch):
    """One work-item computes VECTORS * 16 columns (channels) of PIXELS rows (pixels)."""

    name = "convolution_bytes"
    source = "convolution/convolution_bytes.cl"
    modes = tuple(
        {"VECTORS": vectors, "PIXELS": pixels}
        for vectors in (1, 2, 4)
        for pixels in (1, 2, 4, 6, 8, 12)
        if vectors * pixels <= _REGISTERS
    )

    def best_mode(self, columns: int, rows: int, target: Target) -> int:
        """The least time."""
        costs = [self.cost(mode, columns, rows, target) for mode in self.modes]
        return costs.index(min(costs))

    def cost(self, mode: Mode, columns: int, rows: int, target: Target) -> float:
        """Return the expected time: a product takes half a step, a read of a factor as much."""
        width = target.nominal(rows)
        pixels, lanes = mode["PIXELS"], 16 * mode["VECTORS"]
        padded = -(-width // pixels) * pixels * -(-columns // lanes) * lanes
        return padded * (1 + 1 / pixels + 1 / mode["VECTORS"])

    def declare_products(
        self, call: Call, mode: Mode, groups: int, group_out: int, group_in: int
    ) -> None:
        """Declare the weights, and what depends on the zero point."""
        node = call.node
        lanes = 16 * mode["VECTORS"]
        b, is_turned = node.inputs[1], getattr(node.op, "transpose_b", False)
        is_matrix = isinstance(node.op, IntegerMatMul)

        padded_out = -(-group_out // lanes) * lanes

        def taps(array: Array) -> Array:
            if is_matrix:
                array = array.reshape(array.shape[-2:])
                array = array if is_turned else array.T
            return array.reshape(groups, group_out, group_in, -1)

        def packed(array: Array) -> Array:
            found = taps(array)
            quads = -(-group_in // 4)
            full = np.zeros((groups, padded_out, quads * 4, found.shape[3]), np.int8)
            full[:, :group_out, :group_in] = found - lacking_of(found)[..., np.newaxis, np.newaxis]
            blocks = full.reshape(-1, lanes, quads, 4, found.shape[3])
            return np.asarray(blocks.transpose(0, 4, 2, 1, 3))

        def lacking(array: Array) -> Array:
            full = np.zeros((groups, padded_out), np.int32)
            full[:, :group_out] = lacking_of(taps(array))
            return full.reshape(-1)

        kind = f"{type(node.op).__name__}{is_turned} {groups} groups"
        form = Weights(b, f"{kind} in quads of {lanes}", packed, ElementType.i8)
        call.weights("FILTER", form)
        flipped, given = node.inputs[0].storage is ElementType.i8, fill_of(node)
        zero = zero_of(node) + (128 if flipped else 0)
        less = 1 if given is not None else zero

        def starts(array: Array) -> Array:
            full = np.zeros((groups, padded_out), np.int64)
            full[:, :group_out] = taps(array).astype(np.int64).sum((2, 3)) * -less
            return full.reshape(-1)

        way = call.target.byte_product
        call.define(IN_ASSEMBLY=way == "x86 assembly", ON_BYTES=way == "x86 bytes")
        call.define(HAS_STARTS=bool(less), FLIPPED=flipped, REST=group_in % 4)
        call.define(POINT="1" if given is None else "(int)PADDING[0]")
        call.define(PADDING="fill" if given is None else "(fill + FILL_AT(0))")
        call.define(HAS_LACKING=b.storage is ElementType.i16)
        if b.storage is ElementType.i16:
            form = Weights(b, f"{kind} what {lanes} lack", lacking, ElementType.i32)
            call.buffer("LACKING", form, "int")
        if less:
            form = Weights(b, f"{kind} sums of {lanes} by {-less}", starts, ElementType.i32)
            call.buffer("STARTS", form, "int")
        if given is not None:
            call.tensor("FILL", given)
            return
        outside = np.full(-(-group_in // 4) * 4, zero_of(node)).astype(
            np.int8 if flipped else np.uint8
        )
        form = Weights(
            b,
            f"{outside.size} of {zero_of(node)}",
            lambda _: outside.view(np.uint8),
            ElementType.u8,
        )
        call.buffer("FILL", form, "uchar")

    def declare_result(self, call: Call, groups: Groups, channels: int) -> None:
        """Declare the result in vectors of 16, and in shorter ones for channels that are left."""
        eights, fours = bool(channels & 8), bool(channels & 4)
        call.define(EIGHTS=eights, FOURS=fours, WHOLE=channels % 16 == 0)
        call.result(groups, (16, *[8] * eights, *[4] * fours))

    def declare_tiles(
        self, call: Call, mode: Mode, groups: int, group_out: int, width: int, rows: int
    ) -> None:
        """Declare blocks and tiles, and the NDRange.

        A work-item computes several blocks of channels where there are enough of them for all
        cores: PoCL takes as long for a work-group as for some 100 products.
        """
        lanes = 16 * mode["VECTORS"]
        of_group, tiles = -(-group_out // lanes), -(-width // mode["PIXELS"])
        blocks = groups * of_group
        several = blocks * tiles * rows // (16 * call.target.compute_units)
        each = smallest([blocks, largest([1, several])])
        call.define(**mode)
        call.scalars(PADDED_OUT=of_group * lanes, BLOCKS=blocks, EACH=each)
        call.dispatch((tiles, -(-blocks // each), rows), (1, 1, 1))


class ConvolutionBytes(BytesDirect):
    """Convolution of bytes in vectors of sums."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Constant weights; groups of some channels, unless floats sum these exactly."""
        groups, group_out, group_in = groups_of(node)
        terms = convolution_geometry(node).taps * group_in
        some = groups == 1 or group_out >= _LEAST_OF_GROUP or terms > EXACT_TERMS
        return unless(
            (target.sums_byte_vectors, NO_INSTRUCTION),
            (node.inputs[1].constant is not None, VARIABLE_WEIGHTS),
            (some, f"groups of {group_out} output channels leave lanes idle"),
        )

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """The output channels of a work-item belong to one group."""
        groups, group_out, _ = groups_of(node)
        return groups == 1 or -(-group_out // 16) % mode["VECTORS"] == 0

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Channels side by side, unless there are so few that any layout will do."""
        fill = fill_of(node)
        wanted = {} if fill is None else {2: planar(fill.shape)}
        if not _puts_pixels_together(node):
            wanted[0] = channels_last(node.inputs[0].shape)
        return wanted

    def accepts_layout(self, node: GpuNode, index: int, layout: Layout, target: Target) -> bool:
        """Channels side by side; pixels may lie further apart."""
        if index == 2:
            return super().accepts_layout(node, index, layout, target)
        return not self.input_layouts(node, target).get(index) or has_channels_inside(layout)

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Channels side by side."""
        return [channels_last(node.output.shape)]

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The least expected time."""
        groups, group_out, _ = groups_of(node)
        best = self.best_mode(groups * group_out, pixel_groups(node)[1][3], target)
        while not self.mode_supports(node, self.modes[best], target):
            best -= 1
        return best

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Loop over the window and the channels, four of them at a time."""
        node = call.node
        x = node.inputs[0]
        groups, group_out, group_in = groups_of(node)
        axes, (batch, z, y, width) = pixel_groups(node)
        if groups > 1 and group_out % 16:
            call.vectors_anywhere()
        call.tensor("IN0", x, axes)
        self.declare_products(call, mode, groups, group_out, group_in)
        convolution_geometry(node).declare(call)
        sizes = (1, 1, width) if is_flat(node) else spatial(x.shape)
        call.scalars(IN_Z=sizes[0], IN_Y=sizes[1], IN_X=sizes[2], OUT_Z=z, OUT_Y=y, OUT_X=width)
        call.define(GROUPED=groups > 1, FEW=_puts_pixels_together(node))
        call.scalars(GROUP_IN=group_in, GROUP_OUT=group_out)
        self.declare_result(call, axes, group_out)
        self.declare_tiles(call, mode, groups, group_out, width, batch * z * y)


def _puts_pixels_together(node: GpuNode) -> bool:
    """Whether there are fewer channels than are summed at once, and windows that memory holds."""
    geometry = convolution_geometry(node)
    span = (geometry.kernel[2] - 1) * geometry.dilations[2] + _REGISTERS * geometry.strides[2]
    return node.inputs[0].shape[1] < 4 and span <= _LARGEST_SPAN


class MatmulBytes(BytesDirect):
    """Product of bytes with a constant matrix: rows are pixels, columns are channels."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """One constant matrix for all batches."""
        b = node.inputs[1]
        if b.constant is None:
            return "its second factor is no constant"
        return unless(
            (target.sums_byte_vectors, NO_INSTRUCTION),
            (math.prod(b.shape[:-2]) == 1 and b.rank > 1, "its constant is not one matrix"),
            (not node.operation(MatMul).transpose_a, "its first factor is transposed"),
        )

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Rows in memory order."""
        return {0: planar(node.inputs[0].shape)}

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Rows in memory order."""
        return [planar(node.output.shape)]

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """As for a convolution of that many pixels."""
        shape = matrices(node)
        return self.best_mode(shape.n, shape.batches * shape.m, target)

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """A convolution with a window of 1."""
        node = call.node
        a, shape = node.inputs[0], matrices(node)
        call.pointer("IN0", a)
        call.access("IN0", a.storage)
        rows = tuple(range(len(shape.batch) + 1))
        factor = [(), (), (), rows, (len(rows),)]
        call.index("IN0", a, shape.a, (*shape.batch, shape.m, shape.k), factor)
        self.declare_products(call, mode, 1, shape.n, shape.k)
        Geometry.of((1,), (1,), (1,), (0,)).declare(call)
        total = shape.batches * shape.m
        call.scalars(IN_Z=1, IN_Y=1, IN_X=total, OUT_Z=1, OUT_Y=1, OUT_X=total)
        call.define(GROUPED=False, FEW=False)
        call.scalars(GROUP_IN=shape.k, GROUP_OUT=shape.n)
        batch, m_axis, n_axis = shape.result
        self.declare_result(call, [(), (), (), (*batch, *m_axis), tuple(n_axis)], shape.n)
        self.declare_tiles(call, mode, 1, shape.n, total, 1)
