"""Products of what is rounded to 16 bits: two are added to each of sixteen sums at once."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.addressing import Groups
from polydevice_gpu.kernels.byte_terms import inverse_of
from polydevice_gpu.kernels.convolution.convolution_bytes import (
    NO_INSTRUCTION,
    BytesDirect,
    ConvolutionBytes,
    MatmulBytes,
)
from polydevice_gpu.kernels.gemm.convolution_shape import convolution_geometry, pixel_groups
from polydevice_gpu.kernels.gemm.matmul_shape import matrices
from polydevice_gpu.kernels.kernel import Mode
from polydevice_gpu.kernels.launch import Weights
from polydevice_gpu.kernels.pointwise.expression import literal
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, channels_last
from polydevice_gpu.rounded_ops import (
    MOST_BYTES,
    RoundedConvolution,
    RoundedMatMul,
    bytes_of_window,
)


class WordsDirect(BytesDirect):
    """One work-item rounds what it reads, and computes VECTORS * 16 columns of PIXELS rows."""

    name = "convolution_words"
    source = "convolution/convolution_words.cl"

    def refuses(self, node: GpuNode, target: Target) -> str:
        """What has the instruction that adds four products of bytes has that of two words, too."""
        return unless(
            (target.sums_byte_vectors, NO_INSTRUCTION),
            (node.inputs[0].storage is ElementType.f32, "it reads no f32"),
        )

    def supported_mode(self, node: GpuNode, columns: int, rows: int, target: Target) -> int:
        """The least expected time of those modes that the node supports."""
        able = [n for n, mode in enumerate(self.modes) if self.mode_supports(node, mode, target)]
        return min(able, key=lambda number: self.cost(self.modes[number], columns, rows, target))

    def declare_products(
        self, call: Call, mode: Mode, groups: int, group_out: int, group_in: int
    ) -> None:
        """Declare the weights, how to round, and what sums begin with."""
        op, b, lanes = call.node.op, call.node.inputs[1], 16 * mode["VECTORS"]
        assert isinstance(op, (RoundedConvolution, RoundedMatMul))
        is_turned = getattr(op, "transpose_b", True)
        padded_out, pairs = -(-group_out // lanes) * lanes, -(-group_in // 2)
        # Whole numbers are kept in i16: those of u16 less so many.
        less = 0 if op.low >= -32768 and op.high <= 32767 else op.low + 32768

        def taps(array: Array) -> Array:
            return (array if is_turned else array.T).reshape(group_out, group_in, -1)

        def packed(array: Array) -> Array:
            found = taps(array)
            full = np.zeros((padded_out, pairs * 2, found.shape[2]), np.int16)
            full[:group_out, :group_in] = found
            blocks = full.reshape(-1, lanes, pairs, 2, found.shape[2])
            return np.asarray(blocks.transpose(0, 4, 2, 1, 3))

        def starts(array: Array) -> Array:
            full = np.zeros(padded_out, np.int64)
            full[:group_out] = taps(array).astype(np.int64).sum((1, 2)) * less
            return full.astype(np.int32)  # sums wrap, and are right in the end

        kind = f"{type(op).__name__}{is_turned}"
        form = Weights(b, f"{kind} in pairs of {lanes}", packed, ElementType.i16)
        call.weights("FILTER", form)
        if less:
            form = Weights(b, f"{kind} sums of {lanes} by {less}", starts, ElementType.i32)
            call.buffer("STARTS", form, "int")
        call.define(IN_ASSEMBLY=call.target.byte_product == "x86 assembly", TERMS=group_in)
        call.define(INVERSE=literal(inverse_of(op.scale)), LESS=less)
        call.define(LOW=literal(op.low), HIGH=literal(op.high))

    def declare_result(self, call: Call, groups: Groups, channels: int) -> None:
        """Declare the result in vectors of 16."""
        call.result(groups, (16,))


class ConvolutionWords(WordsDirect, ConvolutionBytes):
    """Convolution of what is rounded."""

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Pixels that the nearest cache holds, or a single one."""
        geometry, channels = convolution_geometry(node), node.inputs[0].shape[1]
        row = (mode["PIXELS"] - 1) * geometry.strides[2] + 1
        one = bytes_of_window(geometry.kernel, geometry.dilations, channels)
        rest = bytes_of_window((*geometry.kernel[:2], row), (1, 1, 1), channels)
        return mode["PIXELS"] == 1 or one + rest <= MOST_BYTES

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Channels side by side."""
        return {0: channels_last(node.inputs[0].shape)}

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The least expected time."""
        return self.supported_mode(node, node.output.shape[1], pixel_groups(node)[1][3], target)


class MatmulWords(WordsDirect, MatmulBytes):
    """Product with a matrix of what is rounded: rows are pixels, columns are channels."""

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Rows that the nearest cache holds, or a single one."""
        pixels = mode["PIXELS"]
        return pixels == 1 or bytes_of_window((pixels,), (1,), matrices(node).k) <= MOST_BYTES

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """As for a convolution of that many pixels."""
        shape = matrices(node)
        return self.supported_mode(node, shape.n, shape.batches * shape.m, target)
