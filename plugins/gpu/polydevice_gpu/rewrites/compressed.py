"""Products of few rows with matrices of 4 or 8 bits: the matrix stays as small as it is stored."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.network import Network
from polydevice.network.kept_layers import KeptLayers
from polydevice.node import Node, Port, constant
from polydevice.ops.arithmetic import Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.matmul import MatMul
from polydevice.ops.quantize_linear import DequantizeLinear
from polydevice.ops.reshape import Reshape
from polydevice.ops.transpose import Transpose
from polydevice.rewrites.integers.quantised import known
from polydevice.rewrites.pattern import Replacements
from polydevice_gpu.ops import CompressedMatMul

MOST_ROWS = 4
"""With more rows reading the matrix is no longer what takes the time."""

LEAST_ELEMENTS = 1 << 20
"""Smaller matrices are read from the cache in whatever form."""

_FLOATS = (ElementType.f16, ElementType.f32)
_SHIFT = {ElementType.u4: 0, ElementType.i4: 8, ElementType.u8: 0, ElementType.i8: 128}
"""What is added to numbers of a type, and to their zero points, so that none is negative."""


@dataclass(frozen=True)
class Compressed:
    """The matrix (q - zeros) * scales as [column, term], the last two by blocks of terms."""

    q: Array
    scales: Array
    zeros: Array
    bits: int

    def packed(self) -> Array:
        """Return q in as many bits as it has."""
        if self.bits == 8:
            return np.ascontiguousarray(self.q)
        return np.asarray(self.q[:, ::2] | self.q[:, 1::2] << 4)


def compress_products(network: Network, least: int = LEAST_ELEMENTS) -> None:
    """Put CompressedMatMul in the place of products of few rows with dequantised matrices.

    Args:
        network: of static shapes; it is changed.
        least: elements of the smallest matrix that is left compressed.
    """
    replacements = Replacements()
    kept = KeptLayers.of(network)
    for node in network.nodes():
        if not isinstance(node.op, MatMul) or kept.has(node.layers) or not _is_wanted(node, least):
            continue
        found = compressed(node.inputs[1], turned=node.op.transpose_b)
        if found is None or not _fits(found):
            continue
        constants = [
            constant(f"{node.name}/{name}", array).output
            for name, array in (
                ("matrix", found.packed()), ("scales", found.scales), ("zeros", found.zeros)
            )
        ]  # fmt: skip
        replacements.put_node(node, CompressedMatMul(found.bits), [node.inputs[0], *constants])
    replacements.apply(network)


def _is_wanted(node: Node, least: int) -> bool:
    """Whether a product has few rows and a large matrix."""
    x, w = (port.desc for port in node.inputs)
    op = node.operation(MatMul)
    if not (x.is_static and w.is_static) or x.element_type not in _FLOATS or op.transpose_a:
        return False
    assert x.shape is not None
    assert w.shape is not None
    sizes = w.shape.static
    rows: int = math.prod(x.shape.static[:-1])
    if len(x.shape) < 2 or not 0 < rows <= MOST_ROWS or len(sizes) != 2:
        return False
    elements: int = math.prod(sizes)
    return elements >= least


def _fits(found: Compressed) -> bool:
    """Whether pieces of 16 bytes lie in one block each."""
    terms = found.q.shape[1]
    piece = 128 // found.bits
    blocks = found.scales.shape[1]
    return bool(terms % blocks == 0 and terms // blocks % piece == 0)


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
    arrays = [numbers, scales, zeros] if turned else [numbers.T, scales.T, zeros.T]
    columns, shift = arrays[0].shape[0], _SHIFT[kind]
    blocks = max(array.shape[1] for array in arrays[1:])
    if any(s not in (1, w) for array in arrays[1:] for s, w in zip(array.shape, (columns, blocks))):
        return None
    wide = [np.broadcast_to(array, (columns, blocks)) for array in arrays[1:]]
    points = wide[1].astype(np.float64) + shift
    limit = 15 if kind.bits == 4 else 255
    is_whole = np.array_equal(np.rint(points), points)
    if not is_whole or points.min() < 0 or points.max() > limit:
        return None
    q = (arrays[0].astype(np.int16) + shift).astype(np.uint8)
    scale = np.ascontiguousarray(wide[0].astype(np.float32))
    return Compressed(q, scale, points.astype(np.uint8), kind.bits)


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
        if whole is None or source.element_type not in _SHIFT:
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
    if any(array is None for array in given) or node.inputs[0].element_type not in _SHIFT:
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
