"""Operations that move elements work on integers: quantising goes before them, back behind them."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.concat import Concat
from polydevice.ops.interpolate import (
    Interpolate,
    Interpolate1,
    Interpolate4,
    InterpolateMode,
)
from polydevice.ops.op import Op
from polydevice.ops.pad import Pad, PadMode
from polydevice.ops.pooling import MaxPool, MaxPoolWithIndices
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.slice import Slice, StridedSlice
from polydevice.ops.split import Split, VariadicSplit
from polydevice.ops.transpose import Transpose
from polydevice.rewrites.integers.quantised import (
    Parameters,
    quantised,
    quantised_constant,
    quantiser,
)

MOVES: tuple[type[Op], ...] = (
    *(Reshape, Squeeze, Unsqueeze, Transpose, Concat, Slice, StridedSlice, Split, VariadicSplit),
    *(MaxPool, MaxPoolWithIndices),
)
"""Each element of their results is one of their data's, whichever numbers those are."""


def moves(node: Node) -> bool:
    """Whether each element of the results is one of the data's, or a number that fills a border."""
    if isinstance(node.op, (Interpolate1, Interpolate4, Interpolate)):
        padded = any((*node.op.pads_begin, *node.op.pads_end))
        return node.op.mode in ("nearest", InterpolateMode.NEAREST) and not padded
    return isinstance(node.op, (*MOVES, Pad))


def data_inputs(node: Node) -> list[Port]:
    """The inputs whose elements are moved."""
    return node.inputs if isinstance(node.op, Concat) else node.inputs[:1]


def raise_quantize(network: Network) -> None:
    """Quantise before elements are moved, where all that is done with them is to quantise."""
    users = {port: [user for user, _ in found] for port, found in network.consumers().items()}
    for node in reversed(network.nodes()):
        readers = users.get(node.outputs[0], []) if len(node.outputs) == 1 else []
        if not moves(node) or len(readers) != 1:
            continue
        parameters, data = quantiser(readers[0]), data_inputs(node)
        rest = None if parameters is None else _rest(node, parameters)
        if rest is None:
            continue
        # Borders become padding of what multiplies the integers, so that these are worth making.
        held = any(isinstance(port.node.op, DequantizeLinear) for port in data)
        if not held and not isinstance(node.op, Pad):
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
        moved = build.replacement(node, node.op, *early, *rest)
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
        elif moves(node):
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
    rest = _rest(node, first.parameters)
    if rest is None:
        return
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


def _rest(node: Node, parameters: Parameters) -> list[Port] | None:
    """The inputs that are no data, for integers of these parameters; None without such integers."""
    if not isinstance(node.op, Pad) or node.op.pad_mode is not PadMode.CONSTANT:
        return node.inputs[len(data_inputs(node)) :]
    scale, zero, kind = parameters
    value = _number(node.inputs[3]) if len(node.inputs) > 3 else np.zeros(())
    if value is None or value.size != 1:
        return None
    whole = np.rint(np.float32(value.reshape(())) / np.float32(scale))
    limits = np.iinfo(kind.dtype)
    if whole * np.float32(scale) != value.reshape(()) or not (
        limits.min <= whole + zero <= limits.max
    ):
        return None
    border = constant(f"{node.name}/border", np.asarray(whole + zero, kind.dtype)).output
    return [*node.inputs[1:3], border]


def _number(port: Port) -> Array | None:
    """A constant, which quantisers quantise as well."""
    found = None if port.node.constant is not None else quantised_constant(port, None)
    if found is None:
        return port.node.constant
    return np.asarray((found.integers + found.lacking) * found.scale, np.float32)
