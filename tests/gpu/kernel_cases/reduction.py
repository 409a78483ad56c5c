"""Reductions, softmaxes and segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.ops import reduce
from polydevice.ops.cumulative import CumProd
from polydevice.ops.embedding import EmptySegment, SegmentMax
from polydevice.ops.op import Op
from polydevice.ops.signal import CumSum
from polydevice.ops.softmax import LogSoftmax, SoftMax
from polydevice.testing.op_case import OpCase
from tests.gpu.kernel_cases.data import Cases, Data, ints
from tests.ops.openvino_oracle import openvino_case


def softmaxes(op: type[SoftMax]) -> Cases:
    def cases(data: Data) -> Iterator[OpCase]:
        yield openvino_case(op(axis=1), data(3, 5, 7))
        yield openvino_case(op(axis=-1), data(4, 131))
        sizes = data.random.integers(1, 9, 4)
        yield openvino_case(op(axis=int(data.random.integers(4))), data(*map(int, sizes)))
        yield openvino_case(op(axis=0), data(8209, 2))
        for shape in ((9, 24), (3, 5, 132)):  # rows in fours, of one and of several for each lane
            yield openvino_case(op(axis=-1), data(*shape))
        yield openvino_case(op(axis=-1), data(1, 37))  # one row, of no whole vectors

    return cases


def reductions(op: type[reduce.Reduction]) -> Cases:
    logical = op in (reduce.ReduceLogicalAnd, reduce.ReduceLogicalOr)

    def cases(data: Data) -> Iterator[OpCase]:
        def elements(*shape: int) -> Array:
            return data.random.random(shape) > 0.2 if logical else data(*shape)

        yield openvino_case(op(keep_dims=True), elements(2, 3, 5, 7), ints(2, 3), constants={1})
        yield openvino_case(op(), elements(4, 3, 5), ints(0, 2), constants={1})
        for shape, axis in (((2, 517), 1), ((2, 8209), 1)):
            x = elements(*shape)
            if op is reduce.ReduceProd:  # stays a number of the type
                x = np.asarray(np.where(x > 0, 1.001, -0.999), data.dtype)
            tolerance = None if logical else (5e-3, 1e-2)
            yield openvino_case(op(), x, ints(axis), constants={1}, tolerance=tolerance)

    return cases


def segments(data: Data) -> Iterator[OpCase]:
    x, segments = data(7, 3) - 5, np.array([0, 0, 2, 2, 2, 4, 4], np.int32)
    for fill, count in ((EmptySegment.ZERO, 6), (EmptySegment.LOWEST, 3)):
        if fill is EmptySegment.LOWEST and data.dtype == "f2":
            continue  # OpenVINO computes in f32, whose lowest number is -inf in f16
        op = SegmentMax(fill_mode=fill)
        yield openvino_case(op, x, segments, np.array(count, np.int32), constants={2})


def running_sums(data: Data) -> Iterator[OpCase]:
    for shape, axis in (((3, 5, 7), 1), ((4, 131), -1), ((9,), 0), ((2, 3, 4), 0)):
        for exclusive, reverse in ((False, False), (True, False), (False, True), (True, True)):
            op = CumSum(exclusive=exclusive, reverse=reverse)
            yield openvino_case(op, data(*shape), ints(axis)[0], constants={1})


def running_products(data: Data) -> Iterator[OpCase]:
    def expected(values: Sequence[Array]) -> list[Array]:
        x, axis = np.asarray(values[0], np.float64), int(values[1])
        return [np.cumprod(x[..., ::-1], axis)[..., ::-1].astype(values[0].dtype)]

    for shape in ((3, 5, 7), (4, 21)):
        x = (1 + data(*shape) * 0.1).astype(data.dtype)
        tolerance = (2e-2, 2e-2) if data.dtype == "f2" else None
        yield OpCase(CumProd(reverse=True), (x, ints(-1)[0]), expected, tolerance, constants={1})


CASES: dict[type[Op], Cases] = {
    CumSum: running_sums,
    CumProd: running_products,
    SoftMax: softmaxes(SoftMax),
    LogSoftmax: softmaxes(LogSoftmax),
    **{
        op: reductions(op)
        for op in (
            reduce.ReduceSum, reduce.ReduceMean, reduce.ReduceProd, reduce.ReduceMax,
            reduce.ReduceMin, reduce.ReduceL1, reduce.ReduceL2, reduce.ReduceLogicalAnd,
            reduce.ReduceLogicalOr,
        )
    },
    SegmentMax: segments,
}  # fmt: skip
