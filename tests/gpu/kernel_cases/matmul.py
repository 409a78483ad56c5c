"""Products of matrices, vectors and batches, turned or not, with constant and variable factors."""

from __future__ import annotations

from collections.abc import Iterator

from polydevice.ops import matmul
from polydevice.ops.op import Op
from polydevice.testing.op_case import OpCase
from tests.gpu.kernel_cases.data import Cases, Data
from tests.ops.openvino_oracle import openvino_case


def matmuls(data: Data) -> Iterator[OpCase]:
    for constants in ((), {1}):
        product = matmul.MatMul
        yield openvino_case(product(), data(7, 13), data(13, 9), constants=constants)
        turned = product(transpose_b=True)
        yield openvino_case(turned, data(2, 5, 24), data(33, 24), constants=constants)
        both = product(transpose_a=True, transpose_b=True)
        yield openvino_case(both, data(6, 17), data(5, 6), constants=constants)
        yield openvino_case(product(), data(3, 1, 4, 6), data(2, 6, 8), constants=constants)
        yield openvino_case(product(), data(6), data(6, 5), constants=constants)
        yield openvino_case(product(), data(4, 6), data(6), constants=constants)
    # More than one tile each way, and terms that are no multiple of a step.
    yield openvino_case(product(), data(2, 1, 67, 37), data(3, 37, 70))
    yield openvino_case(both, data(2, 19, 71), data(66, 19))
    yield openvino_case(product(transpose_a=True), data(3, 33, 131), data(1, 33, 5))
    yield openvino_case(turned, data(2, 1, 83), data(2, 129, 83))
    yield openvino_case(product(), data(129, 48), data(48))
    yield openvino_case(product(), data(2, 3, 70, 1), data(2, 1, 1, 131))
    # So many terms that every kernel can split them.
    yield openvino_case(product(), data(13, 4104), data(4104, 10), constants={1})
    draw = data.random.integers
    for constants in ((), {1}):
        rows, columns, terms = (int(n) for n in draw(1, 40, 3))
        batch = [int(n) for n in draw(1, 4, 2)]
        turn_a, turn_b = (bool(n) for n in draw(0, 2, 2))
        a = data(*batch, *((terms, rows) if turn_a else (rows, terms)))
        b = data(batch[-1], *((columns, terms) if turn_b else (terms, columns)))
        op = product(transpose_a=turn_a, transpose_b=turn_b)
        yield openvino_case(op, a, b, constants=constants)


CASES: dict[type[Op], Cases] = {
    matmul.MatMul: matmuls,
}
