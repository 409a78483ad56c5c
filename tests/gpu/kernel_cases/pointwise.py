"""Pointwise operations with broadcasting."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polydevice.ops import activation, arithmetic, quantize, select
from polydevice.ops.op import Op
from polydevice.testing.op_case import OpCase
from polydevice_gpu.ops import Fused
from tests.gpu.kernel_cases.data import Cases, Data
from tests.ops.openvino_oracle import openvino_case


def pointwise(data: Data) -> Iterator[OpCase]:
    yield openvino_case(arithmetic.Add(), data(2, 5, 7), data(5, 1))
    yield openvino_case(arithmetic.Multiply(), data(3, 1, 1, 4), data(2, 5, 1))
    yield openvino_case(activation.Relu(), data(131))
    yield openvino_case(activation.Clamp(min=-0.5, max=0.7), data(3, 37))
    yield openvino_case(activation.PRelu(), data(2, 5, 3, 4), data(5))
    condition = data.random.random((4, 5)) > 0.5
    yield openvino_case(select.Select(), condition, data(4, 5), data(4, 1))
    limits = [np.array([v], data.dtype) for v in (-1.0, 1.0, -1.0, 1.0)]
    yield openvino_case(quantize.FakeQuantize(levels=16), data(3, 19), *limits)


CASES: dict[type[Op], Cases] = {
    Fused: pointwise,
}
