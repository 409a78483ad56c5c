"""Matrix products and what is built from them; quantised arithmetic."""

from __future__ import annotations

import numpy as np

from tests.fuzz.builder import CHANNELS, Builder, RejectedError
from tests.fuzz.data import integers, some, suited
from tests.fuzz.families import generates


@generates(5)
def product(b: Builder):
    """MatMul of vectors, matrices and stacks that broadcast."""
    x = some(b, b.float_type())
    if not x.rank:
        raise RejectedError("a scalar")
    inner, columns = x.shape[-1], b.choice((1, 2, 3, 5, 16, 17))
    kind = b.integer(0, 3)
    if kind == 0:
        return b.add("MatMul", x, b.fresh((inner,), suited(x.dtype), 0.6))
    shape = (inner, columns)
    if kind == 1 and x.rank > 2:
        shape = tuple(s if b.chance(0.6) else 1 for s in x.shape[:-2]) + shape
    elif kind == 2 and x.rank <= 3:
        shape = (b.integer(1, 3), *((1,) * (x.rank - 2)), *shape)
    return b.add("MatMul", x, b.fresh(shape, suited(x.dtype), 0.7))


@generates(4)
def general_product(b: Builder):
    """Gemm."""
    m, k, n = b.size(), b.choice(CHANNELS), b.choice(CHANNELS)
    kind = np.dtype(b.choice(("f4", "f4", "f4", "f2", "f8")))
    x = b.find(lambda t: t.rank == 2 and t.dtype == kind)
    flip, turn = b.integer(0, 1), b.integer(0, 1)
    if x is None:
        x = b.fresh((k, m) if flip else (m, k), suited(kind), 0)
    m, k = x.shape[::-1] if flip else x.shape
    y = b.fresh((n, k) if turn else (k, n), suited(kind), 0.8)
    c = b.fresh(b.choice(((n,), (1, n), (m, 1), (), (1,), (m, n))), suited(kind), 0.7)
    c = c if b.opset < 11 or b.chance(0.7) else None
    scales = {"alpha": b.choice((None, 0.5, -1.25)), "beta": b.choice((None, 0.5, 0.0, 2.0))}
    return b.add("Gemm", x, y, c, transA=flip, transB=turn, **scales)


EQUATIONS = ("ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "ij->", "i,i->", "bij,bkj->bik",
             "ij,ij->ij", "i,j->ij", "...ij,...jk->...ik", "bij,jk")  # fmt: skip


@generates(3)
def einsum(b: Builder):
    """Einsum."""
    if b.opset < 12:
        raise RejectedError("Einsum came with opset 12")
    equation = b.choice(EQUATIONS)
    sizes = {letter: b.choice((1, 2, 3, 5)) for letter in "ijkb"}
    operands = []
    for term in equation.partition("->")[0].split(","):
        letters = term.replace("...", "b")
        operands.append(b.fresh(tuple(sizes[c] for c in letters), suited(np.float32)))
    return b.add("Einsum", *operands, equation=equation)


@generates(1)
def determinant(b: Builder):
    """Det."""
    if b.opset < 11:
        raise RejectedError("Det came with opset 11")
    n = b.integer(1, 4)
    return b.add("Det", b.fresh((*b.shape(b.integer(0, 2)), n, n), suited(np.float32)))


def scale(b: Builder, shape=()):
    """Return positive scales of about a hundredth; not powers of two, so that ties are rare."""
    return b.constant(b.rng.uniform(0.011, 0.09, shape).astype(np.float32))


def zero(b: Builder, kind, shape=()):
    """Return zero points of a type."""
    low, high = (0, 200) if np.dtype(kind).kind == "u" else (-90, 90)
    return b.constant(b.rng.integers(low, high, shape).astype(kind))


@generates(5)
def quantize(b: Builder):
    """QuantizeLinear and DequantizeLinear, per tensor and per axis, alone and as a pair."""
    if b.opset < 10:
        raise RejectedError("quantisation came with opset 10")
    x = some(b, np.float32)
    kind = b.choice(("u1", "i1"))
    axis = b.integer(0, x.rank - 1) if x.rank and b.opset >= 13 and b.chance(0.4) else None
    shape = () if axis is None else (x.shape[axis],)
    with_zero = kind == "i1" or b.chance(0.7)
    parameters = [scale(b, shape), zero(b, kind, shape) if with_zero else None]
    axis = None if axis is None else axis - x.rank if b.chance(0.3) else axis
    q = b.add("QuantizeLinear", x, *parameters, axis=axis)
    return b.add("DequantizeLinear", q, *parameters, axis=axis) if b.chance(0.8) else q


@generates(2)
def dequantize(b: Builder):
    """DequantizeLinear of int32, int8, uint8; DynamicQuantizeLinear."""
    if b.opset < 11:
        raise RejectedError("generated from opset 11 on")
    if b.chance(0.4):
        x = some(b, np.float32)
        if not x.value.any():
            raise RejectedError("a range of nothing gives a scale of 0, or of 1")
        return b.add("DynamicQuantizeLinear", x, outputs=3)
    kind = b.choice(("u1", "i1", "i4"))
    x = b.fresh(b.shape(), integers(kind, -100, 100))
    return b.add("DequantizeLinear", x, scale(b), zero(b, kind) if kind != "i4" else None)


@generates(3)
def integer_product(b: Builder):
    """MatMulInteger, ConvInteger, QLinearMatMul, QLinearConv."""
    if b.opset < 10:
        raise RejectedError("quantisation came with opset 10")
    kinds = b.choice(("u1", "i1")), b.choice(("u1", "i1"))
    if b.chance(0.5):
        x, w, extra = _matrices(b, kinds)
        name = "QLinearMatMul" if b.chance(0.5) else "MatMulInteger"
    else:
        kinds = ("u1", kinds[1])  # what ONNX Runtime has
        x, w, extra = _images(b, kinds)
        name = "QLinearConv" if b.chance(0.5) else "ConvInteger"
    zeros = zero(b, kinds[0]), zero(b, kinds[1])
    if name.endswith("Integer"):
        return b.add(name, x, w, *(z if b.chance(0.7) else None for z in zeros), **extra)
    out = b.constant(np.float32(b.rng.uniform(0.5, 2)))
    return b.add(
        name, x, scale(b), zeros[0], w, scale(b), zeros[1], out, zero(b, kinds[0]), **extra
    )


def _matrices(b: Builder, kinds):
    m, k, n = b.choice(CHANNELS), b.choice(CHANNELS), b.choice(CHANNELS)
    stack = b.choice(((), (), (2,)))
    return (b.fresh((*stack, m, k), integers(kinds[0], -100, 100), 0),
            b.fresh((k, n), integers(kinds[1], -100, 100), 0.8), {})  # fmt: skip


def _images(b: Builder, kinds):
    shape = b.image(2, least=3)
    c = shape[1]
    groups = b.choice((1, 1, c))
    kernel = b.integer(1, 3)
    out = groups * b.choice((1, 2, 3))
    x = b.fresh(shape, integers(kinds[0], -100, 100), 0)
    w = b.fresh((out, c // groups, kernel, kernel), integers(kinds[1], -100, 100), 0.9)
    return x, w, {"group": groups, "pads": [b.integer(0, kernel - 1)] * 4}


@generates(1)
def gelu_like_microsoft(b: Builder):
    """ONNX Runtime's own fused operators."""
    b.domains["com.microsoft"] = 1
    name = b.choice(("Gelu", "FastGelu", "QuickGelu", "FusedMatMul", "BiasGelu"))
    x = some(b, np.float32)
    if not x.rank:
        raise RejectedError("a scalar")
    if name == "FusedMatMul":
        y = b.fresh((b.integer(1, 4), x.shape[-1]), suited(np.float32))
        return b.add(name, x, y, domain="com.microsoft", transB=1, alpha=0.5)
    bias = b.fresh(x.shape[-1:], suited(np.float32)) if name == "BiasGelu" else None
    return b.add(name, x, bias, domain="com.microsoft")
