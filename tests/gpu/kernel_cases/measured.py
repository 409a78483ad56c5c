"""Products that measure the rows which they make, and products that are told what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.op import Op
from polydevice.testing.op_case import OpCase
from polydevice_gpu.measured_ops import MeasuredGather, MeasuredMatMul, MomentsMatMul
from tests.gpu.kernel_cases.data import Cases, Data
from tests.gpu.kernel_cases.normalized import normal_rows


def _moments(rows: Array, width: int) -> Array:
    """Return mean and squares about it of each slot of rows, [row, slot, 2] in f32."""
    flat = np.asarray(rows).reshape(-1, rows.shape[-1]).astype(float)
    slots = [flat[:, first : first + width] for first in range(0, flat.shape[1], width)]
    means = [slot.mean(1) for slot in slots]
    squares = [((slot.T - mean) ** 2).sum(0) for slot, mean in zip(slots, means, strict=True)]
    return np.stack([np.stack(means, 1), np.stack(squares, 1)], 2).astype("f4")


def measured(data: Data) -> Iterator[OpCase]:
    """The answer is NumPy's: the product in f64, and what its rows are as they are stored."""
    for shape, columns, turned, width in (
        ((7, 16), 8, False, 24), ((3, 5, 72), 60, True, 24), ((2, 17, 136), 100, False, 48),
        ((35, 264), 76, True, 72), ((1, 2, 3, 24), 196, False, 96),
    ):  # fmt: skip
        x = data(*shape)
        w = data(*((columns, shape[-1]) if turned else (shape[-1], columns)))
        matrix = w.T if turned else w

        def expected(
            values: Sequence[Array], matrix: Array = matrix, width: int = width
        ) -> list[Array]:
            x = np.asarray(values[0])
            made = np.asarray((x.astype(float) @ matrix.astype(float)).astype(x.dtype))
            return [made, _moments(made, width)]

        yield OpCase(
            MeasuredMatMul(transpose_b=turned, width=width),
            (x, w),
            expected,
            tolerance=(2e-2, 5e-2) if data.dtype == "f2" else (1e-4, 2e-4),
            constants={1},
        )


def looked_up(data: Data) -> Iterator[OpCase]:
    """The answer is NumPy's; indices outside of the table give zeros."""
    for rows, columns, shape, negative in (
        (7, 8, (3,), True), (50, 768, (2, 9), True), (5, 1028, (1, 2, 3), False),
        (9, 2048, (4,), True),
    ):  # fmt: skip
        table = data(rows, columns)
        indices = data.random.integers(-rows if negative else 0, rows, shape)
        indices.flat[0] = rows + 2

        def expected(values: Sequence[Array], negative: bool = negative) -> list[Array]:
            table, indices = values[:2]
            found = np.where(indices < 0, indices + len(table), indices) if negative else indices
            inside = (found >= 0) & (found < len(table))
            made = np.where(
                inside[..., None], table[np.where(inside, found, 0)], table.dtype.type(0)
            )
            return [made, _moments(made, made.shape[-1])]

        yield OpCase(
            MeasuredGather(negative_indices=negative),
            (table, indices.astype("i8"), np.array(0)),
            expected,
            tolerance=(1e-4, 1e-3),
            constants={2},
        )


def told(data: Data) -> Iterator[OpCase]:
    """The answer is NumPy's in f64; rows lie around other numbers than 0."""
    for shape, columns, turned, eps, width in (
        ((7, 16), 8, False, 1e-5, 24), ((3, 5, 72), 24, True, 1e-3, 24),
        ((2, 67, 136), 200, False, 1e-12, 48), ((130, 776), 72, True, 1e-5, 72),
        ((1, 2, 3, 24), 9, False, 0.5, 96),
    ):  # fmt: skip
        x = data(*shape) + data.random.uniform(-4, 4, (*shape[:-1], 1))
        x = x.astype(data.dtype)
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

        yield OpCase(
            MomentsMatMul(transpose_b=turned, eps=eps, width=width),
            (x, w, matrix.sum(0).astype("f4"), shift, _moments(x, width)),
            expected,
            tolerance=(3e-3, 5e-2) if data.dtype == "f2" else (1e-4, 2e-4),
            constants={1, 2, 3},
        )


CASES: dict[type[Op], Cases] = {
    MeasuredGather: looked_up,
    MeasuredMatMul: measured,
    MomentsMatMul: told,
}
