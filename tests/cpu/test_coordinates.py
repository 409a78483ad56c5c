"""GatherND by machine code; NumPy and ONNX Runtime judge."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polydevice.errors import InferenceError
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.indexed import coordinates
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, with_avx512
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("seed", range(30))
def test_code(side, seed):
    rng = np.random.default_rng(seed)
    batches, count = int(rng.integers(0, 3)), int(rng.integers(1, 4))
    behind = [[], [1], [3], [5, 13], [64], [33, 4]][seed % 6]
    shape = (*rng.integers(1, 6, batches + count).tolist(), *behind)
    kind, index = rng.choice(["u1", "i2", "f4", "f8"]), rng.choice(["i4", "i8"])
    x = guarded(side, math.prod(shape) * np.dtype(kind).itemsize).view(kind).reshape(shape)
    x[...] = rng.integers(0, 200, shape)
    sizes = (*shape[:batches], *rng.integers(1, 7, rng.integers(1, 3)).tolist(), count)
    at = guarded(side, math.prod(sizes) * np.dtype(index).itemsize).view(index).reshape(sizes)
    for place, size in enumerate(shape[batches : batches + count]):
        at[..., place] = rng.integers(-size, size, sizes[:-1])
    want = np.empty((*sizes[:-1], *behind), kind)
    for batch in np.ndindex(*shape[:batches]):
        want[batch] = x[batch][tuple(np.moveaxis(at[batch], -1, 0).astype(np.int64))]
    got = guarded(side, want.nbytes).view(kind).reshape(want.shape)
    told = coordinates.taking(shape, sizes, batches, (x.itemsize, at.itemsize))
    call = Code.of([told]).bound([address_of(each) for each in (x, at, got)])
    for _ in range(2):
        assert call() == 0
    np.testing.assert_array_equal(got, want)
    for bad in (shape[batches], -shape[batches] - 1):
        at.reshape(-1, count)[-1, 0] = bad
        assert call() & 0xFFFFFFFF == 1


@pytest.mark.parametrize("batches", [0, 1])
def test_networks(core, batches):
    """Of open sizes; a bad index is named, and what follows is right again."""
    nodes = [
        ("Cast", ["i"], ["at"], {"to": 7}),
        ("GatherND", ["x", "at"], ["a"], {"batch_dims": batches}),
        ("Neg", ["a"], ["y"], {}),
    ]
    sizes = {"x": ["n", "m", "k", "l"], "i": ["n", "t", 2] if batches else ["t", 2]}
    model = build(nodes, sizes, ["y"], {})
    executable = load(core, model)
    rng = np.random.default_rng(batches)
    for shape, count in (
        ((2, 5, 4, 3), 6),
        ((3, 7, 9, 20), 2),
        ((2, 2, 2, 1), 9),
        ((1, 4, 4, 70), 5),
    ):
        at = np.stack([rng.integers(-n, n, (shape[0], count)) for n in shape[batches:][:2]], -1)
        at = (at if batches else at[0]).astype(np.float32)
        feed = {"x": rng.normal(size=shape).astype(np.float32), "i": at}
        (want,) = answer(model, feed)
        np.testing.assert_array_equal(executable.infer(feed)["y"], want)
        bad = {**feed, "i": at + 100}
        with pytest.raises(InferenceError, match="is outside"):
            executable.infer(bad)


@with_avx512
def test_code_computes_a_network(core):
    nodes = [("Cast", ["i"], ["at"], {"to": 7}), ("GatherND", ["x", "at"], ["y"], {})]
    executable = load(core, build(nodes, {"x": [4, 3], "i": [5, 1]}, ["y"], {}))
    feed = {"x": np.ones((4, 3), np.float32), "i": np.zeros((5, 1), np.float32)}
    executable.infer(feed)
    assert "GatherND" in by_machine_code(executable)
