"""join_equals: one node computes what several equal ones would, as masks of all layers are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.rewrites.pattern import Replacements

_FEW_BYTES = 256
"""Constants up to here are equal where their elements are; larger ones where they are the same."""


def computes(node: Node, _: Sequence[Port] = ()) -> bool:
    """Whether what a node gives follows from its inputs, and from nothing else."""
    op = node.op
    if isinstance(op, (Constant, Parameter, Result)):
        return False
    return not (op.is_stateful or op.has_side_effect or op.has_bodies)


def join_equals(network: Network, wanted: Callable[[Node, Sequence[Port]], bool] = computes) -> int:
    """Let the first of several equal nodes take the place of the others; return how many went.

    Args:
        network: it.
        wanted: whether a node may be one of them, with what it reads by now.
    """
    replacements, known = Replacements(), dict[object, Node]()
    count = 0
    for node in network.nodes():
        read = [replacements.now(port) for port in node.inputs]
        if not wanted(node, read):
            continue
        inputs = tuple(map(_identity, read))
        try:
            first = known.setdefault((type(node.op), node.op, inputs), node)
        except TypeError:  # an operation that holds an array has no hash
            continue
        if first is node or first.rt_info != node.rt_info:
            continue
        first.origins = tuple(dict.fromkeys((*first.layers, *node.layers)))
        for old, new in zip(node.outputs, first.outputs, strict=True):
            new.names |= old.names
            replacements.put(old, new)
        count += 1
    replacements.apply(network)
    return count


def _identity(port: Port) -> object:
    """What equal inputs have in common."""
    value = port.node.constant
    if value is None or value.dtype.hasobject or value.nbytes > _FEW_BYTES:
        return port
    return port.element_type, value.shape, value.tobytes()
