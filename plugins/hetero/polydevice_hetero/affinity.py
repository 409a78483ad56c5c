"""affinity: which member runs which node, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from polydevice.dataclass import dataclass
from polydevice.device_name import DeviceName
from polydevice.errors import DeviceNameError, UnsupportedNetworkError
from polydevice.network import Network
from polydevice.node import Node

AFFINITY = "affinity"
"""Key of a node's rt_info by which a user places it."""

_FOLLOWERS = ("Parameter", "Const", "Result")
"""Nodes that compute nothing; they go where their neighbours are."""


@dataclass(frozen=True)
class Assignment:
    """Where a node runs, and the sentence that explains it."""

    device: str
    reason: str


def assign(
    network: Network, members: Sequence[str], refused: Mapping[str, Mapping[str, str]]
) -> dict[Node, Assignment]:
    """Give every node a member.

    Args:
        network: the network to place.
        members: device names in order of preference.
        refused: member → node name → why the member cannot run the node.

    Raises:
        UnsupportedNetworkError: listing every node that no member can run, or, with manual
            affinities, every node without one.
        DeviceNameError: for an affinity that names no device.
    """
    manual = any(AFFINITY in node.rt_info for node in network.nodes())
    placed = _manual(network) if manual else _automatic(network, members, refused)
    place_followers(network, placed, members[0])
    return placed


def _manual(network: Network) -> dict[Node, Assignment]:
    placed: dict[Node, Assignment] = {}
    missing: list[Node] = []
    for node in network.nodes():
        device = node.rt_info.get(AFFINITY)
        if device is None:
            if node.type not in _FOLLOWERS:
                missing.append(node)
            continue
        try:
            DeviceName.parse(str(device))
        except DeviceNameError as error:
            raise DeviceNameError(f"affinity of {node.title}: {error}") from None
        placed[node] = Assignment(str(device), "affinity set by the user")
    if missing:
        names = ", ".join(f"{n.name} ({n.type})" for n in missing[:20])
        raise UnsupportedNetworkError(
            f"{len(missing)} nodes have no affinity while others have one: {names}"
            f"{'…' if len(missing) > 20 else ''}. Set rt_info['affinity'] on every node, or on none"
        )
    return placed


def _automatic(
    network: Network, members: Sequence[str], refused: Mapping[str, Mapping[str, str]]
) -> dict[Node, Assignment]:
    placed, homeless = _claimed(network, members, refused)
    if homeless:
        raise UnsupportedNetworkError(
            f"none of {', '.join(members)} can run {len(homeless)} nodes:\n  "
            + "\n  ".join(f"{node.title}: {reason}" for node, reason in homeless.items())
            + "\nAdd a device that can, or define them as custom layers"
        )
    return placed


def _claimed(
    network: Network, members: Sequence[str], refused: Mapping[str, Mapping[str, str]]
) -> tuple[dict[Node, Assignment], dict[Node, str]]:
    """Give every computing node to the first member that can run it; return also the others."""
    placed: dict[Node, Assignment] = {}
    homeless: dict[Node, str] = {}
    for node in network.nodes():
        if node.type in _FOLLOWERS:
            continue
        reasons: list[str] = []
        for member in members:
            why = refused[member].get(node.name)
            if why is None:
                reason = "; ".join(reasons) or f"first of {', '.join(members)} that can run it"
                placed[node] = Assignment(member, reason)
                break
            reasons.append(f"{member} cannot run it: {why}")
        else:
            homeless[node] = "; ".join(reasons)
    return placed, homeless


def claims(
    network: Network, members: Sequence[str], refused: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """Return node name → member for the nodes that some member can run; see `assign`."""
    placed, homeless = _claimed(network, members, refused)
    place_followers(network, placed, members[0], homeless)
    return {node.name: assignment.device for node, assignment in placed.items()}


def is_follower(node: Node) -> bool:
    """Whether a node computes nothing, and goes where its neighbours are."""
    return node.type in _FOLLOWERS


def place_followers(
    network: Network,
    placed: dict[Node, Assignment],
    default: str,
    homeless: Collection[Node] = (),
) -> None:
    """Put inputs and constants with their first reader, and results with their producer.

    Those whose only neighbours are homeless are so, too.
    """
    consumers = network.consumers()
    nodes = network.nodes()
    for node in reversed(nodes):
        if node in placed or node in homeless or node.type == "Result":
            continue
        readers = [user for port in node.outputs for user, _ in consumers[port]]
        found = next((placed[user] for user in readers if user in placed), None)
        if found is None and any(user in homeless for user in readers):
            continue
        placed[node] = Assignment(found.device if found else default, "kept with its reader")
    for node in nodes:
        if node.type == "Result" and node not in placed and node.inputs[0].node in placed:
            device = placed[node.inputs[0].node].device
            placed[node] = Assignment(device, "kept with its producer")
