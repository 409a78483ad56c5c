"""What ports are as functions of 8-bit integers: one number of each, whatever its neighbours."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.network import Network
from polydevice.node import Evaluate, Node, Port
from polydevice.ops.op import Op
from polydevice.ops.pointwise import BinaryPointwise, UnaryPointwise
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.rewrites.integers.quantised import quantised, quantiser


@dataclass(frozen=True)
class OfBytes:
    """What a port is of the 8-bit integers of another.

    Attributes:
        source: the integers.
        table: results for the bits 0 to 255, as the model's own steps make them.
        roundings: how many to integers are on the way, at most.
        functions: operations on the way.
    """

    source: Port
    table: Array
    roundings: int = 0
    functions: frozenset[type[Op]] = frozenset()


def functions_of_bytes(network: Network) -> dict[Port, OfBytes]:
    """Return what is known of ports, in the order of nodes; of dequantised integers, too."""
    known: dict[Port, OfBytes] = {}
    if network.evaluate is not None:
        for node in network.nodes():
            function = _function(node, known, network.evaluate)
            if function is not None:
                known[node.output] = function
    return known


def _function(node: Node, known: Mapping[Port, OfBytes], evaluate: Evaluate) -> OfBytes | None:
    if isinstance(node.op, DequantizeLinear) and node.inputs[0] not in known:
        integers = node.inputs[0]
        if quantised(node.output) is None or number_of(integers, evaluate) is not None:
            return None
        levels = np.arange(256, dtype=np.uint8).view(integers.element_type.dtype)
        table = table_of(node, {integers: levels}, integers, evaluate)
        return None if table is None else OfBytes(integers, table)
    before = [known[port] for port in node.inputs if port in known]
    if not before or not _is_pointwise(node):
        return None
    source = before[0].source
    if any(each.source is not source for each in before):
        return None
    tables = {port: known[port].table for port in node.inputs if port in known}
    table = table_of(node, tables, source, evaluate)
    if table is None:
        return None
    rounds = isinstance(node.op, QuantizeLinear)
    functions = frozenset[type[Op]]().union(*(each.functions for each in before))
    if isinstance(node.op, (UnaryPointwise, BinaryPointwise)):
        functions |= {type(node.op)}
    return OfBytes(source, table, max(each.roundings for each in before) + rounds, functions)


def _is_pointwise(node: Node) -> bool:
    """Whether an element of the result is a function of the elements in its place."""
    if isinstance(node.op, QuantizeLinear):
        return quantiser(node) is not None
    if isinstance(node.op, DequantizeLinear):
        return quantised(node.output) is not None
    is_known = isinstance(node.op, (UnaryPointwise, BinaryPointwise))
    return is_known and node.output.element_type is ElementType.f32


def table_of(
    node: Node, tables: Mapping[Port, Array], source: Port, evaluate: Evaluate
) -> Array | None:
    """What a node makes of tables and numbers; None where it reads more, or adds axes."""
    rank = source.desc.rank
    if rank is None or node.output.desc.rank != rank:
        return None
    inputs: list[Array] = []
    for port in node.inputs:
        given = tables.get(port)
        if given is None:
            given = number_of(port, evaluate)
        if given is None:
            return None
        inputs.append(given)
    made = evaluate(node.op, inputs)
    if made is None or made[0].shape != (256,) or np.isnan(made[0].astype(np.float32)).any():
        return None
    return made[0]


def number_of(port: Port, evaluate: Evaluate) -> Array | None:
    """The one number of a constant, without axes; of one that is dequantised, too."""
    value, node = port.node.constant, port.node
    if value is None and isinstance(node.op, DequantizeLinear):
        given = [each.node.constant for each in node.inputs]
        arrays = [array for array in given if array is not None]
        made = evaluate(node.op, arrays) if len(arrays) == len(given) else None
        value = None if made is None else made[0]
    return None if value is None or value.size != 1 else value.reshape(())
