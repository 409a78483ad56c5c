"""What a model's file says beside its graph, and what a network does with it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from polydevice import Core, PolydeviceError
from polydevice.errors import BlobError, ModelFileError, NetworkError
from polydevice.network import Network


def model(**properties: str) -> bytes:
    """y[N,4] = x[N,4] * scale[1] + offset[4]; `scale` may be given like an input."""
    f32 = TensorProto.FLOAT
    x = helper.make_tensor_value_info("x", f32, ["N", 4])
    x.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "scale"], ["scaled"]),
            helper.make_node("Add", ["scaled", "offset"], ["y"]),
        ],
        "the graph",
        [x, helper.make_tensor_value_info("scale", f32, [1])],
        [helper.make_tensor_value_info("y", f32, ["N", 4])],
        [
            helper.make_tensor("scale", f32, [1], [2.0]),
            helper.make_tensor("offset", f32, [4], [0, 1, 2, 3]),
        ],
        doc_string="what the graph does",
    )
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name="someone",
        producer_version="1.5",
        domain="org.example",
        model_version=12,
        doc_string="what the model does",
    )
    helper.set_model_props(made, properties)
    onnx.checker.check_model(made)
    return made.SerializeToString()


NOTES = {
    "framework": {"names": "{0: 'cat'}", "a key": 'with <xml> & "quotes"', "info": "", "9": "é"},
    "onnx": {
        "producer_name": "someone",
        "producer_version": "1.5",
        "domain": "org.example",
        "model_version": "12",
        "doc_string": "what the model does",
        "graph_name": "the graph",
        "graph_doc_string": "what the graph does",
        "ir_version": "8",
        "dimensions": {"x": {"0": "N"}, "y": {"0": "N"}},
        "denotations": {"x": {"0": "DATA_BATCH"}},
        "overridable": {"0": "scale"},
    },
}


@pytest.fixture(scope="module")
def core() -> Any:
    with Core() as made:
        yield made


@pytest.fixture
def network(core: Core) -> Network:
    return core.read_network(model(**NOTES["framework"]))


def test_what_a_file_says_is_kept_in_ir_files(core: Core, network: Network, tmp_path: Path) -> None:
    assert network.rt_info == NOTES
    assert network.clone().rt_info == NOTES
    network.serialize(tmp_path / "model.xml")
    again = core.read_network(tmp_path / "model.xml")
    assert again.rt_info == {**NOTES, "ir_version": 11}
    again.serialize(tmp_path / "again.xml")
    assert core.read_network(tmp_path / "again.xml").rt_info == again.rt_info
    assert again.dimension_names("y") == {0: "N"}


def test_openvino_reads_the_same_properties(tmp_path: Path, network: Network) -> None:
    openvino = pytest.importorskip("openvino")
    network.serialize(tmp_path / "model.xml")
    read = openvino.Core().read_model(tmp_path / "model.xml")
    for key in ("names", "a key", "9"):
        assert read.get_rt_info(["framework", key]).astype(str) == NOTES["framework"][key]


def test_a_file_cannot_make_notes_fail(core: Core, network: Network, tmp_path: Path) -> None:
    path = tmp_path / "model.xml"
    network.serialize(path)
    text = path.read_text()
    for notes in ('<onnx value="1"/>', '<onnx><dimensions><x value="N"/></dimensions></onnx>'):
        start, end = text.index("<onnx>"), text.index("</onnx>") + len("</onnx>")
        path.write_text(text[:start] + notes + text[end:])
        assert core.read_network(path).dimension_names("x") == {}


def test_named_sizes_are_fixed(core: Core, network: Network) -> None:
    network.fix_dimensions({"N": 3})
    assert [str(info.shape) for info in (network.inputs["x"], network.outputs["y"])] == [
        "[3,4]",
        "[3,4]",
    ]
    other = core.read_network(model())
    other.fix_dimensions({"DATA_BATCH": 2}, "denotations")
    assert str(other.inputs["x"].shape) == "[2,4]"
    with pytest.raises(NetworkError, match="has an axis 'M'; there are: N"):
        network.fix_dimensions({"M": 3})
    with pytest.raises(PolydeviceError):
        other.fix_dimensions({"N": -5})
    assert str(other.inputs["x"].shape) == "[2,4]"


def test_a_constant_becomes_an_input(core: Core, network: Network, device: str) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    offset = np.arange(4, dtype=np.float32)
    assert network.make_input("scale").tolist() == [2.0]
    request = core.load_network(network, device).create_infer_request()
    for scale in (2.0, -3.0):
        given = {"x": x, "scale": np.array([scale], np.float32)}
        np.testing.assert_allclose(request.infer(given)["y"], x * scale + offset, rtol=1e-6)
    with pytest.raises(NetworkError, match="is no constant"):
        network.make_input("scale")
    with pytest.raises(NetworkError, match="no node 'scal'"):
        network.make_input("scal")


def test_a_constant_gets_another_value(core: Core, network: Network, device: str) -> None:
    network.set_constant("offset", np.full(4, 7, np.float32))
    x = np.ones((1, 4), np.float32)
    np.testing.assert_allclose(core.load_network(network, device).infer(x)["y"], x * 2 + 7)
    with pytest.raises(NetworkError, match=r"holds float32\[4\]; float64\[4\] does not fit"):
        network.set_constant("offset", np.zeros(4))


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview, io.BytesIO])
def test_models_come_as_bytes_of_any_kind_and_as_files(core: Core, form: Any) -> None:
    assert core.read_network(form(model())).name == "the graph"


def test_files_of_an_ir_may_be_open(core: Core, network: Network, tmp_path: Path) -> None:
    network.serialize(tmp_path / "model.xml")
    with (tmp_path / "model.xml").open("rb") as xml, (tmp_path / "model.bin").open("rb") as weights:
        assert core.read_network(xml, weights).name == "the graph"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (io.StringIO("<net>"), "gives text; open it in binary mode"),
        (17, "model of type int cannot be read; give a path, bytes, or a file"),
        (io.BytesIO(), "is empty"),
    ],
)
def test_what_is_no_model_is_told(core: Core, source: Any, said: str) -> None:
    with pytest.raises(ModelFileError, match=said):
        core.read_network(source)


def test_a_closed_file_is_told(core: Core) -> None:
    file = io.BytesIO(model())
    file.close()
    with pytest.raises(ModelFileError, match="cannot be read: I/O operation on closed file"):
        core.read_network(file)


@pytest.fixture
def added(core: Core) -> Any:
    """z = a - b."""
    nodes = [helper.make_node("Sub", ["a", "b"], ["z"])]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "abz"]
    graph = helper.make_graph(nodes, "difference", values[:2], values[2:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return core.load_network(core.read_network(made.SerializeToString()), "CPU")


def test_inputs_by_name_number_order_or_alone(core: Core, added: Any, network: Network) -> None:
    a, b = np.array([5, 6], np.float32), np.array([1, 4], np.float32)
    forms = [{"a": a, "b": b}, {0: a, 1: b}, {"a": a, 1: b}, [a, b], (a, b), [a.tolist(), b]]
    for form in forms:
        assert added.infer(form)["z"].tolist() == [4, 2]
        request = added.create_infer_request()
        request.start_async(form)
        request.wait()
        assert request.get_blob("z").array.tolist() == [4, 2]
    x = np.ones((1, 4), np.float32)
    alone = core.load_network(network, "CPU")
    for form in (x, [x], {0: x}):
        assert alone.infer(form)["y"].tolist() == [[2, 3, 4, 5]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([np.zeros(2, np.float32)], "1 inputs are given; network 'difference' has 2: a, b"),
        (np.zeros(2, np.float32), "1 inputs are given"),
        ({2: np.zeros(2, np.float32)}, "no input or output 2; inputs: a, b"),
        ({-1: np.zeros(2, np.float32)}, "no input or output -1"),
        ([np.zeros(2, np.float32), np.zeros(3, np.float32)], r"'b' has shape \[2\], not \[3\]"),
    ],
)
def test_inputs_that_do_not_fit_are_told(added: Any, given: Any, said: str) -> None:
    with pytest.raises(BlobError, match=said):
        added.infer(given)
