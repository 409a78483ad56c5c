"""IntegerProduct: sums of products of bytes, and what makes numbers of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.arithmetic import Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.convolution import Convolution, GroupConvolution
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op
from polydevice.rewrites.facts import array_of, is_known, numbers_of, rank_of
from polydevice.rewrites.integers.integer_product import IntegerProduct
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import (
    IntegerConvolution,
    IntegerGroupConvolution,
    IntegerMatMul,
    SubtractProduct,
)


def integer_product(
    build: Emitter,
    op: IntegerProduct,
    inputs: Sequence[Port],
    target: Target,
    fill: Port | None = None,
) -> list[Port]:
    """Make sums of bytes where the device multiplies those fast, and a product of floats elsewhere.

    Sums of bytes are exact, those of floats as long as they stay below 2^24.

    Args:
        build: makes operations.
        op: the product.
        inputs: its inputs.
        target: the device.
        fill: what a convolution reads where padding is, its zero point; none if that is known.
    """
    x, w, scale, zero, factor, *rest = inputs
    # One by one where they are no constants, which takes no launch of its own.
    known = is_known(scale) and is_known(factor)
    factors = [_product(build, scale, factor)] if known else [scale, factor]
    if fill is not None:
        sums = build.emit(IntegerConvolution(**op.product.attributes()), x, w, fill)
        return [_scaled(build, build.convert(sums, ElementType.f32), factors)]
    summed = target.byte_product and (target.is_throughput or not _are_several(op.product, w))
    made = _sums(op.product, x, w, zero) if summed else None
    if made is None:
        wide = build.convert(x, ElementType.f32)
        if not _is_zero(zero):
            wide = build.emit(Subtract(), wide, _one(build, zero))
        weights = array_of(w).astype(np.float32) if is_known(w) else w
        y = build.emit(
            op.product, wide, build.convert(build.value(weights), wide.element_type), *rest
        )
        return [_scaled(build, y, factors)]
    sums = build.emit(made, x, w)
    if not _is_zero(zero) and (isinstance(op.product, MatMul) or not is_known(zero)):
        # What a zero point adds to the sums of a column is the same in every row. In i32, since
        # nearly all of them may be that.
        columns = build.value(_columns(op.product, x, array_of(w)))
        point = zero.node.inputs[0] if isinstance(zero.node.op, Convert) else zero
        point = point if point.element_type in (ElementType.u8, ElementType.i8) else zero
        sums = build.emit(SubtractProduct(), sums, columns, build.reshape(point, ()))
    return [_scaled(build, build.convert(sums, ElementType.f32), factors)]


def _are_several(product: Op, w: Port) -> bool:
    """Whether there is a matrix for each of a batch: processors have vectors for floats alone then.

    Four heads of a DeBERTa, with matrices of 24x64, took 160 us as bytes and take 19 (PoCL 3.1).
    """
    sizes = w.shape.static[:-2] if w.shape is not None and w.shape.is_static else ()
    return isinstance(product, MatMul) and any(size != 1 for size in sizes)


def _sums(product: Op, x: Port, w: Port, zero: Port) -> Op | None:
    """Return the operation that sums products of bytes; None where there is none."""
    if not is_known(w):
        return None
    if isinstance(product, MatMul):
        return IntegerMatMul(**product.attributes())
    if type(product) not in (Convolution, GroupConvolution):
        return None
    assert isinstance(product, Convolution)
    point = 0
    if is_known(zero):
        (point,) = numbers_of(zero)
        limits = np.iinfo(x.element_type.dtype)
        if not limits.min <= point <= limits.max:
            return None  # padding could not be that
    elif product.auto_pad.is_same or any((*product.pads_begin, *product.pads_end)):
        return None  # kernels are built with what they pad; see `pad_early`
    settings = {**product.attributes(), "zero": point}
    if isinstance(product, GroupConvolution):
        return IntegerGroupConvolution(**settings)
    return IntegerConvolution(**settings)


def _columns(product: Op, x: Port, w: Array) -> Array:
    """Return the sums of the columns of weights, in the shape in which they are added."""
    if isinstance(product, Convolution):
        outputs = 2 if product.grouped else 1
        whole: Array = w.astype(np.int64).sum(tuple(range(outputs, w.ndim)))
        return np.asarray(whole.reshape(1, -1, *[1] * (w.ndim - outputs - 1)), np.int32)
    assert isinstance(product, MatMul)
    sums: Array = w.astype(np.int64).sum(-1 if product.transpose_b or w.ndim == 1 else -2)
    if w.ndim > 2 and rank_of(x) > 1:  # a vector's result has no rows
        sums = sums[..., np.newaxis, :]
    return sums.astype(np.int32)


def _scaled(build: Emitter, y: Port, factors: Sequence[Port]) -> Port:
    for factor in factors:
        y = _product(build, y, factor)
    return y


def _product(build: Emitter, left: Port, right: Port) -> Port:
    if is_known(left) and is_known(right):
        return build.value(array_of(left) * array_of(right))
    return build.emit(Multiply(), left, right)


def _is_zero(point: Port) -> bool:
    return is_known(point) and not array_of(point).any()


def _one(build: Emitter, number: Port) -> Port:
    """Return one number, in f32, that broadcasts to anything."""
    return build.convert(build.reshape(number, ()), ElementType.f32)
