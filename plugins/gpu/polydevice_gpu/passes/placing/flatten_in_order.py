"""flatten_in_order: what a product with constants flattens stays in the order of memory.

``MatMul(Reshape(x), W)`` of a value whose channels lie side by side would copy x to make its rows.
The rows of W are put into the order in which x lies instead, once, at load.
"""

from __future__ import annotations

import math

import numpy as np

from polydevice.ops.matmul import MatMul
from polydevice.ops.transpose import Transpose
from polydevice.shape import is_one
from polydevice.symbolic_size import is_symbolic
from polydevice_gpu.graph import GpuGraph, GpuNode, Value, constant_value


def flatten_in_order(graph: GpuGraph, node: GpuNode) -> GpuNode | None:
    """Turn the input of a reshape that its layout does not allow, and the factors of its readers.

    Args:
        graph: with layouts for all that precedes the node.
        node: joins the last axes of its input to the rows of matrix products.

    Returns:
        The transpose that was inserted before the node; None when something else is to be done.
    """
    x, out = node.inputs[0], node.output
    lead = out.rank - 1
    if out.is_output or lead < 1 or x.shape[:lead] != out.shape[:lead] or not x.elements:
        return None
    if any(map(is_symbolic, x.shape[lead:])):
        return None  # constants in an order for these sizes alone would be wrong for others
    inner = [axis for axis in x.placed.order(x.shape) if axis >= lead]
    order = [*range(lead), *inner]
    long = [axis for axis in x.placed.order(x.shape) if not is_one(x.shape[axis])]
    if not x.placed.is_dense(x.shape) or long != [a for a in order if not is_one(x.shape[a])]:
        return None
    readers = [user for user in graph.nodes if any(value is out for value in user.inputs)]
    if not readers or not all(_multiplies(user, out) for user in readers):
        return None
    count = math.prod(x.shape[lead:])
    places = np.arange(count).reshape(x.shape[lead:])
    places = places.transpose([axis - lead for axis in inner]).reshape(-1)
    for user in readers:
        user.inputs[1] = _ordered(user, places)
    turned = Value(
        f"{x.name}/in order for {node.name}",
        x.element_type,
        [x.shape[axis] for axis in order],
        storage=x.storage,
    )
    axes = constant_value(f"{turned.name}/axes", np.array(order, np.int64))
    made = GpuNode(turned.name, Transpose(), [x, axes], [turned])
    graph.insert_before(node, made)
    node.inputs[0] = turned
    return made


def _multiplies(user: GpuNode, rows: Value) -> bool:
    """Whether a node multiplies rows with a constant matrix."""
    op = user.op
    if not isinstance(op, MatMul) or user.is_opaque or op.transpose_a:
        return False
    weights = user.inputs[1]
    once = user.inputs[0] is rows and sum(value is rows for value in user.inputs) == 1
    return once and weights.constant is not None and weights.rank == 2


def _ordered(user: GpuNode, places: np.ndarray) -> Value:  # type: ignore[type-arg, unused-ignore]
    """Return the matrix with its rows in another order."""
    weights = user.inputs[1]
    op = user.operation(MatMul)
    array = np.take(np.asarray(weights.constant), places, 1 if op.transpose_b else 0)
    made = constant_value(f"{weights.name}/in order", array, weights.element_type)
    made.storage = weights.storage
    return made
