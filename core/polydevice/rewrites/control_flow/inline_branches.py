"""inline_branches: an If whose condition is known becomes the layers of the body it chooses."""

from __future__ import annotations

from collections.abc import Callable

from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.control_flow import If
from polydevice.rewrites.pattern import Replacements

Prepared = Callable[[Network], Network]
"""Returns what a body computes, as a device has it already."""


def _as_it_is(body: Network) -> Network:
    return body


def inline_branches(network: Network, prepared: Prepared = _as_it_is) -> bool:
    """Write such bodies out, also those in others; return whether there were any.

    Models often choose by a size, which is known once shapes are. The network's shapes must be
    inferred before, and are again. Layers are called ``<If>/<layer>``.
    """
    found = False
    while _inline(network, prepared):
        network.infer()  # conditions in the bodies may be known now
        found = True
    return found


def _inline(network: Network, prepared: Prepared) -> int:
    replacements = Replacements()
    for node in network.nodes():
        condition = node.inputs[0].desc.constant if isinstance(node.op, If) else None
        if isinstance(node.op, If) and condition is not None:
            _put(network, replacements, node, node.op, bool(condition.all()), prepared)
    return replacements.apply(network)


def _put(
    network: Network,
    replacements: Replacements,
    node: Node,
    op: If,
    chosen: bool,
    prepared: Prepared,
) -> None:
    body = op.then_body if chosen else op.else_body
    ties = op.then_inputs if chosen else op.else_inputs
    assert isinstance(body, Network)
    copy = prepared(body).clone()
    fed: dict[Port, Port] = {
        copy.parameters[tie.parameter].output: node.inputs[tie.input] for tie in ties
    }
    nodes = copy.nodes()
    own = {parameter.output for parameter in copy.parameters}
    if any(port in own and port not in fed for inner in nodes for port in inner.inputs):
        return  # nothing feeds a parameter
    for inner in nodes:
        inner.name = f"{node.name}/{inner.name}"
        inner.inputs = [fed.get(port, port) for port in inner.inputs]
    for out in op.then_outputs if chosen else op.else_outputs:
        replacements.put(node.outputs[out.output], copy.results[out.result].inputs[0])
    network.sinks += copy.sinks
