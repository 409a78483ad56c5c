"""The IR reader on wrong and hostile files, XML and graphs: one specific exception each."""

from __future__ import annotations

import os
import time

import pytest

import polydevice.ops  # noqa: F401 - fills the table of operations
from polydevice.errors import ModelFileError, ModelFormatError, ModelLimitError, WeightsError
from polydevice.readers.ir import read_ir

from .ir_text import addition, constant, edges, layer, net, parameter, result
from .refusal import ONE, OUT, refused
from .test_ir_reader import WEIGHTS, body_of_addition, write


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
    refused(ModelFileError, "not a regular file", path, None)


@pytest.mark.parametrize("make", ["symlink_to", "hardlink_to"])
def test_weights_beside_the_model_are_no_link(tmp_path, make):
    folder = tmp_path / "model"
    folder.mkdir()
    path = write(folder, addition())
    elsewhere = tmp_path / "elsewhere.bin"
    elsewhere.write_bytes(WEIGHTS)
    getattr(folder / "model.bin", make)(elsewhere)
    refused(ModelFileError, r"link.*weights=", path, None)
    assert len(read_ir(path, folder / "model.bin").parameters) == 1  # the user may mean it


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


def test_sizes_that_no_array_has():
    topology = addition().replace(b'shape="2,3" offset', b'shape="0,4611686018427387904" offset')
    topology = topology.replace(b'size="24"', b'size="0"')
    refused(WeightsError, "no array", topology, tensor_elements=1 << 63)


def nested_bodies(depth: int) -> bytes:
    text = body_of_addition()
    for _ in range(depth):
        inside = f"<port_map/><body>{text}</body>"
        text = f"<layers>{layer(0, 'l', 'TensorIterator', None, inside=inside)}</layers>"
    return f'<net version="11">{text}</net>'.encode()


def test_bodies_nested_too_deep():
    refused(ModelLimitError, "body_depth = 8", nested_bodies(9))


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
    count = 5_000
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
