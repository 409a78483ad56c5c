"""ONNX Runtime's operators on quantised weights: MatMulNBits, QAttention and their like."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.errors import ModelFormatError
from polydevice.node import ACCURACY_LEVEL, EIGHT_BITS, Port
from polydevice.ops.arithmetic import Add
from polydevice.ops.gather import Gather
from polydevice.ops.matmul import MatMul
from polydevice.ops.quantize_linear import DequantizeLinear
from polydevice.ops.reshape import Unsqueeze
from polydevice.ops.transpose import Transpose
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.microsoft_attention import attend_to_itself
from polydevice.readers.onnx.operators.recurrent import emit_lstm

_MS = "com.microsoft"


def _constant(n: OnnxNode, port: Port, what: str) -> Array:
    value = port.desc.constant
    if value is None:
        raise n.unsupported(f"{what} must be constant")
    return value


@translates("MatMulNBits", domain=_MS)
def matmul_n_bits(n: OnnxNode) -> Port:
    """Product with a matrix [N, K] of 4 or 8 bits per element and a scale per block of a row.

    With accuracy_level 4, devices may round rows to 8 bits; all others ask for no less than floats.
    """
    size, rows, bits = n.required("K"), n.required("N"), n.attribute("bits", 4)
    block = n.required("block_size")
    if bits not in (4, 8) or block < 1:
        raise n.unsupported(f"{bits} bits in blocks of {block}")
    kind = ElementType.u4 if bits == 4 else ElementType.u8
    blocks = -(-size // block)
    packed = _constant(n, n.input(1), "the matrix").reshape(rows, -1)
    weights = _unpacked(packed, bits).reshape(rows, -1)[:, :size]
    scales = _constant(n, n.input(2), "the scales").reshape(rows, blocks)
    zeros = np.full((rows, blocks), 1 << (bits - 1), np.uint8)
    given, order = n.optional(3), n.optional(4)
    if given is not None:
        points = _constant(n, given, "the zero points")
        if points.dtype == np.uint8:
            zeros = _unpacked(points.reshape(rows, -1), bits)[:, :blocks]
        else:
            zeros = points.reshape(rows, blocks)
    if order is not None or zeros.dtype != np.uint8:
        groups = np.arange(size) // block
        if order is not None:
            groups = _constant(n, order, "g_idx").astype(np.int64)
            if groups.shape != (size,) or groups.min() < 0 or groups.max() >= blocks:
                raise ModelFormatError(f"g_idx must be {size} numbers from 0 to {blocks - 1}")
        decoded = (weights - zeros.astype(scales.dtype)[:, groups]) * scales[:, groups]
        matrix = n.value(decoded, n.input(2).element_type)
    else:
        matrix = n.emit(
            DequantizeLinear(1, block),
            n.value(np.ascontiguousarray(weights).view(kind.dtype), kind),
            n.value(scales, n.input(2).element_type),
            n.value(np.ascontiguousarray(zeros).view(kind.dtype), kind),
        )
    y = n.emit(MatMul(transpose_b=True), n.input(0), matrix)
    if n.attribute("accuracy_level", 0) == int(EIGHT_BITS):
        y.node.rt_info[ACCURACY_LEVEL] = EIGHT_BITS
    bias = n.optional(5)
    return y if bias is None else n.emit(Add(), y, bias)


def _unpacked(data: Array, bits: int) -> Array:
    """Return one element per byte; of two in a byte the lower half comes first."""
    if bits == 8:
        return data
    halves = np.stack([data & 15, data >> 4], axis=-1)
    return halves.reshape(len(data), -1)


_FP4 = 0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
_LEVELS = ((*_FP4, *(-level for level in _FP4)), _NF4)
"""What 4 bits stand for; bitsandbytes' two types."""


@translates("MatMulBnb4", domain=_MS)
def matmul_bnb4(n: OnnxNode) -> Port:
    """Product with a matrix [N, K] of 4-bit floats, whose largest is told for each block."""
    size, rows, block, kind = (n.required(name) for name in ("K", "N", "block_size", "quant_type"))
    if kind not in range(len(_LEVELS)) or block < 1 or not n.attribute("transB", 1):
        raise n.unsupported(f"quant_type {kind} in blocks of {block}, or transB = 0")
    packed = _constant(n, n.input(1), "the matrix").reshape(-1)
    largest = _constant(n, n.input(2), "the blocks' largest numbers").reshape(-1)
    count = rows * size
    if min(rows, size) < 1 or len(packed) != -(-count // 2) or len(largest) != -(-count // block):
        raise ModelFormatError(
            f"{len(packed)} bytes and {len(largest)} blocks are no matrix of {rows} x {size}"
        )
    n.take_dense(count * largest.dtype.itemsize)
    levels = np.array(_LEVELS[kind], largest.dtype)
    halves = np.stack([packed >> 4, packed & 15], axis=1).reshape(-1)[:count]  # the upper is first
    decoded = levels[halves] * largest.repeat(block)[:count]
    matrix = n.value(decoded.reshape(rows, size), n.input(2).element_type)
    return n.emit(MatMul(transpose_b=True), n.input(0), matrix)


@translates("DynamicQuantizeLSTM", domain=_MS)
def dynamic_quantize_lstm(n: OnnxNode) -> list[Port]:
    """LSTM with 8-bit weights [D, I, 4H]; ONNX Runtime also quantises X, only to be faster."""
    matrices = []
    for index, first in ((1, 8), (2, 10)):
        matrix, inputs = n.input(index), [n.input(first), n.input(first + 1)]
        known = matrix.desc.constant
        if known is None:
            matrix = n.emit(Transpose(), matrix, [0, 2, 1])
        else:  # at once, so that it is a constant of 8 bits to devices
            turned = np.ascontiguousarray(known.swapaxes(1, 2))
            matrix = n.value(turned, matrix.element_type)
        if inputs[0].desc.rank == 2:  # [D, 4H], one per column: a block is a whole column
            if matrix.shape is None or not isinstance(matrix.shape[2], int):
                raise n.unsupported("scales per column need weights of known shape")
            inputs = [_in_columns(n, port) for port in inputs]
            matrices.append(n.emit(DequantizeLinear(2, matrix.shape[2]), matrix, *inputs))
        else:
            matrices.append(n.emit(DequantizeLinear(0), matrix, *inputs))
    reason = "no constant scale is given for what its 8-bit weights are multiplied with"
    return emit_lstm(n, matrices[0], matrices[1], in_floats=reason)


def _in_columns(n: OnnxNode, port: Port) -> Port:
    known = port.desc.constant
    if known is None:
        return n.emit(Unsqueeze(), port, [2])
    return n.value(known[:, :, np.newaxis], port.element_type)


@translates("GatherBlockQuantized", domain=_MS)
def gather_block_quantized(n: OnnxNode) -> Port:
    """Rows of a table that has a scale per block of a row; only what is gathered is dequantised."""
    data, indices, scales, zeros = n.input(0), n.input(1), n.input(2), n.optional(3)
    rank, bits = n.rank(data), n.attribute("bits", 4)
    axis = n.attribute("gather_axis", 0) % rank
    blocked = n.attribute("quantize_axis", 1) % rank
    if axis == blocked:
        raise n.unsupported("gathering along the axis of the blocks is not supported")
    if data.element_type is ElementType.u8:
        if bits not in (4, 8) or blocked != rank - 1:
            raise n.unsupported(f"uint8 data of {bits} bits in blocks along axis {blocked}")
        kind = ElementType.u4 if bits == 4 else ElementType.u8
        data = _opened(n, data, bits, kind)
        if zeros is None:
            shape = _constant(n, scales, "the scales").shape
            zeros = n.value(np.full(shape, 1 << (bits - 1), np.uint8).view(kind.dtype), kind)
        else:
            blocks = None if scales.shape is None else scales.shape[-1]
            zeros = _opened(n, zeros, bits, kind, blocks if isinstance(blocks, int) else None)
    tables = [data, scales, *([] if zeros is None else [zeros])]
    taken = [n.emit(Gather(), table, indices, axis) for table in tables]
    moved = blocked if blocked < axis else blocked - 1 + n.rank(indices)
    return n.emit(DequantizeLinear(moved, n.attribute("block_size", 128)), *taken)


def _opened(
    n: OnnxNode, packed: Port, bits: int, kind: ElementType, width: int | None = None
) -> Port:
    """Constant uint8 data as a constant of one element per value.

    Of an odd `width`, the last byte of a row holds one value.
    """
    data = _constant(n, packed, "packed data")
    rows = _unpacked(data.reshape(-1, data.shape[-1]), bits)
    if width is not None and rows.shape[1] == width + 1:
        rows = rows[:, :width]
    whole = np.ascontiguousarray(rows).reshape(*data.shape[:-1], -1)
    return n.value(whole.view(kind.dtype), kind)


@translates("QAttention", domain=_MS)
def q_attention(n: OnnxNode) -> list[Port]:
    """Attention whose input and weights are 8-bit; scales of the weights may be per column."""
    if n.attribute("do_rotary", 0):
        raise n.unsupported("rotary embedding is not supported")
    x = n.emit(DequantizeLinear(), n.input(0), n.input(3), *_present(n, 6))
    weights = n.emit(DequantizeLinear(1), n.input(1), n.input(4), *_present(n, 7))
    return attend_to_itself(n, x, weights, n.optional(2), n.optional(5), n.optional(8), None)


def _present(n: OnnxNode, index: int) -> list[Port]:
    port = n.optional(index)
    return [] if port is None else [port]
