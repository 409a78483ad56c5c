"""group_products: products of one input with several constant matrices become one product.

Queries, keys and values of attention are mostly made so. One launch reads the input once and keeps
more processors busy; each result is a view of its columns. Matrices of few bits are joined as they
are stored.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.matmul import MatMul
from polydevice.ops.split import VariadicSplit
from polydevice_gpu.graph import GpuGraph, GpuNode, Value, constant_value
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import CompressedMatMul
from polydevice_gpu.runtime.weights import may_change

_AT_ONCE = min(8, os.cpu_count() or 1)
"""Groups whose matrices are joined at the same time: new memory has to be cleared first."""


def group_products(graph: GpuGraph, target: Target) -> None:
    """Group them; biases and activations have joined the products already."""
    del target  # all devices gain
    groups: list[tuple[list[GpuNode], list[Value]]] = []
    for value, readers in list(graph.users().items()):
        # By the factor that they share: products may share a bias as well, and go only once.
        products = [
            node
            for node in dict.fromkeys(readers)
            if node.inputs[0] is value and _is_candidate(node, readers)
        ]
        while products:
            first = products[0]
            alike = [node for node in products if _alike(first, node)]
            products = [node for node in products if node not in alike]
            extras = _joined_extras(alike) if len(alike) > 1 else None
            if extras is not None:
                groups.append((alike, extras))
    if not groups:
        return
    with ThreadPoolExecutor(_AT_ONCE, "polydevice-weights") as pool:
        joined = pool.map(lambda group: _joined_matrices(group[0]), groups)
        for (products, extras), matrices in zip(groups, joined, strict=True):
            _replace(graph, products, matrices, extras)


def _is_candidate(node: GpuNode, readers: Sequence[GpuNode]) -> bool:
    """Whether a node multiplies the value with a constant matrix, and gives nothing else."""
    if type(node.op) is MatMul:
        is_product = len(node.inputs) > 1 and not node.op.transpose_a
    else:
        is_product = isinstance(node.op, CompressedMatMul)
    return (
        is_product
        and not node.on_host
        and node.inputs[0].rank > 1
        and readers.count(node) == 1
        and all(value.constant is not None and value.rank == 2 for value in _matrices(node))
        and not node.output.is_output
    )


def _matrices(node: GpuNode) -> list[Value]:
    """The matrix of a product, and what belongs to it: scales and zeros of each column."""
    return node.own_inputs[1:]


def _alike(one: GpuNode, other: GpuNode) -> bool:
    """Whether two products differ in nothing but numbers and how many columns they have."""
    return (
        one.inputs[0] is other.inputs[0]
        and one.op == other.op
        and one.epilogue == other.epilogue
        and one.result_type is other.result_type
        and one.output.storage is other.output.storage
        and one.output.element_type is other.output.element_type
        and _can_join(one, other)
        and all(
            a.storage is b.storage
            for a, b in zip(one.extra_inputs, other.extra_inputs, strict=True)
        )
    )


def _can_join(one: GpuNode, other: GpuNode) -> bool:
    """Whether matrices, and scales and zeros if there are, differ in nothing but columns."""
    axis = _axis_of_columns(one)
    return all(
        a.storage is b.storage and a.shape[1 - axis] == b.shape[1 - axis]
        for a, b in zip(_matrices(one), _matrices(other), strict=True)
    )


def _joined_extras(products: Sequence[GpuNode]) -> list[Value] | None:
    """Join what the epilogues read, column by column; None where that is not constant."""
    joined = []
    for values in zip(*(node.extra_inputs for node in products), strict=True):
        if any(value.constant is None for value in values):
            return None
        arrays = [np.asarray(value.constant) for value in values]
        first = arrays[0]
        if all(array.size == 1 and np.array_equal(array, first) for array in arrays):
            joined.append(values[0])
            continue
        if any(array.ndim == 0 or array.shape[-1] != array.size for array in arrays):
            return None  # not one number per column
        columns = [
            np.broadcast_to(array.reshape(-1), (node.output.shape[-1],))
            for array, node in zip(arrays, products, strict=True)
        ]
        joined.append(_constant(values[0], np.concatenate(columns)))
    return joined


_JOINED: dict[tuple[int, ...], Array] = {}
"""Axis and ids of matrices → what was made of them, for as long as all of them live."""


def _joined(matrices: Sequence[Array], axis: int) -> Array:
    """Return matrices side by side; those of a network are joined once for all its shapes.

    To join, compare and look up three of 384x384 again takes 5 ms for each new shape.
    """
    if any(may_change(matrix) for matrix in matrices):
        return np.concatenate(matrices, axis)
    key = (axis, *map(id, matrices))
    known = _JOINED.get(key)
    if known is None:
        known = np.concatenate(matrices, axis)
        known.flags.writeable = False  # so that it needs not be read to know that it is the same
        for matrix in matrices:
            weakref.finalize(matrix, _JOINED.pop, key, None).atexit = False
        known = _JOINED.setdefault(key, known)
    return known


def _joined_matrices(products: Sequence[GpuNode]) -> list[Array]:
    axis = _axis_of_columns(products[0])
    alike = zip(*map(_matrices, products), strict=True)
    return [_joined([np.asarray(value.constant) for value in values], axis) for values in alike]


def _axis_of_columns(product: GpuNode) -> int:
    op = product.op
    return 1 if isinstance(op, MatMul) and not op.transpose_b else 0


def _constant(like: Value, array: Array) -> Value:
    made = constant_value(f"{like.name}/columns", array, like.element_type)
    made.storage = like.storage
    return made


def _replace(
    graph: GpuGraph, products: Sequence[GpuNode], joined: Sequence[Array], extras: Sequence[Value]
) -> None:
    first = products[0]
    weights = map(_constant, _matrices(first), joined)
    out = first.output
    columns = [node.output.shape[-1] for node in products]
    whole = Value(
        f"{out.name}/columns", out.element_type, (*out.shape[:-1], sum(columns)),
        storage=out.storage,
    )  # fmt: skip
    origins = dict.fromkeys(origin for node in products for origin in node.origins)
    inputs = [first.inputs[0], *weights, *extras]
    grouped = GpuNode(f"{first.name}/columns", first.op, inputs, [whole], origins)
    grouped.result_type, grouped.epilogue = first.result_type, first.epilogue
    last_axis = constant_value(f"{first.name}/axis", np.asarray(whole.rank - 1, np.int64))
    sizes = constant_value(f"{first.name}/sizes", np.asarray(columns, np.int64))
    results = [node.output for node in products]
    split = GpuNode(first.name, VariadicSplit(), [whole, last_axis, sizes], results, origins)
    graph.insert_before(first, grouped)
    graph.insert_before(first, split)
    for node in products:
        graph.nodes.remove(node)
