"""byte_functions: long chains of functions of 8-bit integers become a look into a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.network import Network
from polydevice.node import Evaluate, Node, Port, constant
from polydevice.ops.op import Op, operation
from polydevice.ops.pointwise import BinaryPointwise, UnaryPointwise
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.rewrites.integers.quantised import quantised, quantiser
from polydevice.rewrites.pattern import Replacements
from polydevice.tensor import TensorDesc
from polydevice_cpu.algorithms.by_machine import byte_table
from polydevice_cpu.lower import find_lowering

_ROUNDINGS, _FEW_ROUNDINGS = 4, 2
"""With so many a chain takes longer than a look: 0.2 ns for each element and rounding.

Behind each is a primitive; a look takes 0.4 ns where elements are looked up in pairs, 0.75 else
(one thread, EPYC), by machine code 0.05. Functions that are left to NumPy take 4 ns and more.
"""


Users = Mapping[Port, Sequence[tuple[Node, int]]]
"""What reads a port."""


@operation("ByteFunction", domain="polydevice.cpu")
class ByteFunction(Op):
    """table[x], the bits of x taken for a number without sign.

    Inputs:  x      any shape, u8 or i8
             table  [256], u8 or i8
    Outputs: y      shape of x, type of the table
    Source:  as QuantizeLinear-13 of pointwise functions of DequantizeLinear-13
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of x in the table's type."""
        x, table = inputs
        return [x.with_type(table.element_type).without_value()]


@dataclass(frozen=True)
class _Function:
    """What a port is of the 8-bit integers of another, and how long that takes.

    Attributes:
        source: the integers.
        table: results for the bits 0 to 255.
        roundings: to integers on the way.
        slow: whether a function on the way has no primitive.
    """

    source: Port
    table: Array
    roundings: int
    slow: bool


def byte_functions(network: Network) -> None:
    """Replace what is quantised in the end of functions of 8-bit integers alone.

    The table has what the model's own steps make of each of 256 numbers, roundings on the way
    included: nothing changes. Such is the GELU that ONNX Runtime's tools quantise, in six steps.
    """
    known: dict[Port, _Function] = {}
    is_fast, users = byte_table.is_there(), network.consumers()
    roundings = _FEW_ROUNDINGS if is_fast else _ROUNDINGS
    replacements = Replacements()
    for node in network.nodes():
        function = _function(node, known, network.evaluate)
        if function is None:
            continue
        known[node.output] = function
        if not isinstance(node.op, QuantizeLinear):
            continue
        pays = function.slow or function.roundings >= roundings
        if pays or (is_fast and not _may_follow(function.source, users)):
            table = constant(f"{node.name}/table", function.table).output
            made = replacements.put_node(node, ByteFunction(), [function.source, table])
            made.names |= node.output.names
    replacements.apply(network)


def _function(
    node: Node, known: dict[Port, _Function], evaluate: Evaluate | None
) -> _Function | None:
    """What a node computes as a function of 8-bit integers; None where it is not known as one."""
    if isinstance(node.op, DequantizeLinear) and node.inputs[0] not in known:
        integers = node.inputs[0]
        if quantised(node.output) is None or _number(integers, evaluate) is not None:
            return None
        levels = np.arange(256, dtype=np.uint8).view(integers.element_type.dtype)
        table = _table(node, {integers: levels}, integers, evaluate)
        return None if table is None else _Function(integers, table, 0, slow=False)
    before = [known[port] for port in node.inputs if port in known]
    if not before or not _is_pointwise(node):
        return None
    source = before[0].source
    if any(each.source is not source for each in before):
        return None
    tables = {port: known[port].table for port in node.inputs if port in known}
    table = _table(node, tables, source, evaluate)
    if table is None:
        return None
    rounds = isinstance(node.op, QuantizeLinear)
    is_function = isinstance(node.op, (UnaryPointwise, BinaryPointwise))
    slow = is_function and find_lowering(type(node.op)) is None
    return _Function(
        source,
        table,
        max(each.roundings for each in before) + rounds,
        slow=slow or any(each.slow for each in before),
    )


def _may_follow(integers: Port, users: Users) -> bool:
    """Whether what is quantised here alone may be computed in one step with what follows."""
    readers = users.get(integers, [])
    if not isinstance(integers.node.op, QuantizeLinear) or len(readers) != 1:
        return False
    return len(users.get(readers[0][0].output, [])) == 1


def _is_pointwise(node: Node) -> bool:
    """Whether an element of the result is a function of the elements in its place."""
    if isinstance(node.op, QuantizeLinear):
        return quantiser(node) is not None
    if isinstance(node.op, DequantizeLinear):
        return quantised(node.output) is not None
    is_known = isinstance(node.op, (UnaryPointwise, BinaryPointwise))
    return is_known and node.output.element_type is ElementType.f32


def _table(
    node: Node, tables: dict[Port, Array], source: Port, evaluate: Evaluate | None
) -> Array | None:
    """What a node makes of tables and numbers; None where it reads more, or adds axes."""
    rank = source.desc.rank
    if evaluate is None or rank is None or node.output.desc.rank != rank:
        return None
    inputs: list[Array] = []
    for port in node.inputs:
        given = tables.get(port)
        if given is None:
            given = _number(port, evaluate)
        if given is None:
            return None
        inputs.append(given)
    made = evaluate(node.op, inputs)
    if made is None or made[0].shape != (256,) or np.isnan(made[0].astype(np.float32)).any():
        return None
    return made[0]


def _number(port: Port, evaluate: Evaluate | None) -> Array | None:
    """The one number of a constant, without axes; of one that is dequantised, too."""
    value, node = port.node.constant, port.node
    if value is None and isinstance(node.op, DequantizeLinear) and evaluate is not None:
        given = [each.node.constant for each in node.inputs]
        arrays = [array for array in given if array is not None]
        made = evaluate(node.op, arrays) if len(arrays) == len(given) else None
        value = None if made is None else made[0]
    return None if value is None or value.size != 1 else value.reshape(())
