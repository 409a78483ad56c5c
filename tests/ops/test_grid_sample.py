"""GridSample."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.grid_sample import GridMode, GridPadding, GridSample
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc
from polydevice.testing.op_case import OpCase
from polydevice_cpu.implement import run
from tests.cpu import models
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(28)


@pytest.mark.parametrize("mode", list(GridMode))
@pytest.mark.parametrize("padding", list(GridPadding))
@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize(("height", "width"), [(5, 7), (1, 4), (1, 1)])
def test_grid_sample(device, mode, padding, align, height, width):
    x = RNG.standard_normal((2, 3, height, width)).astype(np.float32)
    grid = RNG.uniform(-1.8, 1.8, (2, 4, 6, 2)).astype(np.float32)
    op = GridSample(align_corners=align, mode=mode, padding_mode=padding)
    check(openvino_case(op, x, grid), device)
    check(openvino_case(op, x, grid, constants={1}), device)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("padding", list(GridPadding))
def test_volumes(device, mode, padding):
    x = RNG.standard_normal((1, 2, 3, 4, 5)).astype(np.float32)
    grid = RNG.uniform(-1.2, 1.2, (1, 2, 3, 2, 3)).astype(np.float32)
    attributes = {"mode": mode, "padding_mode": padding.value, "align_corners": 0}
    node = onnx.helper.make_node("GridSample", ["x", "grid"], ["y"], **attributes)
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [node],
            "g",
            [
                onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None)
                for n in ("x", "grid")
            ],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 20)],
    )
    answers = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x, "grid": grid})
    check(OpCase(GridSample.from_onnx(attributes, 20), [x, grid], answers), device)


def test_a_position_that_is_no_number_reads_nothing(device):
    x = np.ones((1, 1, 2, 2), np.float32)
    grid = np.float32([[[[np.nan, 0], [np.inf, 0], [-1e30, 1e30], [0, 0]]]])
    check(OpCase(GridSample(), [x, grid], [np.float32([[[[0, 0, 0, 1]]]])]), device)


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("large", [np.inf, 3e38])
def test_planes_of_infinities_and_of_numbers_next_to_them(large, align, padding):
    """Depths of nothing, and masks; a difference of two would be no number, or infinite."""
    x = np.full((1, 2, 5, 4), large, np.float32)
    x[:, :, 0], x[:, 1] = -large, -x[:, 1]
    grid = RNG.uniform(-1.4, 1.4, (1, 6, 9, 2)).astype(np.float32)
    grid[..., 1] = np.where(grid[..., 1] > 0, grid[..., 1] / 2, -0.95)  # one sign for each point
    attributes = {"mode": "bilinear", "padding_mode": padding, "align_corners": align}
    model = models.build(
        [("GridSample", ["x", "grid"], ["y"], attributes)],
        {"x": list(x.shape), "grid": list(grid.shape)},
        ["y"],
        {},
    )
    (answer,) = models.answer(model, {"x": x, "grid": grid})
    assert not np.isnan(answer).all()
    (y,) = run(GridSample.from_onnx(attributes, 16), [x, grid])
    np.testing.assert_allclose(y, answer, rtol=1e-5)


def test_unknown_sizes():
    x = TensorDesc(ElementType.f16, Shape([None, 3, None, 8]))
    grid = TensorDesc(ElementType.f32, Shape([2, Dim(1, 4), 5, 2]))
    assert GridSample().infer([x, grid])[0] == x.with_shape([2, 3, Dim(1, 4), 5])
    with pytest.raises(ShapeError, match="coordinates"):
        GridSample().infer([x, grid.with_shape([2, 4, 5, 3])])
