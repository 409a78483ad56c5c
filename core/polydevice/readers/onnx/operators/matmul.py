"""Products of matrices."""

from __future__ import annotations

from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.linear_algebra import Inverse
from polydevice.ops.matmul import MatMul
from polydevice.ops.reshape import Reshape
from polydevice.ops.transpose import Transpose
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.convolution import fused_activation, shifted


@translates("MatMul")
def matmul(n: OnnxNode) -> Port:
    """NumPy's matmul."""
    return n.emit(MatMul(), n.input(0), n.input(1))


@translates("Gemm")
@translates("FusedGemm", domain="com.microsoft")
def gemm(n: OnnxNode) -> Port:
    """alpha * A * B + beta * C, then the activation of FusedGemm."""
    op = MatMul(bool(n.attribute("transA", 0)), bool(n.attribute("transB", 0)))
    y = n.emit(op, n.input(0), n.input(1))
    alpha, beta = n.attribute("alpha", 1.0), n.attribute("beta", 1.0)
    if alpha != 1.0:
        y = n.emit(Multiply(), y, n.like(alpha, y))
    c = n.optional(2)
    if c is not None and beta != 0.0:
        if beta != 1.0:
            c = n.emit(Multiply(), c, n.like(beta, c))
        y = n.emit(Add(), y, c)
    return fused_activation(n, y)


@translates("MatMulInteger")
def matmul_integer(n: OnnxNode) -> Port:
    """Product of 8-bit integers, zero points subtracted, in 32 bits."""
    a, b = n.input(0), n.input(1)
    zero_a, zero_b = n.optional(2), n.optional(3)
    if zero_a is not None and zero_a.desc.rank == 1 and n.rank(a) > 1:
        zero_a = n.emit(Reshape(special_zero=False), zero_a, [-1, 1])
    return n.emit(MatMul(), shifted(n, a, zero_a), shifted(n, b, zero_b))


@translates("FusedMatMul", "TransposeMatMul", domain="com.microsoft")
def fused_matmul(n: OnnxNode) -> Port:
    """alpha * A * B, either of them transposed."""
    a, b = n.input(0), n.input(1)
    if n.attribute("transBatchA", 0):
        a = _batch_last(n, a)
    if n.attribute("transBatchB", 0):
        b = _batch_last(n, b)
    op = MatMul(bool(n.attribute("transA", 0)), bool(n.attribute("transB", 0)))
    y = n.emit(op, a, b)
    alpha = n.attribute("alpha", 1.0)
    return y if alpha == 1.0 else n.emit(Multiply(), y, n.like(alpha, y))


def _batch_last(n: OnnxNode, x: Port) -> Port:
    """Move the first axis behind the other batch axes, before the last one."""
    rank = n.rank(x)
    return n.emit(Transpose(), x, [*range(1, rank - 1), 0, rank - 1])


@translates("Inverse", domain="com.microsoft")
def inverse(n: OnnxNode) -> Port:
    """Inverses of square matrices."""
    return n.emit(Inverse(), n.input(0))
