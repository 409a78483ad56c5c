"""The IR writer: what it writes, OpenVINO and the reader read back as the same network."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.errors import UnsupportedOperationError
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops import op as op_module
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add
from polydevice.ops.io import Parameter, Result
from polydevice.ops.op import Op, operation
from polydevice.ops.pooling import MaxPool
from polydevice.ops.transpose import Transpose
from polydevice.ops.window import RoundingType
from polydevice.readers.ir import read_ir
from polydevice.shape import Dim, Shape
from polydevice.writers.ir import ir_bytes

from .conftest import relu_network
from .ir_text import constant as constant_text
from .ir_text import edges, layer, net, parameter, result
from .round_trip import assert_same, by_openvino, structure
from .test_ir_reader import tensor_iterator

openvino = pytest.importorskip("openvino", reason="compares with OpenVINO")
DATA = Path(__file__).parents[1] / "models" / "data"
SAMPLE = Path(__file__).parents[2] / "samples" / "models" / "efficientnet_lite0"
MODELS = [*sorted(SAMPLE.glob("*.xml")), *sorted(DATA.glob("*.xml"))]


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_real_models_come_back_the_same(path, tmp_path, rng):
    """In structure by our reader, in every bit of the answer by OpenVINO."""
    with Core() as core:
        network = core.read_network(path)
        copy = tmp_path / "copy.xml"
        network.serialize(copy)
        assert_same(network, core.read_network(copy))
    model = openvino.Core().read_model(path)
    inputs = []
    for port in model.inputs:
        sizes = [d.get_length() if d.is_static else 2 for d in port.get_partial_shape()]
        inputs.append(rng.standard_normal(sizes).astype(np.float32))
    expected = by_openvino(path, path.with_suffix(".bin"), inputs)
    actual = by_openvino(copy, copy.with_suffix(".bin"), inputs)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_bodies_come_back_the_same(rng):
    network = read_ir(tensor_iterator())
    topology, weights = ir_bytes(network)
    assert_same(network, read_ir(topology, weights))
    x = rng.standard_normal((5, 4)).astype(np.float32)
    start = rng.standard_normal((1, 4)).astype(np.float32)
    sums, last = by_openvino(topology, weights, [x, start])
    np.testing.assert_allclose(sums, start + np.cumsum(x, 0), rtol=1e-5)
    np.testing.assert_allclose(last, sums[-1:], rtol=0)


@pytest.mark.parametrize("taken", [True, False])
def test_if_comes_back_the_same(taken):
    size = [(0, "FP32", (3,))]
    made = [(1, "FP32", (3,))]

    def body(kind: str) -> str:
        layers = parameter(0, "p", (3,)) + layer(1, "f", kind, None, size, made)
        return f"<layers>{layers + result(2, 'r', (3,))}</layers><edges>" + (
            edges((0, 0, 1, 0), (1, 1, 2, 0)) + "</edges>"
        )

    ports = (
        '<{0}_port_map><input external_port_id="1" internal_layer_id="0"/>'
        '<output external_port_id="2" internal_layer_id="2"/></{0}_port_map>'
    )
    inside = ports.format("then") + ports.format("else")
    inside += f"<then_body>{body('ReLU')}</then_body><else_body>{body('Negative')}</else_body>"
    network = read_ir(
        net(
            parameter(0, "c", (), "boolean")
            + parameter(1, "x", (3,))
            + layer(2, "choose", "If", None, [(0, "BOOL", ()), (1, "FP32", (3,))],
                    [(2, "FP32", (3,))], version="opset8", inside=inside)
            + result(3, "y", (3,)),
            edges((0, 0, 2, 0), (1, 0, 2, 1), (2, 2, 3, 0)),
        )
    )  # fmt: skip
    topology, weights = ir_bytes(network)
    assert_same(network, read_ir(topology, weights))
    x = np.float32([-1, 0, 2])
    (answer,) = by_openvino(topology, weights, [np.array(taken), x])
    np.testing.assert_array_equal(answer, np.maximum(x, 0) if taken else -x)


def test_loop_comes_back_the_same():
    """Doubles x while the iteration's number is below 3: x · 2⁴."""
    vector, number = (1, "FP32", (2,)), (1, "I64", ())
    body = (
        parameter(0, "i", (), "i64")
        + parameter(1, "x", (2,))
        + layer(2, "twice", "Add", None, [(0, "FP32", (2,)), vector], [(2, "FP32", (2,))])
        + constant_text(3, "three", (), 0, 8, "i64")
        + layer(4, "less", "Less", None, [(0, "I64", ()), number], [(2, "BOOL", ())])
        + result(5, "go on", (), "boolean")
        + result(6, "x out", (2,))
    )
    links = edges(
        (1, 0, 2, 0), (1, 0, 2, 1), (0, 0, 4, 0), (3, 0, 4, 1), (4, 2, 5, 0), (2, 2, 6, 0)
    )
    inside = (
        '<port_map><input external_port_id="2" internal_layer_id="1"/>'
        '<output external_port_id="3" internal_layer_id="6"/>'
        '<input external_port_id="-1" internal_layer_id="0" purpose="current_iteration"/>'
        '<output external_port_id="-1" internal_layer_id="5" purpose="execution_condition"/>'
        '</port_map><back_edges><edge from-layer="6" to-layer="1"/></back_edges>'
        f"<body><layers>{body}</layers><edges>{links}</edges></body>"
    )
    network = read_ir(
        net(
            constant_text(0, "trips", (), 8, 8, "i64")
            + constant_text(1, "yes", (), 16, 1, "boolean")
            + parameter(2, "x", (2,))
            + layer(3, "loop", "Loop", None,
                    [(0, "I64", ()), (1, "BOOL", ()), (2, "FP32", (2,))], [(3, "FP32", (2,))],
                    version="opset5", inside=inside)
            + result(4, "y", (2,)),
            edges((0, 0, 3, 0), (1, 0, 3, 1), (2, 0, 3, 2), (3, 3, 4, 0)),
        ),
        np.int64([3, 10]).tobytes() + b"\x01",
    )  # fmt: skip
    topology, weights = ir_bytes(network)
    assert_same(network, read_ir(topology, weights))
    (answer,) = by_openvino(topology, weights, [np.float32([1, -3])])
    np.testing.assert_array_equal(answer, np.float32([16, -48]))


def test_names_are_kept_whatever_they_contain_and_made_unique():
    x = Node('<x & "y">\n\t é\0', Parameter(ElementType.f32, Shape([2])))
    a = Node("same", Relu(), [x.output])
    b = Node("same", Relu(), [a.output])
    c = Node("same_1", Relu(), [b.output])
    a.output.names |= {"one,two", "three"}
    network = Network("<&>", [x], [Node("same", Result(), [c.output])])
    topology, weights = ir_bytes(network)
    back = read_ir(topology, weights)
    names = [node.name for node in back]
    assert names[0] == '<x & "y">\n\t é\ufffd'
    assert len(set(names)) == 5
    assert names[1] == "same"
    assert back.nodes()[1].output.names == {"one,two", "three"}
    assert back.name == "<&>"
    model = openvino.Core().read_model(topology, weights)
    assert model.inputs[0].get_node().get_friendly_name() == names[0]


def test_output_names_are_kept():
    network = relu_network()
    network.results[0].op = network.results[0].op.replace(output_name="a,b")
    topology, weights = ir_bytes(network)
    assert list(read_ir(topology, weights).outputs) == ["a,b"]


def test_notes_are_kept():
    network = relu_network()
    network.node("relu").rt_info |= {"affinity": "GPU", "map": {"order": "1,0"}, "number": 3}
    network.rt_info |= {"a": {"b c": "d", "e": {"f": "g"}}, "ir_version": 10}
    topology, weights = ir_bytes(network)
    back = read_ir(topology, weights)
    assert back.node("relu").rt_info == {
        "affinity": "GPU", "map": {"order": "1,0"}, "number": "3"
    }  # fmt: skip
    assert back.rt_info == {"a": {"b c": "d", "e": {"f": "g"}}, "ir_version": 11}
    openvino.Core().read_model(topology, weights)


def test_dynamic_shapes_are_kept():
    for shape in (Shape([Dim(), Dim(2, 5), Dim(3), 4]), None):
        x = Node("x", Parameter(ElementType.f32, shape))
        topology, weights = ir_bytes(Network("m", [x], [Node("y", Result(), [x.output])]))
        assert read_ir(topology, weights).parameters[0].output.shape == shape
        model = openvino.Core().read_model(topology, weights)
        assert model.inputs[0].get_partial_shape().to_string() == (
            "[?,2..5,3..,4]" if shape else "[...]"
        )


def test_port_settings_become_operations(rng):
    """u8 in NHWC order comes in, f32 in NCHW is computed: so does OpenVINO with the file."""
    x = Node("x", Parameter(ElementType.f32, Shape([1, 2, 3, 4])))
    relu = Node("relu", Relu(), [x.output])
    network = Network("m", [x], [Node("y", Result(), [relu.output])])
    network.inputs["x"].precision = "U8"
    network.inputs["x"].layout = "NHWC"
    before = structure(network)
    topology, weights = ir_bytes(network)
    assert structure(network) == before
    back = read_ir(topology, weights)
    assert str(back.parameters[0].output.desc) == "u8[1,3,4,2]"
    image = rng.integers(0, 256, (1, 3, 4, 2)).astype(np.uint8)
    (answer,) = by_openvino(topology, weights, [image])
    np.testing.assert_array_equal(answer, image.transpose(0, 3, 1, 2).astype(np.float32))


@pytest.fixture
def own_operations(monkeypatch):
    """Lets a test define operations that no other test sees."""
    copy = {key: dict(versions) for key, versions in op_module._TABLE.items()}
    monkeypatch.setattr(op_module, "_TABLE", copy)


@pytest.mark.parametrize(
    ("dilations", "rounding", "opset"),
    [
        ((1, 1), RoundingType.FLOOR, 1),
        ((1, 1), RoundingType.CEIL, 1),
        ((2, 1), RoundingType.FLOOR, 14),
        ((), RoundingType.CEIL_TORCH, 14),
    ],
)
def test_max_pooling_takes_the_version_that_has_its_attributes(dilations, rounding, opset, rng):
    """ONNX models dilate windows and round as PyTorch does; opset1 knows neither."""
    x = Node("x", Parameter(ElementType.f32, Shape([1, 2, 8, 9])))
    op = MaxPool(
        kernel=(3, 2), strides=(2, 2), pads_end=(1, 1), dilations=dilations, rounding_type=rounding
    )
    pool = Node("pool", op, [x.output])
    pool.output.names.add("pooled")
    network = Network("m", [x], [Node("y", Result(), [pool.output])])
    topology, weights = ir_bytes(network)
    assert f'type="MaxPool" version="opset{opset}"'.encode() in topology
    back = read_ir(topology, weights).node("pool")
    assert back.outputs[0].shape == pool.output.shape
    assert back.outputs[0].names == {"pooled"}
    image = rng.standard_normal((1, 2, 8, 9)).astype(np.float32)
    (answer,) = by_openvino(topology, weights, [image])
    with Core() as core:
        (own,) = core.load_network(network, "CPU").infer({"x": image}).values()
    np.testing.assert_array_equal(answer, own)


def test_operations_that_ir_lacks_are_all_listed(own_operations):
    @operation("Foreign", domain="onnx")
    class Foreign(Relu): ...

    @operation("Lossy", since=8)
    class Lossy(Relu):
        mode: str = dataclasses.field(default="a", metadata={"ir": ""})

    x = Node("x", Parameter(ElementType.f32, Shape([2])))
    a = Node("a", Foreign(), [x.output])
    b = Node("b", Foreign(), [a.output])
    c = Node("c", Lossy(mode="b"), [b.output])
    d = Node("d", Lossy(), [c.output])
    with pytest.raises(UnsupportedOperationError) as caught:
        ir_bytes(Network("m", [x], [Node("y", Result(), [d.output])]))
    text = str(caught.value)
    assert "Foreign: 2 nodes, first 'a'" in text
    assert "Lossy: 1 node, first 'c': IR has no attribute for mode='b'" in text


def test_operations_of_other_sets_are_written_by_their_name(own_operations):
    @operation("Whatever", domain="acme")
    class Whatever(Op):
        text: str = dataclasses.field(default="", metadata={})

        def infer(self, inputs):
            return [inputs[0]]

    x = Node("x", Parameter(ElementType.f32, Shape([2])))
    a = Node("a", Whatever(text='<"&'), [x.output])
    network = Network("m", [x], [Node("y", Result(), [a.output])])
    topology, weights = ir_bytes(network)
    assert b'type="Whatever" version="acme"' in topology
    assert read_ir(topology, weights).node("a").op == Whatever(text='<"&')


def test_execution_graphs_have_types_of_their_own(tmp_path):
    """Nodes whose type and attributes are texts chosen by a device."""

    @dataclasses.dataclass(frozen=True)
    class Executed(Op):
        domain = "device"

        layer_type: str
        notes: dict[str, str]

        @property
        def type(self):
            return self.layer_type

        def infer(self, inputs):
            return list(inputs)

        def to_ir(self):
            return self.notes

    x = Node("x", Parameter(ElementType.f32, Shape([2])))
    a = Node("a", Executed("Reorder", {"execTimeMcs": "7", "layout": 'b_fs_yx<"16">'}), [x.output])
    a.rt_info["execOrder"] = 0
    Network("m", [x], [Node("y", Result(), [a.output])]).serialize(tmp_path / "graph.xml")
    root = ET.parse(tmp_path / "graph.xml").getroot()
    (found,) = [item for item in root.iter("layer") if item.get("name") == "a"]
    assert found.get("type") == "Reorder"
    assert found.find("data").attrib == {"execTimeMcs": "7", "layout": 'b_fs_yx<"16">'}


def test_the_network_itself_is_not_changed():
    x = Node("x", Parameter(ElementType.f32, Shape([2, 3])))
    order = constant("order", np.int64([1, 0]))
    turned = Node("turned", Transpose(), [x.output, order.output])
    total = Node("total", Add(), [turned.output, turned.output])
    network = Network("m", [x], [Node("y", Result(), [total.output])])
    before = structure(network)
    ir_bytes(network)
    assert structure(network) == before


def test_resizing_to_sizes_of_onnx_keeps_its_positions(rng):
    """OpenVINO's positions are of f32; ONNX's are exact, and ours to keep."""
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 19]>
        resize (float[1, 2, 5, 7] x) => (float[1, 2, 8, 11] linear, float[1, 2, 10, 3] nearest) {
            sizes = Constant <value_ints: ints = [1, 2, 8, 11]> ()
            others = Constant <value_ints: ints = [1, 2, 10, 3]> ()
            linear = Resize <mode = "linear"> (x, , , sizes)
            nearest = Resize <mode = "nearest"> (x, , , others)
        }""")
    with Core() as core:
        network = core.read_network(model.SerializeToString())
    topology, weights = ir_bytes(network)
    assert_same(network, read_ir(topology, weights))
    x = rng.standard_normal((1, 2, 5, 7)).astype(np.float32)
    wanted = ReferenceEvaluator(model).run(None, {"x": x})
    for answer, right in zip(by_openvino(topology, weights, [x]), wanted, strict=True):
        np.testing.assert_allclose(answer, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("taken", [True, False])
def test_bodies_become_what_ir_can_express(taken, rng):
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 26]>
        branches (bool taken, float[1, 3, 9] x) => (float[1, 3, 9] y) {
            y = If (taken) <
                then_branch = products () => (float[1, 3, 9] a) {
                    axis = Constant <value_int: int = 1> ()
                    a = CumProd (x, axis)
                },
                else_branch = largest () => (float[1, 3, 9] b) {
                    b = MaxPool <kernel_shape = [3], dilations = [2], pads = [2, 2]> (x)
                }>
        }""")
    with Core() as core:
        network = core.read_network(model.SerializeToString())
    before = structure(network)
    topology, weights = ir_bytes(network)
    assert structure(network) == before
    x = rng.standard_normal((1, 3, 9)).astype(np.float32)
    (answer,) = by_openvino(topology, weights, [np.array(taken), x])
    around = np.pad(x, [(0, 0), (0, 0), (2, 2)], constant_values=-np.inf)
    largest = np.max([around[:, :, i : i + 9] for i in (0, 2, 4)], axis=0)
    np.testing.assert_allclose(answer, x.cumprod(1) if taken else largest, rtol=1e-5)


@pytest.mark.parametrize("axes", [(-1, -3), (1, 0)])
def test_pads_of_some_axes_come_back_the_same(axes, rng):
    """Known when the network runs, of axes counted from either end."""
    first, second = axes
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18]>
        padded (float[n, 3, 4] x, int64[4] pads) => (float[a, b, c] y)
        <float value = {{2}}, int64[2] axes = {{{first}, {second}}}>
        {{ y = Pad(x, pads, value, axes) }}"""
    )
    x, pads = rng.standard_normal((2, 3, 4)).astype(np.float32), np.array([1, 2, 0, 3])
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x, "pads": pads})
    with Core() as core:
        network = core.read_network(model.SerializeToString())
        topology, weights = ir_bytes(network)
        answer = core.load_network(network, "CPU").infer({"x": x, "pads": pads})["y"]
    np.testing.assert_array_equal(answer, wanted)
    np.testing.assert_array_equal(by_openvino(topology, weights, [x, pads])[0], wanted)


@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("size", [4, 5, 9, 23])
def test_constants_resized_along_one_axis_are_taken_by_openvino(mode, size, rng):
    """As tables of relative positions are, which models resize to their image."""
    text = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[1, 3, 6, {size}] x) => (float[1, 3, 6, {size}] y) {{
        roi = Constant <value_floats: floats = []> ()
        scales = Constant <value_floats: floats = []> ()
        sizes = Constant <value_ints: ints = [1, 3, 6, {size}]> ()
        moved = Transpose <perm = [0, 2, 1, 3]> (table)
        wide = Resize <mode = "linear", coordinate_transformation_mode = "{mode}"> (
            moved, roi, scales, sizes)
        y = Add (x, wide)
    }}"""
    model = onnx.parser.parse_model(text)
    table = rng.standard_normal((1, 6, 3, 7)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    x = rng.standard_normal((1, 3, 6, size)).astype(np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    with Core() as core:
        written = ir_bytes(core.read_network(model.SerializeToString()))
        (again,) = core.load_network(read_ir(*written), "CPU").infer({"x": x}).values()
    np.testing.assert_allclose(by_openvino(*written, [x])[0], expected, atol=2e-6)
    np.testing.assert_allclose(again, expected, atol=2e-6)


def test_einsum_is_written_without_blanks(rng):
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[2, 3, 4] a, float[2, 4, 5] b) => (float[2, 3, 5] y) {
        y = Einsum <equation = " bqc , bcn ->  bqn "> (a, b)
    }"""
    model = onnx.parser.parse_model(text)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 4), (2, 4, 5)))
    (expected,) = ReferenceEvaluator(model).run(None, {"a": a, "b": b})
    with Core() as core:
        written = ir_bytes(core.read_network(model.SerializeToString()))
    np.testing.assert_allclose(by_openvino(*written, [a, b])[0], expected, rtol=1e-5, atol=1e-6)
