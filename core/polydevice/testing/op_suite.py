"""OpSuite: a device either computes an operation rightly or refuses it by name.

A device author inherits it, after `DeviceSuite`::

    from polydevice.testing.op_suite import OpSuite

    class TestNpuOperations(OpSuite):
        device = "NPU"
        operations = {"Add", "Multiply", "ReLU", "SoftMax"}

The answers are worked out by hand. They are few, one or two for each shape rule that an author is
likely to get wrong; the device's own tests go deeper, with `polydevice.testing.op_case`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from polydevice.core import Core
from polydevice.dtype import Array
from polydevice.errors import UnsupportedNetworkError
from polydevice.ops.activation import Clamp, Relu, Sigmoid
from polydevice.ops.arithmetic import Add, Divide, Maximum, Multiply, Subtract
from polydevice.ops.concat import Concat
from polydevice.ops.reshape import Reshape
from polydevice.ops.softmax import SoftMax
from polydevice.ops.split import Split
from polydevice.ops.transpose import Transpose
from polydevice.testing.op_case import OpCase, network_of, run_case


def f32(values: object) -> Array:
    """An f32 array."""
    return np.asarray(values, np.float32)


def i64(values: object) -> Array:
    """An i64 array."""
    return np.asarray(values, np.int64)


ROW = f32([[1.0, -2.0, 4.0]])
COLUMN = f32([[2.0], [-0.5]])
GRID = f32([[1, 2, 3], [4, 5, 6]])

CASES = {
    "Relu": OpCase(Relu(), [ROW], [f32([[1, 0, 4]])]),
    "Sigmoid": OpCase(Sigmoid(), [np.log(f32([1, 3]))], [f32([0.5, 0.75])]),
    "Clamp": OpCase(Clamp(min=-1.0, max=3.0), [ROW], [f32([[1, -1, 3]])]),
    "Add": OpCase(Add(), [GRID, GRID], [GRID * 2]),
    "Add-broadcast": OpCase(Add(), [ROW, COLUMN], [f32([[3, 0, 6], [0.5, -2.5, 3.5]])]),
    "Add-constant": OpCase(Add(), [GRID, ROW], [f32([[2, 0, 7], [5, 3, 10]])], None, {1}),
    "Add-scalar": OpCase(Add(), [ROW, f32(1)], [f32([[2, -1, 5]])]),
    "Subtract": OpCase(Subtract(), [ROW, COLUMN], [f32([[-1, -4, 2], [1.5, -1.5, 4.5]])]),
    "Multiply": OpCase(Multiply(), [ROW, COLUMN], [f32([[2, -4, 8], [-0.5, 1, -2]])]),
    "Divide": OpCase(Divide(), [ROW, COLUMN], [f32([[0.5, -1, 2], [-2, 4, -8]])]),
    "Maximum": OpCase(Maximum(), [ROW, COLUMN], [f32([[2, 2, 4], [1, -0.5, 4]])]),
    "SoftMax-last": OpCase(
        SoftMax(axis=-1), [np.log(f32([[1, 3], [2, 2]]))], [[[0.25, 0.75], [0.5, 0.5]]]
    ),
    "SoftMax-first": OpCase(
        SoftMax(axis=0), [np.log(f32([[1, 4], [3, 4]]))], [[[0.25, 0.5], [0.75, 0.5]]]
    ),
    "SoftMax-large": OpCase(SoftMax(axis=1), [f32([[1e4, 1e4]])], [[[0.5, 0.5]]]),
    "Reshape": OpCase(
        Reshape(special_zero=True),
        [GRID, i64([0, -1, 1])],
        [GRID.reshape(2, 3, 1)],
        constants={1},
    ),
    "Transpose": OpCase(
        Transpose(), [GRID, i64([1, 0])], [f32([[1, 4], [2, 5], [3, 6]])], constants={1}
    ),
    "Concat": OpCase(
        Concat(axis=1),
        [GRID, COLUMN],
        [f32([[1, 2, 3, 2], [4, 5, 6, -0.5]])],
    ),
    "Split": OpCase(
        Split(num_splits=3),
        [GRID, i64(1)],
        [f32([[1], [4]]), f32([[2], [5]]), f32([[3], [6]])],
        constants={1},
    ),
}


class OpSuite:
    """Operations on one device. Subclasses set `device` and may set `operations`."""

    device: ClassVar[str]
    """The device string, such as "NPU"."""
    operations: ClassVar[set[str] | None] = None
    """IR types that the device must run; None for all of this suite's."""

    @pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
    def test_operation(self, case: OpCase) -> None:
        """The answer is right, or the operation was not promised and is refused by name."""
        if self.operations is None or case.op.type in self.operations:
            run_case(case, self.device)
            return
        with Core() as core, pytest.raises(UnsupportedNetworkError, match=case.op.type):
            core.load_network(network_of(case), self.device)
