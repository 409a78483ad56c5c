"""Numbers that are moved, or made of bytes, for new shapes: machine code for all sizes."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.step import MACHINE_CODE
from tests.cpu import models
from tests.cpu.loading import image, load, wait_for_settling
from tests.cpu.machine_code import with_avx512, with_vectors
from tests.cpu.quantised_graphs import Graph, reference, spread

pytestmark = [
    with_vectors,
    pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine"),
]

SIZES = [(1, 7, 9), (2, 6, 5), (1, 13, 4), (3, 5, 11), (1, 2, 31), (1, 40, 33), (2, 1, 3)]


def enlarged(channels: int, times: tuple[int, int]) -> bytes:
    """Pictures whose pixels are repeated between two convolutions."""
    weights = {"a": image(1, channels, 3, 1, 1), "b": image(2, 4, channels, 1, 1)}
    weights["times"] = np.array([1, 1, *times], np.float32)
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    nodes = [
        ("Conv", ["x", "a"], ["c"], {}),
        ("Resize", ["c", "", "times"], ["r"], {**how, "nearest_mode": "floor"}),
        ("Conv", ["r", "b"], ["y"], {}),
    ]
    return models.build(nodes, {"x": ["n", 3, "h", "v"]}, ["y"], weights)


def joined(channels: int, axis: int) -> bytes:
    """Three parts, along channels that lie innermost or along columns."""
    weights = {"a": image(1, channels, 3, 1, 1), "b": image(2, channels, 3, 1, 1)}
    inside = 3 * channels if axis == 1 else channels
    weights["c"] = image(3, 4, inside, 1, 1)
    nodes = [
        ("Conv", ["x", "a"], ["p"], {}),
        ("Conv", ["x", "b"], ["q"], {}),
        ("Concat", ["p", "q", "p"], ["j"], {"axis": axis}),
        ("Conv", ["j", "c"], ["y"], {}),
    ]
    return models.build(nodes, {"x": ["n", 3, "h", "v"]}, ["y"], weights)


def reordered(width: int) -> bytes:
    """Parts of rows of a product, brought together."""
    weights = {"w": image(1, width, width), "parts": np.array([0, 0, 4, width // 4])}
    nodes = [
        ("MatMul", ["x", "w"], ["a"], {}),
        ("Reshape", ["a", "parts"], ["b"], {}),
        ("Transpose", ["b"], ["y"], {"perm": [0, 2, 1, 3]}),
    ]
    return models.build(nodes, {"x": ["n", "k", width]}, ["y"], weights)


def pictures(n: int, high: int, wide: int) -> np.ndarray:
    return image(n + high, n, 3, high, wide)


CASES = {
    "twice": (enlarged(24, (2, 2)), pictures, {"Interpolate"}),
    "three and two": (enlarged(17, (3, 2)), pictures, {"Interpolate"}),
    "lines": (enlarged(8, (4, 1)), pictures, {"Interpolate"}),
    "columns": (enlarged(40, (1, 5)), pictures, {"Interpolate"}),
    "channels": (joined(16, 1), pictures, {"Concat"}),
    "odd channels": (joined(13, 1), pictures, {"Concat"}),
    "behind each other": (joined(24, 3), pictures, {"Concat"}),
    "heads": (reordered(64), lambda n, k, _: image(n, n, k, 64), {"Reorder"}),
    "odd heads": (reordered(52), lambda n, k, _: image(n, n, k, 52), {"Reorder"}),
}


def moved(executable) -> set[str]:
    """Types of what oneDNN would move and machine code does."""
    steps = executable.latest_plan().steps
    return {step.type for step in steps if step.implementation == MACHINE_CODE}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_new_shapes_are_moved_as_by_onednn(core, monkeypatch, name, threads):
    monkeypatch.setattr(settling, "RUNS", 3)
    model, feed, kinds = CASES[name]
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request, seen = executable.create_infer_request(), set()
    for sizes in SIZES * 2:
        x = feed(*sizes)
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"].copy()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
        seen |= moved(executable)
        for _ in range(settling.RUNS):
            request.infer({"x": x})
        wait_for_settling()
        np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
    assert kinds <= seen


@with_avx512
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_floats_become_bytes_as_by_onednn(core, monkeypatch, dtype, threads):
    """To the bit, where they are infinite, beyond limits, or no numbers."""
    monkeypatch.setattr(settling, "RUNS", 3)
    g = Graph(np.random.default_rng(4))
    model = g.model(["n", "k", 20], np.float32, {g.quantised("x", dtype, 0.05): dtype})
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request, seen = executable.create_infer_request(), set()
    for n, k, _ in SIZES * 2:
        values = g.rng.normal(size=(n, k, 20)).astype(np.float32) * 9
        values.reshape(-1)[::7] = g.rng.choice([np.inf, -np.inf, 0.0, -0.0, 3e9, -3e9])
        (wanted,) = reference(model, {"x": values})
        (got,) = request.infer({"x": values}).values()
        np.testing.assert_array_equal(got, wanted)
        values.reshape(-1)[3::11] = np.nan
        (got,) = (each.copy() for each in request.infer({"x": values}).values())
        seen |= moved(executable)
        for _ in range(settling.RUNS):
            request.infer({"x": values})
        wait_for_settling()
        np.testing.assert_array_equal(*request.infer({"x": values}).values(), got)
    assert "QuantizeLinear" in seen


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_bytes_become_floats_as_by_onednn(core, monkeypatch, dtype, threads):
    monkeypatch.setattr(settling, "RUNS", 3)
    g = Graph(np.random.default_rng(4))
    x = g.emit("DequantizeLinear", "x", *g.parameters(dtype, 0.04))
    y = g.emit("Mul", x, g.store(g.rng.normal(size=20).astype(np.float32)))
    model = g.model(["n", "k", 20], dtype, {y: None})
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request, seen = executable.create_infer_request(), set()
    for n, k, _ in SIZES * 2:
        values = spread(g.rng, (n, k, 20), dtype)
        (wanted,) = reference(model, {"x": values})
        (got,) = (each.copy() for each in request.infer({"x": values}).values())
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
        seen |= moved(executable)
        for _ in range(settling.RUNS):
            request.infer({"x": values})
        wait_for_settling()
        np.testing.assert_array_equal(*request.infer({"x": values}).values(), got)
    assert any("Dequantize" in each for each in seen)
