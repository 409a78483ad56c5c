"""inline_branches: an If whose condition is known becomes the layers of the body it chooses."""

from __future__ import annotations

import numpy as np

from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.control_flow import If
from polydevice.ops.io import Parameter, Result


def inline_branches(network: Network) -> bool:
    """Write such bodies out, also those in others; return whether there were any.

    Their layers are called ``<If>/<layer>``. Infer the network's shapes again afterwards.
    """
    found = False
    while True:
        for node in network.nodes():
            if isinstance(node.op, If) and _inline(network, node, node.op):
                found = True
                break  # the list of nodes is another one now
        else:
            return found


def _inline(network: Network, node: Node, op: If) -> bool:
    port = node.inputs[0]
    known = port.node.constant if port.node.constant is not None else port.desc.constant
    if known is None:
        return False
    chosen = bool(np.asarray(known).all())
    body, ties, outputs = op.else_body, op.else_inputs, op.else_outputs
    if chosen:
        body, ties, outputs = op.then_body, op.then_inputs, op.then_outputs
    assert isinstance(body, Network)
    if body.sinks:
        return False
    ports: dict[Port, Port] = {
        body.parameters[tie.parameter].output: node.inputs[tie.input] for tie in ties
    }
    emitter = Emitter(node.name, evaluate=network.evaluate)
    for inner in body.nodes():
        if isinstance(inner.op, (Parameter, Result)):
            continue
        if any(source not in ports for source in inner.inputs):
            return False  # nothing feeds a parameter
        name = f"{node.name}/{inner.name}"
        made = emitter.emit_all(inner.op, *(ports[source] for source in inner.inputs), name=name)
        for port in made:
            port.node.rt_info = dict(inner.rt_info)
        ports.update(zip(inner.outputs, made, strict=True))
    sources = {out.output: body.results[out.result].inputs[0] for out in outputs}
    if any(source not in ports for source in sources.values()):
        return False
    network.replace({node.outputs[i]: ports[source] for i, source in sources.items()})
    return True
