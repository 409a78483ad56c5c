"""room: a network whose weights are more than one member holds, laid over several in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polydevice.errors import OptionValueError, UnsupportedNetworkError, nearest
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.io import Constant
from polydevice_hetero.affinity import Assignment, is_follower

SHARE = 0.75
"""Of a device's memory that weights may take; the rest is for values and the driver."""

_DIGITS = 18
"""Of a number of bytes; no device comes near."""


def parse_memory(text: str, members: Sequence[str]) -> dict[str, int]:
    """Read ``GPU.0:8000000000,GPU.1:8000000000``: member → bytes of weights.

    Raises:
        OptionValueError: for anything else, or a name that is no member.
    """
    found: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        name, _, size = item.strip().rpartition(":")
        if name not in members:
            raise OptionValueError(
                f"HETERO_MEMORY names {name!r}, which is no member; members: "
                f"{', '.join(members)}.{nearest(name, members)}"
            )
        if not (size.isascii() and size.isdigit() and len(size) <= _DIGITS):
            raise OptionValueError(
                f"HETERO_MEMORY={text[:200]!r} is not possible; write members with bytes, as in "
                f"{members[0]}:8000000000"
            )
        if name in found:
            raise OptionValueError(f"HETERO_MEMORY={text[:200]!r} names {name!r} twice")
        found[name] = int(size)
    return found


def make_room(
    network: Network,
    placed: Mapping[Node, Assignment],
    members: Sequence[str],
    refused: Mapping[str, Mapping[str, str]],
    limits: Mapping[str, int],
) -> dict[Node, Assignment]:
    """Move nodes on to the next member once one holds as many weights as it may.

    A member that is full gets nothing more, so that each has one stretch of the network and
    requests follow each other through them as through a pipeline.

    Args:
        network: what is placed.
        placed: node → where it would run if there was room for everything.
        members: in order of preference.
        refused: member → node name → why it cannot run the node.
        limits: member → bytes of weights that it may hold; members without any hold everything.

    Raises:
        UnsupportedNetworkError: a node finds no room.
    """
    made = dict(placed)
    held = dict.fromkeys(limits, 0)
    known: dict[str, set[Node]] = {member: set() for member in limits}
    full: dict[str, str] = {}
    for node in network.nodes():
        if is_follower(node):
            continue
        constants = {port.node for port in node.inputs if isinstance(port.node.op, Constant)}
        reasons: list[str] = []
        for member in members[members.index(placed[node].device) :]:
            why = full.get(member) or refused[member].get(node.name, "")
            if not why and member in limits:
                more = sum(_size(constant) for constant in constants - known[member])
                if held[member] + more > limits[member]:
                    why = full[member] = (
                        f"its parts hold {held[member]} of {limits[member]} bytes of weights"
                    )
                else:
                    held[member] += more
                    known[member] |= constants
            if not why:
                if reasons:
                    made[node] = Assignment(member, "; ".join(reasons))
                break
            reasons.append(f"not on {member}: {why}")
        else:
            raise UnsupportedNetworkError(
                f"there is no room for {node.title}: {'; '.join(reasons)}. Add a member, or give "
                "more with HETERO_MEMORY"
            )
    return made


def _size(constant: Node) -> int:
    op = constant.operation(Constant)
    return int(op.value.nbytes)


def weight_bytes(network: Network) -> int:
    """Return the bytes of all constants."""
    return sum(_size(node) for node in network.nodes() if isinstance(node.op, Constant))
