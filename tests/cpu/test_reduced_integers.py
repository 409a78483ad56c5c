"""Few integers reduced along axes by machine code; NumPy and ONNX Runtime judge."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.rows import integers
from polydevice_cpu.algorithms.by_machine.rows.shares import placed
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.loading import load
from tests.cpu.machine_code import with_avx512
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

pytestmark = with_avx512
FUNCTIONS = {"sum": np.sum, "product": np.prod, "largest": np.max, "smallest": np.min}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("how", FUNCTIONS)
def test_every_axis(side, kind, how):
    rng = np.random.default_rng(1)
    limits = np.iinfo(kind)
    for shape in ((1,), (7,), (3, 5), (5, 1), (1, 6), (2, 3, 4)):
        x = guarded(side, int(np.prod(shape)) * limits.bits // 8).view(kind).reshape(shape)
        x[...] = rng.integers(limits.min, limits.max, shape, kind, endpoint=True)
        for axis in range(len(shape)):
            want = FUNCTIONS[how](x, axis=axis)
            want = want.astype(kind)  # NumPy adds up in more bits, which wrap around alike
            got = guarded(side, max(want.nbytes, 1)).view(kind).reshape(want.shape)
            code, told = integers.prepared(shape, axis, x.itemsize, how)
            assert not code(placed(told, address_of(x), address_of(got)))
            np.testing.assert_array_equal(got, want)


def test_nothing_and_too_much():
    assert integers.prepared((0, 3), 1, 8, "sum") is None
    assert integers.prepared((3, 0), 1, 8, "sum") is None
    assert integers.prepared((integers.MOST + 1,), 0, 8, "sum") is None


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("name", ["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("axes", [[0], [1], [-1], [0, 1], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("keep", [0, 1])
def test_networks(core, kind, name, axes, keep):
    """With sizes that come with the inputs, one of them for which NumPy reduces."""
    rng = np.random.default_rng(2)
    nodes = [("Mul", ["x", "x"], ["a"], {}), (name, ["a", "axes"], ["r"], {"keepdims": keep}),
             ("Neg", ["r"], ["y"], {})]  # fmt: skip
    model = build(nodes, {"x": ["n", "m", "k"]}, ["y"], {"axes": np.array(axes)}, opset=18,
                  element_type=kind)  # fmt: skip
    executable = load(core, model)
    for shape in ((1, 1, 1), (2, 3, 5), (4, 30, 40), (3, 2, 7), (2, 3, 5)):
        x = rng.integers(-9, 9, shape).astype(kind)
        if name == "ReduceProd":  # ONNX Runtime does not wrap around
            x[rng.random(shape) > 3 / x.size] = -1
        (want,) = answer(model, {"x": x})
        np.testing.assert_array_equal(executable.infer({"x": x})["y"], want)
