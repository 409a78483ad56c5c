"""Networks whose values are rounded to 16 bits: computed in floats, and rounded as they say."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from tests.cpu.quantised_graphs import Graph, check, reference

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")


@pytest.mark.parametrize("dtype", [np.uint16, np.int16])
def test_steps_of_16_bits_are_functions_of_what_computes_their_input(core, dtype):
    g = Graph(np.random.default_rng(4))
    middle = 0x8000 + np.iinfo(dtype).min

    def rounded(y: str, scale: float, zero: int) -> str:
        parameters = g.parameters(dtype, scale, zero)
        return g.emit("DequantizeLinear", g.emit("QuantizeLinear", y, *parameters), *parameters)

    x = rounded("x", 1e-4, middle + 77)
    weights = g.store(g.rng.normal(size=(8, 4, 3, 3)).astype(np.float32))
    y = rounded(g.emit("Conv", x, weights, pads=[1] * 4), 5e-4, middle - 9)
    # What only moves is rounded a second time without effect; a sum is rounded anew.
    moved = g.emit("MaxPool", g.emit("Transpose", y, perm=[0, 1, 3, 2]), kernel_shape=[2, 2])
    again = rounded(moved, 5e-4, middle - 9)
    total = rounded(g.emit("Add", again, g.emit("Abs", again)), 2e-3, middle)
    model = g.model((1, 4, 12, 11), np.float32, {again: np.float32, total: np.float32}, opset=21)
    feed = {"x": g.rng.normal(size=(1, 4, 12, 11)).astype(np.float32)}
    # The sums of the convolution may round to the next step: 5e-4, and twice that to 2e-3.
    found = check(core, model, feed, {again: 5.01e-4, total: 2.01e-3}, least="")
    roundings = [kind for kind in "+".join(found).split("+") if "Quantize" in kind]
    assert roundings == ["QuantizeDequantize"] * 3, found


def test_halves_behind_a_first_rounding_of_16_bits_go_to_even_ones(core):
    """What has been rounded is known to the last bit, so that it is divided then."""
    g = Graph(np.random.default_rng(6))

    def rounded(y: str, scale: float) -> str:
        parameters = g.parameters(np.int16, scale, 0)
        return g.emit("DequantizeLinear", g.emit("QuantizeLinear", y, *parameters), *parameters)

    weights = g.store(g.rng.normal(size=(5, 3, 3, 3)).astype(np.float32))
    y = rounded(g.emit("Conv", "x", weights), 3e-4)
    z = rounded(g.emit("Relu", y), 6e-4)
    model = g.model((1, 3, 31, 29), np.float32, {z: np.float32}, opset=21)
    feed = {"x": g.rng.normal(size=(1, 3, 31, 29)).astype(np.float32)}
    check(core, model, feed, {z: 6.01e-4}, least="")
    (want,) = reference(model, feed)
    (got,) = core.load_network(core.read_network(model), "CPU").infer(feed).values()
    # The sums may be near halves of the first steps; every second one is a half of the others.
    assert (got != want).mean() < 0.01
