"""inline: an If whose condition is known for the shapes at hand becomes the body it chooses."""

from __future__ import annotations

from collections.abc import Callable

from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.control_flow import If
from polydevice.rewrites.pattern import Replacements


def inline(network: Network, prepared: Callable[[Network], Network]) -> bool:
    """Put bodies in the place of their If nodes; says whether there were any.

    Models often choose by a size, which is known once shapes are. The network's shapes must be
    inferred before, and again after. `prepared` returns a body with the passes applied.
    """
    replacements = Replacements()
    found = False
    for node in network.nodes():
        condition = node.inputs[0].desc.constant if isinstance(node.op, If) else None
        if isinstance(node.op, If) and condition is not None:
            _put(network, replacements, node, node.op, bool(condition.all()), prepared)
            found = True
    replacements.apply(network)
    return found


def _put(
    network: Network,
    replacements: Replacements,
    node: Node,
    op: If,
    chosen: bool,
    prepared: Callable[[Network], Network],
) -> None:
    body = op.then_body if chosen else op.else_body
    assert isinstance(body, Network)
    copy = prepared(body).clone()
    fed: dict[Port, Port] = {
        copy.parameters[tie.parameter].output: node.inputs[tie.input]
        for tie in (op.then_inputs if chosen else op.else_inputs)
    }
    for inner in copy.nodes():
        inner.name = f"{node.name}/{inner.name}"
        inner.inputs = [fed.get(port, port) for port in inner.inputs]
    for tie in op.then_outputs if chosen else op.else_outputs:
        replacements.put(node.outputs[tie.output], copy.results[tie.result].inputs[0])
    network.sinks += copy.sinks
