"""floats_early: bytes that are moved and then all made floats are made floats before.

What rounds a value then stores floats, and what moves them is a view. Queries, keys and values of
attention are such: no processor multiplies bytes by bytes that are no constants, so that each would
take a launch to become floats.
"""

from __future__ import annotations

from collections.abc import Mapping

from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.io import Result
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.slice import Slice, StridedSlice
from polydevice.ops.split import Split, VariadicSplit
from polydevice.ops.transpose import Transpose
from polydevice.rewrites.integers.quantised import Parameters, quantised, quantiser
from polydevice.rewrites.pattern import Replacements
from polydevice_gpu.kernels.pointwise import expression

_VIEWS = (Reshape, Squeeze, Unsqueeze, Transpose, Slice, StridedSlice, Split, VariadicSplit)

_Users = Mapping[Port, list[tuple[Node, int]]]


def floats_early(network: Network) -> None:
    """Make floats of bytes before they are moved, if some are for others than pointwise operations.

    Those read bytes as they are, see `read_bytes`.
    """
    users, replacements = network.consumers(), Replacements()
    for node in network.nodes():
        parameters = quantiser(node)
        if parameters is None or not users.get(node.output):
            continue
        readers = _readers(node.output, parameters, users)
        if readers is None or not any(_reads_floats(each, users) for each in readers[1:]):
            continue
        back = next(each for each in readers if isinstance(each.op, DequantizeLinear))
        build = Emitter(back.name, origins=back.layers)
        new = {node.output: build.emit(back.op, node.output, *back.inputs[1:])}
        for each in readers:
            floats = new[each.inputs[0]]
            if isinstance(each.op, DequantizeLinear):
                replacements.put(each.output, floats)
                continue
            made = Emitter(each.name, origins=each.layers)
            moved = made.emit_all(each.op, floats, *each.inputs[1:])
            new.update(zip(each.outputs, moved, strict=True))
    replacements.apply(network)


def _readers(port: Port, parameters: Parameters, users: _Users) -> list[Node] | None:
    """Return what moves a value and makes floats of it, in order; None where others read it."""
    found: list[Node] = []
    for node, index in users.get(port, ()):
        if index:
            return None
        if isinstance(node.op, DequantizeLinear):
            value = quantised(node.output)
            if value is None or value.parameters != parameters:
                return None
            found.append(node)
            continue
        if not isinstance(node.op, _VIEWS):
            return None
        found.append(node)
        for moved in node.outputs:
            readers = _readers(moved, parameters, users)
            if readers is None:
                return None
            found += readers
    return found


def _reads_floats(node: Node, users: _Users) -> bool:
    """Whether a node makes floats for what is no pointwise operation."""
    if not isinstance(node.op, DequantizeLinear):
        return False
    others = (QuantizeLinear, DequantizeLinear, Result)
    return any(
        not isinstance(reader.op, others) and expression.find(type(reader.op)) is None
        for reader, _ in users.get(node.output, ())
    )
