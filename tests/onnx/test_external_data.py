"""External data: what may be read, by every route a tensor can take into a model."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import SparseTensorProto, TensorProto, helper

from polydevice.errors import ModelError, ModelFileError, ModelFormatError, WeightsError
from polydevice.readers.onnx import read_onnx
from tests.onnx.models import external, model, tensor, value

DATA = np.arange(6, dtype=np.float32)
Entries = dict[str, str]
Route = Callable[[Entries], onnx.ModelProto]


def _initializer(entries: Entries) -> onnx.ModelProto:
    add = helper.make_node("Add", ["x", "w"], ["y"])
    return model([add], initializers=[external("w", entries)])


def _constant(entries: Entries) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Constant", [], ["w"], value=external("w", entries)),
        helper.make_node("Add", ["x", "w"], ["y"]),
    ]
    return model(nodes)


def _sparse(part: str) -> Route:
    def make(entries: Entries) -> onnx.ModelProto:
        sparse = SparseTensorProto(dims=[2, 3])
        sparse.values.CopyFrom(tensor("w", DATA))
        sparse.indices.CopyFrom(tensor("i", np.arange(6)))
        bad = external("w" if part == "values" else "i", entries, [6])
        if part == "indices":
            bad.data_type = TensorProto.INT64
        getattr(sparse, part).CopyFrom(bad)
        proto = model([helper.make_node("Add", ["x", "w"], ["y"])])
        proto.graph.sparse_initializer.append(sparse)
        return proto

    return make


def _sparse_constant(entries: Entries) -> onnx.ModelProto:
    sparse = SparseTensorProto(dims=[2, 3])
    sparse.values.CopyFrom(external("w", entries, [6]))
    sparse.indices.CopyFrom(tensor("i", np.arange(6)))
    node = helper.make_node("Constant", [], ["w"])
    node.attribute.append(helper.make_attribute("sparse_value", sparse))
    return model([node, helper.make_node("Add", ["x", "w"], ["y"])])


def _subgraph(entries: Entries) -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["z"])],
        "body",
        [],
        [value("z", None)],
        [external("w", entries)],
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    return model([node], [value("x"), value("c", (), TensorProto.BOOL)])


def _function(entries: Entries) -> onnx.ModelProto:
    function = helper.make_function(
        "local",
        "F",
        ["a"],
        ["b"],
        [
            helper.make_node("Constant", [], ["w"], value=external("w", entries)),
            helper.make_node("Add", ["a", "w"], ["b"]),
        ],
        [helper.make_opsetid("", 21)],
    )
    call = helper.make_node("F", ["x"], ["y"], domain="local")
    return model([call], functions=[function], domains=["local"])


ROUTES: dict[str, Route] = {
    "initializer": _initializer,
    "constant": _constant,
    "sparse values": _sparse("values"),
    "sparse constant": _sparse_constant,
    "subgraph": _subgraph,
    "function": _function,
}


@pytest.fixture(params=ROUTES, ids=lambda name: name.replace(" ", "_"))
def route(request: pytest.FixtureRequest) -> Route:
    return ROUTES[request.param]


def _read(proto: onnx.ModelProto, folder: Path) -> None:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    read_onnx(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with data, and a secret outside of it."""
    (tmp_path / "secret.bin").write_bytes(DATA.tobytes())
    inside = tmp_path / "model"
    (inside / "sub").mkdir(parents=True)
    (inside / "data.bin").write_bytes(b"pad!" + DATA.tobytes())
    (inside / "sub" / "data.bin").write_bytes(DATA.tobytes())
    return inside


@pytest.mark.parametrize(
    "entries",
    [
        {"location": "data.bin", "offset": "4", "length": "24"},
        {"location": "data.bin", "offset": "4"},
        {"location": "sub/data.bin"},
        {"location": "./sub/data.bin", "checksum": "ignored"},
    ],
)
def test_legal_data_is_read(route: Route, folder: Path, entries: Entries) -> None:
    _read(route(entries), folder)


def test_values_are_those_of_the_file(folder: Path) -> None:
    path = folder / "model.onnx"
    proto = _initializer({"location": "data.bin", "offset": "4"})
    path.write_bytes(proto.SerializeToString())
    network = read_onnx(path)
    np.testing.assert_array_equal(network.node("w").constant, DATA.reshape(2, 3))


BAD_LOCATIONS = [
    "../secret.bin",
    "sub/../../secret.bin",
    "a/../../secret.bin",
    "sub/../data.bin",
    "..",
    "/etc/hostname",
    "//etc/hostname",
    "C:\\secret.bin",
    "C:/secret.bin",
    "\\\\host\\share",
    "..\\secret.bin",
    "sub//data.bin",
    "data.bin\0.txt",
    "data.bin/",
    ".",
    "",
    "missing.bin",
    "sub",
    "data.bin/x",
]


@pytest.mark.parametrize("location", BAD_LOCATIONS)
def test_other_locations_are_refused(route: Route, folder: Path, location: str) -> None:
    with pytest.raises((ModelFileError, ModelFormatError), match=r"tensor '[wi]'"):
        _read(route({"location": location}), folder)


def _symlink(folder: Path) -> str:
    (folder / "link.bin").symlink_to(folder.parent / "secret.bin")
    return "link.bin"


def _symlink_within(folder: Path) -> str:
    (folder / "link.bin").symlink_to("sub/data.bin")
    return "link.bin"


def _symlinked_folder(folder: Path) -> str:
    (folder / "elsewhere").symlink_to(folder.parent)
    return "elsewhere/secret.bin"


def _hardlink(folder: Path) -> str:
    (folder / "hard.bin").hardlink_to(folder.parent / "secret.bin")
    return "hard.bin"


def _fifo(folder: Path) -> str:
    os.mkfifo(folder / "fifo.bin")
    return "fifo.bin"


@pytest.mark.timeout(20)  # a FIFO must not be waited for
@pytest.mark.parametrize("make", [_symlink, _symlink_within, _symlinked_folder, _hardlink, _fifo])
def test_only_regular_files_without_links(
    route: Route, folder: Path, make: Callable[[Path], str]
) -> None:
    with pytest.raises(ModelFileError):
        _read(route({"location": make(folder)}), folder)


@pytest.mark.parametrize(
    ("entries", "error"),
    [
        ({"offset": "5"}, WeightsError),
        ({"offset": "28"}, WeightsError),
        ({"offset": str(2**63 - 1)}, (WeightsError, ModelFormatError)),
        ({"offset": str(2**64 - 20)}, ModelFormatError),
        ({"offset": "-1"}, ModelFormatError),
        ({"offset": "0x4"}, ModelFormatError),
        ({"offset": "4 "}, ModelFormatError),
        ({"offset": "٤"}, ModelFormatError),
        ({"length": "23"}, WeightsError),
        ({"length": "28"}, WeightsError),
        ({"length": "-1"}, ModelFormatError),
        ({"length": str(2**70)}, ModelFormatError),
        ({"__class__": "x"}, ModelFormatError),
        ({"Location": "sub/data.bin"}, ModelFormatError),
    ],
)
def test_bounds(route: Route, folder: Path, entries: Entries, error: type[ModelError]) -> None:
    with pytest.raises(error):
        _read(route({"location": "data.bin", **entries}), folder)


def test_an_entry_given_twice_is_refused(folder: Path) -> None:
    proto = _initializer({"location": "data.bin"})
    proto.graph.initializer[0].external_data.add(key="location", value="sub/data.bin")
    with pytest.raises(ModelFormatError, match="twice"):
        _read(proto, folder)


def test_overlapping_tensors_cannot_multiply_a_file(folder: Path) -> None:
    # 2,000 tensors of 4 KiB in a file of 8 KiB, each one byte further
    (folder / "big.bin").write_bytes(bytes(8192))
    tensors = [
        external(f"w{i}", {"location": "big.bin", "offset": str(i)}, [1024]) for i in range(2000)
    ]
    nodes = [helper.make_node("Identity", ["w0"], ["y"])]
    with pytest.raises(WeightsError, match="overlap"):
        _read(model(nodes, initializers=tensors), folder)


def test_the_same_region_may_be_shared(folder: Path) -> None:
    tensors = [external(f"w{i}", {"location": "sub/data.bin"}) for i in range(50)]
    nodes = [helper.make_node("Sum", [t.name for t in tensors], ["y"])]
    _read(model(nodes, initializers=tensors), folder)


def test_other_spellings_of_a_name_are_the_same_file(folder: Path) -> None:
    def read(size: int) -> None:
        tensors = []
        for i in range(5):
            offset = i * (6 - size)
            entries = {"location": "./" * i + "sub/./data.bin", "offset": str(offset)}
            tensors.append(external(f"w{i}", entries, [size]))
        nodes = [helper.make_node("Sum", [t.name for t in tensors], ["y"])]
        _read(model(nodes, initializers=tensors), folder)

    read(6)
    with pytest.raises(WeightsError, match="overlap"):
        read(5)


def test_a_model_given_as_bytes_has_no_folder(
    route: Route, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data.bin").write_bytes(DATA.tobytes())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFileError, match="by its path"):
        read_onnx(route({"location": "data.bin"}).SerializeToString())


def test_sparse_indices_may_not_be_outside(folder: Path) -> None:
    (folder / "index.bin").write_bytes(np.arange(6, dtype=np.int64).tobytes())
    _read(_sparse("indices")({"location": "index.bin"}), folder)
    with pytest.raises(ModelFileError):
        _read(_sparse("indices")({"location": "../secret.bin"}), folder)


def test_large_claims_cost_nothing(folder: Path) -> None:
    """A tensor that claims terabytes is refused by the file's size, before any allocation."""
    huge = external("w", {"location": "data.bin"}, [1 << 40])
    node = helper.make_node("Identity", ["w"], ["y"])
    with pytest.raises(WeightsError):
        _read(model([node], initializers=[huge]), folder)
    inline = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 31, 1 << 31])
    inline.raw_data = b"1234"
    with pytest.raises(ModelFormatError):
        _read(model([node], initializers=[inline]), folder)
