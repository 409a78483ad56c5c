"""Sums of convolutions of one value become one convolution, with the same answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.network.kept_layers import KEEP_F32
from polydevice.node import Node
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add
from polydevice.ops.convolution import Convolution
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.passes.constant_folding import constant_folding
from polydevice.rewrites.join_branches import join_branches
from polydevice.shape import Shape
from polydevice.symbolic_trace import tracing
from polydevice_cpu.implement import evaluate
from tests.cpu.models import answer, build

F = np.float32
RNG = np.random.default_rng(33)
SAME = {"pads": [1, 1, 1, 1]}


class Model:
    """An ONNX model of branches that are added up."""

    def __init__(self, *sizes: int | str) -> None:
        self.sizes = sizes
        self.nodes: list[tuple] = []
        self.weights: dict[str, np.ndarray] = {}

    def _new(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append((kind, list(inputs), [name], attributes))
        return name

    def constant(self, *shape: int) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = RNG.normal(0, 0.5, shape).astype(F)
        return name

    def convolve(self, x: str, shape: Sequence[int], bias: bool = True, **attributes) -> str:
        more = [self.constant(shape[0])] if bias else []
        return self._new("Conv", x, self.constant(*shape), *more, **attributes)

    def normalise(self, x: str, channels: int) -> str:
        numbers = [self.constant(channels) for _ in range(4)]
        self.weights[numbers[3]] = np.abs(self.weights[numbers[3]]) + F(0.1)
        return self._new("BatchNormalization", x, *numbers)

    def binary(self, kind: str, a: str, b: str) -> str:
        return self._new(kind, a, b)

    def add(self, first: str, *others: str) -> str:
        for other in others:
            first = self._new("Add", first, other)
        return first

    def relu(self, x: str) -> str:
        return self._new("Relu", x)

    def file(self, *outputs: str) -> bytes:
        return build(self.nodes, {"x": self.sizes}, outputs, self.weights)


def read(file: bytes) -> Network:
    with Core() as core:
        network = core.read_network(file)
    constant_folding(network, evaluate)
    return network


def kinds(network: Network) -> list[str]:
    left_out = (Constant, Parameter, Result)
    return sorted(node.type for node in network.nodes() if not isinstance(node.op, left_out))


def check(
    model: Model,
    outputs: Sequence[str],
    expected: Sequence[str],
    sums: int = 1,
    shapes: Sequence[Sequence[int]] = (),
) -> None:
    """Compare what is left, and its answers with those of ONNX Runtime."""
    file = model.file(*outputs)
    network = read(file)
    layers = {node.name for node in network.nodes() if not isinstance(node.op, (Constant, Result))}
    assert join_branches(network) == sums
    assert kinds(network) == sorted(expected)
    assert layers == {
        layer
        for node in network.nodes()
        if not isinstance(node.op, (Constant, Result))
        for layer in node.layers
    }
    assert join_branches(network) == 0
    with Core() as core:
        for each in (network, core.read_network(file)):  # rewritten here, and by the device
            executable = core.load_network(each, "CPU")
            for shape in shapes or [model.sizes]:
                feed = {"x": RNG.normal(size=shape).astype(F)}
                found = executable.infer(feed)
                for got, want in zip(found.values(), answer(file, feed), strict=True):
                    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


BIASED = ["Convolution", "Add"]


@pytest.mark.parametrize("sizes", [(2, 5, 7, 9), ("n", 5, "h", "w")])
def test_branches_of_repvgg(sizes):
    m = Model(*sizes)
    branches = m.convolve("x", (5, 5, 3, 3), **SAME), m.convolve("x", (5, 5, 1, 1))
    m.relu(m.add(*branches, m.normalise("x", 5)))
    shapes = [(2, 5, 7, 9), (1, 5, 3, 1), (3, 5, 12, 11)] if sizes[0] == "n" else [sizes]
    check(m, [m.nodes[-1][2][0]], [*BIASED, "ReLU"], shapes=shapes)


@pytest.mark.parametrize("count", [2, 6])
def test_depthwise_branches_of_mobileone(count):
    m = Model("n", 6, 9, 8)
    shape = (6, 1, 3, 3)
    branches = [m.convolve("x", shape, group=6, **SAME) for _ in range(count)]
    branches += [m.convolve("x", (6, 1, 1, 1), group=6), m.normalise("x", 6)]
    y = m.add(*branches)
    check(m, [y], ["GroupConvolution", "Add"], shapes=[(1, 6, 9, 8), (4, 6, 9, 8)])


def test_sums_of_sums_in_any_order():
    m = Model(1, 4, 6, 5)
    a, b, c = (m.convolve("x", (4, 4, n, n), bias=False, pads=[n // 2] * 4) for n in (1, 5, 3))
    y = m.add(m.add("x", a), m.add(b, c))
    check(m, [y], ["Convolution"])


def test_a_scaled_difference_beside_the_value():
    """x + scale * (convolutions - normalisation), as FastViT mixes."""
    m = Model("n", 7, 5, 6)
    mixed = m.add(m.convolve("x", (7, 1, 3, 3), group=7, **SAME), m.normalise("x", 7))
    difference = m.binary("Sub", mixed, m.normalise("x", 7))
    y = m.add("x", m.binary("Mul", difference, m.constant(7, 1, 1)))
    check(m, [y], ["GroupConvolution", "Add"], shapes=[(2, 7, 5, 6)])


@pytest.mark.parametrize("subtracts", ["x - c(x)", "c(x) - x"])
def test_differences_have_a_sign(subtracts):
    m = Model(2, 3, 4, 5)
    sides = ("x", m.convolve("x", (3, 3, 3, 3), **SAME))
    y = m.binary("Sub", *(sides if subtracts == "x - c(x)" else sides[::-1]))
    check(m, [y], BIASED)


def test_functions_of_each_branch():
    """Normalisations behind convolutions, factors and summands for all channels."""
    m = Model(2, 3, 6, 5)
    one = m.normalise(m.convolve("x", (4, 3, 3, 3), **SAME), 4)
    two = m.binary("Sub", m.convolve("x", (4, 3, 1, 1)), m.constant(1))
    two = m.binary("Mul", m.constant(1, 1, 1, 1), m.add(m.constant(4, 1, 1), two))
    check(m, [m.add(one, two)], BIASED)


@pytest.mark.parametrize("size", [(8, 8), (7, 9), ("h", "w")])
@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_strides(size, auto_pad):
    m = Model(2, 3, *size)
    explicit = auto_pad == "NOTSET"
    wide = {"pads": [1, 1, 1, 1]} if explicit else {"auto_pad": auto_pad}
    narrow = {} if explicit else {"auto_pad": auto_pad}
    branches = [
        m.convolve("x", (5, 3, n, n), strides=[2, 2], **pads)
        for n, pads in ((3, wide), (1, narrow))
    ]
    joined = explicit or "h" not in size
    shapes = [(2, 3, 8, 6), (2, 3, 5, 7)] if "h" in size else [(2, 3, *size)]
    expected = BIASED if joined else [*BIASED, *BIASED, "Add"]
    check(m, [m.add(*branches)], expected, int(joined), shapes)


def test_automatic_padding_of_unknown_sizes():
    m = Model(2, 3, "h", "w")
    pads = {"auto_pad": "SAME_UPPER"}
    branches = [m.convolve("x", (3, 3, n, n + 1), **pads) for n in (4, 1)]
    check(m, [m.add(*branches, "x")], BIASED, shapes=[(2, 3, 5, 4), (2, 3, 1, 2)])


@pytest.mark.parametrize("groups", [1, 2])
def test_narrow_groups_join_wide_ones(groups):
    """Depthwise windows of one element are some of the weights of fewer groups."""
    m = Model(2, 4, 5, 6)
    wide = m.convolve("x", (4, 4 // groups, 3, 3), group=groups, **SAME)
    y = m.add(m.convolve("x", (4, 1, 1, 1), group=4), wide, "x")
    check(m, [y], ["GroupConvolution" if groups > 1 else "Convolution", "Add"])


def test_groups_with_several_outputs():
    m = Model(2, 4, 5, 6)
    wide = m.convolve("x", (12, 2, 3, 3), group=2, **SAME)
    y = m.add(m.convolve("x", (12, 1, 1, 1), group=4), wide)
    check(m, [y], ["GroupConvolution", "Add"])


@pytest.mark.parametrize(("gap", "pads", "joined"), [(2, 2, True), (1, 1, False), (2, 3, False)])
def test_gaps(gap, pads, joined):
    m = Model(2, 3, 9, 8)
    wide = m.convolve("x", (3, 3, 5, 5), dilations=[2, 2], pads=[4] * 4)
    grown = 2 * (pads - gap)
    narrow = m.convolve(
        "x", (3, 3, 3, 3), dilations=[gap] * 2, pads=[pads] * 2 + [pads - grown] * 2
    )
    check(m, [m.add(wide, narrow)], BIASED if joined else [*BIASED, *BIASED, "Add"], int(joined))


def test_the_value_beside_a_window_with_gaps():
    m = Model(2, 3, 9, 8)
    y = m.add("x", m.convolve("x", (3, 3, 3, 3), dilations=[3, 2], pads=[3, 2, 3, 2]))
    check(m, [y], BIASED)


@pytest.mark.parametrize("spatial", [(9,), (4, 5, 3)])
def test_one_and_three_axes(spatial):
    m = Model(2, 3, *spatial)
    rank = len(spatial)
    wide = m.convolve("x", (3, 3, *[3] * rank), pads=[1] * 2 * rank)
    check(m, [m.add(wide, m.normalise("x", 3), m.convolve("x", (3, 3, *[1] * rank)))], BIASED)


def test_a_square_and_its_middle_row_and_column():
    m = Model(1, 3, 7, 6)
    square = m.convolve("x", (4, 3, 3, 3), **SAME)
    row = m.convolve("x", (4, 3, 1, 3), pads=[0, 1, 0, 1])
    column = m.convolve("x", (4, 3, 3, 1), pads=[1, 0, 1, 0])
    check(m, [m.add(square, row, column)], BIASED)


def test_windows_within_others_but_not_in_their_middle():
    m = Model(1, 3, 7, 6)
    wide = m.convolve("x", (4, 3, 4, 5), pads=[1, 3, 2, 1])
    narrow = m.convolve("x", (4, 3, 2, 2), pads=[1, 0, 0, 1])
    check(m, [m.add(wide, narrow)], BIASED)


def test_joined_sums_read_joined_sums():
    m = Model("n", 4, 5, 5)
    y = m.add("x", m.convolve("x", (4, 4, 3, 3), **SAME))
    y = m.add(m.convolve(y, (4, 4, 1, 1)), y)
    check(m, [y], [*BIASED, *BIASED], 2, [(2, 4, 5, 5)])


def _row_and_column(m):
    """A window of 3x3 would multiply more."""
    row = m.convolve("x", (4, 4, 1, 3), pads=[0, 1, 0, 1])
    return [m.add(row, m.convolve("x", (4, 4, 3, 1), pads=[1, 0, 1, 0]))]


def _dense_and_depthwise(m):
    wide = m.convolve("x", (4, 1, 3, 3), group=4, **SAME)
    return [m.add(m.convolve("x", (4, 4, 1, 1)), wide)]


def _read_elsewhere(m):
    inner = m.convolve("x", (4, 4, 1, 1))
    return [m.add(inner, m.convolve("x", (4, 4, 3, 3), **SAME)), m.relu(inner)]


def _an_output(m):
    inner = m.convolve("x", (4, 4, 1, 1))
    return [m.add(inner, m.convolve("x", (4, 4, 3, 3), **SAME)), inner]


def _twice(m):
    inner = m.convolve("x", (4, 4, 1, 1))
    return [m.add(inner, inner)]


def _of_others(m):
    y = m.relu("x")
    return [m.add(m.convolve("x", (4, 4, 1, 1)), m.convolve(y, (4, 4, 1, 1)))]


def _stretched(m):
    """One of them has one place along each axis."""
    wide = m.convolve("x", (4, 4, 6, 7))
    return [m.add(wide, m.convolve("x", (4, 4, 1, 1)))]


def _one_channel(m):
    return [m.add("x", m.convolve("x", (1, 4, 1, 1)))]


def _at_places(m):
    """What is added differs from place to place."""
    inner = m.binary("Mul", m.convolve("x", (4, 4, 1, 1)), m.constant(1, 7))
    return [m.add(inner, m.convolve("x", (4, 4, 3, 3), **SAME))]


def _shifted(m):
    one = m.convolve("x", (4, 4, 2, 2), pads=[0, 0, 1, 1])
    return [m.add(one, m.convolve("x", (4, 4, 2, 2), pads=[1, 1, 0, 0]))]


def _in_other_steps(m):
    one = m.convolve("x", (4, 4, 1, 1), strides=[2, 2], pads=[5, 6, 0, 0])
    return [m.add(one, m.convolve("x", (4, 4, 1, 1)))]


def _behind_functions(m):
    inner = m.relu(m.convolve("x", (4, 4, 1, 1)))
    return [m.add(inner, m.convolve("x", (4, 4, 3, 3), **SAME))]


@pytest.mark.parametrize(
    "make",
    [
        _row_and_column, _dense_and_depthwise, _read_elsewhere, _an_output, _twice, _of_others,
        _stretched, _one_channel, _at_places, _shifted, _in_other_steps, _behind_functions,
    ],
)  # fmt: skip
def test_what_stays(make):
    m = Model(2, 4, 6, 7)
    outputs = make(m)
    check(m, outputs, kinds(read(m.file(*outputs))), 0)


def test_weights_that_would_be_infinite_stay():
    m = Model(1, 2, 5, 5)
    y = m.add(m.convolve("x", (2, 2, 1, 1), False), m.convolve("x", (2, 2, 3, 3), False, **SAME))
    for name in m.weights:
        m.weights[name][:] = 3e38
    network = read(m.file(y))
    assert join_branches(network) == 0


def test_infinite_elements_stay_where_they_were():
    m = Model(1, 3, 9, 9)
    y = m.add(m.convolve("x", (3, 3, 3, 3), **SAME), m.convolve("x", (3, 3, 1, 1)), "x")
    file = m.file(y)
    x = RNG.normal(size=(1, 3, 9, 9)).astype(F)
    x[0, 1, 4, 4], x[0, 2, 0, 8] = np.inf, np.nan
    with Core() as core:
        (found,) = core.load_network(core.read_network(file), "CPU").infer({"x": x}).values()
    (wanted,) = answer(file, {"x": x})
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(found[finite], wanted[finite], rtol=1e-4, atol=1e-4)


def _of_type(kind: ElementType, weights: Mapping[str, np.ndarray]) -> Network:
    """A network of two convolutions of x, and x itself."""
    x = Node("x", Parameter(kind, Shape([1, 2, 5, 4])))
    ports = []
    for name, array in weights.items():
        pads = (array.shape[-1] // 2,) * 2
        w = Node(f"w{name}", Constant(array.astype(kind.dtype), kind))
        op = Convolution((1, 1), pads, pads, (1, 1))
        ports.append(Node(name, op, [x.output, w.output]).output)
    total = Node("sum", Add(), ports)
    y = Node("y", Add(), [total.output, x.output])
    return Network("n", [x], [Node("result", Result(), [y.output])])


@pytest.mark.parametrize("kind", ["bf16", "f16", "f32", "f64"])
def test_floats_of_other_types(kind):
    """Weights are added in f64 and rounded once."""
    kind = ElementType(kind)
    given = {"a": RNG.normal(size=(2, 2, 3, 3)), "b": RNG.normal(size=(2, 2, 1, 1))}
    network = _of_type(kind, given)
    assert join_branches(network) == 1
    (made,) = [node for node in network.nodes() if isinstance(node.op, Convolution)]
    wide = given["a"].astype(kind.dtype).astype(np.float64)
    wide[:, :, 1, 1] += given["b"].astype(kind.dtype).astype(np.float64)[..., 0, 0] + np.eye(2)
    assert made.inputs[1].element_type is kind
    np.testing.assert_array_equal(made.inputs[1].node.constant, wide.astype(kind.dtype))


def test_whole_numbers_stay():
    given = {"a": np.ones((2, 2, 3, 3)), "b": np.ones((2, 2, 1, 1))}
    assert join_branches(_of_type(ElementType.i32, given)) == 0


def test_notes_of_all_layers_are_kept_and_names_of_outputs():
    m = Model(1, 3, 5, 5)
    inner = m.convolve("x", (3, 3, 1, 1))
    y = m.add(m.convolve("x", (3, 3, 3, 3), **SAME), inner)
    network = read(m.file(y))
    network.node(inner).rt_info[KEEP_F32] = "to see it"
    assert join_branches(network) == 1
    (port,) = network.results[0].inputs
    assert port.node.rt_info[KEEP_F32] == "to see it"
    assert port.node.name == y
    assert [name for name, _ in network.output_ports()] == [y]


@pytest.mark.parametrize("kept", [Add, Convolution])
def test_a_device_may_want_layers_as_they_are(kept):
    m = Model(1, 3, 5, 5)
    y = m.add(m.convolve("x", (3, 3, 3, 3), False, **SAME), m.convolve("x", (3, 3, 1, 1), False))
    network = read(m.file(y))
    assert join_branches(network, lambda node: isinstance(node.op, kept)) == 0
    assert join_branches(network, lambda node: isinstance(node.op, Relu)) == 1


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER"])
def test_nothing_is_asked_of_sizes_that_vary(auto_pad):
    """A plan with symbolic sizes would serve those with the same answer only."""
    m = Model("n", 3, "h", "w")
    pads = {"auto_pad": auto_pad} if auto_pad != "NOTSET" else SAME
    wide = m.convolve("x", (3, 3, 3, 3), strides=[2, 2], **pads)
    y = m.add(wide, m.convolve("x", (3, 3, 1, 1), strides=[2, 2], auto_pad="VALID"))
    y = m.add(m.relu(y), y)
    network = read(m.file(y))
    with tracing() as trace:
        network.reshape({"x": [trace.input(2), 3, trace.input(8), trace.input(9)]})
        before = list(trace.steps)
        assert join_branches(network) == int(auto_pad == "NOTSET")
        assert trace.steps == before
