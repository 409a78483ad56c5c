"""add_guards: hide padding from operations that would mix it with the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network, namer
from polydevice.node import Node, Port
from polydevice.ops.arithmetic import Divide
from polydevice.ops.io import Parameter
from polydevice.ops.reduce import ReduceMean
from polydevice.ops.select import Select
from polydevice.padding.state import Guard
from polydevice.shape import Shape


def add_guards(network: Network, guards: Sequence[Guard]) -> dict[str, str]:
    """Put a choice before each operation that has to be guarded, by inputs that are added.

    Args:
        network: what is changed.
        guards: what to hide.

    Returns:
        Padded size → name of the input, 1-D boolean of the padded size: true where no padding is.
    """
    unique = namer(network)
    nodes = {node.name: node for node in network.nodes()}
    valid: dict[str, Node] = {}
    made: dict[tuple[Port, int, float], Port] = {}
    for guard in guards:
        if guard.symbol not in valid:
            op = Parameter(ElementType.boolean, Shape([None]))
            valid[guard.symbol] = Node(unique("no padding"), op)
        node = nodes[guard.node]
        port, mask = node.inputs[guard.index], valid[guard.symbol].output
        key = port, guard.axis, float(guard.fill)
        if key not in made:
            made[key] = _hidden(node, port, mask, guard, unique)
        node.inputs[guard.index] = made[key]
        if guard.means:
            network.replace({node.output: _of_own(node, mask, unique)})
    network.parameters += valid.values()
    network.infer()
    return {symbol: node.name for symbol, node in valid.items()}


def _hidden(node: Node, port: Port, mask: Port, guard: Guard, unique: Callable[[str], str]) -> Port:
    """Return a value with something else where padding is."""
    build = Emitter(f"{node.name}/no padding", origins=node.layers)
    behind = guard.rank - 1 - guard.axis
    column = build.reshape(mask, [-1, *[1] * behind])
    made = build.emit(Select(), column, port, _fill(build, port, guard.fill))
    build.name_nodes([made], unique)
    return made


def _fill(build: Emitter, port: Port, fill: float | bool) -> Port:
    kind = port.element_type
    if kind.is_integer and isinstance(fill, float) and np.isinf(fill):
        limits = np.iinfo(kind.dtype)
        return build.like(limits.min if fill < 0 else limits.max, port)
    return build.like(fill, port)


def _of_own(node: Node, mask: Port, unique: Callable[[str], str]) -> Port:
    """Return a mean over an axis with zeros for padding as one over what is no padding."""
    build = Emitter(f"{node.name}/no padding", origins=node.layers)
    kept = build.emit(
        ReduceMean(keep_dims=False), build.convert(mask, node.output.element_type), [0]
    )
    made = build.emit(Divide(), node.output, kept)
    build.name_nodes([made], unique)
    return made
