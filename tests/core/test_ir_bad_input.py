"""The IR reader on wrong and hostile input: one specific exception each, that says what to do."""

from __future__ import annotations

import os
import resource
import time

import pytest

import polydevice.ops  # noqa: F401 - fills the table of operations
from polydevice import Core
from polydevice.archive import network_from_bytes, network_to_bytes
from polydevice.errors import (
    ModelFileError,
    ModelFormatError,
    ModelLimitError,
    NetworkError,
    ShapeError,
    UnsupportedNetworkError,
    UnsupportedOperationError,
    WeightsError,
)
from polydevice.readers.ir import read_ir
from polydevice.readers.limits import ReadLimits

from .ir_text import addition, constant, edges, layer, net, parameter, result
from .test_ir_reader import WEIGHTS, body_of_addition, tensor_iterator, write

ONE = [(0, "FP32", (2, 3))]
OUT = [(1, "FP32", (2, 3))]


def refused(error, match, topology, weights=WEIGHTS, **limits):
    with pytest.raises(error, match=match) as caught:
        read_ir(topology, weights, ReadLimits(**limits))
    assert type(caught.value) is error


# -- files ----------------------------------------------------------------------------------------


def test_missing_file(tmp_path):
    refused(ModelFileError, "nowhere.xml' does not exist", tmp_path / "nowhere.xml", None)


def test_empty_file(tmp_path):
    refused(ModelFileError, "is empty", write(tmp_path, b""), None)
    refused(ModelFileError, "is empty", b" \n")


def test_directory_and_fifo(tmp_path):
    refused(ModelFileError, "is a directory", tmp_path, None)
    fifo = tmp_path / "fifo.xml"
    os.mkfifo(fifo)
    refused(ModelFileError, "not a regular file", fifo, None)
    refused(ModelFileError, "not a regular file", "/dev/zero", None)


def test_unreadable_names():
    refused(ModelFileError, "cannot be opened", "model\0.xml", None)
    refused(ModelFileError, "cannot be opened: File name too long", "m" * 5000, None)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.999])
def test_truncated_topology(keep):
    text = addition()
    refused(ModelFormatError, "not well-formed XML.*truncated", text[: int(len(text) * keep)])


def test_not_an_ir():
    refused(ModelFormatError, "not well-formed", b"\x08\x07\x12\x04onnx")
    refused(ModelFormatError, "root element is <html>", b"<html><body/></html>")
    refused(ModelFormatError, "has no <layers>", b'<net version="11"/>')
    refused(ModelFormatError, "has no layers", b'<net version="11"><layers/></net>')


@pytest.mark.parametrize("version", ["7", "9", "12", "-1", "1e1", "99999999999999999999", ""])
def test_versions(version):
    refused(ModelFormatError, "version", addition(version))


def test_weights_missing(tmp_path):
    path = write(tmp_path, addition())
    refused(WeightsError, r"no '.*model.bin' beside the model: pass .* weights=", path, None)
    refused(WeightsError, "as bytes, without weights: pass", addition(), None)
    refused(WeightsError, "nothing.bin' does not exist", path, tmp_path / "nothing.bin")
    refused(WeightsError, "is a directory", path, tmp_path)
    refused(WeightsError, "has 0 bytes", addition(), b"")


def test_weights_fifo(tmp_path):
    path = write(tmp_path, addition())
    os.mkfifo(tmp_path / "model.bin")
    refused(WeightsError, "not a regular file", path, None)


def test_a_network_without_constants_needs_no_weights(tmp_path):
    topology = net(parameter(0, "x", (2,)) + result(1, "y", (2,)), edges((0, 0, 1, 0)))
    assert len(read_ir(write(tmp_path, topology)).nodes()) == 2


@pytest.mark.parametrize(
    ("offset", "size"),
    [(1, 24), (24, 24), (10**17, 24), (-8, 24), (2**64 - 24, 24), (2**63 - 1, 24)],
)
def test_offsets_outside_the_weights(offset, size):
    topology = addition().replace(
        b'offset="0" size="24"', f'offset="{offset}" size="{size}"'.encode()
    )
    refused(WeightsError, f"{size} bytes at offset {offset}, but .* has 24", topology)


@pytest.mark.parametrize("size", [0, 23, 25, -24, 2**64])
def test_sizes_that_do_not_fit_the_shape(size):
    topology = addition().replace(b'size="24"', f'size="{size}"'.encode())
    refused(WeightsError, "bytes", topology, WEIGHTS * 2)


def test_truncated_weights(tmp_path):
    refused(
        WeightsError,
        "has 23 bytes; is it truncated",
        write(tmp_path, addition(), WEIGHTS[:-1]),
        None,
    )


@pytest.mark.parametrize("text", ["", "x", "1.5", "0x10", "1,2"])
def test_offsets_that_are_no_numbers(text):
    topology = addition().replace(b'offset="0"', f'offset="{text}"'.encode())
    refused(ModelFormatError, "illegal numbers", topology)


@pytest.mark.parametrize("kind", ["nf5", "u3", "float", "", "f32; rm"])
def test_unknown_element_types(kind):
    topology = addition().replace(
        b'element_type="f32" shape="2,3" offset',
        f'element_type="{kind}" shape="2,3" offset'.encode(),
    )
    refused(ModelFormatError, "layer 1 'c'.*unknown element type", topology)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x02\0\0\0", b"\x02\0\0\0\0\0\0\0\x05\0\0\0\x02\0\0\0abcde",
     b"\x02\0\0\0\0\0\0\0\x01\0\0\0\x7f\0\0\0ab", b"\x03\0\0\0" + bytes(16),
     b"\x02\0\0\0\xff\xff\xff\xff\x01\0\0\0\x02\0\0\0ab"],
)  # fmt: skip
def test_string_constants_with_wrong_offsets(data):
    topology = net(
        constant(0, "c", (2,), 0, len(data), "string") + result(1, "y", (2,), "string"),
        edges((0, 0, 1, 0)),
    )
    refused(WeightsError, "string", topology, data)


# -- XML ------------------------------------------------------------------------------------------

BOMB = b"""<?xml version="1.0"?><!DOCTYPE net [<!ENTITY a "aaaaaaaaaa">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">
<!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;"><!ENTITY e "&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;">
<!ENTITY f "&e;&e;&e;&e;&e;&e;&e;&e;&e;&e;"><!ENTITY g "&f;&f;&f;&f;&f;&f;&f;&f;&f;&f;">
]><net version="11"><layers>&g;</layers></net>"""


@pytest.mark.parametrize(
    "text",
    [
        b'<!DOCTYPE net><net version="11"/>',
        b'<!DOCTYPE net SYSTEM "http://example.com/net.dtd"><net version="11"/>',
        b'<!DOCTYPE net [<!ENTITY x SYSTEM "file:///etc/passwd">]><net version="11">&x;</net>',
        '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE net><net version="11"/>'.encode("utf-16"),
        BOMB,
    ],
    ids=["plain", "external", "file entity", "utf-16", "billion laughs"],
)
def test_document_types_are_refused(text):
    start = time.thread_time()
    refused(ModelFormatError, "document type", text)
    assert time.thread_time() - start < 2


def test_undefined_entities_and_encodings():
    refused(ModelFormatError, "not well-formed", b'<net version="11">&x;</net>')
    refused(ModelFormatError, "read|well-formed", b'<?xml version="1.0" encoding="utf-7"?><net/>')
    refused(ModelFormatError, "read|well-formed", b'<?xml version="1.0" encoding="zip"?><net/>')


def test_limits_of_the_xml():
    refused(ModelLimitError, "deeper than 128", b"<net>" * 100_000)
    many = " ".join(f'a{i}=""' for i in range(300)).encode()
    refused(ModelLimitError, "300 attributes", b"<net " + many + b"/>")
    refused(ModelLimitError, "topology_bytes", addition(), topology_bytes=100)
    refused(ModelLimitError, "5 XML elements", addition(), xml_elements=5)
    refused(
        ModelLimitError,
        "text_characters",
        addition().replace(b"hand", b"h" * 99),
        text_characters=50,
    )
    refused(
        ModelLimitError,
        "<dim>",
        addition().replace(b"<dim>2", b"<dim>" + b"2" * 99),
        text_characters=50,
    )
    refused(ModelLimitError, "layers = 3", addition(), layers=3)


def test_limits_of_files(tmp_path):
    path = write(tmp_path, addition(), WEIGHTS)
    refused(ModelLimitError, "topology_bytes", path, None, topology_bytes=100)
    refused(ModelLimitError, "weights_bytes", path, None, weights_bytes=10)


def test_limits_of_tensors():
    shape = ",".join(["2"] * 65)
    refused(
        ModelLimitError,
        "rank",
        addition().replace(b'shape="2,3" offset', f'shape="{shape}" offset'.encode()),
    )
    refused(ModelLimitError, "tensor_elements", addition(), tensor_elements=5)
    huge = net(parameter(0, "x", (10**12, 10**12)) + result(1, "y", ()), edges((0, 0, 1, 0)))
    refused(ModelLimitError, "tensor_elements", huge)


def nested_bodies(depth: int) -> bytes:
    text = body_of_addition()
    for _ in range(depth):
        inside = f"<port_map/><body>{text}</body>"
        text = f"<layers>{layer(0, 'l', 'TensorIterator', None, inside=inside)}</layers>"
    return f'<net version="11">{text}</net>'.encode()


def test_bodies_nested_too_deep():
    refused(ModelLimitError, "body_depth = 8", nested_bodies(9))


# -- structure ------------------------------------------------------------------------------------


def test_duplicate_layer_ids():
    refused(
        ModelFormatError,
        "layer 1 'c'.*layer 1 'sum'.*same id",
        addition().replace(b'<layer id="2"', b'<layer id="1"'),
    )


def test_duplicate_layer_names():
    refused(
        ModelFormatError, "two layers are named 'x'", addition().replace(b'name="c"', b'name="x"')
    )


def test_duplicate_port_ids():
    topology = addition().replace(
        b'<port id="1" precision="FP32">', b'<port id="0" precision="FP32">'
    )
    refused(ModelFormatError, '"sum".*two input ports have the id 0', topology)


def test_duplicate_edge_targets():
    topology = addition().replace(b"</edges>", edges((0, 0, 2, 1)).encode() + b"</edges>")
    refused(ModelFormatError, "input port 1 of layer 2 'sum'.*two edges", topology)


@pytest.mark.parametrize(
    ("edge", "match"),
    [
        ((77, 0, 2, 0), "layer 77, which does not exist"),
        ((0, 0, 77, 0), "layer 77, which does not exist"),
        ((0, 5, 2, 0), "'x'.*no output port 5"),
        ((0, 0, 2, 5), "'sum'.*no input port 5"),
        ((3, 0, 2, 0), "'y'.*no output port 0"),
        ((2, 2, 2, 0), "connects layer 2 'sum'.*with itself"),
        ((0, "x", 2, 0), "from-port='x' is not a whole number"),
        ((-1, 0, 2, 0), "layer -1, which does not exist"),
    ],
)
def test_edges_to_nowhere(edge, match):
    topology = addition().replace(edges((0, 0, 2, 0)).encode(), edges(edge).encode())
    refused(ModelFormatError, match, topology)


def test_inputs_without_an_edge():
    topology = addition().replace(edges((1, 0, 2, 1)).encode(), b"")
    refused(ModelFormatError, "input port 1 of layer 2 'sum'.*has no edge", topology)


def test_cycles():
    two = [(0, "FP32", (2, 3)), (1, "FP32", (2, 3))]
    topology = net(
        parameter(0, "x", (2, 3))
        + layer(1, "a", "Add", None, two, [(2, "FP32", (2, 3))])
        + layer(2, "b", "ReLU", None, ONE, OUT)
        + result(3, "y", (2, 3)),
        edges((0, 0, 1, 0), (2, 1, 1, 1), (1, 2, 2, 0), (2, 1, 3, 0)),
    )
    refused(ModelFormatError, "cycle.*'a' ← 'b' ← 'a'", topology)


def test_a_cycle_of_thousands_of_layers():
    count = 20_000
    layers = "".join(layer(i, f"l{i}", "ReLU", None, ONE, OUT) for i in range(count))
    links = edges(*((i, 1, (i + 1) % count, 0) for i in range(count)))
    refused(ModelFormatError, "cycle", net(layers, links))


@pytest.mark.parametrize("name", ["id", "name", "type"])
def test_missing_layer_attributes(name):
    topology = (
        addition()
        .replace(f"<layer {name}=".encode(), b"<layer was=")
        .replace(f' {name}="'.encode(), b' was="')
    )
    refused(ModelFormatError, f"has no attribute '{name}'", topology)


@pytest.mark.parametrize("text", ["-1", "x", "1.0", "٣", "1" * 30, " "])
def test_layer_ids_that_are_no_numbers(text):
    refused(
        ModelFormatError,
        "id=",
        addition().replace(b'<layer id="0"', f'<layer id="{text}"'.encode()),
    )


@pytest.mark.parametrize("size", ["0", "-1", "x", "", "1.5", "1,2", "-5"])
def test_version_10_sizes(size):
    topology = addition(10).replace(b"<dim>2", b"<dim>" + size.encode(), 1)
    refused(ModelFormatError, "must be a positive whole number", topology)


@pytest.mark.parametrize("shape", ["-1,3", "0,3", "?", "..."])
def test_version_10_input_shapes(shape):
    topology = addition(10).replace(b'shape="2,3"', f'shape="{shape}"'.encode(), 1)
    refused(ModelFormatError, "only positive sizes", topology)


# -- operations -----------------------------------------------------------------------------------


def unknown_types():
    chain = [
        (1, "a", "Frobnicate", "opset1"), (2, "b", "Frobnicate", "opset1"),
        (3, "c", "ReLU", "opset1"), (4, "d", "Convolutoin", "opset1"),
        (5, "e", "Special", "vendor"), (6, "f", "Frobnicate", "opset3"),
    ]  # fmt: skip
    layers = [layer(i, n, t, {"size": "4"}, ONE, OUT, version=v) for i, n, t, v in chain]
    links = [(0, 0, 1, 0), *((i, 1, i + 1, 0) for i in range(1, 7))]
    return net(parameter(0, "x", (2, 3)) + "".join(layers) + result(7, "y", (2, 3)), edges(*links))


def test_operations_that_a_set_lacks_are_listed_at_once():
    topology = unknown_types().replace(b'"ReLU" version="opset1"', b'"ReLU" version="opset99"')
    topology = topology.replace(b'"Convolutoin" version="opset1"', b'"Mish" version="opset1"')
    with pytest.raises(UnsupportedOperationError) as caught:
        read_ir(topology)
    text = str(caught.value)
    assert "uses 2 operations" in text
    assert "ReLU (opset99): 1 layer, first 'c': there is no operation set opset99" in text
    assert "opset99; known are opset1 to opset17" in text
    assert "Mish (opset1): 1 layer, first 'd'" in text
    assert "register_operations" in text


@pytest.mark.parametrize("name", ["CPU", "HETERO:CPU"])
def test_unknown_types_are_carried_along_and_listed_when_loading(name):
    network = read_ir(unknown_types())
    node = network.node("a")
    assert (node.type, node.op.opset, node.op.to_ir()) == ("Frobnicate", "opset1", {"size": "4"})
    assert str(node.output.desc) == "f32[2,3]"
    with Core() as core, pytest.raises(UnsupportedNetworkError) as caught:
        core.load_network(network, name)
    text = str(caught.value)
    if name == "CPU":
        assert "Frobnicate (opset1), 2 of them, the first 'a': polydevice does not know" in text
        assert "Frobnicate (opset3), 1 of them, the first 'f'" in text
        assert "Special (vendor), 1 of them, the first 'e'" in text
        assert "Did you mean 'Convolution'" in text
        assert "register" in text or "adding-an-operator" in text
        assert "CONFIG_FILE" in text
    for node in "abdef":
        assert node in text


def test_unknown_types_survive_writing_and_archives(tmp_path):
    network = read_ir(unknown_types())
    network.serialize(tmp_path / "again.xml")
    for again in (read_ir(tmp_path / "again.xml"), network_from_bytes(network_to_bytes(network))):
        assert [(n.name, n.op) for n in again] == [(n.name, n.op) for n in network]


def test_similar_names_are_looked_for_a_few_times_only():
    """It takes 1 ms for each type, and a file may have half a million."""
    number = 60
    layers = [
        layer(i + 1, f"n{i}", f"ReLUU{i}", {}, ONE, OUT, version="mine") for i in range(number)
    ]
    links = [(0, 0, 1, 0), *((i, 1, i + 1, 0) for i in range(1, number)), (number, 1, 9999, 0)]
    topology = net(
        parameter(0, "x", (2, 3)) + "".join(layers) + result(9999, "y", (2, 3)), edges(*links)
    )
    with Core() as core, pytest.raises(UnsupportedNetworkError) as caught:
        core.load_network(read_ir(topology), "CPU")
    assert "Did you mean 'ReLU'" in str(caught.value)
    assert str(caught.value).count("Did you mean") == 50
    assert "ReLUU59 (mine), 1 of them" in str(caught.value)


def test_unknown_types_say_what_they_take():
    network = read_ir(unknown_types())
    with pytest.raises(ShapeError, match=r"'a'.*f32\[4,3\] where the file says f32\[2,3\]"):
        network.reshape({"x": [4, 3]})
    topology = unknown_types().replace(
        b'<output><port id="1" precision="FP32">', b'<output><port id="1">', 2
    )
    refused(ModelFormatError, "'a'.*port 1 has no precision", topology)


def test_unsupported_operations_inside_bodies_are_found():
    topology = tensor_iterator().replace(b'type="Add"', b'type="Frobnicate"')
    refused(UnsupportedOperationError, "Frobnicate", topology)


def test_an_operation_newer_than_its_set():
    topology = addition().replace(b'type="Add" version="opset1"', b'type="Mish" version="opset1"')
    refused(
        UnsupportedOperationError,
        "Mish is not part of opset1; it is defined since opset4",
        topology,
    )


def test_illegal_attributes_name_the_layer():
    topology = addition().replace(b'"numpy"', b'"sideways"')
    refused(ModelFormatError, "'sum'.*auto_broadcast='sideways'", topology)


def test_shapes_that_do_not_fit_show_what_the_file_states():
    topology = addition().replace(
        b'shape="2,3" offset="0" size="24"', b'shape="6" offset="0" size="24"'
    )
    refused(ShapeError, r"'sum'(.|\n)*The file states inputs \(f32\[2,3\], f32\[2,3\]\)", topology)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_wrong_number_of_inputs(count):
    sizes = [(i, "FP32", (2, 3)) for i in range(count)]
    links = [(0, 0, 1, i) for i in range(count)]
    topology = net(
        parameter(0, "x", (2, 3))
        + layer(1, "sum", "Add", None, sizes, [(9, "FP32", (2, 3))])
        + result(2, "y", (2, 3)),
        edges(*links, (1, 9, 2, 0)),
    )
    with pytest.raises(NetworkError, match="'sum'"):
        read_ir(topology)


def test_outputs_that_an_operation_does_not_have():
    topology = addition().replace(
        b'<port id="2" precision="FP32">',
        b'<port id="8" precision="FP32"/><port id="2" precision="FP32">',
    )
    refused(ModelFormatError, "layer 2 'sum'.*has 1 outputs", topology)


@pytest.mark.parametrize("splits", [0, -1, 7, 10**9, 10**12])
def test_a_split_into_too_many_parts(splits):
    topology = net(
        parameter(0, "x", (10**10, 3))
        + constant(1, "axis", (), 0, 8, "i64")
        + layer(2, "split", "Split", {"num_splits": splits},
                [(0, "FP32", ()), (1, "I64", ())], [(2, "FP32", ())])
        + result(3, "y", ()),
        edges((0, 0, 2, 0), (1, 0, 2, 1), (2, 2, 3, 0)),
    )  # fmt: skip
    with pytest.raises((ModelLimitError, ModelFormatError, NetworkError)):
        read_ir(topology, bytes(8))


# -- bodies ---------------------------------------------------------------------------------------

IN = '<input external_port_id="0" internal_layer_id="0" axis="0"/>'
CARRIED = '<input external_port_id="1" internal_layer_id="1"/>'
OUTS = (
    '<output external_port_id="3" internal_layer_id="3" axis="0"/>'
    '<output external_port_id="4" internal_layer_id="3"/>'
)


@pytest.mark.parametrize(
    ("port_map", "match"),
    [
        (IN + CARRIED, "an output has no body result"),
        (IN + CARRIED + OUTS.replace('"3" axis', '"2" axis'), "no Result with id 2"),
        (IN.replace('layer_id="0"', 'layer_id="9"') + CARRIED + OUTS, "no Parameter with id 9"),
        (IN.replace('port_id="0"', 'port_id="7"') + CARRIED + OUTS, "no input port 7"),
        (IN + IN + CARRIED + OUTS, "two inputs feed one body parameter"),
        (IN + CARRIED + OUTS + OUTS, "two body results feed one output"),
        (IN.replace('axis="0"', 'axis="x"') + CARRIED + OUTS, "axis='x' is not a whole number"),
        (IN.replace("<input", '<input purpose="current_iteration"') + CARRIED + OUTS,
         "only Loop has ports with a purpose"),
    ],
)  # fmt: skip
def test_port_maps_to_nowhere(port_map, match):
    refused(ModelFormatError, match, tensor_iterator(port_map))


def test_slices_that_do_not_fit():
    refused(
        ShapeError, "axis", tensor_iterator(IN.replace('axis="0"', 'axis="5"') + CARRIED + OUTS)
    )
    refused(
        ShapeError,
        "does not fit",
        tensor_iterator(IN.replace("axis", 'start="9" axis') + CARRIED + OUTS),
    )
    refused(
        ShapeError,
        "does not fit",
        tensor_iterator(IN.replace("axis", 'part_size="0" axis') + CARRIED + OUTS),
    )


def test_missing_bodies_and_wrong_back_edges():
    topology = tensor_iterator()
    refused(
        ModelFormatError,
        "has no <body>",
        topology.replace(b"<body>", b"<bode>").replace(b"</body>", b"</bode>"),
    )
    refused(
        ModelFormatError,
        "must lead from a Result to a Parameter",
        topology.replace(b'from-layer="3" to-layer="1"/>', b'from-layer="2" to-layer="1"/>'),
    )


def test_refusals_are_cheap():
    """None of the inputs above may have cost gigabytes."""
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20  # KiB
