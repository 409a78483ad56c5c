"""Convolutions in bfloat16 whose steps are as wide as their windows, as of patches of pictures."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.processor import has_bf16
from tests.cpu import models
from tests.cpu.loading import load

pytestmark = pytest.mark.skipif(not has_bf16(), reason="no bfloat16 on this processor")

PATCHES = {
    "2x2 of 48 channels": (48, 1, (2, 2), (2, 2), (16, 16)),
    "4x4 in steps of 2": (48, 1, (4, 4), (2, 2), (24, 24)),
    "8x8 of 8 channels": (8, 1, (8, 8), (8, 8), (24, 24)),
    "1x4 of 16": (16, 1, (1, 4), (1, 4), (9, 32)),
    "4x2": (48, 1, (4, 2), (1, 2), (29, 22)),
    "wide": (40, 1, (2, 16), (2, 8), (16, 32)),
    "two groups": (96, 2, (2, 2), (2, 2), (16, 16)),
    "a row": (24, 1, (4,), (4,), (64,)),
    "a volume": (24, 1, (2, 4, 4), (2, 4, 4), (4, 8, 16)),
    "a volume with gaps": (40, 1, (1, 1, 3), (2, 3, 2), (9, 9, 11)),
    "4x4 in steps of 6": (48, 1, (4, 4), (6, 6), (28, 28)),
    "a row in steps of 4": (48, 1, (2,), (4,), (66,)),
    "rows left out": (48, 1, (3, 3), (4, 1), (43, 24)),
    "planes left out": (48, 1, (1, 3, 3), (2, 3, 1), (7, 9, 12)),
    "of 32 channels": (32, 1, (2, 2), (2, 2), (16, 16)),
}


@pytest.mark.parametrize("patches", PATCHES)
@pytest.mark.parametrize("known", [False, True])
def test_patches(core, patches, known, rng):
    channels, groups, kernel, strides, sizes = PATCHES[patches]
    weights = rng.standard_normal((32, channels // groups, *kernel)).astype(np.float32)
    weights /= np.sqrt(weights[0].size)
    attributes = {"kernel_shape": kernel, "strides": strides, "group": groups}
    nodes = [("Relu", ["x"], ["a"], {}), ("Conv", ["a", "w"], ["b"], attributes)]
    nodes.append(("Relu", ["b"], ["y"], {}))
    shape = [1, channels, *(sizes if known else [f"d{axis}" for axis in range(len(sizes))])]
    model = models.build(nodes, {"x": shape}, ["y"], {"w": weights})
    request = load(core, model, ENFORCE_BF16="YES").create_infer_request()
    for number in range(1 if known else 4):
        grown = [n + s * number for n, s in zip(sizes, strides, strict=True)]
        x = rng.standard_normal((1, channels, *grown)).astype(np.float32)
        (want,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(request.infer({"x": x})["y"], want, atol=0.05, rtol=0.05)
