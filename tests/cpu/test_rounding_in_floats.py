"""Quantised networks where products of bytes are not exact: numbers of f32 that are rounded."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.network import Network
from polydevice_cpu.algorithms.by_machine import byte_table
from polydevice_cpu.onednn.library import library
from polydevice_cpu.passes import prepare, wishes
from polydevice_cpu.passes.integers import fold_steps, fuse_quantize
from polydevice_cpu.passes.integers.fuse_quantize import QuantizeDequantize
from tests.cpu.loading import load, steps
from tests.cpu.quantised_graphs import Graph, reference, spread

pytestmark = pytest.mark.skipif(library() is None, reason="needs oneDNN")

CHANNELS = 6
SHAPE = (2, CHANNELS, 9, 11)


@pytest.fixture(autouse=True)
def _without_products_of_bytes(monkeypatch):
    """As on a processor without VNNI, whichever this one is."""
    for place in (wishes, fuse_quantize, fold_steps):
        monkeypatch.setattr(place, "has_int8", lambda: False)
    monkeypatch.setattr(byte_table, "is_there", lambda: False)


class Layers(Graph):
    """A network of convolutions whose every step is rounded."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.default_rng(seed))

    def rounded(self, y: str, scale: float, zero: int | None = None) -> str:
        return self.quantised_by(y, self.parameters(np.uint8, scale, zero))

    def convolved(self, x: str, *, size: int = 3, inputs: int = CHANNELS) -> str:
        bias = self.store(self.rng.normal(size=CHANNELS).astype(np.float32))
        weights = self.weights((CHANNELS, inputs, size, size), 0)
        return self.emit("Conv", x, weights, bias, pads=[size // 2] * 4)

    def numbers(self, *shape: int) -> str:
        return self.store(self.rng.uniform(0.5, 2, shape).astype(np.float32))


def prepared(model: bytes) -> Network:
    with Core() as core:
        network = core.read_network(model)
        prepare(network)
        return network


def left(network: Network) -> tuple[int, int]:
    """How many divisors and factors there are that are not 1."""
    found = [node.inputs for node in network.nodes() if isinstance(node.op, QuantizeDequantize)]
    numbers = [[each[place].node.constant for each in found] for place in (1, 3)]
    divisors, factors = (sum(bool((n != 1).any()) for n in each) for each in numbers)
    return divisors, factors


def check(core, g: Layers, y: str, *, least: float = 0.98) -> list[str]:
    """Compare with ONNX Runtime's answers, in steps of 0.1, the last ones; return the steps.

    A number at a half that becomes another one is multiplied by weights that follow.
    """
    model = g.model(SHAPE, np.uint8, {y: np.float32})
    executable = load(core, model)
    request = executable.create_infer_request()
    for _ in range(2):
        feed = {"x": spread(g.rng, SHAPE, np.uint8)}
        (wanted,) = reference(model, feed)
        (got,) = request.infer(feed).values()
        away = np.abs(got - wanted) / 0.1
        assert away.max() < 20, executable.explain()
        assert (away < 0.01).mean() >= least
    return steps(executable)


def test_layers_between_are_integers(core):
    """Convolutions in a row: each rounds and limits, and multiplies with nothing besides."""
    g = Layers(1)
    y = g.source(np.uint8)
    for scale in (0.3, 0.7):
        y = g.rounded(g.emit("Relu", g.convolved(y)), scale, 0)
    y = g.rounded(g.convolved(y, size=1), 0.1)
    found = check(core, g, y)
    assert left(prepared(g.model(SHAPE, np.uint8, {y: np.float32}))) == (0, 1)
    convolutions = [step for step in found if "Convolution" in step]
    assert convolutions == [
        *["Convolution+Add+ReLU+QuantizeDequantize"] * 2,
        "Convolution+Add+QuantizeDequantize",
    ]
    assert not any("QuantizeLinear" in step or "Convert" in step for step in found[1:])


def normalised(g: Layers, y: str) -> str:
    y = g.rounded(g.convolved(y), 0.3)
    y = g.emit("Mul", y, g.numbers(CHANNELS, 1, 1))
    return g.rounded(g.emit("Add", y, g.numbers(CHANNELS, 1, 1)), 0.4)


def moved(g: Layers, y: str) -> str:
    y = g.rounded(g.convolved(y), 0.31)
    y = g.emit("MaxPool", y, kernel_shape=[2, 2], strides=[1, 1])
    pads = g.store(np.array([0, 0, 1, 0, 0, 0, 0, 2], np.int64))
    y = g.emit("Transpose", g.emit("Pad", y, pads), perm=[0, 1, 3, 2])
    return g.rounded(g.emit("AveragePool", y, kernel_shape=[1, 3]), 0.2)


def limited(g: Layers, y: str) -> str:
    y = g.rounded(g.convolved(y), 0.3)
    y = g.convolved(g.emit("Clip", y, g.store(np.float32(-2)), g.store(np.float32(5))))
    return g.rounded(g.emit("Clip", y, g.store(np.float32(0)), g.store(np.float32(9))), 0.2)


def added(g: Layers, y: str) -> str:
    """A residual block: what is added is read by another convolution, too."""
    x = g.rounded(g.convolved(y), 0.31)
    y = g.rounded(g.convolved(x), 0.53)
    y = g.rounded(g.emit("Relu", g.emit("Add", y, x)), 0.67, 0)
    return g.rounded(g.emit("Add", g.rounded(g.convolved(y), 0.31), y), 0.43)


def joined(g: Layers, y: str) -> str:
    parts = [g.rounded(g.convolved(y), scale) for scale in (0.3, 0.6)]
    y = g.convolved(g.emit("Concat", *parts, axis=1), inputs=2 * CHANNELS)
    return g.rounded(y, 0.4)


def curved(g: Layers, y: str) -> str:
    """Of a number that no multiple passes through there is a factor left."""
    y = g.rounded(g.emit("Sigmoid", g.rounded(g.convolved(y), 0.3)), 1 / 256, 0)
    return g.rounded(g.convolved(y), 0.2)


def read_twice(g: Layers, y: str) -> str:
    """By functions that want another number."""
    y = g.rounded(g.convolved(y), 0.3)
    return g.rounded(g.emit("Add", y, g.emit("Tanh", y)), 0.2)


def squared(g: Layers, y: str) -> str:
    y = g.rounded(g.convolved(y), 0.3)
    return g.rounded(g.emit("Mul", y, y), 0.3)


BLOCKS = {normalised: (0, 0), moved: (1, 0), limited: (0, 0), added: (2, 2), joined: (0, 1),
          curved: (1, 1), read_twice: (1, 1), squared: (1, 1)}  # fmt: skip


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("seed", range(3))
def test_what_constants_take_over(core, block, seed):
    g = Layers(seed)
    y = block(g, g.source(np.uint8))
    y = g.rounded(g.convolved(y, size=1), 0.1)
    divisors, factors = BLOCKS[block]
    model = g.model(SHAPE, np.uint8, {y: np.float32})
    # A factor behind the last rounding is the answer's.
    assert left(prepared(model)) == (divisors, factors + 1)
    check(core, g, y)


def test_weights_that_two_layers_share_stay(core):
    g = Layers(3)
    x, weights = g.source(np.uint8), g.weights((CHANNELS, CHANNELS, 1, 1), 0)
    y = g.rounded(g.emit("Conv", x, weights), 0.3)
    y = g.rounded(g.emit("Conv", y, weights), 0.1)
    assert left(prepared(g.model(SHAPE, np.uint8, {y: np.float32}))) == (2, 2)
    check(core, g, y)


def test_steps_of_channels_stay(core):
    g = Layers(4)
    scale = g.store(np.linspace(0.2, 0.4, CHANNELS, dtype=np.float32))
    zero = g.store(np.full(CHANNELS, 100, np.uint8))
    y = g.emit("QuantizeLinear", g.convolved(g.source(np.uint8)), scale, zero, axis=1)
    y = g.emit("DequantizeLinear", y, scale, zero, axis=1)
    y = g.rounded(g.convolved(y), 0.1)
    assert left(prepared(g.model(SHAPE, np.uint8, {y: np.float32}))) == (1, 2)
    check(core, g, y)


def test_numbers_that_f32_does_not_hold_stay(core):
    """The weights of what reads a value would be no normal ones; they can be divided."""
    g = Layers(5)
    y = g.rounded(g.convolved(g.source(np.uint8)), 1e-36)
    y = g.rounded(g.convolved(y), 0.1)
    assert left(prepared(g.model(SHAPE, np.uint8, {y: np.float32}))) == (0, 2)
    check(core, g, y)


def test_hard_swish_in_steps_is_one_function(core):
    g = Layers(6)
    x = g.rounded(g.convolved(g.source(np.uint8)), 0.06, 120)
    gate = g.rounded(g.emit("Add", x, g.store(np.float32(3))), 6 / 255, 0)
    y = g.emit("Div", g.rounded(g.emit("Mul", x, gate), 0.2, 12), g.store(np.float32(6)))
    y = g.rounded(y, 0.1, 10)
    found = check(core, g, y, least=0.9)
    assert "Convolution+Add+QuantizeDequantize+HSwish+QuantizeDequantize" in found


def test_layers_are_exact_where_the_network_is_to_be(core):
    """With LP_TRANSFORMS_MODE=NO nothing is left out, and divisors stay."""
    g = Layers(1)
    y = g.rounded(g.emit("Relu", g.convolved(g.source(np.uint8))), 0.3, 0)
    y = g.rounded(g.convolved(y), 0.1)
    model = g.model(SHAPE, np.uint8, {y: np.float32})
    feed = {"x": spread(g.rng, SHAPE, np.uint8)}
    (got,) = load(core, model, LP_TRANSFORMS_MODE="NO").infer(feed).values()
    (wanted,) = reference(model, feed)
    assert (got == wanted).mean() > 0.999


def test_explanations_say_that_floats_are_multiplied(core):
    g = Layers(1)
    y = g.rounded(g.convolved(g.source(np.uint8)), 0.3, 0)
    executable = load(core, g.model(SHAPE, np.uint8, {y: np.float32}))
    assert "the device multiplies floats for it" in str(executable.explain())
