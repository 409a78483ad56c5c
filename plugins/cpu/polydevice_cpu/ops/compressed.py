"""Products with matrices of few bits, where oneDNN has no code for them."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.algorithms.product import product
from polydevice_cpu.implement import implements
from polydevice_cpu.passes.integers.compressed import CompressedMatMul

COLUMNS = 256
"""So many columns of the matrix are made numbers of f32 at once."""


@implements(CompressedMatMul)
def compressed_matmul(op: CompressedMatMul, x: Array, q: Array, scales: Array) -> Array:
    """Multiply with some columns after the other, as numbers of f32."""
    columns, terms = q.shape
    result = np.empty((*x.shape[:-1], columns), np.float32)
    center, block = np.float32(op.center), terms // scales.shape[1]
    for first in range(0, columns, COLUMNS):
        some = slice(first, first + COLUMNS)
        matrix = q[some].astype(np.float32)
        matrix -= center
        parted = matrix.reshape(len(matrix), -1, block)
        parted *= scales[some, :, None]
        result[..., some] = product(x, matrix.T)
    return result
