"""merge_additions: two constants that are added one after the other become one.

So a convolution's own bias and the shift of a folded batch normalisation are one bias.
"""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.arithmetic import Add
from polydevice.ops.pointwise import AutoBroadcast
from polydevice.rewrites.pattern import Replacements


def merge_additions(network: Network) -> None:
    """Merge where nothing else reads the inner sum and the constants stay as small as they are."""
    users = network.consumers()
    replacements = Replacements()
    for node in network.nodes():
        node.inputs = [replacements.now(port) for port in node.inputs]
        outer = _parts(node)
        inner = None if outer is None else _parts(outer[0].node)
        if outer is None or inner is None or len(users[outer[0]]) > 1:
            continue
        total = np.asarray(outer[1] + inner[1], np.float32)
        if total.size > max(outer[1].size, inner[1].size):
            continue
        summand = constant(f"{node.name}/summand", total)
        merged = replacements.put_node(node, Add(), [inner[0], summand.output])
        users[merged] = users[node.output]
    replacements.apply(network)


def _parts(node: Node) -> tuple[Port, Array] | None:
    """(value, constant) of an addition in f32 that keeps the value's shape."""
    if not isinstance(node.op, Add) or node.op.auto_broadcast is not AutoBroadcast.NUMPY:
        return None
    for value, other in (node.inputs, node.inputs[::-1]):
        array = other.node.constant
        if array is None or array.dtype != np.float32 or value.node.constant is not None:
            continue
        if value.shape == node.output.shape:
            return value, array
    return None
