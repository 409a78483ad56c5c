"""Determinants and inverses; NumPy answers in f64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.linear_algebra import Det, Inverse
from polydevice.ops.op import Op
from polydevice.testing.op_case import OpCase
from tests.gpu.kernel_cases.data import Cases, Data


def _matrices(data: Data) -> Array:
    """Return well-conditioned matrices whose first pivot is not the largest element."""
    x = data(3, 2, 5, 5) + 3 * np.roll(np.eye(5, dtype=data.dtype), 1, 0)
    return np.asarray(x.astype(data.dtype))


def dets(data: Data) -> Iterator[OpCase]:
    x = _matrices(data)
    answer = np.linalg.det(x.astype("f8")).astype(data.dtype)
    yield OpCase(Det(), [x], [answer], tolerance=(1e-2, 1e-2) if data.dtype == "f2" else None)


def inverses(data: Data) -> Iterator[OpCase]:
    for adjoint in (False, True):
        x = _matrices(data)

        def expected(given: Sequence[Array], adjoint: bool = adjoint) -> list[Array]:
            answer = np.linalg.inv(given[0].astype("f8")).astype(given[0].dtype)
            return [answer.swapaxes(-1, -2) if adjoint else answer]

        yield OpCase(
            Inverse(adjoint=adjoint), [x], expected,
            tolerance=(2e-2, 2e-2) if data.dtype == "f2" else (1e-3, 1e-4),
        )  # fmt: skip


CASES: dict[type[Op], Cases] = {
    Det: dets,
    Inverse: inverses,
}
