"""Where the largest along an axis of few elements is, by machine code; NumPy judges."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.rows import extremes
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, with_avx512
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

pytestmark = with_avx512

F = np.float32


def run(side, told, x, shape, dtype):
    source, result = (
        guarded(side, x.nbytes),
        guarded(side, int(np.prod(shape)) * np.dtype(dtype).itemsize),
    )
    source.view(F)[:] = x.reshape(-1)
    status = Code.of([told]).bound([address_of(source), address_of(result)])()
    return result.view(dtype).reshape(shape), status & 0xFFFFFFFF


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_of_any_axis(seed, largest, side):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 40, rng.integers(1, 4)))
    axis = int(rng.integers(0, len(shape)))
    x = np.round(rng.standard_normal(shape) * 2).astype(F)  # many are equal
    x[rng.random(shape) < 0.05] = rng.choice([np.inf, -np.inf, -0.0])
    kept = [size for place, size in enumerate(shape) if place != axis]
    for wide in (False, True):
        told = extremes.where(shape, axis, largest=largest, is_wide=wide)
        y, status = run(side, told, x, kept, np.int64 if wide else np.int32)
        assert status == 0
        np.testing.assert_array_equal(y, (np.argmax if largest else np.argmin)(x, axis))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape", [(3, 50), (3, 17, 20), (1, 1)])
def test_where_nan_is_is_left_to_numpy(shape, largest):
    rng = np.random.default_rng(0)
    for _ in range(20):
        x = rng.standard_normal(shape).astype(F)
        x[tuple(int(rng.integers(0, n)) for n in shape)] = np.nan
        kept = (shape[0], *shape[2:])
        told = extremes.where(shape, 1, largest=largest, is_wide=True)
        assert run("after", told, x, kept, np.int64)[1] == 1


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("values", "places"), [("ReduceMax", "ArgMax"), ("ReduceMin", "ArgMin")])
def test_networks(core, values, places, axis):
    nodes = [
        ("Mul", ["x", "two"], ["a"], {}),
        (values, ["a"], ["v"], {"axes": [axis], "keepdims": 0}),
        ("Neg", ["a"], ["b"], {}),
        (places, ["b"], ["i"], {"axis": axis}),
        ("Cast", ["i"], ["j"], {"to": 1}),
        ("Mul", ["v", "two"], ["w"], {}),
    ]
    made = build(nodes, {"x": ["n", "m", "k"]}, ["w", "j"], {"two": F(2)})
    rng = np.random.default_rng(axis)
    for shape in ((3, 9, 9), (1, 40, 60), (5, 2, 3), (2, 33, 100)):
        network = load(core, made)
        request = network.create_infer_request()
        x = {"x": rng.standard_normal(shape).astype(F)}
        for _ in range(2):
            for found, right in zip(request.infer(x).values(), answer(made, x), strict=True):
                np.testing.assert_array_equal(found, right)
        assert "TopK" in by_machine_code(network)
    x["x"][1, 4, 5] = np.nan  # machine code refuses it
    y, where = request.infer(x).values()
    np.testing.assert_array_equal(
        y, 4 * (np.max if values == "ReduceMax" else np.min)(x["x"], axis)
    )
    chosen = np.argmax if places == "ArgMax" else np.nanargmin
    np.testing.assert_array_equal(where.squeeze(axis), chosen(-x["x"], axis))
