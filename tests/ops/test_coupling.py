"""PairwiseCoupling: where pairs agree, it finds what they were made of."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.coupling import PairwiseCoupling
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc
from polydevice.testing.op_case import OpCase
from tests.ops.check import check


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 3, 6])
def test_pairs_that_agree(device, kind, classes):
    """Of classes as likely as p, the first of two is so with p / (p + q)."""
    rng = np.random.default_rng(classes)
    p = rng.uniform(0.5, 2, (7, classes))
    p /= p.sum(1, keepdims=True)
    i, j = np.triu_indices(classes, 1)
    x = (p[:, i] / (p[:, i] + p[:, j])).astype(kind)
    op = PairwiseCoupling(classes)
    check(OpCase(op, [x], [p.astype(kind)], tolerance=(0, 0.02), others=[x]), device)


def test_equal_ones(device):
    x, y = np.full((3, 6), 0.5, np.float32), np.full((3, 4), 0.25, np.float32)
    check(OpCase(PairwiseCoupling(4), [x], [y], others=[x]), device)


def test_its_result_has_rows_and_classes():
    desc = TensorDesc(ElementType.f32, Shape([Dim(), 3]))
    assert PairwiseCoupling(3).infer([desc])[0].shape == Shape([Dim(), 3])
    with pytest.raises(ShapeError):
        PairwiseCoupling(4).infer([desc])
    with pytest.raises(ShapeError, match="no pair"):
        PairwiseCoupling(1).infer([desc])
