"""Malformed, hostile and unsupported models: which error comes, and that nothing else does."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from polydevice import Core
from polydevice.errors import (
    ModelError,
    ModelFileError,
    ModelFormatError,
    ModelLimitError,
    NetworkError,
    ShapeError,
    UnsupportedOperationError,
)
from polydevice.readers.limits import ReadLimits
from polydevice.readers.onnx import read_onnx
from tests.onnx.models import FLOAT, model, tensor, value
from tests.onnx.node_cases import load_cases

RELU = helper.make_node("Relu", ["x"], ["y"], name="the_relu")


def _read(proto: onnx.ModelProto, **limits: int) -> None:
    read_onnx(proto.SerializeToString(), limits=ReadLimits(**limits))


# -- files ----------------------------------------------------------------------------------------


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="does not exist"):
        read_onnx(tmp_path / "absent.onnx")


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(ModelFileError, match="empty"):
        read_onnx(tmp_path / "empty.onnx")


def test_folder_and_fifo_are_no_model_files(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "fifo.onnx")
    for path in (tmp_path, tmp_path / "fifo.onnx"):
        with pytest.raises(ModelFileError):
            read_onnx(path)


@pytest.mark.parametrize(
    "data",
    [b"\xff" * 64, b"not a model", b"\x00", b"PK\x03\x04" + bytes(40), b"\x0a\xff\xff\xff\xff\x0f"],
)
def test_garbage(data: bytes) -> None:
    with pytest.raises(ModelFormatError):
        read_onnx(data)


def test_every_truncation_is_a_model_error() -> None:
    data = model([RELU]).SerializeToString()
    for length in range(len(data)):
        try:
            read_onnx(data[:length])
        except (ModelError, NetworkError):
            continue


def test_too_large_a_file() -> None:
    with pytest.raises(ModelLimitError, match="external data"):
        _read(model([RELU]), onnx_bytes=10)


# -- graphs ---------------------------------------------------------------------------------------


def test_undefined_value() -> None:
    with pytest.raises(ModelFormatError, match=r"'the_relu'.*'absent'"):
        _read(model([helper.make_node("Relu", ["absent"], ["y"], name="the_relu")]))


def test_cycle() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    with pytest.raises(ModelFormatError, match="'b'"):
        _read(model(nodes, outputs=[value("b", None)]))


def test_value_defined_twice() -> None:
    with pytest.raises(ModelFormatError, match="twice"):
        _read(model([RELU, RELU]))
    with pytest.raises(ModelFormatError, match="twice"):
        _read(model([RELU], [value("x"), value("x")]))


def test_input_without_an_element_type() -> None:
    """Which no device could be told; a stored tensor's entry among the inputs needs none."""
    proto = model([RELU], [value("x"), value("w")], initializers=[tensor("w", np.zeros(2))])
    proto.graph.input[1].type.tensor_type.ClearField("elem_type")
    _read(proto)
    proto.graph.input[0].type.tensor_type.ClearField("elem_type")
    with pytest.raises(
        ModelFormatError, match="input 'x' has no element type.*one of FLOAT, UINT8"
    ):
        _read(proto)


def test_missing_output() -> None:
    with pytest.raises(ModelFormatError, match="'z'"):
        _read(model([RELU], outputs=[value("z")]))


def test_no_operator_set() -> None:
    proto = model([RELU])
    del proto.opset_import[:]
    with pytest.raises(ModelFormatError, match="operator set"):
        _read(proto)


def test_operator_set_in_two_versions() -> None:
    proto = model([RELU])
    proto.opset_import.append(helper.make_opsetid("ai.onnx", 7))
    with pytest.raises(ModelFormatError, match="imported as version"):
        _read(proto)


def test_an_operator_set_that_is_not_known_yet_is_said(caplog: pytest.LogCaptureFixture) -> None:
    proto = model([RELU])
    _read(proto)
    assert not caplog.text
    proto.opset_import[0].version = 999
    _read(proto)
    assert "opset 999, which is newer than opset" in caplog.text


@pytest.mark.parametrize(
    ("dims", "raw"),
    [([2, 3], 20), ([2, 3], 28), ([-1, 3], 24), ([2, 1 << 62], 24), ([1] * 40, 4)],
)
def test_shape_and_amount_of_data_disagree(dims: list[int], raw: int) -> None:
    bad = TensorProto(name="w", data_type=FLOAT, dims=dims, raw_data=bytes(raw))
    with pytest.raises(ModelFormatError, match="'w'"):
        _read(model([helper.make_node("Add", ["x", "w"], ["y"])], initializers=[bad]))


# -- limits ---------------------------------------------------------------------------------------


def test_functions_cannot_explode() -> None:
    """Each of 40 functions calls the one before it twice: 2^40 nodes."""
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    leaf = helper.make_function(
        "local", "F0", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], imports
    )
    functions = [leaf]
    for level in range(1, 40):
        inner = f"F{level - 1}"
        nodes = [
            helper.make_node(inner, ["a"], ["m"], domain="local"),
            helper.make_node(inner, ["m"], ["b"], domain="local"),
        ]
        functions.append(helper.make_function("local", f"F{level}", ["a"], ["b"], nodes, imports))
    call = helper.make_node("F39", ["x"], ["y"], domain="local")
    proto = model([call], functions=functions, domains=["local"])
    with pytest.raises(ModelLimitError, match="2000 nodes"):
        _read(proto, layers=2000)


def test_functions_that_call_themselves() -> None:
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    node = helper.make_node("F", ["a"], ["b"], domain="local")
    function = helper.make_function("local", "F", ["a"], ["b"], [node], imports)
    call = helper.make_node("F", ["x"], ["y"], domain="local")
    with pytest.raises(ModelLimitError, match="themselves"):
        _read(model([call], functions=[function], domains=["local"]))


def test_nested_bodies() -> None:
    outer = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["z"])], "inner", [], [value("z", None)]
    )
    for level in range(30):
        node = helper.make_node("If", ["c"], [f"z{level}"], then_branch=outer, else_branch=outer)
        outer = helper.make_graph([node], f"g{level}", [], [value(f"z{level}", None)])
        if level > 6:
            break
    node = helper.make_node("If", ["c"], ["y"], then_branch=outer, else_branch=outer)
    proto = model([node], [value("x"), value("c", (), TensorProto.BOOL)])
    with pytest.raises(ModelLimitError, match="nested"):
        _read(proto)


@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.STRING, TensorProto.INT4])
def test_sizes_that_no_array_has(kind: int) -> None:
    evil = TensorProto(name="evil", data_type=kind, dims=[0, 1 << 62])
    with pytest.raises(ModelFormatError, match="no array"):
        _read(model([RELU], initializers=[evil]))


@pytest.mark.parametrize("rank", [65, 100])
def test_ranks_that_no_array_has(rank: int) -> None:
    reshape = helper.make_node("Reshape", ["x", "s"], ["y"])
    sizes = tensor("s", np.array([6] + [1] * (rank - 1)))
    with pytest.raises(NetworkError, match=f"rank {rank}; at most 32"):
        _read(model([reshape], initializers=[sizes]))


def test_sparse_tensors_have_a_limit() -> None:
    sparse = onnx.SparseTensorProto(dims=[1 << 40])
    sparse.values.CopyFrom(tensor("w", np.ones(1, np.float32)))
    sparse.indices.CopyFrom(tensor("i", np.zeros(1, np.int64)))
    proto = model([helper.make_node("Identity", ["w"], ["y"])])
    proto.graph.sparse_initializer.append(sparse)
    with pytest.raises(ModelLimitError, match="sparse"):
        _read(proto)


def test_known_values_are_not_computed_without_bound() -> None:
    """Shape arithmetic ahead of inference must not fill the memory."""
    nodes = [
        helper.make_node("ConstantOfShape", ["big"], ["a"]),
        helper.make_node("Tile", ["a", "times"], ["b"]),
        helper.make_node("Shape", ["b"], ["y"]),
    ]
    proto = model(
        nodes,
        outputs=[value("y", None, TensorProto.INT64)],
        initializers=[tensor("big", np.array([1 << 40])), tensor("times", np.array([1 << 20]))],
    )
    with Core() as core:
        network = core.read_network(proto.SerializeToString())
        assert network.results[0].output.desc.shape == (1,)


# -- unsupported operators ------------------------------------------------------------------------


def test_all_unsupported_operators_are_listed_at_once() -> None:
    body = helper.make_graph(
        [helper.make_node("Strange", ["x"], ["z"], name="inner", domain="other")],
        "body",
        [],
        [value("z", None)],
    )
    nodes = [
        helper.make_node("Unheard", ["x"], ["a"], name="first"),
        helper.make_node("Unheard", ["a"], ["b"], name="second"),
        helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body),
    ]
    proto = model(nodes, [value("x"), value("c", (), TensorProto.BOOL)], domains=["other"])
    with pytest.raises(UnsupportedOperationError) as caught:
        _read(proto)
    message = str(caught.value)
    assert "2 operators" in message
    assert "Unheard (opset 21): 2 uses, first in node 'first'" in message
    assert "other.Strange (opset 1): 2 uses, first in node 'inner'" in message


def test_operators_that_changed_before_opset_7_are_named() -> None:
    with pytest.raises(UnsupportedOperationError, match="version_converter"):
        _read(model([helper.make_node("Pad", ["x"], ["y"], paddings=[0, 1, 0, 1])], opset=1))
    _read(model([RELU], opset=6))


# -- fuzzing --------------------------------------------------------------------------------------


def _mutated(data: bytes, chance: random.Random) -> bytes:
    """Change a few bytes: flip, overwrite, cut, repeat, insert lengths that are far too large."""
    result = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        if not result:
            break
        at = chance.randrange(len(result))
        kind = chance.randrange(6)
        if kind == 0:
            result[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            result[at] = chance.randrange(256)
        elif kind == 2:
            del result[at : at + chance.randint(1, 8)]
        elif kind == 3:
            result[at:at] = result[at : at + chance.randint(1, 32)]
        elif kind == 4:
            result[at:at] = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"
        else:
            result[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
    return bytes(result)


@pytest.mark.parametrize("seed", range(8))
def test_mutated_models_raise_only_model_and_network_errors(seed: int) -> None:
    """Valid models of many operators, changed at random; each is read with shape arithmetic on."""
    chance = random.Random(seed)
    cases = [case for case in load_cases() if case.model.ByteSize() < 20_000]
    with Core() as core:
        for _ in range(250):
            case = chance.choice(cases)
            data = _mutated(case.model.SerializeToString(), chance)
            try:
                network = core.read_network(data)
                assert network.results
            except (ModelError, NetworkError):
                pass


_NUMBERS = [-(2**63), -(2**31), -1000, -3, -2, -1, 0, 1, 2, 3, 5, 1000, 2**31 - 1, 2**31, 2**63 - 1]
_TYPES = [0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 14, 16, 17, 22, 23, 99]


def _damaged(proto: onnx.ModelProto, chance: random.Random) -> None:  # noqa: C901 - a list of damages
    """Change a model in ways that keep it parseable: numbers, sizes, types, connections."""
    nodes = list(proto.graph.node)
    for function in proto.functions:
        nodes += function.node
    for _ in range(chance.randint(1, 4)):
        node = chance.choice(nodes)
        kind = chance.randrange(8)
        if kind == 0 and node.attribute:
            attribute = chance.choice(node.attribute)
            if attribute.type == onnx.AttributeProto.INT:
                attribute.i = chance.choice(_NUMBERS)
            elif attribute.ints:
                attribute.ints[chance.randrange(len(attribute.ints))] = chance.choice(_NUMBERS)
            elif attribute.type == onnx.AttributeProto.FLOAT:
                attribute.f = chance.choice([0.0, -1.0, 1e38, float("nan"), float("inf")])
            elif attribute.type == onnx.AttributeProto.STRING:
                attribute.s = chance.choice([b"", b"linear", b"\xff", b"x" * 1000])
        elif kind == 1 and node.attribute:
            attribute = chance.choice(node.attribute)
            if attribute.ints:
                attribute.ints.extend(list(attribute.ints) * chance.randint(1, 3))
            else:
                node.attribute.remove(attribute)
        elif kind == 2 and node.input:
            at = chance.randrange(len(node.input))
            names = [name for n in nodes for name in [*n.input, *n.output]]
            node.input[at] = chance.choice([*names, ""])
        elif kind == 3 and node.input:
            del node.input[chance.randrange(len(node.input))]
        elif kind == 4 and node.output:
            node.output.append(f"more{len(node.output)}")
        elif kind == 5 and proto.graph.input:
            tensor_type = chance.choice(proto.graph.input).type.tensor_type
            if tensor_type.shape.dim and chance.random() < 0.6:
                dim = chance.choice(tensor_type.shape.dim)
                dim.dim_value = chance.choice(_NUMBERS)
            elif chance.random() < 0.3:
                tensor_type.ClearField("shape")
            else:
                tensor_type.elem_type = chance.choice(_TYPES)
        elif kind == 6:
            node.op_type = chance.choice(load_cases()).model.graph.node[0].op_type
        elif kind == 7 and proto.graph.initializer:
            initializer = chance.choice(proto.graph.initializer)
            if initializer.dims:
                initializer.dims[0] = chance.choice(_NUMBERS)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 8))]
)
def test_damaged_models_raise_only_model_and_network_errors(seed: int) -> None:
    chance = random.Random(seed)
    cases = [case for case in load_cases() if case.model.ByteSize() < 20_000]
    with Core() as core:
        for _ in range(250):
            case = chance.choice(cases)
            proto = onnx.ModelProto()
            proto.CopyFrom(case.model)
            _damaged(proto, chance)
            try:
                network = core.read_network(proto.SerializeToString())
                assert network.results
            except (ModelError, NetworkError):
                pass
            except Exception as error:
                error.add_note(case.name) if hasattr(error, "add_note") else None
                raise


def test_iterations_that_give_other_axes_each() -> None:
    """The shape that a body reshapes to is longer in every iteration."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["going"]),
            helper.make_node("Concat", ["shape", "shape"], ["longer"], axis=0),
            helper.make_node("Reshape", ["x", "longer"], ["part"]),
        ],
        "body",
        [value("i", (), TensorProto.INT64), value("go", (), TensorProto.BOOL),
         value("shape", (None,), TensorProto.INT64)],
        [value("going", (), TensorProto.BOOL), value("longer", (None,), TensorProto.INT64),
         helper.make_tensor_value_info("part", TensorProto.FLOAT, None)],
    )  # fmt: skip
    trips = helper.make_node("Constant", [], ["n"], value_int=3)
    node = helper.make_node("Loop", ["n", "", "first"], ["last", "y"], body=body)
    first = value("first", (None,), TensorProto.INT64)
    with Core() as core:
        network = core.read_network(
            model([trips, node], [value("x", (1,)), first]).SerializeToString()
        )
        request = core.load_network(network, "CPU").create_infer_request()
        with pytest.raises(
            ShapeError, match=r"cannot join what its iterations give.*: \[1,1,1\], \[1,1,1,1,1\]"
        ):
            request.infer({"x": np.float32([1]), "first": np.int64([1])})
