"""Pointwise operations around sums of rows; NumPy answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.arithmetic import Add, Divide, Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.math import Sqrt
from polydevice.ops.op import Op
from polydevice.testing.op_case import OpCase
from polydevice_gpu.ops import Fragment, Step, ToByte, single
from polydevice_gpu.row_ops import Gathering, RowSteps
from tests.gpu.kernel_cases.data import Cases, Data


def rows(data: Data) -> Iterator[OpCase]:
    for shape, axis in (
        ((3, 5, 37), 2),
        ((2, 19, 7), 1),
        ((67, 16), 1),
        ((5, 4), 1),
        ((2, 3, 9), 2),
        ((1, 3), 1),
        ((3, 131), 0),
    ):
        scale = [1] * len(shape)
        scale[axis] = shape[axis]
        x, gamma, eps = data(*shape), data(*scale), np.asarray([0.25], data.dtype)

        def normalised(values: Sequence[Array], axis: int = axis) -> list[Array]:
            x, gamma, eps = (np.asarray(value, np.float64) for value in values)
            centred = x - x.mean(axis, keepdims=True)
            root = np.sqrt((centred**2).mean(axis, keepdims=True) + eps)
            return [np.asarray(centred / root * gamma, np.float32)]

        yield OpCase(_normalise(axis, ElementType.of(x.dtype)), (x, gamma, eps), normalised)
    x = data(11, 29)

    def levels(values: Sequence[Array]) -> list[Array]:
        x = np.asarray(values[0], np.float64)
        total = np.clip(np.rint(x.sum(1, keepdims=True)), -100, 100)
        return [np.asarray(np.clip(np.rint(x * 16 + total), -128, 127), np.int8)]

    exact = np.asarray(np.rint(x * 16) / 16, data.dtype)
    yield OpCase(_levels(ElementType.of(x.dtype)), (exact,), levels)


def _normalise(axis: int, kind: ElementType) -> RowSteps:
    """(x - mean) / sqrt(variance + eps) * gamma, of x, gamma and eps; means are values 3 and 4."""
    centred = single(Subtract(), (kind, kind), kind)
    square = Step(Multiply(), (2, 2), kind)
    shifted = (Step(Add(), (0, 1), kind), Step(Sqrt(), (2,), kind))
    scaled = (Step(Divide(), (4, 2), kind), Step(Multiply(), (5, 3), kind))
    first = Gathering(Fragment((kind,)), (0,), Fragment((kind,)), (), is_mean=True)
    second = Gathering(
        Fragment((kind, kind), (*centred.steps, square)), (0, 3),
        Fragment((kind, kind), shifted), (2,), is_mean=True,
    )  # fmt: skip
    step = Step(Subtract(), (0, 1), kind)
    fragment = Fragment((kind, kind, kind, kind), (step, *scaled))
    return RowSteps(axis, (first, second), fragment, (0, 3, 4, 1))


def _levels(kind: ElementType) -> RowSteps:
    """A byte of 16 x and the rounded sum of a row, which is a byte."""
    total = Gathering(
        Fragment((kind,)), (0,),
        Fragment((kind,), (Step(ToByte(-100, 100, 0, ElementType.i8), (0,), ElementType.i8),)),
        (), is_mean=False,
    )  # fmt: skip
    steps = (
        Step(Add(), (0, 0), kind),
        Step(Add(), (2, 2), kind),
        Step(Add(), (3, 3), kind),
        Step(Add(), (4, 4), kind),
        Step(Convert(ElementType.f32), (1,), kind),
        Step(Add(), (5, 6), kind),
        Step(ToByte(-128, 127, 0, ElementType.i8), (7,), ElementType.i8),
    )
    return RowSteps(1, (total,), Fragment((kind, ElementType.i8), steps), (0, 1))


CASES: dict[type[Op], Cases] = {
    RowSteps: rows,
}
