"""Products with matrices of 4 and 8 bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.op import Op
from polydevice.testing.op_case import OpCase
from polydevice_gpu.ops import CompressedMatMul
from tests.gpu.kernel_cases.data import Cases, Data


def compressed(data: Data) -> Iterator[OpCase]:
    """The answer is NumPy's in f64."""
    for bits, rows, columns, terms, block in (
        (4, (1,), 13, 160, 32), (8, (1,), 9, 96, 16), (4, (3,), 70, 4160, 64),
        (8, (2, 2), 33, 1056, 1056), (4, (2,), 129, 2048, 128), (8, (1,), 65, 5120, 64),
        (4, (37,), 18, 416, 32), (8, (3, 11), 21, 1120, 16), (4, (2, 35), 9, 1344, 448),
    ):  # fmt: skip
        draw = data.random.integers
        q = draw(0, 1 << bits, (columns, terms)).astype(np.uint8)
        zeros = draw(0, 1 << bits, (columns, terms // block)).astype(np.uint8)
        scales = data.random.uniform(0.01, 0.1, zeros.shape).astype(np.float32)
        packed = q if bits == 8 else (q[:, ::2] | q[:, 1::2] << 4).astype(np.uint8)
        centred = q.reshape(*zeros.shape, block) - zeros[..., None].astype(float)
        matrix = (centred * scales[..., None]).reshape(columns, terms)

        def expected(values: Sequence[Array], matrix: Array = matrix) -> list[Array]:
            x = np.asarray(values[0])
            return [np.asarray((x.astype(float) @ matrix.T).astype(x.dtype))]

        yield OpCase(
            CompressedMatMul(bits),
            (data(*rows, terms), packed, scales, zeros),
            expected,
            tolerance=(2e-3, 0.1 * bits) if data.dtype == "f2" else (1e-4, 1e-3 * bits),
            constants={1, 2, 3},
        )


CASES: dict[type[Op], Cases] = {
    CompressedMatMul: compressed,
}
