"""Running products."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.ops.cumulative import CumProd
from polydevice.testing.op_case import OpCase
from tests.ops.check import check

RANDOM = np.random.default_rng(26)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, -2])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_cum_prod(dtype, axis, reverse, exclusive, known, device):
    x = RANDOM.integers(-3, 4, (4, 5, 3)).astype(dtype)
    turned = np.flip(x, axis) if reverse else x
    if exclusive:
        ones = np.ones_like(np.take(turned, [0], axis))
        turned = np.concatenate([ones, np.delete(turned, -1, axis)], axis)
    y = np.cumprod(turned, axis, dtype=dtype)
    case = OpCase(
        CumProd(exclusive, reverse),
        [x, np.array(axis)],
        [np.flip(y, axis) if reverse else y],
        constants={1} if known else (),
    )
    check(case, device)
