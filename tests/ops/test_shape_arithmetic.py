"""Shapes computed by operations: what exporters write stays known although some sizes are not."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.interval import Interval
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.arithmetic import Multiply
from polydevice.ops.broadcast import Broadcast, Tile
from polydevice.ops.concat import Concat
from polydevice.ops.gather import Gather
from polydevice.ops.generate import Range
from polydevice.ops.io import Parameter, Result
from polydevice.ops.op import Op
from polydevice.ops.reshape import Reshape, ShapeOf, Squeeze, Unsqueeze
from polydevice.ops.reverse import Reverse
from polydevice.ops.scatter import ScatterUpdate
from polydevice.ops.slice import Slice, StridedSlice
from polydevice.ops.split import Split, VariadicSplit
from polydevice.ops.transpose import Transpose
from polydevice.shape import Dim, Shape
from polydevice_cpu.implement import evaluate

SIZE = Dim(1, 8)
N = Interval(1, 8)


class Chain:
    """A network x [N, 3, 4, 5] → shape → what a test emits."""

    def __init__(self) -> None:
        self.x = Node("x", Parameter(ElementType.f32, Shape([SIZE, 3, 4, 5])))
        self.nodes: list[Node] = []
        self.shape = self.emit(ShapeOf(), self.x.output)

    def emit(self, op: Op, *inputs) -> Port:
        ports = [
            i if isinstance(i, Port) else constant(f"c{len(self.nodes)}_{k}", i).output
            for k, i in enumerate(inputs)
        ]
        self.nodes.append(Node(f"n{len(self.nodes)}", op, ports))
        return self.nodes[-1].outputs[0]

    def infer(self) -> None:
        results = [
            Node(f"r{n.name}{p.index}", Result(), [p]) for n in self.nodes for p in n.outputs
        ]
        Network("chain", [self.x], results, evaluate=evaluate).infer()


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("op", "others", "expected"),
    [
        (Slice(), (ints(0), ints(2), ints(1), ints(0)), [N, 3]),
        (Slice(), (ints(-1), ints(-9), ints(-2), ints(0)), [5, 3]),
        (StridedSlice(begin_mask=(0,), end_mask=(0,)), (ints(1), ints(3), ints(1)), [3, 4]),
        (StridedSlice(shrink_axis_mask=(1,)), (ints(0), ints(1), ints(1)), [N]),
        (Gather(), (ints(3, 0), 0), [5, N]),
        (Gather(), (np.array(-2), 0), [4]),
        (Reshape(special_zero=False), (ints(2, -1),), [N, 3, 4, 5]),
        (Unsqueeze(), (ints(0),), [N, 3, 4, 5]),
        (Reverse(), (ints(0),), [5, 4, 3, N]),
        (Transpose(), (ints(0),), [N, 3, 4, 5]),
        (Tile(), (ints(2),), [N, 3, 4, 5, N, 3, 4, 5]),
        (Broadcast(), (ints(1, 4),), [N, 3, 4, 5]),
        (Concat(axis=0), (ints(7),), [N, 3, 4, 5, 7]),
        (Multiply(), (ints(2, 2, 1, 1),), [Interval(2, 16), 6, 4, 5]),
        (ScatterUpdate(), (ints(0), ints(9), 0), [9, 3, 4, 5]),
    ],
)
def test_what_is_computed_from_a_shape(op, others, expected):
    chain = Chain()
    y = chain.emit(op, chain.shape, *others)
    chain.infer()
    assert y.desc.ints == expected
    # sizes that are all known count as a constant again
    assert (y.desc.constant is None) == any(isinstance(n, Interval) for n in expected)


def test_parts_of_a_shape():
    chain = Chain()
    chain.emit(Split(num_splits=2), chain.shape, 0)
    chain.emit(VariadicSplit(), chain.shape, 0, ints(1, -1))
    chain.infer()
    found = [port.desc.ints for node in chain.nodes[1:] for port in node.outputs]
    assert found == [[N, 3], [4, 5], [N], [3, 4, 5]]


def test_flattening_all_but_the_batch():
    chain = Chain()
    batch = chain.emit(Gather(), chain.shape, 0, 0)
    column = chain.emit(Unsqueeze(), batch, ints(0))
    target = chain.emit(Concat(axis=0), column, ints(-1))
    y = chain.emit(Reshape(special_zero=False), chain.x.output, target)
    chain.infer()
    assert target.desc.ints == [N, -1]
    assert y.shape is not None
    assert y.shape[0] == SIZE


def test_positions_as_many_as_a_size():
    chain = Chain()
    size = chain.emit(Squeeze(), chain.emit(Gather(), chain.shape, ints(0), 0), ints(0))
    y = chain.emit(Range(output_type=ElementType.i64), np.array(0), size, np.array(1))
    known = chain.emit(
        Range(output_type=ElementType.i64),
        np.array(0),
        chain.emit(Gather(), chain.shape, 2, 0),
        np.array(1),
    )
    chain.infer()
    assert y.shape == Shape([SIZE])
    assert known.desc.static_ints == [0, 1, 2, 3]
