"""StridedSlice, Slice and SliceScatter."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.slice import Slice, SliceScatter, StridedSlice, sliced_size
from polydevice.shape import Dim, Shape, bounds
from polydevice.tensor import TensorDesc, desc_of
from polydevice.testing.op_case import OpCase
from polydevice_cpu.implement import run
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(5)
FAR = 2**31 - 1


def ints(values) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("shape", "begin", "end", "strides", "masks"),
    [
        ((7,), (1,), (6,), (2,), {}),
        ((7,), (-2,), (-7,), (-2,), {}),
        ((4, 5, 6), (1, 0), (3, 0), (1, 1), {"end_mask": (0, 1)}),
        ((4, 5, 6), (1, 2), (0, 3), (1, 1), {"shrink_axis_mask": (1, 0)}),
        (
            (4, 5, 6),
            (0, -1),
            (0, 0),
            (1, 1),
            {"begin_mask": (1, 0), "end_mask": (1, 0), "shrink_axis_mask": (0, 1)},
        ),
        (
            (4, 5, 6),
            (0, 0, 1),
            (0, 0, 3),
            (1, 1, 1),
            {"ellipsis_mask": (1, 0, 0), "new_axis_mask": (0, 1, 0)},
        ),
        (
            (4, 5, 6),
            (0, 1, 0),
            (9, 4, 0),
            (1, 1, 1),
            {"new_axis_mask": (1, 0, 1), "begin_mask": (0, 0, 0), "end_mask": (0, 0, 0)},
        ),
        ((4, 5), (0, 0), (FAR, FAR), (1, 3), {}),
        ((4, 5), (FAR, 3), (-FAR, 0), (-1, -1), {}),
        ((4, 5), (0, 0), (0, 0), (-1, -2), {"begin_mask": (1, 1), "end_mask": (1, 1)}),
        ((2, 3, 4, 5), (0, 1), (0, 2), (1, 1), {"ellipsis_mask": (1, 0)}),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8])
def test_strided_slice(device, shape, begin, end, strides, masks, dtype):
    x = RNG.integers(0, 100, shape).astype(dtype)
    zeros = (0,) * len(begin)
    masks = {"begin_mask": zeros, "end_mask": zeros, **masks}
    op = StridedSlice(**masks)
    inputs = [x, ints(begin), ints(end), ints(strides)]
    check(openvino_case(op, *inputs, constants={1, 2, 3}), device)


def test_strided_slice_without_strides(device):
    x = RNG.standard_normal((5, 3)).astype(np.float32)
    op = StridedSlice(begin_mask=(0,), end_mask=(0,))
    check(OpCase(op, [x, ints([1]), ints([4])], [x[1:4]], constants={1, 2}), device)


@pytest.mark.parametrize(
    ("shape", "start", "stop", "step", "axes"),
    [
        ((7, 5), (1,), (6,), (2,), (0,)),
        ((7, 5), (-1, 0), (-9, FAR), (-1, 3), (0, -1)),
        ((7, 5, 4), (2, 9), (-2, -9), (1, -2), (2, 0)),
        ((7, 5), (1, 1), (3, 2), (1, 1), None),
        ((7, 5), (3,), (3,), (1,), (0,)),
        ((4,), (-100,), (100,), (3,), (0,)),
        ((4,), (100,), (-100,), (-3,), (0,)),
        ((4, 4), (0,), (2**63 - 1,), (1,), (1,)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_slice(device, shape, start, stop, step, axes, dtype):
    x = RNG.integers(0, 100, shape).astype(dtype)
    inputs = [x, ints(start), ints(stop), ints(step)] + ([] if axes is None else [ints(axes)])
    check(openvino_case(Slice(), *inputs, constants={1, 2, 3, 4}), device)


ENDS = [-FAR - 1, -7, -6, -5, -4, -1, 0, 1, 4, 5, 6, FAR]
WIDE = [-(2**63), -(2**63) + 1, -(2**31) - 1, *ENDS, 2**31, 2**63 - 1]


def corners(size, ends, steps):
    return [(size, *limits) for limits in itertools.product(ends, ends, steps)]


def onnx_rule(size, start, stop, step):
    """ONNX's text: limits count from the end, then are clamped by the step's direction."""
    start, stop = (limit + size if limit < 0 else limit for limit in (start, stop))
    if step > 0:
        start, stop = min(max(start, 0), size), min(max(stop, 0), size)
    else:
        start, stop = min(max(start, 0), size - 1), min(max(stop, -1), size - 1)
    return list(range(start, stop, step)) if size else []


def test_slices_beyond_the_ends_by_the_specification():
    """Every combination, also of limits and steps as far as 64 bits reach."""
    steps = [1, 2, 5, FAR, 2**63 - 1, -1, -2, -5, -FAR - 1, -(2**63)]
    for size in (0, 1, 5):
        x = np.arange(size, dtype=np.int32)
        for _, *limits in corners(size, WIDE, steps):
            wanted = onnx_rule(size, *limits)
            lists = [ints([limit]) for limit in limits]
            for op in (Slice(), StridedSlice(begin_mask=(0,), end_mask=(0,))):
                assert run(op, [x, *lists])[0].tolist() == wanted, (op, size, limits)
                (desc,) = op.infer([desc_of(x), *map(desc_of, lists)])
                assert desc.shape == Shape([len(wanted)]), (op, size, limits)


def test_the_specification_is_what_onnx_runtime_does():
    runtime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto
    names = ["x", "start", "stop", "axes", "step"]
    inputs = [helper.make_tensor_value_info(n, kind.INT64, [None]) for n in names]
    graph = helper.make_graph(
        [helper.make_node("Slice", names, ["y"])], "slice", inputs,
        [helper.make_tensor_value_info("y", kind.INT64, [None])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9)
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for size, start, stop, step in [
        *corners(5, WIDE, [1, 2, 5, -1, -2, -5]), *corners(1, WIDE, [1, -1])
    ]:  # fmt: skip
        if step < 0 and stop in (FAR, 2**63 - 1):
            continue  # there it means "to the beginning" although the text says otherwise
        given = {"x": np.arange(size), "axes": ints([0])}
        given |= {"start": ints([start]), "stop": ints([stop]), "step": ints([step])}
        (y,) = session.run(None, given)
        assert y.tolist() == onnx_rule(size, start, stop, step), (size, start, stop, step)


def test_the_specification_is_what_openvino_does():
    openvino = pytest.importorskip("openvino")
    ops = openvino.opset8
    masks = {"begin_mask": [0], "end_mask": [0]}
    for step in (1, 2, -1, -2, -5):
        # All in one network: 144 slices of each kind.
        x = ops.parameter([5], np.int32)
        limits = list(itertools.product(ENDS, ENDS))
        outputs = []
        for start, stop in limits:
            lists = [ops.constant(ints([v])) for v in (start, stop, step)]
            outputs.append(ops.slice(x, *lists))
            outputs.append(ops.strided_slice(x, *lists, **masks))
        results = [openvino.Tensor(openvino.Type.i32, openvino.Shape()) for _ in outputs]
        given = openvino.Tensor(np.arange(5, dtype=np.int32))
        assert openvino.Model(outputs, [x]).evaluate(results, [given])
        for i, (start, stop) in enumerate(limits):
            wanted = onnx_rule(5, start, stop, step)
            for kind in (0, 1):
                found = results[2 * i + kind].data.tolist()
                assert found == wanted, (kind, start, stop, step)


@pytest.mark.parametrize("op", [Slice(), StridedSlice(begin_mask=(0, 0), end_mask=(0, 0))])
@pytest.mark.parametrize("start", [-FAR - 1, -6, 4, FAR])
@pytest.mark.parametrize("stop", [-FAR - 1, -6, 0, FAR])
@pytest.mark.parametrize("step", [-1, -5, -FAR - 1, FAR])
def test_slices_beyond_the_ends(device, op, start, stop, step):
    x = RNG.standard_normal((5, 3)).astype(np.float32)
    columns = slice(1, None, 1)
    expected = x[onnx_rule(5, start, stop, step)][:, columns]
    inputs = [x, ints([start, 1]), ints([stop, FAR]), ints([step, 1])]
    check(OpCase(op, inputs, [expected], constants={1, 2, 3}), device)


def test_an_element_outside_the_axis_is_refused():
    op = StridedSlice(begin_mask=(0,), end_mask=(0,), shrink_axis_mask=(1,))
    for element in (5, -6, FAR):
        with pytest.raises(ShapeError, match="which has 5"):
            op.infer([desc_of(np.zeros(5)), *[desc_of(ints([v])) for v in (element, 0, 1)]])
    for element in (4, -5):
        op.infer([desc_of(np.zeros(5)), *[desc_of(ints([v])) for v in (element, 0, 1)]])


def taken(index, size):
    """The number of elements by ONNX's rule, where a limit may be left out."""
    if index.start is not None and index.stop is not None:
        return len(onnx_rule(size, index.start, index.stop, index.step))
    if index.step < 0 and index.start is not None and index.start < -size:
        return min(size, 1)
    return len(range(*index.indices(size)))


def test_size_of_a_slice_of_unknown_size():
    # For every range: the bounds must hold for each size, and be reached for whole axes.
    values = [None, -4, -1, 0, 2, 5, FAR, -FAR - 2]
    for start, stop, step in itertools.product(values, values, [1, 2, -1, -3]):
        index = slice(start, stop, step)
        for size in (Dim(2, 6), Dim(0, None), Dim(3, None)):
            low, high = bounds(sliced_size(size, index))
            for n in range(size.min, (size.max or 20) + 1):
                length = taken(index, n)
                assert low <= length, (index, size)
                assert high is None or length <= high, (index, size)
    assert sliced_size(Dim(2, 6), slice(0, FAR, 1)) == Dim(2, 6)
    assert sliced_size(Dim(2, None), slice(1, -1, 1)) == Dim(0, None)
    assert sliced_size(Dim(4, None), slice(0, 3, 1)) == 3


def test_slice_with_unknown_limits():
    x = TensorDesc(ElementType.f32, Shape([8, 3]))
    start = TensorDesc(ElementType.i64, Shape([1]))
    (y,) = Slice().infer([x, start, start, desc_of(ints([1])), desc_of(ints([0]))])
    assert y.shape == Shape([Dim(0, 8), 3])
    (y,) = StridedSlice().infer([x, desc_of(ints([0])), start])
    assert y.shape == Shape([Dim(0, 8), 3])


def test_slice_refuses():
    x = TensorDesc(ElementType.f32, Shape([8, 3]))
    one, two = desc_of(ints([1])), desc_of(ints([1, 1]))
    with pytest.raises(ShapeError, match="step 0"):
        Slice().infer([x, one, one, desc_of(ints([0])), one])
    with pytest.raises(ShapeError, match="same number"):
        Slice().infer([x, one, two, one, one])
    with pytest.raises(ShapeError, match="twice"):
        Slice().infer([x, two, two, two, desc_of(ints([0, -2]))])
    with pytest.raises(ShapeError, match="more than"):
        StridedSlice().infer([x, *[desc_of(ints([0, 0, 0]))] * 2])
    with pytest.raises(ShapeError, match="stride 0"):
        StridedSlice().infer([x, one, one, desc_of(ints([0]))])


@pytest.mark.parametrize(
    ("shape", "start", "stop", "step", "axes"),
    [
        ((5, 4), (1,), (4,), (2,), (0,)),
        ((5, 4), (-1, 3), (0, 0), (-2, -1), (0, 1)),
        ((3, 4), (0, 1), (2, 3), (1, 1), None),
    ],
)
def test_slice_scatter(device, shape, start, stop, step, axes):
    x = RNG.standard_normal(shape).astype(np.float32)
    index = [slice(None)] * len(shape)
    for axis, limits in zip(
        axes or range(len(start)), zip(start, stop, step, strict=True), strict=True
    ):
        index[axis] = slice(*limits)
    updates = RNG.standard_normal(x[tuple(index)].shape).astype(np.float32)
    inputs = [x, updates, ints(start), ints(stop), ints(step)]
    inputs += [] if axes is None else [ints(axes)]
    check(openvino_case(SliceScatter(), *inputs, constants={2, 3, 4, 5}), device)


@pytest.mark.parametrize(
    ("op", "before"),
    [
        (Slice(), 1),
        (SliceScatter(), 2),
        (StridedSlice(begin_mask=(0,), end_mask=(0,)), 1),
    ],
)
def test_limits_that_are_no_integers_are_refused(op, before):
    inputs = [np.zeros(4, np.float32), np.zeros(1, np.float32)][:before]
    limits = [ints([value]) for value in (1, 2, 1)]
    op.check_inputs([desc_of(array) for array in inputs + limits])
    for place in range(3):
        given = [each.astype(np.float32) if n == place else each for n, each in enumerate(limits)]
        with pytest.raises(ElementTypeError, match="takes integers there"):
            op.check_inputs([desc_of(array) for array in inputs + given])


def test_slices_along_several_axes():
    """Python's rules, but going backwards from before the axis begins with its first element."""
    rng = np.random.default_rng(11)
    far = [-(2**63), -FAR, FAR, 2**63 - 1]
    for _ in range(400):
        rank = int(rng.integers(1, 4))
        shape = rng.integers(0, 5, rank)
        x = rng.integers(0, 99, shape)
        count = int(rng.integers(1, rank + 1))
        axes = rng.permutation(rank)[:count] - rank * rng.integers(0, 2, count)
        starts, stops = ([int(n) for n in rng.integers(-7, 8, count)] for _ in range(2))
        if rng.random() < 0.4:
            stops[0] = int(rng.choice(far))
        steps = [int(n) for n in rng.choice([1, 1, 2, 3, -1, -2, 2**40, -(2**40)], count)]
        right = x
        for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
            size = x.shape[axis]
            start = max(start, -size) if step < 0 else start
            places = np.array(range(size)[slice(start, stop, step)], np.int64)
            right = np.take(right, places, axis)
        (found,) = run(Slice(), [x, ints(starts), ints(stops), ints(steps), ints(axes)])
        np.testing.assert_array_equal(found, right)
