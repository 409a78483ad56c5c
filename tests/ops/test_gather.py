"""Gather, GatherElements, GatherND and GatherTree."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import InferenceError, ShapeError
from polydevice.interval import Interval
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.gather import Gather, GatherElements, GatherND, GatherTree
from polydevice.ops.io import Parameter, Result
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc, desc_of
from polydevice.testing.op_case import OpCase
from polydevice_cpu.implement import run
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(7)


def values(shape, dtype=np.float32):
    return RNG.integers(-100, 100, shape).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "indices", "axis", "batch"),
    [
        ((7,), (4,), 0, 0),
        ((7, 5), (), 1, 0),
        ((7, 5), (2, 3), 0, 0),
        ((7, 5, 3), (2, 1), -2, 0),
        ((2, 5, 3), (2, 4), 1, 1),
        ((2, 4, 5, 3), (2, 6), 2, 1),
        ((2, 4, 5, 3), (2, 4, 2, 2), 3, 2),
        ((2, 4, 5), (2, 4, 6), 2, -1),
        ((3,), (0,), 0, 0),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64])
def test_gather(device, shape, indices, axis, batch, dtype):
    size = shape[axis]
    index = RNG.integers(-size, size, indices).astype(np.int32)
    inputs = [values(shape, dtype), index, np.array(axis, np.int64)]
    op = Gather(batch_dims=batch)
    if 0 in indices:
        expected = np.take(inputs[0], index, axis)
        check(OpCase(op, inputs, [expected], constants={2}), device)
    else:
        check(openvino_case(op, *inputs, constants={2}), device)


@pytest.mark.parametrize("batch", [0, 1])
def test_gather_outside_the_axis_gives_zeros(device, batch):
    index = np.array([[3, 10, -20], [-5, 5, -6]], np.int32)
    x = values((2, 5, 3)) if batch else values((5, 3))
    op = Gather(batch_dims=batch)
    check(openvino_case(op, x, index, np.array(batch, np.int64), constants={2}), device)


def test_gather_of_opset7_does_not_count_from_the_end(device):
    op = Gather.from_ir({"batch_dims": "0"}, 7)
    index = np.array([1, -1], np.int32)
    inputs = [np.float32([5, 6, 7]), index, np.array(0, np.int64)]
    # OpenVINO's reference implementation does.
    check(openvino_case(op, *inputs, opset=7, constants={2}, reference=False), device)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_gather_elements_of_nothing(device, dtype):
    index = np.zeros((0, 3, 9), np.int64)
    case = OpCase(
        GatherElements(axis=0), [values((4, 5, 2), dtype), index], [np.zeros((0, 3, 9), dtype)]
    )
    check(case, device)


def test_gather_elements_beyond_other_axes_is_refused():
    """The sizes of a running loop are known only here."""
    x, index = values((2, 3)), np.zeros((2, 4), np.int64)
    with pytest.raises(InferenceError, match=r"indices \(2, 4\) reach beyond \(2, 3\) at axis 1"):
        run(GatherElements(axis=0), [x, index])


def test_gather_of_unknown_sizes():
    x = TensorDesc(ElementType.f32, Shape([None, 5, 3]))
    indices = TensorDesc(ElementType.i32, Shape([Dim(1, 4), 2]))
    (y,) = Gather().infer([x, indices, desc_of(np.array(1))])
    assert y.shape == Shape([None, Dim(1, 4), 2, 3])
    (y,) = Gather(batch_dims=1).infer([x, indices, desc_of(np.array(1))])
    assert y.shape == Shape([Dim(1, 4), 2, 3])


def test_gather_computes_with_partly_known_shapes():
    # shape → gather → shape: the way exporters write "the size of axis 1"
    from polydevice.ops.reshape import ShapeOf

    x = Node("x", Parameter(ElementType.f32, Shape([None, 5])))
    shape = Node("shape", ShapeOf(), [x.output])
    axis = constant("axis", np.array(0))
    taken = [
        Node(f"taken{i}", Gather(), [shape.output, constant(f"i{i}", i).output, axis.output])
        for i in (0, 1)
    ]
    network = Network(
        "n",
        [x],
        [Node(n.name + "r", Result(), [n.output]) for n in taken],
        evaluate=lambda op, inputs: list(run(op, inputs)),
    )
    network.infer()
    assert [n.output.desc.ints for n in taken] == [[Interval(0)], [5]]


def test_gather_refuses():
    x = TensorDesc(ElementType.f32, Shape([2, 5, 3]))
    indices = TensorDesc(ElementType.i32, Shape([4, 2]))
    with pytest.raises(ShapeError, match="batch_dims"):
        Gather(batch_dims=1).infer([x, indices, desc_of(np.array(1))])
    with pytest.raises(ShapeError, match="axis"):
        Gather().infer([x, indices, desc_of(np.array(3))])
    with pytest.raises(ShapeError, match="among"):
        Gather(batch_dims=1).infer([x, x.with_shape([2, 1]), desc_of(np.array(0))])


@pytest.mark.parametrize(
    ("shape", "indices", "axis"),
    [((5,), (3,), 0), ((5, 4), (2, 4), 0), ((5, 4), (5, 7), 1), ((3, 4, 5), (3, 2, 5), -2)],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_gather_elements(device, shape, indices, axis, dtype):
    size = shape[axis]
    index = RNG.integers(-size, size, indices).astype(np.int64)
    check(openvino_case(GatherElements(axis=axis), values(shape, dtype), index), device)


@pytest.mark.parametrize(
    ("shape", "indices", "batch"),
    [
        ((4, 5), (3, 1), 0),
        ((4, 5), (3, 2), 0),
        ((4, 5, 6), (2, 3, 2), 0),
        ((2, 5, 6), (2, 3, 1), 1),
        ((2, 5, 6), (2, 2), 1),
        ((2, 3, 5, 6), (2, 3, 4, 2), 2),
        ((2, 3, 5, 6), (2, 3, 1), 2),
        ((1, 5, 6), (1, 3, 1), 1),
        ((1, 1, 5, 6), (1, 1, 4, 2), 2),
    ],
)
@pytest.mark.parametrize("opset", [5, 8])
def test_gather_nd(device, shape, indices, batch, opset):
    limits = np.array(shape[batch : batch + indices[-1]])
    index = (RNG.integers(0, 1000, indices) % limits).astype(np.int32)
    op = GatherND.from_ir({"batch_dims": str(batch)}, opset)
    check(openvino_case(op, values(shape), index, opset=opset), device)


@pytest.mark.parametrize("shape", [(2, 3, 0), (2, 3, 0, 4)])
def test_gather_nd_of_rows_without_elements(shape):
    (y,) = run(GatherND(), [np.zeros(shape, np.float32), np.array([[0, 1], [1, 2], [1, 0]])])
    assert y.shape == (3, *shape[2:])


@pytest.mark.parametrize("op", [GatherElements(axis=0), GatherND()])
def test_an_index_outside_is_refused(op):
    for bad in (5, -6):
        with pytest.raises(InferenceError, match=rf"index {bad} is outside \[-5, 5\)"):
            run(op, [values((5, 1)), np.array([[bad]])])


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_gather_tree(device, kind):
    steps, batch, beams = 6, 3, 4
    ids = RNG.integers(1, 12, (steps, batch, beams)).astype(kind)
    parents = RNG.integers(0, beams, (steps, batch, beams)).astype(kind)
    lengths = np.array([6, 4, 1], kind)
    check(openvino_case(GatherTree(), ids, parents, lengths, np.array(3, kind)), device)
