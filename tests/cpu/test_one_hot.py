"""OneHot by machine code; NumPy's comparisons and ONNX Runtime judge."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.indexed import one_hot
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, with_avx512
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

LIMITS = np.iinfo(np.int32)


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", [np.uint8, np.float16, np.float32, np.int64])
@pytest.mark.parametrize("wraps", [True, False])
def test_code(side, kind, wraps):
    """Of indices inside, just outside and far away, along any axis."""
    rng = np.random.default_rng(1)
    for shape in ((1,), (7,), (2, 3), (2, 1, 5)):
        for axis in range(len(shape) + 1):
            for depth, index in ((1, np.int32), (4, np.int64), (70, np.int32)):
                indices = guarded(side, math.prod(shape) * np.dtype(index).itemsize).view(index)
                indices[:] = rng.integers(-depth - 2, depth + 2, indices.size)
                indices[rng.random(indices.size) < 0.1] = rng.choice([LIMITS.min, LIMITS.max])
                numbers = [guarded(side, np.dtype(kind).itemsize).view(kind) for _ in range(2)]
                numbers[0][:], numbers[1][:] = 7, 3
                sizes = *shape[:axis], depth, *shape[axis:]
                got = guarded(side, math.prod(sizes) * np.dtype(kind).itemsize).view(kind)
                told = one_hot.prepared(sizes, axis, (got.itemsize, indices.itemsize), wraps=wraps)
                call = Code.of([told]).bound(
                    [address_of(each) for each in (indices, *numbers, got)]
                )
                for _ in range(2):
                    assert call() == 0
                at = np.expand_dims(indices.reshape(shape), axis).astype(np.int64)
                at = np.where((at < 0) & wraps, at + depth, at)
                places = np.arange(depth).reshape(-1, *[1] * (len(shape) - axis))
                want = np.where(at == places, 7, 3).astype(kind)
                np.testing.assert_array_equal(got.reshape(sizes), want)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_networks(core, axis):
    nodes = [
        ("Cast", ["x"], ["i"], {"to": 7}),
        ("OneHot", ["i", "depth", "values"], ["a"], {"axis": axis}),
        ("Neg", ["a"], ["y"], {}),
    ]
    weights = {"depth": np.array([6]), "values": np.array([0.5, 2], np.float32)}
    model = build(nodes, {"x": ["n", "m"]}, ["y"], weights)
    executable = load(core, model)
    for shape in ((1, 1), (4, 9), (3, 50), (4, 9)):
        x = np.random.default_rng(2).integers(-7, 8, shape).astype(np.float32)
        (want,) = answer(model, {"x": x})
        np.testing.assert_array_equal(executable.infer({"x": x})["y"], want)


@with_avx512
def test_a_known_depth_is_computed_by_code(core):
    nodes = [("Cast", ["x"], ["i"], {"to": 7}), ("OneHot", ["i", "depth", "values"], ["y"], {})]
    weights = {"depth": np.array([6]), "values": np.array([0, 1], np.float32)}
    executable = load(core, build(nodes, {"x": [9]}, ["y"], weights))
    executable.infer({"x": np.zeros(9, np.float32)})
    assert "OneHot" in by_machine_code(executable)
