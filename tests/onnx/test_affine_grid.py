"""AffineGrid for one image and several, in two and three dimensions, with sizes of 1."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.onnx.models import model, onnxruntime_outputs, run, tensor, value


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [(1, 3, 2, 3), (2, 1, 4, 2), (1, 2, 2, 3, 4), (3, 1, 5, 2, 2)])
@pytest.mark.parametrize("known", [False, True])
def test_as_onnxruntime(size, align, known, device, rng):
    rank = len(size) - 2
    node = helper.make_node("AffineGrid", ["x", "s"], ["y"], align_corners=align)
    given = [value("x", (size[0], rank, rank + 1))]
    if not known:
        given.append(value("s", (len(size),), TensorProto.INT64))
    stored = [tensor("s", np.array(size))] if known else []
    proto = model([node], given, initializers=stored, opset=20)
    for _ in range(2):
        theta = rng.standard_normal((size[0], rank, rank + 1)).astype(np.float32)
        feeds = [theta] if known else [theta, np.array(size)]
        (expected,) = onnxruntime_outputs(proto, *feeds)
        (y,) = run(proto, *feeds, device=device)
        np.testing.assert_allclose(y, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("align", [0, 1])
def test_a_single_point_is_the_middle_or_the_corner(align, device):
    node = helper.make_node("AffineGrid", ["x", "s"], ["y"], align_corners=align)
    proto = model(
        [node],
        [value("x", (1, 2, 3))],
        initializers=[tensor("s", np.array([1, 1, 1, 2]))],
        opset=20,
    )
    theta = np.float32([[[1, 0, 0], [0, 1, 0]]])
    (y,) = run(proto, theta, device=device)
    across = [-1, 1] if align else [-0.5, 0.5]
    down = -1 if align else 0
    np.testing.assert_allclose(y, [[[[x, down] for x in across]]], atol=1e-6)
