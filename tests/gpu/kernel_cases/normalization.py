"""Normalisations over axes and over neighbouring channels."""

from __future__ import annotations

from collections.abc import Iterator

from polydevice.ops import normalization
from polydevice.ops.op import Op
from polydevice.testing.op_case import OpCase
from tests.gpu.kernel_cases.data import Cases, Data, ints
from tests.ops.openvino_oracle import openvino_case


def normalizations(data: Data) -> Iterator[OpCase]:
    for mode in (normalization.EpsMode.INSIDE_SQRT, normalization.EpsMode.OUTSIDE_SQRT):
        op = normalization.MVN(normalize_variance=True, eps=1e-3, eps_mode=mode)
        yield openvino_case(op, data(2, 5, 6, 7), ints(2, 3), constants={1})
    op = normalization.MVN(
        normalize_variance=False, eps=1e-3, eps_mode=normalization.EpsMode.INSIDE_SQRT
    )
    yield openvino_case(op, data(3, 70), ints(1), constants={1})
    op = op.replace(normalize_variance=True)
    yield openvino_case(op, data(2, 11, 3, 13), ints(1, 3), constants={1})
    yield openvino_case(op, data(2, 8209), ints(1), constants={1})
    yield openvino_case(op, data(4, 3, 3, 3), ints(0, 2, 3), constants={1})  # fours with gaps
    yield openvino_case(op, data(1, 37), ints(1), constants={1})  # one row, of no whole vectors
    for shape in ((9, 24), (3, 5, 132)):  # rows in fours, of one and of several for each lane
        yield openvino_case(op, data(*shape), ints(-1), constants={1})


def norms(data: Data) -> Iterator[OpCase]:
    for mode in (normalization.EpsMode.ADD, normalization.EpsMode.MAX):
        op = normalization.NormalizeL2(eps=1e-2, eps_mode=mode)
        yield openvino_case(op, data(2, 5, 4, 3), ints(1), constants={1})
        yield openvino_case(op, data(2, 65, 3), ints(1, 2), constants={1})
    yield openvino_case(op, data(2, 8209), ints(1), constants={1})
    yield openvino_case(op, data(5, 3, 132), ints(2), constants={1})


def lrn(data: Data) -> Iterator[OpCase]:
    op = normalization.LRN(alpha=0.5, beta=0.75, bias=1.0, size=5)
    yield openvino_case(op, data(2, 7, 4, 5), ints(1), constants={1})


CASES: dict[type[Op], Cases] = {
    normalization.MVN: normalizations,
    normalization.NormalizeL2: norms,
    normalization.LRN: lrn,
}
