"""Roundings within functions of bytes are left out where results are a step away at most."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from polydevice import Core
from polydevice.network import Network
from polydevice.ops.activation import Clamp
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.rewrites.integers.rounding.inner import round_in_the_end
from polydevice.rewrites.integers.rounding.of_bytes import OfBytes
from polydevice.rewrites.wishes import nowhere
from polydevice_cpu.implement import evaluate
from tests.cpu.quantised_graphs import Graph, pick, reference

ALL = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)


class Steps(Graph):
    """A graph of functions of bytes `x` that are rounded step by step."""

    def __init__(self, seed: int, scale: float = 0.06, zero: int = 120) -> None:
        super().__init__(np.random.default_rng(seed))
        self.given = self.parameters(np.uint8, scale, zero)

    def start(self) -> str:
        """Dequantise the integers once more, as tools do for each reader."""
        return self.emit("DequantizeLinear", "x", *self.given)

    def rounded(self, y: str, scale: float, zero: int) -> str:
        return self.quantised_by(y, self.parameters(np.uint8, scale, zero))

    def number(self, value: float) -> str:
        return self.store(np.float32(value))


def rewritten(g: Graph, outputs: dict[str, type], exact: Callable[[OfBytes], bool]) -> Network:
    """What is left of the network, after comparing its answers for all integers."""
    model = g.model(ALL.shape, np.uint8, outputs)
    with Core() as core:
        network = core.read_network(model)
        network.evaluate = evaluate
        round_in_the_end(network, exact)
        executable = core.load_network(network.clone(), "CPU", {"LP_TRANSFORMS_MODE": "NO"})
        results = executable.infer({"x": ALL}).values()
    for (name, kind), ours, theirs in zip(
        outputs.items(), results, reference(model, {"x": ALL}), strict=True
    ):
        if kind is np.float32:
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5, err_msg=name)
        else:
            assert np.abs(ours.astype(np.int64) - theirs).max() <= 1, name
    return network


def roundings(network: Network) -> int:
    return sum(isinstance(node.op, QuantizeLinear) for node in network.nodes())


def limits(network: Network) -> list[tuple[float, float]]:
    return [(n.op.min, n.op.max) for n in network.nodes() if isinstance(n.op, Clamp)]


def hard_swish(g: Steps) -> str:
    """x * clip(x + 3, 0, 6) / 6, whose limits tools leave to the integers."""
    gate = g.rounded(g.emit("Add", g.start(), g.number(3)), 6 / 255, 0)
    product = g.rounded(g.emit("Mul", g.start(), gate), 0.18, 12)
    return g.emit("Div", product, g.number(6))


def test_limits_of_integers_stay_as_limits():
    g = Steps(1)
    result = g.quantised(hard_swish(g), np.uint8, 0.03)
    network = rewritten(g, {result: np.uint8}, nowhere)
    assert roundings(network) == 1
    assert limits(network) == [(0.0, np.float32(6 / 255) * 255)]
    # All that reads the integers reads them by one node, so that this is HardSwish.
    assert sum(isinstance(node.op, DequantizeLinear) for node in network.nodes()) == 1


def test_limits_that_show_nowhere_are_left_out():
    """Those of a rounding that are those of the last one."""
    g = Steps(2)
    y = g.rounded(g.emit("Mul", g.start(), g.number(2)), 0.05, 100)
    result = g.emit(
        "QuantizeLinear", g.emit("Div", y, g.number(2)), *g.parameters(np.uint8, 0.025, 100)
    )
    network = rewritten(g, {result: np.uint8}, nowhere)
    assert roundings(network) == 1
    assert limits(network) == []


def test_functions_that_are_asked_for_to_the_bit():
    g = Steps(1)
    result = g.quantised(hard_swish(g), np.uint8, 0.03)
    asked: list[OfBytes] = []

    def exact(function: OfBytes) -> bool:
        asked.append(function)
        return function.roundings == 3

    assert roundings(rewritten(g, {result: np.uint8}, exact)) == 3
    assert {function.roundings for function in asked} == {1, 2, 3}


KINDS = "Add", "Sub", "Mul", "Div", "Max", "Relu", "LeakyRelu", "Sigmoid", "Abs"


@pytest.mark.parametrize("few", [False, True])
def test_answers_are_a_step_away_at_most(few):
    """Random functions, of which some are near without roundings, and some are not."""
    left: set[int] = set()
    for seed in range(30):
        g = Steps(seed, 0.05, int(np.random.default_rng(seed).integers(0, 256)))
        y = g.start()
        for _ in range(1 if few else 3):
            kind = pick(g.rng, *KINDS)
            others = [pick(g.rng, g.start(), g.number(g.rng.uniform(0.5, 2)))]
            if kind == "Div":
                others = [g.number(g.rng.uniform(0.5, 2))]
            y = g.emit(kind, y, *(others if kind in KINDS[:5] else []))
            y = g.rounded(y, float(g.rng.uniform(0.005, 0.1)), int(g.rng.integers(0, 256)))
        last = g.emit("Add", y, g.number(0.1))
        result = g.quantised(last, np.uint8, float(g.rng.uniform(0.02, 0.2)))
        network = rewritten(g, {result: np.uint8}, nowhere)
        left.add(roundings(network))
    # None, or all but one where one is too much; or all stay.
    assert left == ({1, 2} if few else {1, 2, 4})


def read_as_bytes(g: Steps) -> dict[str, type]:
    y = g.emit("QuantizeLinear", g.emit("Abs", g.start()), *(p := g.parameters(np.uint8, 0.05)))
    z = g.emit("Neg", g.emit("DequantizeLinear", y, *p))
    return {g.quantised(z, np.uint8, 0.05): np.uint8, y: np.uint8}


def read_by_another(g: Steps) -> dict[str, type]:
    """What is rounded on the way is added up, too."""
    y = g.rounded(g.emit("Abs", g.start()), 0.05, 0)
    sums = g.emit("ReduceMean", y, axes=[2, 3])
    return {g.quantised(g.emit("Neg", y), np.uint8, 0.05): np.uint8, sums: np.float32}


def read_before_it_is_rounded(g: Steps) -> dict[str, type]:
    y = g.emit("Sqrt", g.rounded(g.emit("Abs", g.start()), 0.05, 0))
    return {g.quantised(y, np.uint8, 0.05): np.uint8, g.emit("Neg", y): np.float32}


def coarse(g: Steps) -> dict[str, type]:
    y = g.rounded(g.emit("Abs", g.start()), 2.0, 0)
    return {g.quantised(g.emit("Neg", y), np.uint8, 0.05): np.uint8}


def by_channel(g: Steps) -> dict[str, type]:
    """A number for each column makes other functions of each."""
    y = g.emit("Mul", g.start(), g.store(np.linspace(1, 2, 16, dtype=np.float32)))
    y = g.rounded(y, 0.1, 100)
    return {g.quantised(g.emit("Neg", y), np.uint8, 0.1): np.uint8}


@pytest.mark.parametrize(
    "made", [read_as_bytes, read_by_another, read_before_it_is_rounded, coarse, by_channel]
)
def test_roundings_that_stay(made):
    g = Steps(5)
    assert roundings(rewritten(g, made(g), nowhere)) == 2


def test_one_that_is_too_much_stays():
    g = Steps(7)
    y = g.rounded(g.emit("Abs", g.start()), 2.0, 0)  # coarse
    y = g.rounded(g.emit("Mul", y, g.number(0.5)), 0.07, 0)
    result = g.emit(
        "QuantizeLinear", g.emit("Add", y, g.number(1)), *g.parameters(np.uint8, 0.08, 0)
    )
    network = rewritten(g, {result: np.uint8}, nowhere)
    kept = [n.inputs[1].node.constant for n in network.nodes() if isinstance(n.op, QuantizeLinear)]
    assert sorted(map(float, kept)) == [np.float32(0.08), 2]


def test_two_results_of_one_value():
    """What both need is near for both, or stays."""
    for step, count in ((0.1, 2), (0.01, 3)):
        g = Steps(6)
        y = g.rounded(g.emit("Abs", g.start()), 0.1, 0)
        ends = [g.quantised(g.emit(kind, y), np.uint8, step) for kind in ("Neg", "Identity")]
        assert roundings(rewritten(g, dict.fromkeys(ends, np.uint8), nowhere)) == count
