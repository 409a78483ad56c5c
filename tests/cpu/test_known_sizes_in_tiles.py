"""Quantised networks of known sizes in AMX tiles: ONNX Runtime judges, and oneDNN to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.plan import in_tiles
from polydevice_cpu.plan.filling.by_machine import known_sizes
from polydevice_cpu.plan.step import IN_TILES
from tests.cpu.loading import load
from tests.cpu.machine_code import with_tiles_of_bytes
from tests.cpu.quantised_graphs import Graph, activated, convolution, reference, spread

pytestmark = with_tiles_of_bytes


def layers(g, dtype, channels, rank):
    """Convolutions of random form, of which some are added to what they read, and a large one."""
    x = g.source(dtype)
    for _ in range(4):
        y, results = convolution(g, x, channels, rank)
        y = activated(g, y)
        x, channels = g.quantised_by(y, g.parameters(dtype, 0.2)), results
        w = g.weights((channels, channels, *[1] * rank), 0)
        z = g.emit("Conv", x, w, kernel_shape=[1] * rank)
        z = activated(g, g.emit("Add", g.quantised_by(z, g.parameters(dtype, 0.2)), x))
        x = g.quantised_by(z, g.parameters(dtype, 0.3))
    w = g.weights((channels, channels, *[3] * rank), 0)
    y = g.emit("Conv", x, w, kernel_shape=[3] * rank, pads=[1] * (2 * rank))
    return g.quantised_by(y, g.parameters(dtype, 0.3))


def rows(g, dtype, channels, _):
    """Products with matrices, also of the integers' floats."""
    x = g.source(dtype)
    for number in range(3):
        results = int(g.rng.integers(1, 90))
        y = g.emit("MatMul", x, g.weights((channels, results), 1))
        y = g.emit("Add", y, g.store(g.rng.normal(size=results).astype(np.float32)))
        y = activated(g, y) if number < 2 else g.emit("Tanh", y)
        x, channels = g.quantised_by(y, g.parameters(dtype, 0.2)), results
    return x


def computed(core, model, feed, threads):
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request = executable.create_infer_request()
    (first,) = (each.copy() for each in request.infer(feed).values())
    (second,) = request.infer(feed).values()
    np.testing.assert_array_equal(first, second)
    codes = [step.implementation for step in executable.latest_plan().steps]
    return first, codes.count(IN_TILES)


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("graph", [layers, rows])
def test_networks_at_random(core, monkeypatch, graph, seed):
    monkeypatch.setattr(known_sizes, "LEAST", 0)
    rng = np.random.default_rng(seed)
    g, dtype, rank = Graph(rng), (np.uint8, np.int8)[seed % 2], 1 + seed % 3 // 2
    channels, batch = int(rng.integers(1, 80)), int(rng.integers(1, 4))
    result = graph(g, dtype, channels, rank)
    inner = tuple(int(n) for n in rng.integers(20, 30, rank))
    shape = (batch, *inner, channels) if graph is rows else (batch, channels, *inner)
    model = g.model(shape, dtype, {result: np.float32})
    feed = {"x": spread(rng, shape, dtype)}
    got, count = computed(core, model, feed, 1 + seed % 2)
    (wanted,) = reference(model, feed)
    # Roundings to the other side become more from layer to layer.
    assert np.abs(got - wanted).mean() <= np.abs(wanted).max() / 20
    assert count or graph is rows
    monkeypatch.setattr(in_tiles, "has_tiles_of_bytes", lambda: False)
    plain, none = computed(core, model, feed, 1 + seed % 2)
    assert none == 0
    np.testing.assert_array_equal(got, plain)
