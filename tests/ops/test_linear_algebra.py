"""Det and Inverse."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import InferenceError, ShapeError
from polydevice.ops.linear_algebra import Det, Inverse
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice.testing.op_case import OpCase
from polydevice_cpu.implement import run
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(32)


@pytest.mark.parametrize("adjoint", [True, False])
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 4, 4), (5, 1, 1), (2, 2)])
def test_inverse(device, adjoint, shape):
    x = RNG.standard_normal(shape).astype(np.float32) + 2 * np.eye(shape[-1], dtype=np.float32)
    case = openvino_case(Inverse(adjoint=adjoint), x, tolerance=(1e-3, 1e-4))
    check(case, device)


def test_a_singular_matrix_has_no_inverse():
    with pytest.raises(InferenceError, match="singular"):
        run(Inverse(), [np.float32([[1, 2], [2, 4]])])


def test_det(device):
    x = np.float32([[[1, 2], [3, 4]], [[2, 0], [0, 5]]])
    check(OpCase(Det(), [x], [np.float32([-2, 10])]), device)


@pytest.mark.parametrize("op", [Det(), Inverse()])
def test_refuses_what_is_not_square(op):
    for shape in ([3], [2, 3]):
        with pytest.raises(ShapeError):
            op.infer([TensorDesc(ElementType.f32, Shape(shape))])
