"""Products of rows that are normalised on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.op import Op
from polydevice.testing.op_case import OpCase
from polydevice_gpu.ops import NormalizedMatMul
from tests.gpu.kernel_cases.data import Cases, Data


def normal_rows(x: Array, eps: float, matrix: Array, shift: Array) -> Array:
    """Return rows of mean 0 and deviation 1 times a matrix, and a shift: in f64, in x's type."""
    centred = x.astype(float) - x.astype(float).mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    return np.asarray((normal @ matrix + shift).astype(x.dtype))


def normalized(data: Data) -> Iterator[OpCase]:
    """The answer is NumPy's in f64; rows lie around other numbers than 0."""
    for shape, columns, turned, eps in (
        ((7, 16), 8, False, 1e-5), ((3, 5, 72), 24, True, 1e-3), ((2, 67, 136), 200, False, 1e-12),
        ((130, 776), 72, True, 1e-5), ((1, 2, 3, 24), 9, False, 0.5),
    ):  # fmt: skip
        x = data(*shape) + data.random.uniform(-4, 4, (*shape[:-1], 1)).astype(data.dtype)
        w = data(*((columns, shape[-1]) if turned else (shape[-1], columns)))
        matrix = w.T.astype(float) if turned else w.astype(float)
        shift = data.random.standard_normal(columns).astype("f4")

        def expected(
            values: Sequence[Array],
            matrix: Array = matrix,
            shift: Array = shift,
            eps: float = eps,
        ) -> list[Array]:
            return [normal_rows(np.asarray(values[0]), eps, matrix, shift)]

        sums = matrix.sum(0).astype("f4")
        yield OpCase(
            NormalizedMatMul(transpose_b=turned, eps=eps),
            (x.astype(data.dtype), w, sums, shift),
            expected,
            tolerance=(3e-3, 5e-2) if data.dtype == "f2" else (1e-4, 2e-4),
            constants={1, 2, 3},
        )


CASES: dict[type[Op], Cases] = {
    NormalizedMatMul: normalized,
}
