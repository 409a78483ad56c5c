"""Elements taken and put by an index that repeats along rows are whole rows, as in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core
from polydevice.errors import PolydeviceError
from polydevice_cpu.onednn.library import library
from tests.cpu import models
from tests.cpu.loading import steps

pytestmark = pytest.mark.skipif(library() is None, reason="looks at a plan of oneDNN's")


def _model(kind: str, x: tuple, rows: tuple, wide: tuple, **attributes: object) -> bytes:
    """Take or put by an index [rows] that is repeated to [wide]."""
    inputs = {"x": (TensorProto.FLOAT, x), "rows": (TensorProto.INT64, rows)}
    if kind == "ScatterElements":
        inputs["updates"] = (TensorProto.FLOAT, wide)
    nodes = [
        helper.make_node("Expand", ["rows", "shape"], ["index"]),
        helper.make_node(kind, ["x", "index", *list(inputs)[2:]], ["y"], **attributes),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, *desc) for name, desc in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(wide), "shape")],
    )
    imports = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def _check(model: bytes, feed: dict[str, np.ndarray]) -> list[str]:
    """Compare with ONNX Runtime; returns the types of the steps."""
    with Core() as core:
        executable = core.load_network(core.read_network(model), "CPU")
        got = executable.infer(feed)["y"]
        np.testing.assert_allclose(got, models.answer(model, feed)[0], rtol=1e-5, atol=1e-6)
        return steps(executable)


@pytest.mark.parametrize(
    ("x", "rows", "wide", "axis", "whole"),
    [
        ((9, 5), (40, 1), (40, 5), 0, True),
        ((2, 9, 5), (2, 40, 1), (2, 40, 5), 1, True),
        ((2, 3, 9, 5), (2, 3, 4, 1), (2, 3, 4, 5), -2, True),
        ((2, 9, 5), (2, 40, 1), (2, 40, 4), 1, False),  # parts of rows
        ((3, 9, 5), (2, 40, 1), (2, 40, 5), 1, False),  # of some matrices alone
        ((2, 9, 5), (2, 9, 1), (2, 9, 5), 2, False),  # along rows
    ],
)
def test_rows_are_taken(x, rows, wide, axis, whole):
    rng = np.random.default_rng(3)
    size = x[axis]
    feed = {
        "x": rng.normal(size=x).astype(np.float32),
        "rows": rng.integers(-size, size, rows),
    }
    found = _check(_model("GatherElements", x, rows, wide, axis=axis), feed)
    assert ("GatherND" in found, "Broadcast" in found) == (whole, not whole), found


def test_a_row_that_is_not_there_is_an_error():
    model = _model("GatherElements", (9, 5), (4, 1), (4, 5), axis=0)
    feed = {"x": np.zeros((9, 5), np.float32), "rows": np.array([[0], [9], [1], [2]])}
    with Core() as core:
        executable = core.load_network(core.read_network(model), "CPU")
        with pytest.raises(PolydeviceError, match="index 9 is outside"):
            executable.infer(feed)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max"])
@pytest.mark.parametrize("places", [3, 90])  # with many rows for each, and with few
@pytest.mark.parametrize("width", [7, 64])
def test_rows_are_put(reduction, places, width):
    rng = np.random.default_rng(4)
    index = rng.integers(-places, places, (60, 1))
    if reduction == "none":  # of several updates of one place any may stay
        places = max(places, 60)
        index = rng.permutation(places)[:60, None]
    feed = {
        "x": rng.normal(size=(places, width)).astype(np.float32),
        "rows": index,
        "updates": rng.normal(size=(60, width)).astype(np.float32),
    }
    sizes = (places, width), (60, 1), (60, width)
    model = _model("ScatterElements", *sizes, axis=0, reduction=reduction)
    found = _check(model, feed)
    assert "ScatterNDUpdate" in found and "Broadcast" not in found, found


@pytest.mark.parametrize("kind", ["GatherElements", "ScatterElements"])
def test_one_row_may_be_repeated_for_all(core, kind):
    """Where nothing is known of how many there are, and how many they become."""
    others = ["z"] if kind == "ScatterElements" else []
    nodes = [
        ("Shape", ["z"], ["shape"], {}),
        ("Expand", ["rows", "shape"], ["index"], {}),
        (kind, ["x", "index", *others], ["y"], {"axis": 0}),
    ]
    inputs = {"x": [9, 5], "z": ["n", 5]}
    model = onnx.load_from_string(models.build(nodes, inputs, ["y"], {}, opset=18))
    rows = helper.make_tensor_value_info("rows", TensorProto.INT64, ["r", 1])
    model.graph.input.append(rows)
    given = model.SerializeToString()
    request = core.load_network(core.read_network(given), "CPU").create_infer_request()
    rng = np.random.default_rng(5)
    for count, wide in ((7, 7), (1, 4), (6, 6), (1, 1), (1, 8)):
        places = rng.permutation(9)[:count, None]
        feed = {
            name: rng.normal(size=(n, 5)).astype(np.float32)
            for name, n in zip("xz", (9, wide), strict=True)
        }
        feed["rows"] = places
        if kind == "ScatterElements" and count == 1:  # of several of one place any may stay
            feed["z"][:] = feed["z"][0]
        found = request.infer(feed)["y"]
        np.testing.assert_array_equal(found, models.answer(given, feed)[0])
