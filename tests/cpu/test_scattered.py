"""Elements and rows put where indices say, by machine code; NumPy and ONNX Runtime judge."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.errors import InferenceError
from polydevice.ops.scatter import Reduction, ScatterElementsUpdate, ScatterNDUpdate
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.indexed import scattered
from polydevice_cpu.implement import run as run_op
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, with_avx512
from tests.cpu.models import answer
from tests.guard_pages import SIDES, guarded

pytestmark = with_avx512


def kept(side, array):
    """The same array beside a page without access."""
    place = guarded(side, array.nbytes).view(array.dtype).reshape(array.shape)
    place[...] = array
    return place


def run(side, put, x, indices, updates):
    """What calls make of a copy of x, and what they return."""
    arrays = [kept(side, each) for each in (x, indices, updates, np.zeros_like(x))]
    told = [scattered.copying(x.nbytes), put]
    status = Code.of(told).bound([address_of(each) for each in arrays])()
    return arrays[3], status & 0xFFFFFFFF


NONE = scattered.Meeting()
MEETINGS = [NONE] + [
    scattered.Meeting(how, letter)
    for how in ("add", "multiply", "largest", "smallest")
    for letter in "fi"
]
HOW = {
    Reduction.SUM: "add",
    Reduction.PROD: "multiply",
    Reduction.MAX: "largest",
    Reduction.MIN: "smallest",
}
FUNCTIONS = {
    "add": np.add,
    "multiply": np.multiply,
    "largest": np.maximum,
    "smallest": np.minimum,
}


def right(x, places, updates, meeting):
    y = x.copy()
    if meeting.how:
        with np.errstate(all="ignore"):
            FUNCTIONS[meeting.how].at(y, places, updates)
        return y
    for place, update in zip(zip(*(p.reshape(-1) for p in places), strict=True),
                             updates.reshape(-1, *updates.shape[places[0].ndim :]),
                             strict=True):  # fmt: skip
        y[place] = update
    return y


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("seed", range(60))
def test_elements_are_put_and_added(seed, side):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 9, rng.integers(1, 5)))
    axis, count = int(rng.integers(0, len(shape))), int(rng.integers(1, 7))
    kind = MEETINGS[seed % len(MEETINGS)]
    dtype = rng.choice({"": ["u1", "i2", "f4", "f8"], "f": ["f4"], "i": ["i4", "i8"]}[kind.letter])
    x = (rng.standard_normal(shape) * 100).astype(dtype)
    sizes = [*shape]
    sizes[axis] = count
    index = rng.integers(-shape[axis], shape[axis], sizes).astype(rng.choice(["i4", "i8"]))
    updates = (rng.standard_normal(sizes) * 100).astype(dtype)
    if kind.letter == "f":
        updates.flat[0] = rng.choice([np.nan, np.inf, 1])
    put = scattered.elements(shape, axis, count, (x.itemsize, index.itemsize), kind)
    y, status = run(side, put, x, index, updates)
    places = [*np.indices(sizes)]
    places[axis] = index.astype(np.int64) % shape[axis]
    assert status == 0
    np.testing.assert_allclose(y, right(x, tuple(places), updates, kind), rtol=1e-6, atol=1e-4)
    for bad in (shape[axis], -shape[axis] - 1):
        index.flat[rng.integers(0, index.size)] = bad
        assert run(side, put, x, index, updates)[1] == 1


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("seed", range(60))
def test_elements_whose_indices_are_one_are_put_as_rows(seed, side):
    """As graph networks have them, which expand an index to the width of its row."""
    rng = np.random.default_rng(seed)
    before, size, count = (int(n) for n in rng.integers(1, 6, 3))
    width = int(rng.integers(8, 90))
    kind = MEETINGS[seed % len(MEETINGS)]
    dtype = rng.choice({"": ["u1", "f4", "i8"], "f": ["f4"], "i": ["i4", "i8"]}[kind.letter])
    x = (rng.standard_normal((before, size, width)) * 100).astype(dtype)
    index = rng.integers(-size, size, (before, count, 1)).repeat(width, 2)
    index = index.astype(rng.choice(["i4", "i8"]))
    if seed % 3 == 0:  # all but one of a row
        index[rng.integers(0, before), rng.integers(0, count), rng.integers(0, width)] = 0
    updates = (rng.standard_normal(index.shape) * 100).astype(dtype)
    if kind.letter == "f":
        updates.flat[:3] = np.nan, np.inf, -np.inf
    put = scattered.elements(x.shape, 1, count, (x.itemsize, index.itemsize), kind)
    y, status = run(side, put, x, index, updates)
    places = [*np.indices(index.shape)]
    places[1] = index.astype(np.int64) % size
    assert status == 0
    np.testing.assert_allclose(y, right(x, tuple(places), updates, kind), rtol=1e-5, atol=1e-3)
    for bad in (size, -size - 1):
        index[rng.integers(0, before), rng.integers(0, count)] = bad
        assert run(side, put, x, index, updates)[1] == 1


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("seed", range(60))
def test_rows_are_put_and_added(seed, side):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, [9, 7, 40, 3][: rng.integers(1, 5)]))
    coordinates, count = int(rng.integers(1, len(shape) + 1)), int(rng.integers(1, 9))
    kind = MEETINGS[seed % len(MEETINGS)]
    dtype = rng.choice({"": ["f4", "f8", "i8"], "f": ["f4"], "i": ["i4", "i8"]}[kind.letter])
    x = (rng.standard_normal(shape) * 100).astype(dtype)
    index = np.stack([rng.integers(-n, n, count) for n in shape[:coordinates]], -1)
    index = index.astype(rng.choice(["i4", "i8"]))
    updates = (rng.standard_normal((count, *shape[coordinates:])) * 100).astype(dtype)
    if kind.letter == "f":
        updates.flat[0] = rng.choice([np.nan, np.inf, 1])
    put = scattered.rows(shape, coordinates, count, (x.itemsize, index.itemsize), kind)
    y, status = run(side, put, x, index, updates)
    places = tuple((index.astype(np.int64) % shape[:coordinates]).T)
    assert status == 0
    np.testing.assert_allclose(y, right(x, places, updates, kind), rtol=1e-6, atol=1e-4)
    for bad in (shape[0], -shape[0] - 1):
        index[rng.integers(0, count), 0] = bad
        assert run(side, put, x, index, updates)[1] == 1


def model(kind, x, index, updates, **attributes):
    """y = kind(x + 1, index, updates) + 1; sizes are known or names."""
    fed = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, x),
        helper.make_tensor_value_info("index", TensorProto.INT64, index),
        helper.make_tensor_value_info("updates", TensorProto.FLOAT, updates),
    ]
    nodes = [
        helper.make_node("Add", ["x", "one"], ["a"]),
        helper.make_node(kind, ["a", "index", "updates"], ["b"], **attributes),
        helper.make_node("Add", ["b", "one"], ["y"]),
    ]
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        nodes, "g", fed, [made], [numpy_helper.from_array(np.float32(1), "one")]
    )
    imports = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def test_networks_put_no_elements(core):
    """Fewer than there are along axes before one of size 0."""
    sizes = ["a", "b", "c"], ["d", "e", "f"], ["d", "e", "f"]
    made = model("ScatterElements", *sizes, axis=1)
    request = load(core, made).create_infer_request()
    for size in (3, 2, 0):  # the third shape's plan is filled in
        inputs = {
            "x": np.ones((3, 4, size), np.float32), "index": np.zeros((2, 4, size), np.int64),
            "updates": np.ones((2, 4, size), np.float32),
        }  # fmt: skip
        (found,) = request.infer(inputs).values()
        np.testing.assert_array_equal(found, answer(made, inputs)[0])


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("axis", [0, -1])
def test_networks_put_elements_of_any_size(core, axis, reduction):
    made = model(
        "ScatterElements", ["a", "b"], ["c", "d"], ["c", "d"], axis=axis, reduction=reduction
    )
    network, rng = load(core, made), np.random.default_rng(4)
    request = network.create_infer_request()
    for _ in range(6):
        shape = rng.integers(1, 12, 2)
        taken = shape.copy()
        taken[axis] = rng.integers(1, shape[axis] + 1)
        index = np.argsort(rng.random(shape), axis)  # no place twice: no order is promised
        index = index[: taken[0], : taken[1]] - (rng.random(taken) < 0.5) * shape[axis]
        inputs = {
            "x": rng.standard_normal(shape).astype(np.float32), "index": index,
            "updates": rng.standard_normal(taken).astype(np.float32),
        }  # fmt: skip
        (found,) = request.infer(inputs).values()
        np.testing.assert_allclose(found, answer(made, inputs)[0], rtol=1e-6)
        assert "ScatterElementsUpdate" in by_machine_code(network)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_networks_put_rows_of_any_size(core, reduction):
    sizes = ["a", "b", "c"], ["n", 2], ["n", "c"]
    made = model("ScatterND", *sizes, reduction=reduction)
    network, rng = load(core, made), np.random.default_rng(5)
    request = network.create_infer_request()
    for _ in range(6):
        shape = rng.integers(1, 20, 3)
        places = np.argwhere(rng.random(shape[:2]) < 0.6)
        if not len(places):
            places = np.zeros((1, 2), np.int64)
        inputs = {
            "x": rng.standard_normal(shape).astype(np.float32), "index": places,
            "updates": rng.standard_normal((len(places), shape[2])).astype(np.float32),
        }  # fmt: skip
        (found,) = request.infer(inputs).values()
        np.testing.assert_allclose(found, answer(made, inputs)[0], rtol=1e-6)
        assert "ScatterNDUpdate" in by_machine_code(network)


@pytest.mark.parametrize("kind", ["ScatterElements", "ScatterND"])
def test_a_bad_index_is_named_and_nothing_stays_wrong(core, kind):
    if kind == "ScatterND":
        made, index = model(kind, [4, 2], [3, 1], [3, 2]), np.array([[0], [3], [-1]])
    else:
        made, index = model(kind, [4, 2], [2, 2], [2, 2], axis=0), np.array([[0, 1], [-1, 3]])
    request = load(core, made).create_infer_request()
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    updates = np.full((*index.shape[:1], 2), 9, np.float32)
    good = {"x": x, "index": index, "updates": updates}
    bad = {**good, "index": index + (index == 3)}
    for _ in range(3):
        (found,) = request.infer(good).values()
        np.testing.assert_array_equal(found, answer(made, good)[0])
        with pytest.raises(InferenceError, match=r"index 4 is outside \[-4, 4\)"):
            request.infer(bad)


@pytest.mark.parametrize("reduction", [Reduction.NONE, Reduction.SUB, *HOW])
@pytest.mark.parametrize("kind", [np.float32, np.int64, np.uint8])
def test_arrays(reduction, kind):
    """As where sizes come from the data: of one size after the other, and bad indices between."""
    rng = np.random.default_rng(8)
    op, rows = ScatterElementsUpdate(reduction=reduction), ScatterNDUpdate(reduction=reduction)
    for shape in ((5, 4), (9, 4), (5, 4), (3, 70)):
        x = rng.integers(0, 9, shape).astype(kind)
        index = rng.permuted(np.tile(np.arange(shape[0])[:, None], shape[1]), axis=0)[:2]
        updates = rng.integers(0, 9, index.shape).astype(kind)
        places = index, np.broadcast_to(np.arange(shape[1]), index.shape)
        want, at = x.copy(), x[places]
        function = {Reduction.NONE: lambda _, new: new, Reduction.SUB: np.subtract}.get(
            reduction, FUNCTIONS.get(HOW.get(reduction))
        )
        want[places] = function(at, updates)
        (got,) = run_op(op, [x, index, updates, np.array(0)])
        np.testing.assert_array_equal(got, want)
        flat = np.stack(places, -1)
        (got,) = run_op(rows, [x, flat, updates])
        np.testing.assert_array_equal(got, want)
        with pytest.raises(InferenceError, match="outside"):
            run_op(op, [x, index + shape[0], updates, np.array(0)])
