"""The IR reader on operations and bodies that do not fit, or that nothing knows."""

from __future__ import annotations

import resource

import pytest

import polydevice.ops  # noqa: F401 - fills the table of operations
from polydevice import Core
from polydevice.errors import (
    ModelFormatError,
    ModelLimitError,
    NetworkError,
    ShapeError,
    UnsupportedNetworkError,
    UnsupportedOperationError,
)
from polydevice.files.archive import network_from_bytes, network_to_bytes
from polydevice.readers.ir import read_ir

from .ir_text import addition, constant, edges, layer, net, parameter, result
from .refusal import ONE, OUT, refused
from .test_ir_reader import tensor_iterator


@pytest.fixture(autouse=True)
def _refusals_are_cheap():
    """No input may cost a gigabyte, whatever this process held before."""
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 1 << 20  # KiB


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


def test_a_result_that_is_read():
    topology = net(
        parameter(0, "x", (2, 3))
        + layer(1, "first", "Result", {}, [(0, "FP32", (2, 3))], [(1, "FP32", (2, 3))])
        + layer(2, "relu", "ReLU", {}, [(0, "FP32", (2, 3))], [(1, "FP32", (2, 3))])
        + result(3, "y", (2, 3)),
        edges((0, 0, 1, 0), (1, 1, 2, 0), (2, 1, 3, 0)),
    )
    refused(ModelFormatError, "'relu'.*reads a Result", topology)


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
        (IN + OUTS, "nothing feeds the body's parameter with id 1"),
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
