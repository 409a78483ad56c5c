"""constant_folding: compute what depends on constants alone, once, before inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polydevice.bounds import compute_ahead, computing_ahead
from polydevice.dtype import Array, ElementType
from polydevice.network import Network
from polydevice.node import Evaluate, Node, Port, known_if_empty
from polydevice.ops.comparison import Comparison
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.symbolic_size import is_formula, is_symbolic

SIZE_LIMIT = 1 << 30
"""Largest folded value, and most that folding may add in all, in bytes.

Folding must not turn a small file into a huge network.
"""

GROWTH = 8
"""Results up to this many times as large as their constants do not count as added: weights that
are converted, transposed or unpacked from 4 bits."""


def constant_folding(network: Network, evaluate: Evaluate) -> int:
    """Replace every node whose inputs are all constant by Constant nodes; return how many.

    Nodes with a side effect, state or randomness, results above `SIZE_LIMIT`, and what takes longer
    than `computing_ahead` allows, stay.
    """
    with computing_ahead():
        return _fold(network, evaluate)


def _fold(network: Network, evaluate: Evaluate) -> int:
    values: dict[Node, list[Node]] = {}
    empty: dict[Port, Port] = {}
    folded, left = 0, SIZE_LIMIT
    calculates: dict[Node, bool] = {}

    def feeds_calculation(node: Node) -> bool:
        if not calculates:
            for port, readers in network.consumers().items():
                all_do = all(reader.op.shape_arithmetic for reader, _ in readers)
                calculates[port.node] = all_do and calculates.get(port.node, True)
        return calculates.get(node, False)

    for node in network.nodes():
        node.inputs = [
            values[port.node][port.index].output if port.node in values else port
            for port in node.inputs
        ]
        if not _is_foldable(node):
            continue
        node.inputs = [_known_input(port, empty) for port in node.inputs]
        arrays = [array for port in node.inputs if (array := port.node.constant) is not None]
        constants = _known_values(node)
        if constants is None and arrays and len(arrays) == len(node.inputs):
            free = GROWTH * sum(array.nbytes for array in arrays)
            if _size(node) > min(SIZE_LIMIT, left + free):
                continue
            constants = _evaluated(node, arrays, evaluate, feeds_calculation)
            if constants is not None:
                made = sum(made.constant.nbytes for made in constants if made.constant is not None)
                left -= max(made - free, 0)
        if constants is None:
            continue
        values[node] = constants
        folded += 1
    return folded


def _known_input(port: Port, made: dict[Port, Port]) -> Port:
    """Return a constant for what has no elements: no axes to reduce, or nothing to add up, say.

    It is an input of the network, or one of several outputs of a node that has to stay.
    """
    if port.node.constant is not None or port.node.op.has_bodies:
        return port
    known = known_if_empty(port.desc)
    if known.constant is not None and port not in made:
        op = Constant(known.constant, known.element_type)
        made[port] = Node(f"{port.name}/empty", op).output
    return made.get(port, port)


def _is_foldable(node: Node) -> bool:
    if isinstance(node.op, (Constant, Parameter, Result)):
        return False
    return not (node.op.has_side_effect or node.op.is_stateful)


def _known_values(node: Node) -> list[Node] | None:
    """Constants for outputs known already: ShapeOf of a static shape, whatever has no elements."""
    descs = [port.desc for port in node.outputs]
    if not node.op.has_bodies:
        descs = [known_if_empty(desc) for desc in descs]
    if not descs or any(desc.constant is None for desc in descs):
        return None
    return [_constant(node, i, desc.constant, desc.element_type) for i, desc in enumerate(descs)]


def _size(node: Node) -> int:
    """Bytes of the outputs as far as their sizes are known."""
    return sum(port.desc.span_bytes or 0 for port in node.outputs)


def _evaluated(
    node: Node,
    arrays: list[Any],
    evaluate: Evaluate,
    feeds_calculation: Callable[[Node], bool],
) -> list[Node] | None:
    if any(port.desc.kind != "tensor" for port in node.outputs):
        return None
    if any(map(is_formula, arrays)):
        if any(is_symbolic(size) for port in node.outputs for size in port.shape or ()):
            return None  # its elements serve one size only
        if not (node.op.shape_arithmetic or isinstance(node.op, Comparison)):
            return None  # likewise
    results = compute_ahead(lambda: evaluate(node.op, arrays))
    if results is None:
        return None
    # Formulas of floats serve what sizes are computed of alone: kernels read their numbers.
    may_stay = node.op.shape_arithmetic and any(map(_has_formulas, results))
    stays = may_stay and feeds_calculation(node)
    return [
        _constant(node, i, _plain(array, port.desc.dtype, stays=stays), port.element_type)
        for i, (array, port) in enumerate(zip(results, node.outputs, strict=True))
    ]


def _has_formulas(array: Array) -> bool:
    return array.dtype == object and any(map(is_symbolic, array.reshape(-1).tolist()))


def _plain(array: Array, dtype: np.dtype[Any], *, stays: bool) -> Array:
    """Return an array of numbers of which none is symbolic any more as one of their type."""
    is_plain = array.dtype != object or is_formula(array) or (stays and _has_formulas(array))
    return array if is_plain else array.astype(dtype)


def _constant(node: Node, index: int, array: object, element_type: ElementType) -> Node:
    name = node.name if len(node.outputs) == 1 else f"{node.name}.{index}"
    made = Node(name, Constant(array, element_type))  # type: ignore[arg-type]
    made.output.names |= node.outputs[index].names
    return made
