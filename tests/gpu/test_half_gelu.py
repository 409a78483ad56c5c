"""Gelu of results in half, which is computed in fewer steps than in float."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.activation import Gelu
from polydevice.ops.arithmetic import Add
from polydevice.ops.matmul import MatMul
from tests.gpu.graphs import Sketch


def _exact(x: np.ndarray) -> np.ndarray:
    flat = [0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x.astype("f8").reshape(-1).tolist()]
    return np.reshape(flat, x.shape)


@pytest.mark.parametrize("width", [32, 7])
def test_every_half_number(core, width) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = x[np.isfinite(x)][: 63_000 // width * width].reshape(-1, width)
    s = Sketch()
    given = s.input("x", *x.shape, kind=ElementType.f16)
    network = s.network(y=s.add("y", Gelu(), given))
    executable = core.load_network(network, "GPU", {"INFERENCE_PRECISION_HINT": "f16"})
    for _ in range(2):
        got = executable.infer({"x": x})["y"].astype("f8")
        right = _exact(x)
        np.testing.assert_array_less(
            np.abs(got - right), 2.6e-5 + 2.0**-11 * np.abs(right) + 2.0**-25
        )


def test_behind_a_product(core) -> None:
    random = np.random.default_rng(7)
    x, w = (random.normal(size=size).astype("f2") for size in ((33, 64), (64, 40)))
    s = Sketch()
    product = s.add("p", MatMul(), s.input("x", 33, 64, kind=ElementType.f16), s.const("w", w))
    biased = s.add("b", Add(), product, s.const("bias", random.normal(size=40).astype("f2")))
    network = s.network(y=s.add("y", Gelu(), biased))
    bias = network.node("bias").constant.astype("f8")
    right = _exact(x.astype("f8") @ w.astype("f8") + bias)
    with core.load_network(network, "GPU", {"INFERENCE_PRECISION_HINT": "f16"}) as executable:
        for _ in range(2):
            got = executable.infer({"x": x})["y"].astype("f8")
            np.testing.assert_allclose(got, right, 2e-3, 4e-3)
