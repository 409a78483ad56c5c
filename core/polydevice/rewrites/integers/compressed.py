"""Matrices of 4- or 8-bit integers times scales, however their dequantisation is spelled."""

from __future__ import annotations

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.node import Node, Port
from polydevice.ops.arithmetic import Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.quantize_linear import DequantizeLinear
from polydevice.ops.reshape import Reshape
from polydevice.ops.transpose import Transpose
from polydevice.rewrites.integers.quantised import known

_FLOATS = (ElementType.f16, ElementType.f32)
_LIMITS = {
    ElementType.u4: (0, 15),
    ElementType.i4: (-8, 7),
    ElementType.u8: (0, 255),
    ElementType.i8: (-128, 127),
}
"""The integers of each type; zero points are of them too."""


@dataclass(frozen=True)
class Compressed:
    """The matrix (q - zeros) * scales as [column, term], the last two by blocks of terms.

    Attributes:
        q: [columns, terms] as the model has them, one number a byte, u8 or i8.
        scales: [columns, blocks] f32; blocks divides terms.
        zeros: [columns, blocks] i16, in the range of the integers' type.
        kind: u4, i4, u8 or i8.
    """

    q: Array
    scales: Array
    zeros: Array
    kind: ElementType

    @property
    def least(self) -> int:
        """The smallest integer of the type."""
        return _LIMITS[self.kind][0]


def compressed(port: Port, *, turned: bool) -> Compressed | None:
    """Take a matrix apart that is dequantised; None for others.

    Args:
        port: the matrix.
        turned: whether it is [column, term].
    """
    while True:
        node = port.node
        if isinstance(node.op, Transpose) and port.desc.rank == 2:
            order = node.inputs[1].node.constant if len(node.inputs) > 1 else None
            turned ^= order is None or order.tolist() == [1, 0]
        elif not isinstance(node.op, Convert) or node.inputs[0].element_type not in _FLOATS:
            break
        port = node.inputs[0]
    parts = _parts(port) if not isinstance(port.node.op, Reshape) else _blocked(port)
    if parts is None:
        return None
    numbers, scales, zeros, kind = parts
    q, scale, points = [numbers, scales, zeros] if turned else [numbers.T, scales.T, zeros.T]
    columns, terms = q.shape
    blocks = max(scale.shape[1], points.shape[1])
    if terms % blocks or any(
        s not in (1, w)
        for array in (scale, points)
        for s, w in zip(array.shape, (columns, blocks), strict=True)
    ):
        return None
    low, high = _LIMITS[kind]
    exact = np.broadcast_to(points, (columns, blocks)).astype(np.float64)
    if not np.array_equal(np.rint(exact), exact) or exact.min() < low or exact.max() > high:
        return None
    wide = np.ascontiguousarray(np.broadcast_to(scale, (columns, blocks)), np.float32)
    held = q.view(np.uint8) if low == 0 else q.astype(np.int8, copy=False)
    return Compressed(held, wide, exact.astype(np.int16), kind)


Parts = tuple[Array, Array, Array, ElementType]
"""Integers, scales and zero points, of one rank, and the type of the integers."""


def _parts(port: Port) -> Parts | None:
    node = port.node
    if isinstance(node.op, DequantizeLinear):
        return _dequantised(node, node.op)
    if not isinstance(node.op, Multiply):
        return None
    for left, right in (node.inputs, reversed(node.inputs)):
        scale, zero = known(right), None
        if isinstance(left.node.op, Subtract):
            zero = _number(left.node.inputs[1])
            left = left.node.inputs[0]
            if zero is None:
                continue
        if scale is None or not isinstance(left.node.op, Convert):
            continue
        source = left.node.inputs[0]
        whole = source.node.constant
        if whole is None or source.element_type not in _LIMITS:
            continue
        zero = np.zeros(1, np.uint8) if zero is None else zero
        found = [_ranked(array, whole.ndim) for array in (scale, zero)]
        return whole, found[0], found[1], source.element_type
    return None


def _number(port: Port) -> Array | None:
    """A constant, also one that is converted."""
    node = port.node
    return node.inputs[0].node.constant if isinstance(node.op, Convert) else node.constant


def _ranked(array: Array, rank: int) -> Array:
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def _dequantised(node: Node, op: DequantizeLinear) -> Parts | None:
    given = [port.node.constant for port in node.inputs]
    if any(array is None for array in given) or node.inputs[0].element_type not in _LIMITS:
        return None
    whole, scale, *zeros = [array for array in given if array is not None]
    zero = zeros[0] if zeros else np.zeros_like(scale, np.uint8)
    if whole.ndim != 2:
        return None
    if not op.block_size:
        shape = [1, 1]
        if scale.size > 1:
            shape[op.axis % 2] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    elif op.block_size * scale.shape[op.axis % 2] != whole.shape[op.axis % 2]:
        return None  # the last block is shorter
    return whole, scale, zero, node.inputs[0].element_type


def _blocked(port: Port) -> Parts | None:
    """[column, block, term of it], of which a matrix is made."""
    parts = _parts(port.node.inputs[0])
    shape = port.shape
    if parts is None or shape is None or not shape.is_static or len(shape) != 2:
        return None
    whole, scales, zeros, kind = parts
    if whole.ndim != 3 or scales.shape[2] != 1 or zeros.shape[2] != 1:
        return None
    if shape.static != (whole.shape[0], whole.shape[1] * whole.shape[2]):
        return None
    blocks = whole.shape[:2]
    scales, zeros = (np.broadcast_to(array[..., 0], blocks) for array in (scales, zeros))
    return whole.reshape(shape.static), scales, zeros, kind
