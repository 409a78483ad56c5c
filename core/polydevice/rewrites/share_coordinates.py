"""share_coordinates: the places of a mask are found once for all that is chosen by it.

Models choose each value by `x[mask]`, and exporters write NonZero and what follows for each. Found
once, all that is chosen is known to be as much.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from polydevice.rewrites.join_equals import join_equals

FOLLOWERS: tuple[type[Op], ...] = (
    Convert, Gather, Reshape, ShapeOf, Slice, Split, Squeeze, StridedSlice, Transpose, Unsqueeze,
    VariadicSplit,
)  # fmt: skip
"""What takes coordinates apart; nothing else is looked at."""


def share_coordinates(network: Network) -> int:
    """Let readers of equal coordinates read the first ones; return how many were the same."""
    coordinates: set[Port] = set()

    def is_one(node: Node, read: Sequence[Port]) -> bool:
        follows = isinstance(node.op, FOLLOWERS) and not coordinates.isdisjoint(read)
        if follows or isinstance(node.op, NonZero):
            coordinates.update(node.outputs)
            return True
        return False

    return join_equals(network, is_one)
