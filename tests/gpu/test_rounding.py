"""f32 quotients and square roots are those of IEEE 754 wherever the device can round them so."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Divide
from polydevice.ops.math import Sqrt
from polydevice_gpu.kernels.pointwise.fragment import ROUNDED_DIVISIONS
from polydevice_gpu.kernels.target import Target
from tests.gpu.graphs import Sketch, compiled


def test_quotients_and_roots_are_correctly_rounded(opencl) -> None:
    if not opencl.capabilities.rounds_divisions:
        pytest.skip(f"{opencl.name} does not round quotients correctly")
    random = np.random.default_rng(5)
    a, b = (random.uniform(0.01, 100, 4001).astype("f4") for _ in range(2))
    s = Sketch()
    x, y = s.input("a", 4001), s.input("b", 4001)
    network = s.network(q=s.add("divide", Divide(), x, y), r=s.add("root", Sqrt(), x))
    with Core() as core:
        result = core.load_network(network, "GPU").infer({"a": a, "b": b})
    assert np.array_equal(result["q"], a / b)
    assert np.array_equal(result["r"], np.sqrt(a))


@pytest.mark.parametrize("op", [Sqrt, Relu])
@pytest.mark.parametrize("behind", [False, True], ids=["alone", "behind_a_convolution"])
def test_programs_that_take_roots_ask_for_rounding_and_no_others(op, behind) -> None:
    # Many drivers round without being asked, so answers do not tell.
    s = Sketch()
    x = s.input("x", 1, 8, 5, 5)
    nodes = compiled(s.network(y=s.add("last", op(), s.conv("conv", x, 8) if behind else x))).nodes
    asked = [
        ROUNDED_DIVISIONS in launch.options
        for node in nodes
        if (choice := node.choice) is not None
        for launch in choice.kernel.launches(node, choice.kernel.modes[choice.mode], Target())
    ]
    assert sum(asked) == (op is Sqrt)
