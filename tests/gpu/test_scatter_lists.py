"""Many updates that are added up or the like: listed by place, and met in their order.

Answers are NumPy's, which goes through updates one after the other, and ONNX Runtime's.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from polydevice.dtype import ElementType
from polydevice.ops.scatter import Reduction, ScatterElementsUpdate
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.kernels.movement.scatter import ScatterListed, ScatterListedInTurn
from tests.gpu.graphs import Sketch

FUNCTIONS = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
KINDS = {"f4": TensorProto.FLOAT, "f2": TensorProto.FLOAT16, "i4": TensorProto.INT32}
COUNT = 3000


def model(kind: str, reduction: str, shape, taken, updates, axis: int | None) -> bytes:
    given = [
        helper.make_tensor_value_info("x", KINDS[kind], shape),
        helper.make_tensor_value_info("i", TensorProto.INT64, taken),
        helper.make_tensor_value_info("u", KINDS[kind], updates),
    ]
    result = helper.make_tensor_value_info("y", KINDS[kind], shape)
    how = {"reduction": reduction} if axis is None else {"reduction": reduction, "axis": axis}
    name = "ScatterND" if axis is None else "ScatterElements"
    node = helper.make_node(name, ["x", "i", "u"], ["y"], **how)
    graph = helper.make_graph([node], "g", given, [result])
    opset = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


@pytest.fixture(params=["in turn", "side by side"])
def way(request, monkeypatch, opencl) -> str:
    """As processors list updates, and as GPUs do; returns the end of the kernel's name."""
    alone = request.param == "in turn"
    takes, leaves = (ScatterListedInTurn, ScatterListed)[:: 1 if alone else -1]
    monkeypatch.setattr(takes, "yields", lambda *_: "")
    monkeypatch.setattr(leaves, "yields", lambda *_: "another way is tried")
    return "listed_in_turn" if alone else "listed"


@pytest.mark.parametrize("reduction", list(FUNCTIONS))
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize(("outer", "row"), [((53,), ()), ((11, 7), (3,))], ids=["numbers", "rows"])
def test_thousands_of_tuples(core, way, kind, reduction, outer, row) -> None:
    rng = np.random.default_rng(5)
    index = np.stack([rng.integers(-n, n, (3, COUNT // 3)) for n in outer], -1)
    index[0, :900] = index[0, 0]  # nearly a third of them at one place
    x, updates = (
        numbers(rng, kind, reduction, shape)
        for shape in ((*outer, *row), (*index.shape[:-1], *row))
    )
    feed = {"x": x, "i": index, "u": updates}
    made = model(kind, reduction, x.shape, index.shape, updates.shape, None)
    found = answer(core, made, feed, f"scatter_nd_{way}")
    expected = x.astype(sums_of(kind))
    FUNCTIONS[reduction].at(expected, tuple(np.moveaxis(index, -1, 0)), updates)
    compare(found, expected, made, feed)


@pytest.mark.parametrize("reduction", list(FUNCTIONS))
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("axis", [0, 1])
def test_thousands_of_elements(core, way, kind, reduction, axis) -> None:
    """Of lines that indices do not all reach."""
    rng = np.random.default_rng(6)
    shape, taken = ((5, 41), (3, COUNT)) if axis else ((41, 5), (COUNT, 3))
    index = rng.integers(-41, 41, taken)
    x, updates = numbers(rng, kind, reduction, shape), numbers(rng, kind, reduction, taken)
    feed = {"x": x, "i": index, "u": updates}
    made = model(kind, reduction, shape, taken, taken, axis)
    found = answer(core, made, feed, f"scatter_elements_{way}")
    expected = x.astype(sums_of(kind))
    places = [*np.indices(taken)]
    places[axis] = index
    FUNCTIONS[reduction].at(expected, tuple(places), updates)
    compare(found, expected, made, feed)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_means_and_what_is_put_anew(core, way, keeps, kind) -> None:
    """Of thousands, as OpenVINO has them: whole means are rounded down."""
    rng = np.random.default_rng(7)
    x, updates = (rng.integers(-900, 900, shape).astype(kind) for shape in ((31, 4), (COUNT, 4)))
    index = rng.integers(0, 29, (COUNT, 4))
    for reduction in (Reduction.MEAN, Reduction.SUM):
        s = Sketch()
        ports = [
            s.input("x", *x.shape, kind=element_type(kind)),
            s.input("i", *index.shape, kind=ElementType.i64),
        ]
        ports += [
            s.input("u", *updates.shape, kind=element_type(kind)),
            s.const("axis", np.array(0)),
        ]
        op = ScatterElementsUpdate(reduction=reduction, use_init_val=keeps)
        network = s.network(y=s.add("y", op, *ports))
        executable = core.load_network(network, "GPU")
        assert f"runs by scatter_elements_{way}:" in executable.explain()
        (found,) = (
            executable.create_infer_request().infer({"x": x, "i": index, "u": updates}).values()
        )
        expected, count = x.astype(np.float64), np.full(x.shape, int(keeps))
        lanes = np.broadcast_to(np.arange(4), index.shape)
        expected[:29] *= keeps
        np.add.at(expected, (index, lanes), updates)
        np.add.at(count, (index, lanes), 1)
        if reduction is Reduction.MEAN:
            expected /= count.clip(1)
            expected = np.floor(expected) if kind is np.int32 else expected
        np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_indices_outside_are_left_out(core, way) -> None:
    """Nothing else can be said of them on a device, and nothing beyond the result is written."""
    rng = np.random.default_rng(8)
    index = rng.integers(-60, 60, (COUNT, 1))
    x, updates = np.zeros(53, np.float32), rng.normal(size=COUNT).astype(np.float32)
    made = model("f4", "add", x.shape, index.shape, updates.shape, None)
    feed = {"x": x, "i": index, "u": updates}
    found = answer(core, made, feed, f"scatter_nd_{way}")
    inside = (index[:, 0] >= -53) & (index[:, 0] < 53)
    np.add.at(x, index[inside, 0], updates[inside])
    np.testing.assert_array_equal(found, x)


def test_what_takes_many_updates(core, opencl) -> None:
    """Of its own accord: thousands are listed, and few are looked at by each element."""
    rng = np.random.default_rng(9)
    if target_of(opencl).is_throughput:
        pytest.skip("GPUs look at thousands")
    for count, kernel in ((COUNT, "scatter_nd_listed_in_turn"), (100, "scatter_ref")):
        index = rng.integers(0, 200, (count, 1))
        made = model("f4", "add", (200,), index.shape, (count,), None)
        x, updates = np.zeros(200, np.float32), np.ones(count, np.float32)
        found = answer(core, made, {"x": x, "i": index, "u": updates}, kernel)
        np.testing.assert_array_equal(found, np.bincount(index[:, 0], minlength=200))


def numbers(rng, kind: str, reduction: str, shape) -> np.ndarray:
    """Numbers whose products stay small; whole ones whose sums do not fit."""
    if reduction == "mul":
        return (1 - 2 * rng.integers(0, 2, shape)).astype(kind)
    if kind == "i4":
        return rng.integers(-(2**31), 2**31, shape).astype(kind)
    return rng.normal(size=shape).astype(kind)


def sums_of(kind: str) -> str:
    """Sums of halves are those of floats, which are rounded once."""
    return "f4" if kind == "f2" else kind


def answer(core, made: bytes, feed, kernel: str) -> np.ndarray:
    executable = core.load_network(core.read_network(made), "GPU")
    assert f"runs by {kernel}:" in executable.explain()
    request = executable.create_infer_request()
    (first,) = (each.copy() for each in request.infer(feed).values())
    (again,) = request.infer(feed).values()
    np.testing.assert_array_equal(again, first)
    return first


def compare(found: np.ndarray, expected: np.ndarray, made: bytes, feed) -> None:
    """To the last bit with updates one after the other; ONNX Runtime has no halves here."""
    np.testing.assert_array_equal(found, expected.astype(found.dtype))
    if found.dtype != np.float16:
        session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
        (theirs,) = session.run(None, feed)
        np.testing.assert_allclose(found, theirs, rtol=1e-5, atol=1e-4)


def element_type(kind: type) -> ElementType:
    return ElementType.of(kind)
