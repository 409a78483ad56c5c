"""Products of few rows with matrices of 4 or 8 bits: the matrix stays as small as it is stored."""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.network import Network
from polydevice.network.kept_layers import KeptLayers
from polydevice.node import Node, constant
from polydevice.ops.matmul import MatMul
from polydevice.rewrites.integers.compressed import Compressed, compressed
from polydevice.rewrites.pattern import Replacements
from polydevice_gpu.ops import CompressedMatMul

MOST_ROWS = 4
"""With more rows reading the matrix is no longer what takes the time."""

LEAST_ELEMENTS = 1 << 20
"""Smaller matrices are read from the cache in whatever form."""

_FLOATS = (ElementType.f16, ElementType.f32)


def compress_products(network: Network, least: int = LEAST_ELEMENTS) -> None:
    """Put CompressedMatMul in the place of products of few rows with dequantised matrices.

    Args:
        network: of static shapes; it is changed.
        least: elements of the smallest matrix that is left compressed.
    """
    replacements = Replacements()
    kept = KeptLayers.of(network)
    for node in network.nodes():
        if type(node.op) is not MatMul or kept.has(node.layers) or not _is_wanted(node, least):
            continue
        found = compressed(node.inputs[1], turned=node.op.transpose_b)
        if found is None or not _fits(found) or not _has_few_rows(node):
            continue
        constants = [
            constant(f"{node.name}/{name}", array).output
            for name, array in (
                ("matrix", _packed(found)), ("scales", found.scales), ("zeros", _zeros(found))
            )
        ]  # fmt: skip
        replacements.put_node(node, CompressedMatMul(found.kind.bits), [node.inputs[0], *constants])
    replacements.apply(network)


def _is_wanted(node: Node, least: int) -> bool:
    """Whether a product has a large matrix."""
    x, w = (port.desc for port in node.inputs)
    op = node.operation(MatMul)
    if not (x.is_static and w.is_static) or x.element_type not in _FLOATS or op.transpose_a:
        return False
    assert x.shape is not None
    assert w.shape is not None
    sizes = w.shape.static
    elements: int = math.prod(sizes)
    return len(x.shape) >= 2 and len(sizes) == 2 and elements >= least


def _has_few_rows(node: Node) -> bool:
    """Whether the vectors of a product are few; last, as that may depend on sizes."""
    shape = node.inputs[0].shape
    assert shape is not None
    rows: int = math.prod(shape.static[:-1])
    return 0 < rows <= MOST_ROWS


def _fits(found: Compressed) -> bool:
    """Whether pieces of 16 bytes lie in one block each."""
    terms = found.q.shape[1]
    piece = 128 // found.kind.bits
    return bool(terms // found.scales.shape[1] % piece == 0)


def _packed(found: Compressed) -> Array:
    """The integers, less the least of their type, in as many bits as that has."""
    q = (found.q.astype(np.int16) - found.least).astype(np.uint8)
    if found.kind.bits == 8:
        return np.ascontiguousarray(q)
    return np.asarray(q[:, ::2] | q[:, 1::2] << 4)


def _zeros(found: Compressed) -> Array:
    return (found.zeros - found.least).astype(np.uint8)
