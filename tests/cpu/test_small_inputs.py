"""Small inputs are copied to where the plan reads them: nobody can tell but by the clock."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu.loading import load
from tests.cpu.models import build

SIZES = [3, 40_000]  # copied, and read in place


def doubled(width):
    """Two inputs, y = 2 x + z."""
    nodes = [("Add", ["x", "x"], ["d"], {}), ("Add", ["d", "z"], ["y"], {})]
    return build(nodes, {"x": ["n", width], "z": ["n", width]}, ["y"], {})


@pytest.mark.parametrize("width", SIZES)
def test_memory_is_read_again_at_every_inference(core, width):
    request = load(core, doubled(width)).create_infer_request()
    x, z = np.ones((2, width), np.float32), np.zeros((2, width), np.float32)
    for value in (1, 5, -2):
        x[:] = value
        got = request.infer({"x": x, "z": z} if value == 1 else None)["y"]
        np.testing.assert_array_equal(got, np.full((2, width), 2 * value))
    z[:] = 7
    np.testing.assert_array_equal(request.infer({"x": x})["y"], np.full((2, width), 3))


@pytest.mark.parametrize("width", SIZES)
def test_an_output_becomes_an_input(core, width):
    request = load(core, doubled(width)).create_infer_request()
    y, z = np.ones((1, width), np.float32), np.ones((1, width), np.float32)
    for turn in range(5):
        y = request.infer({"x": y, "z": z})["y"]
        np.testing.assert_array_equal(y, np.full((1, width), 2.0 ** (turn + 2) - 1))


@pytest.mark.parametrize("width", SIZES)
def test_one_memory_for_input_and_output(core, width):
    request = load(core, doubled(width)).create_infer_request()
    x, z = np.full((1, width), 3, np.float32), np.ones((1, width), np.float32)
    request.infer({"x": x, "z": z})
    request.set_blob("y", x)
    request.infer({"x": x})
    np.testing.assert_array_equal(x, np.full((1, width), 7))
    request.infer()
    np.testing.assert_array_equal(x, np.full((1, width), 15))


def test_shapes_small_and_large_by_turns(core):
    request = load(core, doubled(100)).create_infer_request()
    rng = np.random.default_rng(0)
    for turn in range(12):
        n = (2, 400, 3)[turn % 3]
        x, z = rng.normal(size=(2, n, 100)).astype(np.float32)
        got = request.infer({"x": x, "z": z})["y"]
        np.testing.assert_array_equal(got, x + x + z)
        if turn % 2:
            request.start_async({"x": z, "z": x})
            request.wait()
            np.testing.assert_array_equal(request.get_blob("y").array, z + z + x)


def test_whatever_is_done_between_shapes_that_take_turns(core):
    """Outputs handed in again, memory that the user sets and takes away, others' threads."""
    nodes = [
        ("Add", ["x", "z"], ["s"], {}),
        ("Less", ["x", "zero"], ["c"], {}),
        ("Where", ["c", "s", "x"], ["w"], {}),
        ("Mul", ["w", "w"], ["q"], {}),
        ("Concat", ["q", "z"], ["j"], {"axis": 1}),
    ]
    weights = {"zero": np.zeros((), np.float32)}
    model = build(nodes, {"x": ["n", "m"], "z": ["n", "m"]}, ["q", "j"], weights)
    request = load(core, model).create_infer_request()
    rng = np.random.default_rng(8)
    shapes = [(2, 3), (5, 7), (1, 1), (40, 900), (3, 20_001), (64, 1024)]
    given: dict[tuple[int, int], np.ndarray] = {}
    latest: dict[tuple[int, int], np.ndarray] = {}
    for turn in range(300):
        shape = shapes[rng.integers(len(shapes))] if turn > 30 else shapes[turn % 6]
        x, z = rng.normal(size=(2, *shape)).astype(np.float32)
        action = rng.integers(5)
        if action == 0 and shape in latest:  # an output of these sizes, which is written again
            latest[shape][...] = z
            z = latest[shape]
        if action == 1:
            given[shape] = np.empty(shape, np.float32)
            request.set_blob("q", given[shape])
        q = np.where(x < 0, x + z, x) ** 2
        j = np.concatenate([q, z], 1)
        if action == 2:
            request.start_async({"x": x, "z": z})
            request.wait()
            got = {name: request.get_blob(name).array for name in ("q", "j")}
        else:
            got = request.infer({"x": x, "z": z})
        np.testing.assert_allclose(got["q"], q, rtol=1e-6)
        np.testing.assert_allclose(got["j"], j, rtol=1e-6)
        if action == 1:
            assert got["q"] is given[shape]
        latest[shape] = got["q"]
