"""constant_folding: compute what depends on constants alone, once, before inference."""

from __future__ import annotations

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
    for_now: set[Node] = set()
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
            constants = _evaluated(node, arrays, evaluate)
            if constants is not None:
                made = sum(made.constant.nbytes for made in constants if made.constant is not None)
                left -= max(made - free, 0)
        if constants is None:
            continue
        values[node] = constants
        for_now.update(filter(_is_quotient, constants))
        folded += 1
    if for_now:
        _settle(network, for_now)
    return folded


def _is_quotient(node: Node) -> bool:
    """Whether a constant has formulas of what is no whole number."""
    array = node.constant
    return array is not None and _has_formulas(array) and not is_formula(array)


def _settle(network: Network, for_now: set[Node]) -> None:
    """Make numbers of formulas that something else than a calculation of sizes reads.

    Kernels and passes take whole numbers alone for formulas.
    """
    settled: dict[Node, Node] = {}
    for node in network.nodes():
        for place, port in enumerate(node.inputs):
            if port.node not in for_now:
                continue
            array = port.node.constant
            assert array is not None
            if port.node not in settled:
                plain = array.astype(port.desc.dtype)
                settled[port.node] = _constant(port.node, 0, plain, port.element_type)
            node.inputs[place] = settled[port.node].output


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


def _evaluated(node: Node, arrays: list[Any], evaluate: Evaluate) -> list[Node] | None:
    if any(port.desc.kind != "tensor" for port in node.outputs):
        return None
    calculates = node.op.shape_arithmetic or isinstance(node.op, Comparison)
    if any(map(is_formula, arrays)):
        if any(is_symbolic(size) for port in node.outputs for size in port.shape or ()):
            return None  # its elements serve one size only
        if not calculates:
            return None  # likewise
    if not calculates:
        given = zip(arrays, node.inputs, strict=True)
        arrays = [_plain(array, port.desc.dtype) for array, port in given]
    results = compute_ahead(lambda: evaluate(node.op, arrays))
    if results is None:
        return None
    return [
        _constant(
            *(node, i),
            array if calculates and _has_formulas(array) else _plain(array, port.desc.dtype),
            port.element_type,
        )
        for i, (array, port) in enumerate(zip(results, node.outputs, strict=True))
    ]


def _has_formulas(array: Array) -> bool:
    return array.dtype == object and any(map(is_symbolic, array.reshape(-1).tolist()))


def _plain(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return an array of numbers of which none is symbolic any more as one of their type."""
    return array if array.dtype != object or is_formula(array) else array.astype(dtype)


def _constant(node: Node, index: int, array: object, element_type: ElementType) -> Node:
    name = node.name if len(node.outputs) == 1 else f"{node.name}.{index}"
    made = Node(name, Constant(array, element_type))  # type: ignore[arg-type]
    made.output.names |= node.outputs[index].names
    return made
