"""Networks as bytes: everything survives, and no damaged or foreign bytes get through."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.errors import ModelFormatError, PolydeviceError
from polydevice.files import container
from polydevice.files.archive import network_from_bytes, network_to_bytes
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.softmax import SoftMax
from polydevice.shape import Dim, Shape
from tests.onnx.node_cases import load_cases


def small() -> Network:
    x = Node("x", Parameter(ElementType.f32, Shape([1, 3])))
    y = Node("y", SoftMax(axis=1), [x.output])
    y.output.names.add("probabilities")
    y.rt_info["affinity"] = "GPU"
    return Network("small", [x], [Node("r", Result("out"), [y.output])], rt_info={"version": 11})


def test_names_notes_and_order_survive() -> None:
    made = network_from_bytes(network_to_bytes(small()))
    assert made.name == "small" and made.rt_info == {"version": 11}
    assert [node.name for node in made.nodes()] == ["x", "y", "r"]
    assert made.node("y").op == SoftMax(axis=1)
    assert made.node("y").rt_info == {"affinity": "GPU"}
    assert made.node("y").output.names == {"probabilities"}
    assert made.output_ports()[0][0] == "out"


def test_every_type_of_elements_survives() -> None:
    types = [kind for kind in ElementType if kind is not ElementType.dynamic]
    assert len(types) > 20
    for kind in types:
        if kind is ElementType.string:
            value = np.array(["a", "ü", ""], object)
        else:
            value = np.array([[0, 1], [1, 0]]).astype(kind.dtype)
        node = Node("c", Constant(value, kind))
        network = Network("n", [], [Node("r", Result(), [node.output])])
        found = network_from_bytes(network_to_bytes(network)).node("c").op
        assert isinstance(found, Constant) and found.element_type is kind
        assert found.value.dtype == value.dtype and found.value.shape == value.shape
        if kind is ElementType.string:
            assert found.value.tolist() == value.tolist()
        else:
            assert found.value.tobytes() == value.tobytes()


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), 1e-45, -0.0, 0.1, 3.0])
def test_numbers_survive_exactly(number) -> None:
    from polydevice.files.archive import _Decoder, _Encoder

    text = json.dumps(_Encoder().value((number, 3, Dim(1, None), None)))
    found = _Decoder(b"", None).value(json.loads(text), {})
    assert found == (number, 3, Dim(1, None), None)
    assert str(found[0]) == str(number) and isinstance(found[0], float)


@pytest.mark.full
def test_every_onnx_operator_gives_the_same_network_and_answers() -> None:
    """ONNX's node cases: all operators, onnx-domain ones and control flow among them."""
    seen: set[tuple[str, str]] = set()
    operators: set[str] = set()
    with Core() as core:
        for case in load_cases():
            kinds = {node.op_type for node in case.model.graph.node}
            if kinds <= operators:
                continue
            operators |= kinds
            try:
                network = core.read_network(case.model.SerializeToString())
            except PolydeviceError:
                continue  # not readable at all: nothing to archive
            content = network_to_bytes(network)
            made = network_from_bytes(content, core.evaluate)
            assert network_to_bytes(made) == content, case.name
            assert [str(port) for _, port in made.output_ports()] == [
                str(port) for _, port in network.output_ports()
            ], case.name
            seen |= {(node.op.domain, node.op.type) for node in made.nodes()}
    assert {domain for domain, _ in seen} >= {"opset", "onnx"}
    assert {"Loop", "If"} <= {kind for _, kind in seen}
    assert len(seen) > 100


@given(st.data())
def test_damage_is_found(data) -> None:
    content = bytearray(network_to_bytes(small()))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ModelFormatError):
        network_from_bytes(bytes(content))
    with pytest.raises(ModelFormatError):
        network_from_bytes(bytes(content[:place]))


@pytest.mark.parametrize(
    "change",
    [
        lambda g: g["nodes"][1].update(op=["opset", "NoSuch", 1]),
        lambda g: g["nodes"][1].update(inputs=[[1, 0]]),
        lambda g: g["nodes"][1].update(inputs=[[-1, 0]]),
        lambda g: g["nodes"][1].update(inputs=[[0, 7]]),
        lambda g: g["nodes"][1].update(attributes={"axis": {"record": ["Popen", {}]}}),
        lambda g: g["nodes"][1].update(attributes={"axis": {"enum": ["os", "system"]}}),
        lambda g: g["nodes"][1].update(attributes={"axis": {"array": ["f32", [1 << 40], 0]}}),
        lambda g: g["nodes"][1].update(attributes={"axis": {"array": ["f32", [-1], 0]}}),
        lambda g: g["nodes"][1].update(attributes={"axis": {"array": ["objects", [1 << 40], []]}}),
        lambda g: g["nodes"][1].update(attributes={"axis": [1]}),
        lambda g: g["nodes"][1].update(attributes={"axis": {"nothing": 1}}),
        lambda g: g["nodes"][1].update(attributes={"axes": 1}),
        lambda g: g["nodes"][1].update(attributes={"axis": "one"}),
        lambda g: g.update(results=[9]),
        lambda g: g.pop("nodes"),
        lambda g: g.update(nodes=7),
    ],
)
def test_bytes_with_a_right_checksum_and_wrong_content_are_refused(change) -> None:
    sections = container.unpack(network_to_bytes(small()), "network")
    graph = json.loads(sections["graph"])
    change(graph)
    with pytest.raises(PolydeviceError):
        network_from_bytes(
            container.pack("network", {**sections, "graph": json.dumps(graph).encode()})
        )


def test_bytes_of_something_else() -> None:
    with pytest.raises(ModelFormatError, match="no exported network"):
        container.unpack(b"<net/>", "network")
    with pytest.raises(ModelFormatError, match="holds a 'a', not a 'b'"):
        container.unpack(container.pack("a", {}), "b")
    other = network_to_bytes(small()).replace(b"container 1", b"container 9")
    with pytest.raises(ModelFormatError, match="another version"):
        network_from_bytes(other)
