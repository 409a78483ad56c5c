"""Columns of constant factors lie so that a lane of warp groups' units stores eight neighbours.

The units run on few machines; how their sums lie in registers is published (PTX ISA, "Register
fragments and shared memory layouts for wgmma"), and is done here lane by lane.
"""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_gpu.kernels.gemm.gemm_wgmma import for_eights


@pytest.mark.parametrize("columns", [64, 128, 192, 256])
def test_a_lane_stores_eight_neighbours(columns):
    random = np.random.default_rng(columns)
    x, weights = random.standard_normal((16, 24)), random.standard_normal((columns, 24))
    product = x @ for_eights(weights).T
    lane = np.arange(32)
    number = np.arange(columns // 2)[:, None]
    rows = (lane >> 2) + (number >> 1 & 1) * 8
    sums = product[rows, number // 4 * 8 + (lane & 3) * 2 + (number & 1)]
    stored = np.full((16, columns), np.nan)
    for at in range(0, columns // 2, 16):
        for h in (0, 2):
            for place, offset in enumerate((0, 1, 4, 5, 8, 9, 12, 13)):
                n = (lane & 3) * 8 + at * 2 + place
                stored[(lane >> 2) + h * 4, n] = sums[at + h + offset, lane]
    np.testing.assert_allclose(stored, x @ weights.T, 1e-12, 1e-12)
