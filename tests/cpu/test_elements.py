"""Elements taken along an axis and running sums by machine code; NumPy and ONNX Runtime judge."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.errors import InferenceError
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.indexed.elements import KINDS, summing, taking
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


def run(told, *arrays):
    return Code.of([told]).bound([address_of(array) for array in arrays])()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("seed", range(40))
def test_elements_are_those_of_numpy(seed, side):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 9, rng.integers(1, 5)))
    axis, count = int(rng.integers(0, len(shape))), int(rng.integers(1, 7))
    x = (rng.standard_normal(shape) * 100).astype(rng.choice(["u1", "i2", "f4", "f8", "i8"]))
    sizes = [*shape]
    sizes[axis] = count
    index = rng.integers(-shape[axis], shape[axis], sizes).astype(rng.choice(["i4", "i8"]))
    told = taking(shape, axis, count, (x.itemsize, index.itemsize))
    x, index, y = kept(side, x), kept(side, index), kept(side, np.zeros(sizes, x.dtype))
    assert run(told, x, index, y) == 0
    right = np.take_along_axis(x, index.astype(np.int64) % shape[axis], axis)
    np.testing.assert_array_equal(y, right)
    for bad in (shape[axis], -shape[axis] - 1):
        index.flat[rng.integers(0, index.size)] = bad
        assert run(told, x, index, y) & 0xFFFFFFFF == 1


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "i4", "u4", "i8", "u8"])
def test_sums_are_those_of_numpy_to_the_bit(dtype, exclusive, reverse, side):
    rng = np.random.default_rng(len(dtype) + 2 * exclusive + reverse)
    for _ in range(20):
        shape = tuple(int(n) for n in rng.integers(1, 40, rng.integers(1, 4)))
        axis = int(rng.integers(0, len(shape)))
        numbers = rng.standard_normal(shape) * (1e4 if dtype == "f4" else 2**31)
        x = kept(side, numbers.astype(np.int64).astype(dtype) if dtype != "f4" else
                 numbers.astype(dtype))  # fmt: skip
        y = kept(side, np.zeros(shape, dtype))
        kind = KINDS[x.dtype.kind][x.itemsize]
        assert run(summing(shape, axis, kind, exclusive=exclusive, reverse=reverse), x, y) == 0
        turned = np.flip(x, axis) if reverse else x
        right = np.add.accumulate(turned, axis, dtype=dtype)
        if exclusive:
            right = np.roll(right, 1, axis)
            np.moveaxis(right, axis, 0)[0] = 0
        np.testing.assert_array_equal(y, np.flip(right, axis) if reverse else right)


def model(kind, shape, other, **attributes):
    """y = kind(x + 1, other), of which 1 is added again; `other` is an axis or a shape."""
    is_sum = kind == "CumSum"
    fed = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    stored = [numpy_helper.from_array(np.float32(1), "one")]
    if is_sum:
        stored.append(numpy_helper.from_array(np.array(other), "other"))
    else:
        fed.append(helper.make_tensor_value_info("other", TensorProto.INT64, other))
    nodes = [
        helper.make_node("Add", ["x", "one"], ["a"]),
        helper.make_node(kind, ["a", "other"], ["b"], **attributes),
        helper.make_node("Add", ["b", "one"], ["y"]),
    ]
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", fed, [made], stored)
    imports = [helper.make_opsetid("", 14)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_networks_take_elements_of_any_size(core, axis):
    rng, made = np.random.default_rng(axis + 5), model("GatherElements", ["a", "b", "c"], [
        "d", "e", "f"], axis=axis)  # fmt: skip
    network = load(core, made)
    request = network.create_infer_request()
    for _ in range(6):
        shape = rng.integers(1, 12, 3)
        taken = shape.copy()
        taken[axis] = rng.integers(1, 9)
        inputs = {
            "x": rng.standard_normal(shape).astype(np.float32),
            "other": rng.integers(-shape[axis], shape[axis], taken),
        }
        (found,) = request.infer(inputs).values()
        np.testing.assert_array_equal(found, answer(made, inputs)[0])
        assert "GatherElements" in by_machine_code(network)


def test_a_bad_index_is_named_and_nothing_stays_wrong(core):
    made = model("GatherElements", [2, 5], [2, 3], axis=1)
    request = load(core, made).create_infer_request()
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    good = {"x": x, "other": np.array([[0, -1, 2], [4, 4, -5]])}
    bad = {"x": x, "other": np.array([[0, -1, 2], [4, 5, -5]])}
    for _ in range(2):
        (found,) = request.infer(good).values()
        np.testing.assert_array_equal(found, [[2, 6, 4], [11, 11, 7]])
        with pytest.raises(InferenceError, match=r"index 5 is outside \[-5, 5\)"):
            request.infer(bad)


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("axis", [0, 2, -2])
def test_networks_sum_any_size(core, axis, exclusive, reverse):
    made = model("CumSum", ["a", "b", "c"], axis, exclusive=exclusive, reverse=reverse)
    network, rng = load(core, made), np.random.default_rng(3)
    request = network.create_infer_request()
    for _ in range(5):
        x = {"x": rng.standard_normal(rng.integers(1, 30, 3)).astype(np.float32)}
        (found,) = request.infer(x).values()
        np.testing.assert_allclose(found, answer(made, x)[0], rtol=1e-5, atol=1e-5)
        assert "CumSum" in by_machine_code(network)
    nothing = {"x": np.zeros((0, 3, 2), np.float32)}
    assert request.infer(nothing)["y"].shape == (0, 3, 2)
