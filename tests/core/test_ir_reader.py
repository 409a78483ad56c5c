"""The IR reader on right input: what the file says is what the network holds."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import polydevice.ops  # noqa: F401 - fills the table of operations
from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.errors import NetworkError
from polydevice.readers.ir import read_ir
from polydevice.readers.limits import ReadLimits
from polydevice.shape import Dim, Shape

from .ir_text import addition, constant, edges, layer, net, parameter, result

DATA = Path(__file__).parents[1] / "models" / "data"
SAMPLE = Path(__file__).parents[2] / "samples" / "models" / "efficientnet_lite0"
WEIGHTS = np.arange(6, dtype=np.float32).tobytes()


def write(folder: Path, topology: bytes, weights: bytes | None = None) -> Path:
    path = folder / "model.xml"
    path.write_bytes(topology)
    if weights is not None:
        path.with_suffix(".bin").write_bytes(weights)
    return path


def of_constant(kind: str, shape: tuple[int, ...], data: bytes) -> np.ndarray:
    """Read a network that is one constant; return its value."""
    topology = net(
        constant(0, "c", shape, 0, len(data), kind) + result(1, "y", shape, kind),
        edges((0, 0, 1, 0)),
    )
    return read_ir(topology, data).node("c").constant


def test_a_path_finds_its_weights_by_stem(tmp_path):
    network = read_ir(write(tmp_path, addition(), WEIGHTS))
    assert [node.name for node in network.parameters] == ["x"]
    assert network.node("sum").output.shape == Shape([2, 3])
    np.testing.assert_array_equal(network.node("c").constant, np.arange(6.0).reshape(2, 3))


def test_weights_may_be_named_or_given_as_bytes(tmp_path):
    path = write(tmp_path, addition())
    other = tmp_path / "other.weights"
    other.write_bytes(WEIGHTS)
    for weights in (other, str(other), WEIGHTS, bytearray(WEIGHTS)):
        assert read_ir(path, weights).node("c").constant[1, 2] == 5
    assert read_ir(addition(), WEIGHTS).node("c").constant[1, 2] == 5


def test_weights_in_memory_survive_the_file(tmp_path):
    """A file that is cut after reading must not end the program when the constant is used."""
    path = write(tmp_path, addition(), WEIGHTS)
    network = read_ir(path)
    path.with_suffix(".bin").write_bytes(b"")
    assert network.node("c").constant.sum() == 15


def test_large_weights_are_mapped_without_a_copy(tmp_path):
    path = write(tmp_path, addition(), WEIGHTS)
    value = read_ir(path, limits=ReadLimits(copied_weights_bytes=8)).node("c").constant
    base = value
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    assert value.sum() == 15


def test_constants_cannot_be_written_to(tmp_path):
    value = read_ir(write(tmp_path, addition(), WEIGHTS)).node("c").constant
    with pytest.raises(ValueError, match="read-only"):
        value[0, 0] = 1


def test_a_constant_at_an_odd_offset_is_aligned_by_a_copy():
    topology = addition().replace(b'offset="0"', b'offset="3"')
    value = read_ir(topology, b"???" + WEIGHTS).node("c").constant
    assert value.flags.aligned
    assert value[1, 1] == 4


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("u1", b"\xb0\xc0", [1, 0, 1, 1, 0, 0, 0, 0, 1, 1]),
        ("u2", b"\xe4\x03", [0, 1, 2, 3, 3]),
        ("u4", b"\x21\x7f\x09", [1, 2, 15, 7, 9]),
        ("i4", b"\x78\x1f\x03", [-8, 7, -1, 1, 3]),
        ("f4e2m1", b"\x21\x0f", [0.5, 1, -6]),
        ("i8", b"\xff\x01", [-1, 1]),
        ("u8", b"\xff\x01", [255, 1]),
        ("i16", struct.pack("<2h", -2, 300), [-2, 300]),
        ("u16", struct.pack("<2H", 65535, 300), [65535, 300]),
        ("i32", struct.pack("<2i", -(2**31), 7), [-(2**31), 7]),
        ("u32", struct.pack("<I", 2**32 - 1), [2**32 - 1]),
        ("i64", struct.pack("<q", -(2**63)), [-(2**63)]),
        ("u64", struct.pack("<Q", 2**64 - 1), [2**64 - 1]),
        ("f16", np.float16([1.5, -2]).tobytes(), [1.5, -2]),
        ("bf16", np.array([1.5, -2], ml_dtypes.bfloat16).tobytes(), [1.5, -2]),
        ("f32", np.float32([1.5, -2]).tobytes(), [1.5, -2]),
        ("f64", np.float64([1.5, -2]).tobytes(), [1.5, -2]),
        ("f8e4m3", np.array([1.5, -2], ml_dtypes.float8_e4m3fn).tobytes(), [1.5, -2]),
        ("f8e5m2", np.array([1.5, -2], ml_dtypes.float8_e5m2).tobytes(), [1.5, -2]),
        ("f8e8m0", b"\x7e\x82", [0.5, 8]),
        ("boolean", b"\x00\x01\x02", [False, True, True]),
    ],
)
def test_constants_of_every_element_type(kind, data, expected):
    """The bytes of u1 to f4e2m1 are those that OpenVINO 2026.4 read as the same values."""
    value = of_constant(kind, (len(expected),), data)
    assert value.dtype == ElementType(kind).dtype
    wide = np.float64 if kind.startswith(("f", "bf")) else None
    assert value.astype(wide or object).tolist() == expected


def test_normal_floats_are_read_as_f32():
    """The codes of nf4, as NNCF compresses weights; OpenVINO 2026.4 gives the same values."""
    value = of_constant("nf4", (2, 3), b"\x80\x17\xcf")
    assert value.dtype == np.float32
    expected = [[-1, 0.0795803, 0], [-0.6961928, 1, 0.44070983]]
    np.testing.assert_allclose(value, np.float32(expected), rtol=1e-6)
    assert not value.flags.writeable


def test_string_constants():
    """Count, start, ends, then UTF-8: as OpenVINO 2026.4 wrote them."""
    data = (
        b"\x03\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x05\x00\x00\x00\x0b\x00\x00\x00"
        b"hellow\xc3\xb6rld"
    )
    assert of_constant("string", (3,), data).tolist() == ["hello", "", "wörld"]


def test_scalars_and_empty_tensors():
    assert of_constant("i64", (), struct.pack("<q", 7)).shape == ()
    assert of_constant("f32", (0, 3), b"").shape == (0, 3)


def test_edges_name_ports_by_their_xml_ids():
    """Ids need not start at 0 or be in order: position is what counts."""
    two = [(7, "FP32", (2,)), (3, "FP32", (2,))]
    topology = net(
        parameter(10, "a", (2,))
        + parameter(4, "b", (2,))
        + layer(1, "difference", "Subtract", None, two, [(9, "FP32", (2,))])
        + result(0, "y", (2,)),
        edges((10, 0, 1, 7), (4, 0, 1, 3), (1, 9, 0, 0)),
    )
    node = read_ir(topology).node("difference")
    assert [port.name for port in node.inputs] == ["a", "b"]


def test_inputs_and_outputs_keep_the_order_of_the_file():
    """OpenVINO 2026.4 lists b, a, c and rb, ra for this file, whatever the ids are."""
    topology = net(
        parameter(5, "b", (2,))
        + result(4, "rb", (2,))
        + parameter(1, "a", (2,))
        + result(3, "ra", (2,))
        + parameter(0, "c", (2,)),
        edges((5, 0, 4, 0), (1, 0, 3, 0)),
    )
    network = read_ir(topology)
    assert [node.name for node in network.parameters] == ["b", "a", "c"]
    assert [node.name for node in network.results] == ["rb", "ra"]


def test_layers_that_nothing_needs_are_dropped():
    """Even when nothing here knows them."""
    dead = layer(9, "dead", "NoSuchType", None, [(0, "FP32", (2, 3))], [(1, "FP32", (2, 3))])
    topology = addition().replace(b"</layers><edges>", dead.encode() + b"</layers><edges>")
    topology = topology.replace(b"</edges>", edges((0, 0, 9, 0)).encode() + b"</edges>")
    assert {node.name for node in read_ir(topology, WEIGHTS)} == {"x", "c", "sum", "y"}


def test_types_are_found_whatever_their_case_and_const_may_be_spelled_out():
    topology = addition().replace(b'"Add"', b'"ADD"').replace(b'"Const"', b'"Constant"')
    assert read_ir(topology, WEIGHTS).node("sum").type == "Add"


def test_tensor_names_may_contain_escaped_commas():
    topology = addition().replace(
        b'<port id="2" precision="FP32">', b'<port id="2" precision="FP32" names=" a\\,b , c,">'
    )
    network = read_ir(topology, WEIGHTS)
    assert network.node("sum").output.names == {"a,b", "c"}
    assert network.name_of_tensor("a,b") == "sum"


def test_inputs_and_outputs_are_called_by_names_of_their_tensors_too(tmp_path):
    """As OpenVINO's are, which wrote the file."""
    openvino = pytest.importorskip("openvino", reason="writes the file and compares")
    ops = openvino.opset13
    a = ops.parameter([-1, 3], np.float32, name="layer_a")
    b = ops.parameter([1, 3], np.float32, name="layer_b")
    total = ops.subtract(a, b)
    for port, names in ((a, {"a", "a:0"}), (b, {"b", "layer_a"}), (total, {"total"})):
        port.output(0).set_names(names)
    openvino.save_model(openvino.Model([total], [a, b], "names"), tmp_path / "model.xml")
    rng = np.random.default_rng(3)
    feed = {"a:0": rng.normal(size=(5, 3)), "b": rng.normal(size=(1, 3))}
    feed = {name: array.astype(np.float32) for name, array in feed.items()}
    theirs = openvino.Core().read_model(tmp_path / "model.xml")
    theirs.reshape({"a:0": [5, 3], "b": [1, 3]})
    with Core() as core:
        network = core.read_network(tmp_path / "model.xml")
        network.reshape({"a:0": [5, 3], "b": [1, 3]})
        assert [i.shape for i in network.inputs.values()] == [
            tuple(port.shape) for port in theirs.inputs
        ]
        with pytest.raises(NetworkError, match="'a:0' is a second name of input 'layer_a'"):
            network.reshape({"layer_a": [4, 3], "a:0": [4, 3]})  # a layer's name comes first
        with pytest.raises(NetworkError, match="no input 'total'; inputs: layer_a, layer_b"):
            network.reshape({"total": [4, 3]})
        request = core.load_network(network, "CPU").create_infer_request()
        want = openvino.compile_model(theirs, "CPU")(feed)[0]
        np.testing.assert_array_equal(request.infer(feed)["total"], want)
        request.set_blob("b", feed["b"] + 1)
        request.infer()
        np.testing.assert_allclose(request.get_blob("total").array, want - 1, rtol=1e-5, atol=1e-6)
        assert request.get_blob("a") is request.get_blob("layer_a")


def test_notes_of_layers_and_model():
    topology = addition()
    topology = topology.replace(
        b'<data auto_broadcast="numpy"/>',
        b'<data auto_broadcast="numpy"/><rt_info><attribute name="affinity" version="0" value="GPU"'
        b'/><attribute name="decompression" version="0"/><attribute name="map" version="0" '
        b'order="1,0"/><attribute name="precision" version="0" value="nonsense"/></rt_info>',
    ).replace(
        b"</edges>",
        b'</edges><meta_data><cli_parameters><batch value="1"/></cli_parameters></meta_data>'
        b'<rt_info><source value="torch"/><a><info name="b c" value="d"/></a></rt_info>',
    )
    network = read_ir(topology, WEIGHTS)
    notes = {"affinity": "GPU", "decompression": {}, "map": {"order": "1,0"}}
    assert network.node("sum").rt_info == notes
    assert network.rt_info == {
        "ir_version": 11,
        "meta_data": {"cli_parameters": {"batch": "1"}},
        "source": "torch",
        "a": {"b c": "d"},
    }


def test_layout_in_the_file_describes_the_model_and_sets_nothing():
    topology = addition().replace(
        b'<port id="0" precision="FP32"><dim>2</dim><dim>3</dim></port></output>',
        b'<port id="0" precision="FP32"><dim>2</dim><dim>3</dim><rt_info><attribute name="layout" '
        b'version="0" layout="[N,C]"/></rt_info></port></output>',
        1,
    )
    network = read_ir(topology, WEIGHTS)
    assert network.parameters[0].rt_info == {"model_layout": "[N,C]"}
    assert network.inputs["x"].layout == "NC"


def test_dynamic_shapes_of_version_11():
    network = read_ir(
        net(
            parameter(0, "x", ("?", "2..5", "3..", 4)) + result(1, "y", (-1,) * 4),
            edges((0, 0, 1, 0)),
        )
    )
    assert network.results[0].inputs[0].shape == Shape([Dim(), Dim(2, 5), Dim(3), 4])
    network = read_ir(net(parameter(0, "x", ("...",)) + result(1, "y", ()), edges((0, 0, 1, 0))))
    assert network.parameters[0].output.shape is None


def test_version_10_delivers_the_inference_engines_precisions():
    """Inputs f16 → f32; outputs: 32- and 64-bit integers → i32, all others f32.

    That is what OpenVINO 2026.4 does with the same files.
    """
    expected = {
        "f16": ("FP32", "FP32"), "f32": ("FP32", "FP32"), "f64": ("FP64", "FP32"),
        "bf16": ("BF16", "FP32"), "i64": ("I64", "I32"), "i32": ("I32", "I32"),
        "u64": ("U64", "I32"), "u32": ("U32", "I32"), "i16": ("I16", "FP32"),
        "u8": ("U8", "FP32"), "boolean": ("BOOL", "FP32"),
    }  # fmt: skip
    for kind, (given, delivered) in expected.items():
        layers = parameter(0, "x", (2, 3), kind) + result(1, "y", (2, 3), kind)
        network = read_ir(net(layers, edges((0, 0, 1, 0)), version=10))
        assert network.rt_info["ir_version"] == 10
        assert network.inputs["x"].precision == given
        (output,) = network.outputs.values()
        assert output.precision == delivered
        network = read_ir(net(layers, edges((0, 0, 1, 0)), version=11))
        assert network.inputs["x"].blob_type is ElementType(kind)


def test_version_10_notes_stand_among_the_attributes():
    topology = addition(10).replace(
        b'"numpy"', b'"numpy" PrimitivesPriority="cpu:a" affinity="GPU"'
    )
    notes = read_ir(topology, WEIGHTS).node("sum").rt_info
    assert notes == {"PrimitivesPriority": "cpu:a", "affinity": "GPU"}


def test_first_operation_set_lacks_types_that_its_files_name():
    image = [(0, "FP32", (1, 2, 3, 3))]
    topology = net(
        parameter(0, "x", (1, 2, 3, 3))
        + layer(
            1, "mvn", "MVN", {"across_channels": "false", "eps": "1e-9",
                              "normalize_variance": "true"},
            image, [(1, "FP32", (1, 2, 3, 3))],
        )
        + result(2, "y", (1, 2, 3, 3)),
        edges((0, 0, 1, 0), (1, 1, 2, 0)),
        version=10,
    )  # fmt: skip
    assert read_ir(topology).node("mvn").type == "MVN"


def test_type_and_shape_may_stand_on_the_port_alone():
    """As OpenVINO 2020.1 wrote Parameter and Const."""
    topology = addition(10).replace(b'element_type="f32" shape="2,3"', b"")
    assert topology.count(b"element_type") == 0
    network = read_ir(topology, WEIGHTS)
    assert str(network.parameters[0].output.desc) == "f32[2,3]"
    np.testing.assert_array_equal(network.node("c").constant, np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("version", ["experimental", "extension"])
def test_operations_that_joined_the_numbered_sets_later(version):
    rows = [(0, "FP32", (9, 4)), (1, "FP32", (9,))]
    topology = net(
        parameter(0, "rois", (9, 4))
        + parameter(1, "scores", (9,))
        + layer(
            2, "best", "ExperimentalDetectronTopKROIs", {"max_rois": 5}, rows,
            [(2, "FP32", (5, 4))], version=version,
        )
        + result(3, "y", (5, 4)),
        edges((0, 0, 2, 0), (1, 0, 2, 1), (2, 2, 3, 0)),
        version=10,
    )  # fmt: skip
    assert read_ir(topology).node("best").output.shape == Shape([5, 4])


PRE_PROCESS = (
    '<pre-process reference-layer-name="x" mean-precision="FP32">'
    '<channel id="1">{}</channel><channel id="0">{}</channel></pre-process>'
)


@pytest.mark.parametrize("form", ["value", "image"])
def test_pre_process_mean_is_subtracted_from_the_input(form):
    image = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    if form == "value":
        section = PRE_PROCESS.format('<mean value="10"/>', '<mean value="-1.5"/>')
        mean = np.float32([-1.5, 10]).reshape(1, 2, 1, 1)
    else:
        section = PRE_PROCESS.format(
            '<mean offset="16" size="16"/>', '<mean offset="0" size="16"/>'
        )
        mean = image[None]
    topology = net(
        parameter(0, "x", (1, 2, 2, 2))
        + layer(1, "r", "ReLU", None, [(0, "FP32", (1, 2, 2, 2))], [(1, "FP32", (1, 2, 2, 2))])
        + result(2, "y", (1, 2, 2, 2)),
        edges((0, 0, 1, 0), (1, 1, 2, 0)),
        version=10,
        after=section,
    )
    network = read_ir(topology, image.tobytes())
    (source,) = network.node("r").inputs
    assert source.node.type == "Subtract"
    assert source.node.inputs[0] is network.parameters[0].output
    np.testing.assert_array_equal(source.node.inputs[1].node.constant, mean)


def body_of_addition() -> str:
    two = [(0, "FP32", (1, 4)), (1, "FP32", (1, 4))]
    layers = (
        parameter(0, "slice", (1, 4))
        + parameter(1, "sum", (1, 4))
        + layer(2, "add", "Add", None, two, [(2, "FP32", (1, 4))])
        + result(3, "out", (1, 4))
    )
    links = edges((0, 0, 2, 0), (1, 0, 2, 1), (2, 2, 3, 0))
    return f"<layers>{layers}</layers><edges>{links}</edges>"


def tensor_iterator(port_map: str = "") -> bytes:
    """Running sums over the first axis of x[5,4]."""
    inside = (
        "<port_map>" + (port_map or
        '<output external_port_id="3" internal_layer_id="3" axis="0"/>'
        '<output external_port_id="4" internal_layer_id="3"/>'
        '<input external_port_id="1" internal_layer_id="1"/>'
        '<input external_port_id="0" internal_layer_id="0" axis="0"/>') + "</port_map>"
        '<back_edges><edge from-layer="3" to-layer="1"/></back_edges>'
        f"<body>{body_of_addition()}</body>"
    )  # fmt: skip
    return net(
        parameter(0, "x", (5, 4))
        + parameter(1, "start", (1, 4))
        + layer(
            2, "iterate", "TensorIterator", None,
            [(0, "FP32", (5, 4)), (1, "FP32", (1, 4))],
            [(3, "FP32", (5, 4)), (4, "FP32", (1, 4))], inside=inside,
        )
        + result(3, "sums", (5, 4))
        + result(4, "last", (1, 4)),
        edges((0, 0, 2, 0), (1, 0, 2, 1), (2, 3, 3, 0), (2, 4, 4, 0)),
    )  # fmt: skip


def test_tensor_iterator():
    node = read_ir(tensor_iterator()).node("iterate")
    op = node.op
    assert [port.shape for port in node.outputs] == [Shape([5, 4]), Shape([1, 4])]
    assert [(tie.input, tie.parameter) for tie in op.body_inputs] == [(0, 0), (1, 1)]
    assert [(tie.output, tie.result) for tie in op.body_outputs] == [(0, 0), (1, 0)]
    assert op.body_inputs[0].slicing.axis == 0
    assert (op.back_edges[0].result, op.back_edges[0].parameter) == (0, 1)
    assert op.body.name == "iterate/body"


@pytest.mark.parametrize(
    "path",
    [*sorted(SAMPLE.glob("*.xml")), *sorted(DATA.glob("*.xml"))],
    ids=lambda path: path.stem,
)
def test_shapes_of_real_models_agree_with_openvino(path):
    openvino = pytest.importorskip("openvino")
    with Core() as core:
        ours = core.read_network(path)
    theirs = {op.get_friendly_name(): op for op in openvino.Core().read_model(path).get_ops()}
    for node in ours:
        op = theirs[node.name]
        for port in node.outputs if node.type != "Result" else []:
            shape = op.output(port.index).get_partial_shape()
            stated = [d.get_length() if d.is_static else None for d in shape]
            assert port.shape is not None, node.name
            known = [size if isinstance(size, int) else None for size in port.shape]
            assert known == stated, node.name
            assert port.element_type is ElementType.parse(
                op.output(port.index).element_type.to_string()
            ), node.name


def test_reading_is_quick():
    """A 3 MB topology of 4,000 layers; 0.5 s here, four times that before it fails."""
    count = 4000
    layers = [parameter(0, "x", (1, 8, 16, 16))]
    links = []
    for number in range(1, count):
        port = (1, 8, 16, 16)
        layers.append(layer(number, f"block/{number}/relu" * 3, "ReLU", {"rubbish": "x" * 400},
                            [(0, "FP32", port)], [(1, "FP32", port)]))  # fmt: skip
        links.append((number - 1, int(number > 1), number, 0))
    layers.append(result(count, "y", (1, 8, 16, 16)))
    links.append((count - 1, 1, count, 0))
    topology = net("".join(layers), edges(*links))
    assert len(topology) > 3_000_000
    start = time.thread_time()  # other processes do not count
    network = read_ir(topology)
    assert time.thread_time() - start < 2
    assert len(network.nodes()) == count + 1
