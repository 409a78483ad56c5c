"""Convolutions of whose results some are read alone compute no others, with the same answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from polydevice import Core
from polydevice.network import Network
from polydevice.ops.convolution import Convolution
from polydevice.ops.io import Constant, Result
from polydevice.ops.pooling import MaxPool
from polydevice.passes.constant_folding import constant_folding
from polydevice.rewrites import Wishes
from polydevice.rewrites.raise_strides import raise_strides
from polydevice_cpu.implement import evaluate
from tests.cpu.models import answer, build

F = np.float32
RNG = np.random.default_rng(71)


class Model:
    """An ONNX model in the making."""

    def __init__(self, *sizes: int | str) -> None:
        self.sizes = sizes
        self.nodes: list[tuple] = []
        self.weights: dict[str, np.ndarray] = {}

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append((kind, list(inputs), [name], attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = array
        return name

    def numbers(self, *shape: int) -> str:
        return self.constant(RNG.normal(0, 0.5, shape).astype(F))

    def convolve(self, x: str, shape: Sequence[int], stride: int = 1, **attributes) -> str:
        more = {"strides": [stride] * (len(shape) - 2), **attributes}
        return self.add("Conv", x, self.numbers(*shape), self.numbers(shape[0]), **more)

    def file(self, *outputs: str) -> bytes:
        return build(self.nodes, {"x": self.sizes}, outputs, self.weights)


def strides(network: Network) -> list[tuple[int, ...]]:
    """Those of convolutions, in order."""
    return [
        node.op.window(node.inputs[1].shape).strides
        for node in network.nodes()
        if isinstance(node.op, Convolution) and node.inputs[1].shape is not None
    ]


def check(
    model: Model,
    outputs: Sequence[str],
    expected: Sequence[int],
    thinned: int = 0,
    shapes: Sequence[Sequence[int]] = (),
) -> None:
    """Compare what convolutions move in, and answers with ONNX Runtime's.

    Args:
        model: the model.
        outputs: its outputs.
        expected: strides along the last axis.
        thinned: how many values are thinned out.
        shapes: of the input; the model's by default.
    """
    file = model.file(*outputs)
    with Core() as core:
        network = core.read_network(file)
        constant_folding(network, evaluate)
        before = strides(network)
        layers = {n.name for n in network.nodes() if not isinstance(n.op, (Constant, Result))}
        changed = raise_strides(network, Wishes())
        found = strides(network)
        assert [each[-1] for each in found] == [*expected]
        assert (changed > 0) == (found != before)
        assert sum(isinstance(node.op, MaxPool) for node in network.nodes()) == thinned
        assert layers <= {layer for node in network.nodes() for layer in node.layers}
        assert raise_strides(network, Wishes()) == 0
        assert strides(network) == found
        for each in (network, core.read_network(file)):  # rewritten here, and by the device
            executable = core.load_network(each, "CPU")
            for shape in shapes or [model.sizes]:
                feed = {"x": RNG.normal(size=shape).astype(F)}
                answers = zip(executable.infer(feed).values(), answer(file, feed), strict=True)
                for got, want in answers:
                    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def block(m: Model, x: str, channels: int, *, stride: int = 1) -> str:
    """A bottleneck of the first ResNets, which steps in its first window."""
    c = channels
    y = m.add("Relu", m.convolve(x, (3, c, 1, 1), stride))
    y = m.add("Relu", m.convolve(y, (3, 3, 3, 3), pads=[1, 1, 1, 1]))
    y = m.convolve(y, (c, 3, 1, 1))
    return m.add("Relu", m.add("Add", y, m.convolve(x, (c, c, 1, 1), stride) if stride > 1 else x))


@pytest.mark.parametrize("size", [(8, 8), (7, 9), (1, 2)])
def test_stages_of_a_resnet(size):
    m = Model(2, 5, *size)
    y = block(m, block(m, m.convolve("x", (5, 5, 1, 1)), 5), 5, stride=2)
    #        of the stem, the first block, the second one, the shortcut
    check(m, [y], [1, 1, 2, 1, 1, 1, 1, 1], thinned=1)


def test_two_stages_in_a_row():
    m = Model(1, 4, 13, 11)
    y = block(m, block(m, m.convolve("x", (4, 4, 3, 3)), 4, stride=2), 4, stride=3)
    # Of the stem one half is read, and by the shortcut a third of that.
    check(m, [y], [2, 1, 3, 1, 3, 1, 1, 1, 1])


def test_readers_that_step_differently():
    m = Model(1, 3, 17, 14)
    y = m.convolve("x", (4, 3, 3, 3))
    outputs = [m.convolve(y, (2, 4, 1, 1), stride) for stride in (2, 4)]
    z = m.add("Relu", m.convolve("x", (4, 3, 3, 3)))
    far = m.add("Add", z, m.convolve("x", (4, 3, 3, 3)))
    outputs += [m.convolve(z, (2, 4, 1, 1), 2), m.convolve(far, (2, 4, 1, 1), 4)]
    check(m, outputs, [2, 1, 2, 2, 1, 4, 1], thinned=1)


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("size", [(9,), (8, 11), (5, 6, 7)])
def test_windows_and_borders(size, auto_pad):
    rank = len(size)
    m = Model(2, 3, *size)
    pads = {"pads": [1] * rank + [0] * rank} if auto_pad == "NOTSET" else {"auto_pad": auto_pad}
    y = m.convolve("x", (4, 3, *[3] * rank), 2, **pads)
    check(m, [m.convolve(y, (5, 4, *[1] * rank), 2)], [4, 1])


FUNCTIONS = {
    "of one number": lambda m, y: m.add("Sigmoid", m.add("LeakyRelu", y, alpha=0.2)),
    "of numbers of channels": lambda m, y: m.add("PRelu", y, m.numbers(4, 1, 1)),
    "a factor": lambda m, y: m.add("Mul", m.numbers(1), y),
    "numbers of channels": lambda m, y: m.add("Sub", y, m.numbers(4, 1, 1)),
    "a gate": lambda m, y: m.add("Mul", y, m.add("GlobalAveragePool", "x")),
    "with itself": lambda m, y: m.add("Mul", y, y),
    "a normalisation": lambda m, y: m.add(
        "BatchNormalization",
        *(y, *(m.numbers(4) for _ in range(3)), m.constant(np.abs(RNG.normal(size=4)).astype(F))),
    ),
    "roundings": lambda m, y: m.add(
        "DequantizeLinear",
        *(m.add("QuantizeLinear", y, *(p := rounding(m))), *p),
    ),
    "roundings of channels": lambda m, y: m.add(
        "DequantizeLinear",
        *(m.add("QuantizeLinear", y, *(p := rounding(m, 4)), axis=1), *p),
        axis=1,
    ),
}


def rounding(m: Model, count: int = 0) -> tuple[str, str]:
    shape = [count] if count else []
    return m.constant(np.full(shape, 2**-8, F)), m.constant(np.full(shape, 7, np.uint8))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_between(function):
    m = Model(2, 4, 9, 6)
    y = FUNCTIONS[function](m, m.convolve("x", (4, 4, 3, 3)))
    check(m, [m.convolve(y, (2, 4, 1, 1), 2)], [2, 1])


def test_groups():
    m = Model(2, 4, 9, 6)
    y = m.convolve("x", (4, 1, 3, 3), group=4)
    check(m, [m.convolve(y, (4, 1, 1, 1), 3, group=4)], [3, 1])


def test_what_is_added_is_thinned_out():
    m = Model(1, 3, 10, 10)
    y = m.add("Add", m.add("Relu", "x"), m.convolve("x", (3, 3, 5, 5), pads=[2] * 4))
    check(m, [m.convolve(y, (3, 3, 1, 1), 2)], [2, 1], thinned=1)


@pytest.mark.parametrize("sizes", [("n", 3, 12, 9), ("n", 3, "h", "w")])
def test_unknown_sizes(sizes):
    """An unknown size may be 1, and stretch to another one when it is added."""
    m = Model(*sizes)
    y = m.add("Relu", m.convolve("x", (3, 3, 3, 3), pads=[1] * 4))
    one = m.convolve(y, (2, 3, 1, 1), 2)
    two = m.add("Add", m.convolve("x", (3, 3, 1, 3), pads=[0, 1, 0, 1]), "x")
    both = m.convolve(two, (2, 3, 1, 1), 2)
    is_known = "h" not in sizes
    shapes = [(1, 3, 12, 9), (3, 3, 12, 9)] if is_known else [(2, 3, 7, 8), (1, 3, 3, 1)]
    check(m, [one, both], [2, 1, *((2, 1) if is_known else (1, 2))], int(is_known), shapes)


def several(m: Model) -> list[str]:
    y = m.convolve("x", (4, 4, 3, 3))
    return [m.convolve(y, (2, 4, 1, 1), 2), m.convolve(y, (2, 4, 1, 1), 3)]


def wide(m: Model) -> list[str]:
    return [m.convolve(m.convolve("x", (4, 4, 3, 3)), (2, 4, 2, 1), 2)]


def bordered(m: Model) -> list[str]:
    return [m.convolve(m.convolve("x", (4, 4, 3, 3)), (2, 4, 1, 1), 2, pads=[1, 0, 0, 0])]


def wanted(m: Model) -> list[str]:
    y = m.convolve("x", (4, 4, 3, 3))
    return [m.convolve(y, (2, 4, 1, 1), 2), y]


def rows(m: Model) -> list[str]:
    y = m.add("Add", m.convolve("x", (4, 4, 3, 3)), m.numbers(7, 1))
    return [m.convolve(y, (2, 4, 1, 1), 2)]


def shares(m: Model) -> list[str]:
    y = m.add("Softmax", m.convolve("x", (4, 4, 3, 3)), axis=1)
    return [m.convolve(y, (2, 4, 1, 1), 2)]


def without_any(m: Model) -> list[str]:
    return [m.convolve(m.add("Relu", m.add("Add", "x", m.add("Tanh", "x"))), (2, 4, 1, 1), 2)]


@pytest.mark.parametrize("made", [several, wide, bordered, wanted, rows, shares, without_any])
def test_what_stays(made):
    m = Model(1, 4, 9, 8)
    outputs = made(m)
    check(m, outputs, [node[3]["strides"][-1] for node in m.nodes if node[0] == "Conv"])
