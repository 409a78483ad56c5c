"""Products with matrices of 4 or 8 bits: the matrix stays as small as it is stored.

Processors read it so for any number of rows, GPUs for few.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.locks import Lock
from polydevice.network import Network
from polydevice.network.kept_layers import KeptLayers
from polydevice.node import Evaluate, Node, Port, constant
from polydevice.ops.io import Result
from polydevice.ops.matmul import MatMul
from polydevice.passes.constant_folding import constant_folding
from polydevice.rewrites.integers.compressed import Compressed, compressed
from polydevice.rewrites.pattern import Replacements
from polydevice_gpu.kernels.product.matmul_compressed import MOST_ROWS
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import CompressedMatMul

LEAST_ELEMENTS, LEAST_ON_PROCESSORS = 1 << 20, 1 << 16
"""Smaller matrices are read from the cache in whatever form, and programs for them are there."""

_FLOATS = (ElementType.f16, ElementType.f32)


def compress_products(network: Network, target: Target, least: int = 0) -> None:
    """Put CompressedMatMul in the place of products with dequantised matrices.

    Args:
        network: of static shapes; it is changed.
        target: whose kernels take few rows, or any.
        least: elements of the smallest matrix that is left compressed; 0 for what is faster.
    """
    replacements = Replacements()
    for node in _products(network, least or _least(target)):
        found = _found(node) if node.inputs[0].desc.is_static else None
        if found is not None and (not target.is_throughput or _has_few_rows(node)):
            _put(replacements, node, found, _constants(node, found))
    replacements.apply(network)


class Matrix:
    """A matrix that plans of few rows, or of any, read as it is stored, and others as floats.

    Floats are made when a plan wants them first, and are the same arrays for all plans.
    """

    def __init__(self, product: Node, evaluate: Evaluate, *, takes_any: bool) -> None:
        """Take the second factor of a product.

        Args:
            product: its matrix depends on constants alone.
            evaluate: computes constants.
            takes_any: whether any number of rows will do, if a plan knows it.
        """
        self.takes_any = takes_any
        self.op = product.operation(MatMul)
        self._evaluate = evaluate
        result = Node("matrix", Result(output_name="matrix"), [product.inputs[1]])
        self._network = Network(product.name, [], [result]).clone()
        self._is_folded = False
        self._lock = Lock()

    def floats(self) -> Port:
        """Return the matrix, made by nodes of the caller's own: one constant if it can be."""
        with self._lock:
            if not self._is_folded:
                network = self._network.clone()
                constant_folding(network, self._evaluate)
                self._network, self._is_folded = network, True
        return self._network.clone().results[0].inputs[0]


def hold_matrices(
    network: Network, evaluate: Evaluate, target: Target, least: int = 0
) -> dict[int, Matrix]:
    """Put CompressedMatMul in the place of products whose rows are counted only by a plan.

    Matrices that something else reads as floats stay so.

    Args:
        network: of open sizes, before folding; it is changed.
        evaluate: computes constants.
        target: whose kernels take few rows, or any.
        least: elements of the smallest matrix that is held; 0 for what is faster.

    Returns:
        id of the packed integers → the matrix, for `settle_matrices`.
    """
    replacements, users = Replacements(), network.consumers()
    held: dict[int, Matrix] = {}
    made: dict[tuple[Port, bool], list[Port]] = {}
    products = _products(network, least or _least(target))
    for node in products:
        found, key = _found(node), (node.inputs[1], node.operation(MatMul).transpose_b)
        if found is None or not _are_alone(node.inputs[1], products, users):
            continue
        if key not in made:
            made[key] = _constants(node, found)
            matrix = Matrix(node, evaluate, takes_any=not target.is_throughput)
            held[id(made[key][0].node.constant)] = matrix
        _put(replacements, node, found, made[key])
    replacements.apply(network)
    return held


def settle_matrices(network: Network, held: Mapping[int, Matrix]) -> list[Array]:
    """Let products of too many rows, or of an unknown number, read floats.

    Args:
        network: a copy of one with held matrices, for the sizes of a plan; it is changed.
        held: what `hold_matrices` returned.

    Returns:
        The constants that all plans share.

    Raises:
        NetworkError: rows have other terms than a matrix.
    """
    replacements, shared = Replacements(), []
    for node in network.nodes() if held else ():
        if not isinstance(node.op, CompressedMatMul):
            continue
        x, q = node.inputs[:2]
        assert x.shape is not None
        assert q.node.constant is not None
        terms = q.node.constant.shape[1] * 8 // node.op.bits
        matrix = held[id(q.node.constant)]
        is_known = x.shape.is_static and x.shape[-1] == terms
        if is_known and (matrix.takes_any or _has_few_rows(node)):
            continue
        floats = matrix.floats()
        replacements.put_node(node, matrix.op, [x, floats])
        shared += [port.node.constant for port in _made_of(floats)]
    replacements.apply(network)
    return [array for array in shared if array is not None]


def _least(target: Target) -> int:
    """Return the elements of the smallest matrix that gains."""
    return LEAST_ELEMENTS if target.is_throughput else LEAST_ON_PROCESSORS


def _products(network: Network, least: int) -> list[Node]:
    """Return the products with large matrices, but for those of layers that are kept."""
    kept = KeptLayers.of(network)
    return [
        node
        for node in network.nodes()
        if type(node.op) is MatMul and not kept.has(node.layers) and _is_wanted(node, least)
    ]


def _found(node: Node) -> Compressed | None:
    """Return the matrix of a product, if pieces of 16 bytes lie in one block each."""
    found = compressed(node.inputs[1], turned=node.operation(MatMul).transpose_b)
    return found if found is not None and _fits(found) else None


def _constants(node: Node, found: Compressed) -> list[Port]:
    """Return what a product reads beside its rows."""
    arrays = (("matrix", _packed(found)), ("scales", found.scales), ("zeros", _zeros(found)))
    return [constant(f"{node.name}/{name}", array).output for name, array in arrays]


def _put(
    replacements: Replacements, node: Node, found: Compressed, constants: Sequence[Port]
) -> None:
    """Let a product read its matrix as it is stored."""
    op = CompressedMatMul(found.kind.bits)
    replacements.put_node(node, op, [node.inputs[0], *constants])


def _are_alone(
    matrix: Port, products: Collection[Node], users: Mapping[Port, list[tuple[Node, int]]]
) -> bool:
    """Whether only such products read a matrix, or floats on the way to it."""
    steps = {port.node for port in _made_of(matrix) if port.node.constant is None}
    return all(
        reader in steps or (port == matrix and index == 1 and reader in products)
        for step in steps
        for port in step.outputs
        for reader, index in users[port]
    )


def _made_of(port: Port) -> list[Port]:
    """Return a port and all that it is computed of."""
    found, left = {port: None}, [port]
    while left:
        for other in left.pop().node.inputs:
            if other not in found:
                found[other] = None
                left.append(other)
    return list(found)


def _is_wanted(node: Node, least: int) -> bool:
    """Whether a product has a large matrix."""
    x, w = (port.desc for port in node.inputs)
    op = node.operation(MatMul)
    if x.shape is None or w.shape is None or not w.is_static or op.transpose_a:
        return False
    sizes = w.shape.static
    elements: int = math.prod(sizes)
    is_matrix = len(x.shape) >= 2 and len(sizes) == 2
    return x.element_type in _FLOATS and is_matrix and elements >= least


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
    q = found.q if not found.least else (found.q.astype(np.int16) - found.least).astype(np.uint8)
    if found.kind.bits == 8:
        return np.ascontiguousarray(q)
    return np.asarray(q[:, ::2] | q[:, 1::2] << 4)


def _zeros(found: Compressed) -> Array:
    return (found.zeros - found.least).astype(np.uint8)
