"""Inputs of type f16 that a network makes f32: what computes in half reads them as they are."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add
from polydevice.ops.convert import Convert
from polydevice.ops.reduce import ReduceSum
from polydevice.ops.search import Unique
from tests.gpu.graphs import Sketch

IDLE = "x is stored so already"


@pytest.fixture
def given(rng) -> np.ndarray:
    return rng.standard_normal((3, 40)).astype("f2")


def _wide() -> tuple:
    s = Sketch()
    return s, s.add("wide", Convert(ElementType.f32), s.input("x", 3, 40, kind=ElementType.f16))


def _loaded(core: Core, network, precision: str):
    return core.load_network(network, "GPU", {"INFERENCE_PRECISION_HINT": precision})


@pytest.mark.parametrize(("precision", "launches"), [("f16", 1), ("f32", 2)])
def test_a_layer_reads_half_as_it_is(core, given, precision, launches):
    s, wide = _wide()
    network = s.network(y=s.add("sums", ReduceSum(), wide, s.const("axis", np.array([1]))))
    executable = _loaded(core, network, precision)
    assert f"{launches} launches" in executable.explain()
    assert (IDLE in executable.explain()) == (precision == "f16")
    found = executable.infer({"x": given})["y"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, given.astype("f8").sum(1), rtol=0, atol=1e-2)


def test_numbers_that_half_does_not_have_stay_in_float(core, given):
    s, wide = _wide()
    small = s.const("small", np.full((3, 40), 2.0**-14, "f4"))
    network = s.network(y=s.add("y", Add(), wide, small))
    executable = _loaded(core, network, "f32")
    assert IDLE not in executable.explain()
    np.testing.assert_array_equal(
        executable.infer({"x": given})["y"], given.astype("f4") + np.float32(2.0**-14)
    )


def test_what_the_host_computes_gets_floats(core, given):
    s, wide = _wide()
    values, *_ = s.node("values", Unique(sorted=True), wide).outputs
    network = s.network(y=values, z=s.add("z", Relu(), wide))
    found = _loaded(core, network, "f16").infer({"x": given})
    assert found["y"].dtype == np.float32
    np.testing.assert_array_equal(found["y"], np.unique(given).astype("f4"))
    np.testing.assert_array_equal(found["z"], np.maximum(given, 0).astype("f4"))


def test_an_input_that_is_an_output_becomes_float(core, given):
    s, wide = _wide()
    found = _loaded(core, s.network(y=wide), "f16").infer({"x": given})
    assert found["y"].dtype == np.float32
    np.testing.assert_array_equal(found["y"], given.astype("f4"))
