"""Operations that move elements work on integers: quantising goes before them, back behind them."""

from __future__ import annotations

from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.concat import Concat
from polydevice.ops.op import Op
from polydevice.ops.pooling import MaxPool, MaxPoolWithIndices
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.slice import Slice, StridedSlice
from polydevice.ops.split import Split, VariadicSplit
from polydevice.ops.transpose import Transpose
from polydevice.rewrites.integers.quantised import quantised, quantiser

MOVES: tuple[type[Op], ...] = (
    *(Reshape, Squeeze, Unsqueeze, Transpose, Concat, Slice, StridedSlice, Split, VariadicSplit),
    *(MaxPool, MaxPoolWithIndices),
)
"""Each element of their results is one of their data's, whichever numbers those are."""


def data_inputs(node: Node) -> list[Port]:
    """The inputs whose elements are moved."""
    return node.inputs if isinstance(node.op, Concat) else node.inputs[:1]


def raise_quantize(network: Network) -> None:
    """Quantise before elements are moved, where all that is done with them is to quantise."""
    users = {port: [user for user, _ in found] for port, found in network.consumers().items()}
    for node in reversed(network.nodes()):
        readers = users.get(node.outputs[0], []) if len(node.outputs) == 1 else []
        if not isinstance(node.op, MOVES) or len(readers) != 1 or quantiser(readers[0]) is None:
            continue
        data = data_inputs(node)
        if not any(isinstance(port.node.op, DequantizeLinear) for port in data):
            continue
        (reader,) = readers
        before = Emitter(reader.name, origins=reader.layers)
        early = [
            before.emit(reader.op, port, *reader.inputs[1:], name=f"{reader.name}/{index}")
            for index, port in enumerate(data)
        ]
        for port, quantised_early in zip(data, early, strict=True):
            users[port] = [quantised_early.node if user is node else user for user in users[port]]
        build = Emitter(node.name, origins=node.layers)
        moved = build.replacement(node, node.op, *early, *node.inputs[len(data) :])
        moved.names |= reader.output.names
        users[moved] = users[reader.output]
        for user in users[reader.output]:
            user.inputs = [moved if port is reader.output else port for port in user.inputs]


def sink_dequantize(network: Network) -> None:
    """Move integers instead of what is made of them; drop what is dequantised and quantised."""
    new: dict[Port, Port] = {}
    for node in network.nodes():
        node.inputs = [new.get(port, port) for port in node.inputs]
        if isinstance(node.op, QuantizeLinear):
            before, after = quantised(node.inputs[0]), quantiser(node)
            if before is not None and after == before.parameters:
                before.integers.names |= node.output.names
                new[node.output] = before.integers
        elif isinstance(node.op, MOVES):
            _move(node, new)


def _move(node: Node, new: dict[Port, Port]) -> None:
    data = data_inputs(node)
    values = [quantised(port) for port in data]
    first = values[0]
    if first is None or first.integers.node.constant is not None:
        return
    if any(value is None or value.parameters != first.parameters for value in values):
        return
    integers = [value.integers for value in values if value is not None]
    build = Emitter(node.name, origins=node.layers)
    rest = node.inputs[len(data) :]
    moved = build.emit_all(node.op, *integers, *rest, name=f"{node.name}/integers")
    back = data[0].node
    for old, port in zip(node.outputs, moved, strict=True):
        if port.element_type is not integers[0].element_type:  # indices of maxima
            new[old] = port
            continue
        made = build.replacement(node, back.op, port, *back.inputs[1:])
        if len(node.outputs) > 1:
            made.node.name = f"{node.name}/{old.index}"
        made.names |= old.names
        new[old] = made
