"""share_coordinates: the places of a mask are found once for all that is chosen by it.

Models choose each value by `x[mask]`, and exporters write NonZero and what follows for each. Found
once, all that is chosen is known to be as much.
"""

from __future__ import annotations

from collections.abc import Hashable

from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.convert import Convert
from polydevice.ops.gather import Gather
from polydevice.ops.op import Op
from polydevice.ops.reshape import Reshape, ShapeOf, Squeeze, Unsqueeze
from polydevice.ops.search import NonZero
from polydevice.ops.slice import Slice, StridedSlice
from polydevice.ops.split import Split, VariadicSplit
from polydevice.ops.transpose import Transpose
from polydevice.rewrites.pattern import Replacements

FOLLOWERS: tuple[type[Op], ...] = (
    Convert, Gather, Reshape, ShapeOf, Slice, Split, Squeeze, StridedSlice, Transpose, Unsqueeze,
    VariadicSplit,
)  # fmt: skip
"""What takes coordinates apart; nothing else is looked at."""


def share_coordinates(network: Network) -> int:
    """Let readers of equal coordinates read the first ones; return how many were the same."""
    replacements = Replacements()
    known: dict[Hashable, list[Node]] = {}
    coordinates: set[Port] = set()
    for node in network.nodes():
        inputs = [replacements.now(port) for port in node.inputs]
        follows = isinstance(node.op, FOLLOWERS) and not coordinates.isdisjoint(inputs)
        if not (follows or isinstance(node.op, NonZero)):
            continue
        alike = known.setdefault((type(node.op), *map(_read, inputs)), [])
        same = next((other for other in alike if other.op == node.op), None)
        if same is None:
            alike.append(node)
            coordinates.update(node.outputs)
            continue
        for port, other in zip(node.outputs, same.outputs, strict=True):
            replacements.put(port, other)
    return replacements.apply(network)


def _read(port: Port) -> Hashable:
    """A port, or what a constant holds."""
    constant = port.node.constant
    if constant is None or constant.dtype.hasobject:
        return port
    return constant.shape, constant.dtype.str, constant.tobytes()
