"""The list of rewrites ends, its order matters only where it says so, and any device may ask."""

from __future__ import annotations

import importlib
import itertools
import pkgutil

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.errors import NetworkError
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.activation import Gelu, Relu
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.convolution_special import DeformableConvolution
from polydevice.ops.grid_sample import GridSample
from polydevice.ops.io import Parameter, Result
from polydevice.ops.normalization import GRN, MVN, NormalizeL2
from polydevice.ops.reduce import ReduceMean
from polydevice.rewrites import ORDER, Rule, Wishes, always, decompositions, rewrite, rules
from polydevice.rewrites.rule import ELSEWHERE, rule_of
from polydevice.shape import Shape
from polydevice.stems import stem_of
from polydevice_cpu.implement import evaluate

RECOGNISED = {MVN: always, NormalizeL2: always, ScaledDotProductAttention: always, Gelu: always}
EVERYTHING = Wishes(
    decompose=dict.fromkeys(rules(), always) | {ScaledDotProductAttention: lambda node: False},
    recognise=RECOGNISED,
)
RNG = np.random.default_rng(15)


def block(rows: int, width: int) -> onnx.ModelProto:
    """RMS norm, layer norm, attention of one head and Gelu, all written out in steps."""
    f32, constants, nodes = TensorProto.FLOAT, [], []

    def number(name: str, value: object) -> str:
        array = np.asarray(value, np.float32)
        constants.append(helper.make_tensor(name, f32, array.shape, array.reshape(-1).tolist()))
        return name

    def add(op: str, name: str, *inputs: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    two, eps, one = number("two", 2.0), number("eps", 1e-5), number("one", 1.0)
    mean = {"axes": [-1], "keepdims": 1}
    root = add(
        "Sqrt",
        "r0",
        add("Add", "v0", add("ReduceMean", "m0", add("Pow", "s0", "x", two), **mean), eps),
    )
    y = add("Mul", "rms", add("Div", "n0", "x", root), number("gain", RNG.random(width)))
    centred = add("Sub", "c", y, add("ReduceMean", "m1", y, **mean))
    root = add(
        "Sqrt",
        "r1",
        add("Add", "v1", add("ReduceMean", "m2", add("Mul", "s1", centred, centred), **mean), eps),
    )
    scale, shift = (number(name, RNG.random(width)) for name in ("scale", "shift"))
    y = add("Add", "ln", add("Mul", "scaled", add("Div", "n1", centred, root), scale), shift)
    q, k, v = (add("MatMul", n, y, number(f"w{n}", RNG.normal(size=(width, width)))) for n in "qkv")
    scores = add("Mul", "score", add("MatMul", "qk", q, add("Transpose", "kt", k, perm=[0, 2, 1])),
                 number("factor", 0.3))  # fmt: skip
    y = add("MatMul", "attention", add("Softmax", "weights", scores, axis=-1), v)
    half = add("Mul", "half", y, number("0.5", 0.5))
    gate = add(
        "Add", "gate", add("Erf", "erf", add("Div", "e", y, number("sqrt2", np.sqrt(2)))), one
    )
    add("Mul", "y", half, gate)
    info = [helper.make_tensor_value_info(n, f32, [2, rows, width]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "block", info[:1], info[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def answer(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(None, {"x": x})
    return np.asarray(found)


def kinds(network: Network) -> list[str]:
    return sorted(node.type for node in network.nodes() if node.type not in ("Const", "Result"))


@pytest.mark.parametrize(("rows", "width"), [(5, 7), (1, 3), (16, 32)])
def test_what_is_recognised_computes_what_its_steps_did(rows: int, width: int) -> None:
    model = block(rows, width)
    with Core() as core:
        network = core.read_network(model.SerializeToString())
        rewrite(network, EVERYTHING, evaluate)
        assert {"NormalizeL2", "MVN", "ScaledDotProductAttention", "Gelu"} <= set(kinds(network))
        assert not {"ReduceMean", "SoftMax", "Erf", "Sqrt"} & set(kinds(network))
        executable = core.load_network(network, "CPU")
        for _ in range(2):
            x = RNG.normal(size=(2, rows, width)).astype(np.float32)
            np.testing.assert_allclose(
                executable.infer({"x": x})["y"], answer(model, x), 2e-4, 2e-5
            )


def test_causal_attention_of_open_lengths_becomes_products() -> None:
    """Also of more queries than keys, and of fewer."""
    made = [Node(name, Parameter(ElementType.f32, Shape([2, None, 4]))) for name in "qkv"]
    y = Node("y", ScaledDotProductAttention(causal=True), [node.output for node in made])
    network = Network("causal", made, [Node("out", Result(output_name="y"), [y.output])])
    wishes = Wishes(decompose={ScaledDotProductAttention: always})
    rewrite(network, wishes, evaluate)
    assert "ScaledDotProductAttention" not in kinds(network)
    with Core() as core:
        request = core.load_network(network, "CPU").create_infer_request()
        for queries, keys in ((3, 5), (5, 2), (1, 4), (1, 1)):
            q, k, v = (RNG.normal(size=(2, n, 4)).astype("f4") for n in (queries, keys, keys))
            (got,) = request.infer({"q": q, "k": k, "v": v}).values()
            scores = np.einsum("bie,bje->bij", q, k) / 2
            scores[:, ~np.tri(queries, keys, dtype=bool)] = -np.inf
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            expected = shares / shares.sum(-1, keepdims=True) @ v
            np.testing.assert_allclose(got, expected, 2e-5, 2e-6)


def test_every_layer_is_accounted_for() -> None:
    with Core() as core:
        network = core.read_network(block(5, 7).SerializeToString())
    before = {node.name for node in network.nodes() if node.type not in ("Const", "Result")}
    rewrite(network, EVERYTHING, evaluate)
    assert before <= {layer for node in network.nodes() for layer in node.layers}


def test_a_second_run_changes_nothing() -> None:
    with Core() as core:
        network = core.read_network(block(5, 7).SerializeToString())
    assert sum(rewrite(network, EVERYTHING, evaluate).values()) > 0
    before = kinds(network)
    assert sum(rewrite(network, EVERYTHING, evaluate).values()) == 0
    assert kinds(network) == before


def test_the_order_of_what_is_recognised_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    recognising = [stage for stage in ORDER if stage[0].startswith("recognise")]
    first = [stage for stage in ORDER if stage not in recognising]
    found = set()
    for order in itertools.permutations(recognising):
        monkeypatch.setattr("polydevice.rewrites.ORDER", (*first, *order))
        with Core() as core:
            network = core.read_network(block(5, 7).SerializeToString())
        rewrite(network, EVERYTHING, evaluate)
        found.add(tuple(kinds(network)))
    assert len(found) == 1


def _grn(size: int | None = 4) -> Network:
    x = Node("x", Parameter(ElementType.f32, Shape([2, size, 3])))
    return Network("n", [x], [Node("y", Result(), [Node("grn", GRN(bias=0.5), [x.output]).output])])


def test_a_device_chooses_what_is_decomposed_and_where() -> None:
    network = _grn()
    assert rewrite(network, Wishes(), evaluate)["decompose"] == 0
    assert rewrite(network, Wishes(decompose={GRN: lambda node: False}), evaluate)["decompose"] == 0
    leaving = Wishes(decompose={GRN: always}, leave=lambda node: node.name == "grn")
    assert rewrite(network, leaving, evaluate)["decompose"] == 0
    assert rewrite(network, Wishes(decompose={GRN: always}), evaluate)["decompose"] == 1
    assert kinds(network) == ["NormalizeL2", "Parameter"]
    assert [name for name, _ in network.output_ports()] == ["grn"]


def test_a_devices_own_rule_goes_first() -> None:
    network = _grn()
    own = {GRN: Rule(lambda build, op, inputs: [build.emit(Relu(), inputs[0])], lambda *_: True)}
    wishes = Wishes(decompose={GRN: always}, own=own)
    assert decompositions(GRN, wishes)[0] is own[GRN]
    rewrite(network, wishes, evaluate)
    assert kinds(network) == ["Parameter", "ReLU"]


def test_rules_that_go_round_in_circles_are_refused() -> None:
    again = Rule(lambda build, op, inputs: [build.emit(GRN(bias=0.5), inputs[0])], lambda *_: True)
    with pytest.raises(NetworkError, match="does not end: GRN → GRN"):
        rewrite(_grn(), Wishes(own={GRN: again}), evaluate)


def test_a_rule_that_gives_something_else_is_refused() -> None:
    def mean(build, op, inputs):
        return [build.emit(ReduceMean(keep_dims=True), inputs[0], [1])]

    with pytest.raises(NetworkError, match="its decomposition gives"):
        rewrite(_grn(), Wishes(own={GRN: Rule(mean, lambda *_: True)}), evaluate)


@pytest.mark.parametrize("dynamic", [False, True])
def test_networks_of_integers_keep_their_names_and_answers(dynamic: bool) -> None:
    """A product is the output itself; a second run finds nothing more to do."""
    weights = RNG.integers(-127, 128, (6, 4)).astype(np.int8)
    constants = {"w": weights, "s": np.float32(0.02), "z": np.int8(0), "t": np.uint8(0)}
    make = helper.make_node
    if dynamic:
        nodes = [
            make("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
            make("MatMulInteger", ["q", "w", "qz", "z"], ["p"], "p"),
            make("Cast", ["p"], ["y"], "y", to=TensorProto.FLOAT),
        ]
    else:
        nodes = [
            make("QuantizeLinear", ["x", "s", "t"], ["q"]),
            make("DequantizeLinear", ["q", "s", "t"], ["d"]),
            make("DequantizeLinear", ["w", "s", "z"], ["v"]),
            make("MatMul", ["d", "v"], ["y"], "y"),
        ]
    graph = helper.make_graph(
        nodes,
        "integers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    with Core() as core:
        network = core.read_network(model.SerializeToString())
        wishes = Wishes(integers=True)
        assert rewrite(network, wishes, evaluate)["hold integers"] == 1
        assert [name for name, _ in network.output_ports()] == ["y"]
        assert rewrite(network, wishes, evaluate)["hold integers"] == 0
        executable = core.load_network(network, "CPU")
        for _ in range(2):
            x = RNG.random((3, 6), np.float32)
            np.testing.assert_allclose(executable.infer({"x": x})["y"], answer(model, x), 1e-5)


@pytest.mark.parametrize("dynamic", [False, True])
def test_weights_beyond_i8_are_whole_where_a_device_wishes_so(dynamic: bool) -> None:
    """Of u8 with zero points that are not 128: one product, not another one of ones."""
    rng = np.random.default_rng(3)
    w, zeros = rng.integers(0, 256, (70, 4)).astype(np.uint8), np.array([0, 255, 7, 130], np.uint8)
    w[:2] = [[0], [255]]
    make = helper.make_node
    constants = {"w": w, "z": zeros, "s": np.float32(0.01), "t": np.uint8(9)}
    if dynamic:
        nodes = [
            make("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
            make("MatMulInteger", ["q", "w", "qz", "z"], ["p"]),
            make("Cast", ["p"], ["y"], to=TensorProto.FLOAT),
        ]
    else:
        constants["r"] = np.full(4, 0.02, np.float32)
        nodes = [
            make("QuantizeLinear", ["x", "s", "t"], ["q"]),
            make("DequantizeLinear", ["q", "s", "t"], ["d"]),
            make("DequantizeLinear", ["w", "r", "z"], ["v"], axis=1),
            make("MatMul", ["d", "v"], ["y"]),
        ]
    graph = helper.make_graph(
        nodes,
        "whole",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 70])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    wanted = w.astype(int) - zeros
    for wishes, count in (
        (Wishes(integers=True, wide=True), 1),
        (Wishes(integers=True), 2),
        (Wishes(integers=True, wide=True, takes=lambda node: False), int(dynamic)),
    ):
        with Core() as core:
            network = core.read_network(model.SerializeToString())
        assert rewrite(network, wishes, evaluate)["hold integers"] == count
        products = [n for n in network.nodes() if n.op.type == "IntegerProduct"]
        assert len(products) == count
        if count == 1:
            assert np.array_equal(products[0].inputs[1].node.constant, wanted)
            assert products[0].inputs[1].element_type is ElementType.i16


@pytest.mark.parametrize("package", ["decompose", "recognise"])
def test_files_are_called_as_those_of_their_operations(package: str) -> None:
    found = importlib.import_module(f"polydevice.rewrites.{package}")
    operations = importlib.import_module("polydevice.ops")
    stems = {module.name for module in pkgutil.iter_modules(operations.__path__)}
    assert {module.name for module in pkgutil.iter_modules(found.__path__)} <= stems
    if package == "decompose":
        for op, rule in rules().items():
            if op.__module__.partition(".")[0] != "polydevice":
                continue  # an operation of a test's, or of the documentation's
            own, stem = rule.function.__module__.rpartition(".")[2], stem_of(op)
            assert own in (stem, *ELSEWHERE.get(stem, ())), op
            assert rule_of(op) is rule


@pytest.mark.parametrize("op", [GridSample, DeformableConvolution])
@pytest.mark.parametrize(
    ("shape", "kind", "plain"),
    [
        ((9, 9, 4096, 4095), ElementType.f32, True),
        ((1, 1, 4096, 4096), ElementType.f32, False),  # f32 counts to 2^24
        ((9, 9, 1, 1), ElementType.f16, True),
        ((9, 9, 0, 5), ElementType.f32, False),
        ((9, 9, 5, 4), ElementType.i32, False),
    ],
)
def test_filters_are_taken_apart_where_positions_are_exact(op, shape, kind, plain):
    x = Node("x", Parameter(element_type=kind, shape=Shape(shape)))
    assert rules()[op].where(op(), [x.output]) is plain
