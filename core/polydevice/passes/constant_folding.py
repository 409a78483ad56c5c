"""constant_folding: compute what depends on constants alone, once, before inference."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Evaluate, Node
from polydevice.ops.io import Constant, Parameter, Result

SIZE_LIMIT = 1 << 30
"""Largest folded value in bytes: folding must not turn a small file into a huge network."""


def constant_folding(network: Network, evaluate: Evaluate) -> int:
    """Replace every node whose inputs are all constant by Constant nodes; return how many.

    Nodes with a side effect, state or randomness, and results above `SIZE_LIMIT`, stay.
    """
    values: dict[Node, list[Node]] = {}
    folded = 0
    for node in network.nodes():
        node.inputs = [
            values[port.node][port.index].output if port.node in values else port
            for port in node.inputs
        ]
        if not _is_foldable(node):
            continue
        arrays = [port.node.constant for port in node.inputs]
        if not arrays or any(array is None for array in arrays):
            constants = _known_values(node)
        else:
            constants = _evaluated(node, [a for a in arrays if a is not None], evaluate)
        if constants is None:
            continue
        values[node] = constants
        folded += 1
    return folded


def _is_foldable(node: Node) -> bool:
    if isinstance(node.op, (Constant, Parameter, Result)):
        return False
    return not (node.op.has_side_effect or node.op.is_stateful)


def _known_values(node: Node) -> list[Node] | None:
    """Constants for outputs that shape inference knows already (ShapeOf of a static shape)."""
    if not node.outputs or any(port.desc.constant is None for port in node.outputs):
        return None
    return [
        _constant(node, i, port.desc.constant, port.element_type)
        for i, port in enumerate(node.outputs)
    ]


def _evaluated(node: Node, arrays: list, evaluate: Evaluate) -> list[Node] | None:  # type: ignore[type-arg]
    for port in node.outputs:
        if port.desc.kind != "tensor":
            return None
        if (
            port.desc.is_static
            and port.shape is not None
            and (port.shape.elements * port.element_type.dtype.itemsize > SIZE_LIMIT)
        ):
            return None
    results = evaluate(node.op, arrays)
    if results is None:
        return None
    return [
        _constant(node, i, array, node.outputs[i].element_type) for i, array in enumerate(results)
    ]


def _constant(node: Node, index: int, array: object, element_type: ElementType) -> Node:
    name = node.name if len(node.outputs) == 1 else f"{node.name}.{index}"
    made = Node(name, Constant(array, element_type))  # type: ignore[arg-type]
    made.output.names |= node.outputs[index].names
    return made
