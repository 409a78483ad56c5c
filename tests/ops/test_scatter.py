"""ScatterUpdate, ScatterElementsUpdate and ScatterNDUpdate."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, InferenceError, ShapeError
from polydevice.ops.scatter import (
    Reduction,
    ScatterElementsUpdate,
    ScatterNDUpdate,
    ScatterUpdate,
)
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc, desc_of
from polydevice.testing.op_case import OpCase
from polydevice_cpu.implement import run
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(8)


def values(shape, dtype=np.float32):
    return RNG.integers(-9, 9, shape).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "index", "axis"),
    [((5, 4), [1, 3], 0), ((5, 4), [[0, 2], [1, 3]], 1), ((3, 4, 5), [4], -1)],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int64])
def test_scatter_update(device, shape, index, axis, dtype):
    index = np.array(index, np.int64)
    at = axis % len(shape)
    updates = values((*shape[:at], *index.shape, *shape[at + 1 :]), dtype)
    inputs = [values(shape, dtype), index, updates, np.array(axis, np.int64)]
    check(openvino_case(ScatterUpdate(), *inputs, constants={3}), device)


@pytest.mark.parametrize("reduction", [r for r in Reduction if r is not Reduction.SUB])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize(("shape", "taken", "axis"), [((5, 4), (3, 4), 0), ((4, 6), (2, 5), -1)])
def test_scatter_elements_update(device, reduction, keep, dtype, shape, taken, axis):
    size = shape[axis]
    index = RNG.integers(-size, size, taken)
    if reduction is Reduction.NONE:  # which of two updates stays is not defined
        index = RNG.permuted(np.arange(size).repeat(64).reshape(size, 64), axis=0)
        index = index[: taken[0], : taken[1]] if axis == 0 else index.T[: taken[0], : taken[1]]
    op = ScatterElementsUpdate(reduction=reduction, use_init_val=keep)
    inputs = [values(shape, dtype), index.astype(np.int64), values(taken, dtype), np.array(axis)]
    # OpenVINO's CPU plugin truncates an integer mean; its reference rounds down
    reference = reduction is Reduction.MEAN and dtype is np.int32
    check(openvino_case(op, *inputs, constants={3}, reference=reference), device)


@pytest.mark.parametrize("reduction", [r for r in Reduction if r is not Reduction.MEAN])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize(
    ("shape", "index"),
    [((6, 4), [[0], [3]]), ((6, 4), [[0, 1], [5, -1], [2, 2]]), ((3, 4, 5), [[[2, 1]], [[0, 0]]])],
)
def test_scatter_nd_update(device, reduction, dtype, shape, index):
    index = np.array(index, np.int64)
    updates = values((*index.shape[:-1], *shape[index.shape[-1] :]), dtype)
    op = ScatterNDUpdate(reduction=reduction)
    check(openvino_case(op, values(shape, dtype), index, updates), device)


def test_updates_of_one_element_are_added_up(device):
    x, index = np.float32([1, 2, 3]), np.array([[1], [1], [-1]])
    op = ScatterNDUpdate(reduction=Reduction.SUM)
    check(OpCase(op, [x, index, np.float32([10, 20, 5])], [np.float32([1, 32, 8])]), device)


def test_the_oldest_version_has_no_reduction():
    assert ScatterNDUpdate.from_ir({"reduction": "sum"}, 4).reduction is Reduction.NONE
    assert ScatterElementsUpdate.from_ir({"reduction": "sum"}, 12).reduction is Reduction.SUM


def test_scatter_refuses():
    x = TensorDesc(ElementType.f32, Shape([5, 4]))
    index = desc_of(np.array([1, 2]))
    axis = desc_of(np.array(0))
    with pytest.raises(ShapeError, match="updates of shape"):
        ScatterUpdate().infer([x, index, x.with_shape([3, 4]), axis])
    with pytest.raises(ElementTypeError):
        ScatterUpdate().infer([x, index, TensorDesc(ElementType.i32, Shape([2, 4])), axis])
    with pytest.raises(ShapeError, match="rank"):
        ScatterElementsUpdate().infer([x, index, x.with_shape([2]), axis])
    with pytest.raises(ShapeError, match="coordinates"):
        ScatterNDUpdate().infer([x, desc_of(np.array([[0, 0, 0]])), x.with_shape([1])])
    with pytest.raises(InferenceError, match="index 5"):
        run(ScatterUpdate(), [values((5, 4)), np.array([5]), values((1, 4)), np.array(0)])


def test_scatter_update_counts_from_the_end(device):
    # OpenVINO's CPU plugin reads out of bounds here
    inputs = [np.float32([1, 2, 3]), np.array([-1]), np.float32([9]), np.array(0)]
    check(OpCase(ScatterUpdate(), inputs, [np.float32([1, 2, 9])], constants={3}), device)


def test_scatter_update_at_one_index_without_axes(device):
    inputs = [np.float32([1, 2, 3]), np.array(1), np.float32(9), np.array(0)]
    check(OpCase(ScatterUpdate(), inputs, [np.float32([1, 9, 3])], constants={3}), device)


@pytest.mark.parametrize("reduction", [Reduction.SUM, Reduction.PROD, Reduction.MIN, Reduction.MAX])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_same_index_for_whole_rows(device, reduction, axis):
    """As networks on graphs add up what edges bring; some rows come twice, some not at all."""
    index = np.expand_dims(RNG.integers(-6, 6, 11), 1 - axis).repeat(3, 1 - axis)
    x, updates = values((6, 6)), values(index.shape)
    op = ScatterElementsUpdate(reduction=reduction)
    check(openvino_case(op, x, index, updates, np.array(axis), constants={3}), device)


@pytest.mark.parametrize("reduction", list(Reduction)[:6])
@pytest.mark.parametrize("row", [(), (5,), (4, 4), (3, 17)], ids=str)
@pytest.mark.parametrize("coordinates", [1, 2, 3])
def test_rows_of_any_width_by_several_coordinates(reduction, row, coordinates):
    """One update after the other by hand; as many as come to some places twice."""
    outer = (5, 3, 2)[:coordinates]
    x, updates = values((*outer, *row)), values((30, *row))
    index = np.stack([RNG.integers(-n, n, 30) for n in outer], -1)
    functions = {
        Reduction.NONE: lambda _, new: new,
        Reduction.SUM: np.add,
        Reduction.SUB: np.subtract,
        Reduction.PROD: np.multiply,
        Reduction.MIN: np.minimum,
        Reduction.MAX: np.maximum,
    }
    expected = x.astype(np.float64)
    for place, update in zip(index, updates, strict=True):
        at = tuple(place)
        expected[at] = functions[reduction](expected[at], update.astype(np.float64))
    (found,) = run(ScatterNDUpdate(reduction=reduction), [x, index, updates])
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    places = np.ravel_multi_index(tuple(np.moveaxis(index % outer, -1, 0)), outer)
    taken = np.broadcast_to(places.reshape(-1, *[1] * len(row)), (30, *row)).copy()
    inputs = [x.reshape(-1, *row), taken, updates, np.array(0)]
    (found,) = run(ScatterElementsUpdate(reduction=reduction), inputs)
    np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=1e-4)
    if row == (3, 17):  # the same index but for one element of a row
        taken[7, 1, 5] = (taken[7, 1, 5] + 1) % len(inputs[0])
        (found,) = run(ScatterElementsUpdate(reduction=reduction), inputs)
        column = ScatterElementsUpdate(reduction=reduction)
        one = [each[:, 1:2, 5:6] for each in inputs[:3]]
        (alone,) = run(column, [*one, np.array(0)])
        np.testing.assert_allclose(found[:, 1:2, 5:6], alone, rtol=1e-4)


@pytest.mark.parametrize("rank", [1, 2])
def test_strings_take_the_places_of_others(rank):
    x = np.array(["a", "b", "c", "d"], object).reshape((4,) if rank == 1 else (2, 2))
    index = np.array([[3], [0]] if rank == 1 else [[1, 1], [0, 0]])
    (y,) = run(ScatterNDUpdate(), [x, index, np.array(["last", "first"], object)])
    assert y.reshape(-1).tolist() == ["first", "b", "c", "last"]
    assert x.reshape(-1).tolist() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint64])
def test_numbers_of_one_axis(kind):
    x, index = values(9), np.array([7, 0, 3], kind)
    right = x.copy()
    right[[7, 0, 3]] = [1, 2, 3]
    updates = np.float32([1, 2, 3])
    (found,) = run(ScatterElementsUpdate(), [x, index, updates, np.array(0)])
    np.testing.assert_array_equal(found, right)
    (found,) = run(ScatterNDUpdate(), [x, index[:, None], updates])
    np.testing.assert_array_equal(found, right)
    if kind is not np.uint64:
        (found,) = run(ScatterElementsUpdate(), [x, index - 9, updates, np.array(-1)])
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("bad", [5, -6])
def test_indices_of_one_axis_outside_are_refused(bad):
    x, index = values(5), np.array([1, bad])
    for op, inputs in (
        (ScatterElementsUpdate(), [index, values(2), np.array(0)]),
        (ScatterNDUpdate(), [index[:, None], values(2)]),
    ):
        before = x.copy()
        with pytest.raises(InferenceError, match=rf"index {bad} is outside \[-5, 5\)"):
            run(op, [x, *inputs])
        np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("coordinates", [1, 2])
@pytest.mark.parametrize("reduction", [Reduction.NONE, Reduction.SUM])
def test_no_updates_leave_a_copy(reduction, coordinates):
    x, index = values((3, 4, 5)), np.empty((0, coordinates), np.int64)
    given = x.copy()
    (y,) = run(
        ScatterNDUpdate(reduction=reduction),
        [x, index, np.empty((0, *x.shape[coordinates:]), np.float32)],
    )
    np.testing.assert_array_equal(y, given)
    assert not np.may_share_memory(y, x)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("shape", [(300, 3), (7, 5, 4)])
def test_many_slices(device, dtype, shape):
    """The last update of a slice stays, on every device that says so."""
    index = RNG.integers(-shape[0], shape[0], 400)
    updates, expected = values((400, *shape[1:]), dtype), values(shape, dtype)
    inputs = [expected.copy(), index, updates, np.array(0)]
    for at, update in zip(index, updates, strict=True):
        expected[at] = update
    check(OpCase(ScatterUpdate(), inputs, [expected], constants={3}), device)


@pytest.mark.parametrize(
    ("shape", "taken", "axis"), [((200, 4), (150, 3), 0), ((3, 260), (2, 250), 1)]
)
def test_many_elements_of_a_line(device, shape, taken, axis):
    size = shape[axis]
    index = RNG.integers(-size, size, taken)
    updates, expected = values(taken), values(shape)
    inputs = [expected.copy(), index, updates, np.array(axis)]
    for place in np.ndindex(taken):
        to = list(place)
        to[axis] = index[place]
        expected[tuple(to)] = updates[place]
    check(OpCase(ScatterElementsUpdate(), inputs, [expected], constants={3}), device)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize(
    ("shape", "depth"), [((12, 15), 2), ((9, 40, 3), 2), ((300,), 1), ((4, 5, 6), 3)]
)
def test_many_tuples(device, dtype, shape, depth):
    """Several in one place, and from the end."""
    index = np.stack([RNG.integers(-n, n, (20, 10)) for n in shape[:depth]], -1)
    updates, expected = values((20, 10, *shape[depth:]), dtype), values(shape, dtype)
    inputs = [expected.copy(), index, updates]
    for place in np.ndindex(20, 10):
        expected[tuple(index[place])] = updates[place]
    check(OpCase(ScatterNDUpdate(), inputs, [expected]), device)
