"""ONNX Runtime's operators with quantised weights: MatMulNBits, DynamicQuantizeLSTM."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.node import Port
from polydevice.ops.arithmetic import Add
from polydevice.ops.matmul import MatMul
from polydevice.ops.quantize_linear import DequantizeLinear
from polydevice.ops.transpose import Transpose
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.recurrent import emit_lstm

_MS = "com.microsoft"


def _constant(n: OnnxNode, port: Port, what: str) -> Array:
    value = port.desc.constant
    if value is None:
        raise n.unsupported(f"{what} must be constant")
    return value


@translates("MatMulNBits", domain=_MS)
def matmul_n_bits(n: OnnxNode) -> Port:
    """Product with a matrix [N, K] of 4 or 8 bits per element and a scale per block of a row."""
    size, rows, bits = n.required("K"), n.required("N"), n.attribute("bits", 4)
    block = n.required("block_size")
    if bits not in (4, 8) or block < 1:
        raise n.unsupported(f"{bits} bits in blocks of {block}")
    if n.optional(4) is not None:
        raise n.unsupported("a permutation of the rows (g_idx) is not supported")
    kind = ElementType.u4 if bits == 4 else ElementType.u8
    blocks = -(-size // block)
    packed = _constant(n, n.input(1), "the matrix").reshape(rows, -1)
    weights = _unpacked(packed, bits).reshape(rows, -1)[:, :size]
    scales = _constant(n, n.input(2), "the scales").reshape(rows, blocks)
    zeros = np.full((rows, blocks), 1 << (bits - 1), np.uint8)
    given = n.optional(3)
    if given is not None:
        points = _constant(n, given, "the zero points")
        if points.dtype != np.uint8:
            raise n.unsupported("zero points in floating point are not supported")
        zeros = _unpacked(points.reshape(rows, -1), bits)[:, :blocks]
    matrix = n.emit(
        DequantizeLinear(1, block),
        n.value(np.ascontiguousarray(weights).view(kind.dtype), kind),
        n.value(scales, n.input(2).element_type),
        n.value(np.ascontiguousarray(zeros).view(kind.dtype), kind),
    )
    y = n.emit(MatMul(transpose_b=True), n.input(0), matrix)
    bias = n.optional(5)
    return y if bias is None else n.emit(Add(), y, bias)


def _unpacked(data: Array, bits: int) -> Array:
    """Return one element per byte; of two in a byte the lower half comes first."""
    if bits == 8:
        return data
    halves = np.stack([data & 15, data >> 4], axis=-1)
    return halves.reshape(len(data), -1)


@translates("DynamicQuantizeLSTM", domain=_MS)
def dynamic_quantize_lstm(n: OnnxNode) -> list[Port]:
    """LSTM with 8-bit weights [D, I, 4H]; ONNX Runtime also quantises X, only to be faster."""
    matrices = []
    for index, first in ((1, 8), (2, 10)):
        inputs = [n.input(index), n.input(first), n.input(first + 1)]
        scale = inputs[1]
        rank = scale.desc.rank
        if rank == 2:
            raise n.unsupported("scales per column are not supported")
        matrix = n.emit(DequantizeLinear(0), *inputs)
        matrices.append(n.emit(Transpose(), matrix, [0, 2, 1]))
    return emit_lstm(n, matrices[0], matrices[1])
