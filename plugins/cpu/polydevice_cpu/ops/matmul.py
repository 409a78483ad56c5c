"""Matrix products with NumPy's BLAS."""

from __future__ import annotations

from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.matmul import Einsum, GroupedMatMul, MatMul
from polydevice_cpu.algorithms.precision import narrow, product_type
from polydevice_cpu.algorithms.product import product
from polydevice_cpu.implement import implements


@implements(MatMul)
def matmul(op: MatMul, a: Array, b: Array) -> Array:
    """Integers are multiplied in f64 where that is exact, since NumPy has no integer BLAS."""
    dtype = a.dtype
    if op.transpose_a and a.ndim > 1:
        a = a.swapaxes(-1, -2)
    if op.transpose_b and b.ndim > 1:
        b = b.swapaxes(-1, -2)
    kind = product_type(a, b, a.shape[-1])
    return _wrapped(
        np.asarray(product(a.astype(kind, copy=False), b.astype(kind, copy=False))), dtype
    )


@implements(GroupedMatMul)
def grouped_matmul(_: GroupedMatMul, a: Array, b: Array, *offsets: Array) -> Array:
    """One product per group; groups without rows cost nothing."""
    product = MatMul(transpose_b=True)
    if not offsets:
        return matmul(product, a, b)
    ends = [int(end) for end in offsets[0]]
    if any(end < start for start, end in zip([0, *ends], ends, strict=False)) or (
        ends and ends[-1] > len(a)
    ):
        raise InferenceError(
            f"GroupedMatMul: offsets {ends[:16]} are not ascending ends of groups of {len(a)} rows"
        )
    y = np.zeros((len(a), b.shape[1]), a.dtype)
    for group, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if end > start:
            y[start:end] = matmul(product, a[start:end], b[group])
    return y


def _wrapped(y: Array, dtype: np.dtype[Any]) -> Array:
    """Return exact integer sums in a narrower integer type, keeping the low bits."""
    if dtype.kind in "iu" and y.dtype == np.float64:
        return y.astype(np.int64).astype(dtype)
    return narrow(y, dtype)


@implements(Einsum)
def einsum(op: Einsum, *inputs: Array) -> Array:
    """NumPy finds an order of products, in 20 us, of several; its notation is the operation's."""
    dtype = inputs[0].dtype
    terms = max(x.size for x in inputs)
    kind = product_type(inputs[0], inputs[-1], terms) if len(inputs) < 3 else None
    if kind is None:
        kind = np.dtype(np.int64) if dtype.kind in "iu" else product_type(inputs[0], inputs[0], 1)
    wide = [x.astype(kind, copy=False) for x in inputs]
    found = np.einsum(op.equation, *wide, optimize=len(wide) > 1)
    return _wrapped(np.asarray(found), dtype)
