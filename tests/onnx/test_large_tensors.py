"""Large tensors of a model file: read apart from the message, with the same result."""

from __future__ import annotations

import errno
import gc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.errors import ModelError, ModelLimitError
from polydevice.files import stored
from polydevice.files.stored import LEAST_BYTES, Stored, stored_buffer
from polydevice.network import Network
from polydevice.readers.limits import ReadLimits
from polydevice.readers.onnx import read_onnx
from polydevice.readers.onnx.protos import large_tensors
from polydevice.readers.onnx.protos.protobuf import read_apart
from tests.onnx.models import model

RNG = np.random.default_rng(5)
COUNT = 3 * LEAST_BYTES // 4
LIMITS = ReadLimits()


def _tensor(name: str, *shape: int, dtype: str = "float32") -> TensorProto:
    data = RNG.integers(-100, 100, shape).astype(dtype)
    return numpy_helper.from_array(data, name)


def _branch(name: str) -> onnx.GraphProto:
    """A graph with a large initializer and a large Constant, whose sum it gives."""
    nodes = [
        helper.make_node("Constant", [], [f"{name}_c"], value=_tensor("", 6 * COUNT)),
        helper.make_node("Add", [f"{name}_c", f"{name}_w"], [f"{name}_s"]),
    ]
    result = helper.make_tensor_value_info(f"{name}_s", TensorProto.FLOAT, [6 * COUNT])
    return helper.make_graph(nodes, name, [], [result], [_tensor(f"{name}_w", 6 * COUNT)])


def _model() -> onnx.ModelProto:
    """Large tensors wherever they may be, beside small ones and data in other fields."""
    weights = [
        _tensor("w0", COUNT),
        _tensor("small", 1),
        _tensor("h", COUNT, dtype="float16"),
        _tensor("b", 20 * COUNT, dtype="int8"),
        helper.make_tensor("floats", TensorProto.FLOAT, [COUNT], np.arange(COUNT, dtype="f4")),
        helper.make_tensor("nibbles", TensorProto.INT4, [2 * COUNT],
                           np.arange(2 * COUNT) % 16 - 8),
        helper.make_tensor("flags", TensorProto.BOOL, [4 * COUNT], np.arange(4 * COUNT) % 2),
    ]  # fmt: skip
    for packed in weights[-2:]:
        array = numpy_helper.to_array(packed)
        packed.CopyFrom(numpy_helper.from_array(array, packed.name))
    nodes = [helper.make_node("Identity", [each.name], [f"out_{each.name}"]) for each in weights]
    nodes.append(helper.make_node("Constant", [], ["k"], value=_tensor("", COUNT, 2)))
    nodes.append(helper.make_node("Identity", ["k"], ["out_k"]))
    nodes.append(
        helper.make_node("If", ["go"], ["out_if"], then_branch=_branch("t"),
                         else_branch=_branch("e"))
    )  # fmt: skip
    outputs = [name for node in nodes for name in node.output if name.startswith("out_")]
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("go", TensorProto.BOOL, [])],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _constants(network: Network) -> list[np.ndarray]:
    found = []
    for node in network.nodes():
        if node.constant is not None:
            found.append(node.constant)
        for value in vars(node.op).values() if node.op.has_bodies else ():
            found += _constants(value) if isinstance(value, Network) else []
    return found


def test_a_file_gives_what_its_bytes_give(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(_model(), path)
    from_file, from_bytes = (_constants(read_onnx(each)) for each in (path, path.read_bytes()))
    assert len(from_file) == len(from_bytes) >= 12
    for one, other in zip(from_file, from_bytes, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
        assert stored_buffer(other) is None
        assert stored_buffer(one) is None or not one.flags.writeable
    apart = [array.nbytes for array in from_file if stored_buffer(array) is not None]
    assert len(apart) == 8  # w0, h, b, k, and two in each branch
    assert min(apart) >= LEAST_BYTES


def test_the_message_is_small(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(_model(), path)
    with read_apart(path, LIMITS) as (message, large):
        assert len(message) < path.stat().st_size / 5
        proto = onnx.ModelProto.FromString(message)
        assert [node.op_type for node in proto.graph.node] == [
            n.op_type for n in _model().graph.node
        ]
        small = proto.graph.initializer[1].raw_data
        assert large.data(small) == small
        assert len(large.data(proto.graph.initializer[0].raw_data)) == 4 * COUNT


def test_a_file_of_very_many_fields_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes Python a while: of a file of 1 GB, which a stranger may send, half an hour."""
    path = tmp_path / "m.onnx"
    path.write_bytes(
        b"\x08\x0a" * 1000 + _model().SerializeToString()
    )  # the version again and again
    with read_apart(path, LIMITS) as (message, _):
        assert len(message) < path.stat().st_size
    monkeypatch.setattr(large_tensors, "_MOST_FIELDS", 999)
    with read_apart(path, LIMITS) as (message, _):
        assert message == path.read_bytes()


def test_repeated_fields(tmp_path: Path) -> None:
    """The last of several contents counts, and graphs in parts are put together."""
    proto = model([], [], [])
    first, second = (_tensor("w", 2048, 3) for _ in range(2))
    graph = _field(5, first.SerializeToString() + _field(9, second.raw_data))
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString() + _field(7, graph + _relu_of_w()))
    for source in (path, path.read_bytes()):
        (found,) = _constants(read_onnx(source))
        np.testing.assert_array_equal(found, numpy_helper.to_array(second))


def _relu_of_w() -> bytes:
    """More of a graph: a node, and an output."""
    part = onnx.GraphProto()
    part.node.append(helper.make_node("Relu", ["w"], ["y"]))
    part.output.append(helper.make_empty_tensor_value_info("y"))
    return part.SerializeToString()


def _field(number: int, content: bytes) -> bytes:
    size, varint = len(content), b""
    while size > 127:
        varint += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + varint + bytes([size]) + content


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.99])
def test_a_cut_file_is_refused_as_its_bytes_are(tmp_path: Path, keep: float) -> None:
    content = _model().SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(ModelError) as by_bytes:
        read_onnx(path.read_bytes())
    with pytest.raises(ModelError, match=str(by_bytes.value)[:20]):
        read_onnx(path)


def test_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(_model(), path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(stored.mmap, "mmap", refuse)
    with pytest.raises(ModelLimitError, match="more memory than there is"):
        read_onnx(path)


def test_a_place_gives_any_view(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    weights = _tensor("w", 3, 2 * LEAST_BYTES)
    onnx.save(model(nodes, initializers=[weights]), path)
    array = next(a for a in _constants(read_onnx(path)) if a.shape == (3, 2 * LEAST_BYTES))
    view = array.T[5:, ::2]
    place = Stored.of(view)
    assert place is not None
    wanted = view.copy()
    del array, view
    gc.collect()
    assert place.buffer() is None
    again = place.array()
    np.testing.assert_array_equal(again, wanted)
