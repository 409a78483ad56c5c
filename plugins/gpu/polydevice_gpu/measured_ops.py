"""Operations that measure the rows they make, and the product that normalises rows by that."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.ops.gather import Gather
from polydevice.ops.matmul import MatMul
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice_gpu.ops import NormalizedMatMul


@dataclass(frozen=True)
class MeasuredMatMul(MatMul):
    """Product with a constant matrix that also measures its rows, for those that normalise them.

    Inputs:  x        [..., K], floating point
             w        [K, N], with `transpose_b` [N, K], constant
    Outputs: y        [..., N], type of x
             moments  [rows, slots, 2] f32: of each row of y, as it is stored behind the epilogue,
                      and each of its slots of `width` columns, of which the last may be shorter,
                      the mean and the sum of squares about it
    Source:  made from MatMul in front of NormalizedMatMul
    """

    type = "MeasuredMatMul"
    domain = "polydevice_gpu"

    width: int = 24

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the product's shape, and a place for the moments."""
        (y,) = super().infer(inputs)
        assert y.shape is not None
        *rows, columns = y.shape.static
        slots = -(-columns // self.width)
        return [y, TensorDesc(ElementType.f32, Shape((math.prod(rows), slots, 2)))]


@dataclass(frozen=True)
class MeasuredGather(Gather):
    """Rows of a table that are measured, too, for products that normalise them.

    Inputs:  x        [R, K], floating point
             indices  [...], integer
             axis     scalar integer, constant: 0
    Outputs: y        [..., K], type of x
             moments  [rows, 1, 2] f32: of each row of y, as it is stored behind the epilogue, the
                      mean and the sum of squares about it
    Source:  made from Gather in front of NormalizedMatMul
    """

    type = "MeasuredGather"
    domain = "polydevice_gpu"

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of the rows, and a place for the moments."""
        (y,) = super().infer(inputs)
        assert y.shape is not None
        *rows, _ = y.shape.static
        return [y, TensorDesc(ElementType.f32, Shape((math.prod(rows), 1, 2)))]


@dataclass(frozen=True)
class MomentsMatMul(NormalizedMatMul):
    """Product of rows that are normalised by moments which whoever made them measured.

    Inputs:  x, w, sums, shift as NormalizedMatMul
             moments  [rows, slots, 2] f32, as MeasuredMatMul and MeasuredGather have them
    Outputs: y      [..., N], type of x
    Source:  made from NormalizedMatMul behind MeasuredMatMul or MeasuredGather
    """

    type = "MomentsMatMul"

    width: int = 24
