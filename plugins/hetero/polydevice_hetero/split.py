"""split: cut a placed network into as few subgraphs as possible, without cycles between them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field

from polydevice.dataclass import dataclass
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.io import Constant, Parameter


@dataclass
class Subgraph:
    """A part of a network that one device runs.

    Attributes:
        device: the member that runs it.
        network: the part, with a parameter for every value that comes from elsewhere.
        nodes: the nodes of the whole network that it computes.
        sources: input name → port of the whole network that feeds it.
        targets: output name → port of the whole network that it computes.
    """

    device: str
    network: Network
    nodes: list[Node]
    sources: dict[str, Port] = field(default_factory=dict)
    targets: dict[str, Port] = field(default_factory=dict)


def split(
    network: Network, device_of: Callable[[Node], str], first: Collection[Port] = ()
) -> list[Subgraph]:
    """Cut the network where values pass from one device to another.

    Subgraphs come in an order in which they can run: each needs only inputs of the network and
    outputs of earlier subgraphs.

    Args:
        network: what is cut.
        device_of: the device of every node.
        first: values that subgraphs of their own compute, so that they can run before the rest.
    """
    computing = [n for n in network.nodes() if n.type not in ("Parameter", "Const", "Result")]
    early = _ancestors(first)
    phases = schedule([node for node in computing if node in early], device_of)
    phases += schedule([node for node in computing if node not in early], device_of)
    return [_extract(network, device, nodes, index) for index, (device, nodes) in enumerate(phases)]


def _ancestors(ports: Collection[Port]) -> set[Node]:
    """Return the nodes on which values depend."""
    found: set[Node] = set()
    todo = [port.node for port in ports]
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(port.node for port in node.inputs)
    return found


def schedule(
    computing: list[Node], device_of: Callable[[Node], str]
) -> list[tuple[str, list[Node]]]:
    """Order computing nodes in phases of one device each, as few as possible.

    With two devices this is optimal: running everything that is ready before changing the device
    is never worse, so only the first device is a choice, and both are tried. With more devices
    the one with most ready work is taken, for every first device. The nodes come in topological
    order.
    """
    by_device: dict[str, list[Node]] = {}
    for node in computing:
        by_device.setdefault(device_of(node), []).append(node)
    plans = [_phases(computing, by_device, first) for first in by_device]
    if not plans:
        return []
    return min(plans, key=len)


def _phases(
    computing: list[Node], by_device: Mapping[str, list[Node]], first: str
) -> list[tuple[str, list[Node]]]:
    waiting = set(computing)
    left = {device: list(nodes) for device, nodes in by_device.items()}
    phases: list[tuple[str, list[Node]]] = []
    device = first
    while waiting:
        if phases or not _ready(left[device], waiting):
            device = max(left, key=lambda d: len(_ready(left[d], waiting)))
        nodes = _ready(left[device], waiting)
        waiting.difference_update(nodes)
        left[device] = [n for n in left[device] if n in waiting]
        phases.append((device, nodes))
    return phases


def _ready(nodes: list[Node], waiting: set[Node]) -> list[Node]:
    """Return the nodes whose inputs are computed, or computed by earlier ones of these nodes."""
    taken: set[Node] = set()
    ready: list[Node] = []
    for node in nodes:  # topological order
        if all(p.node not in waiting or p.node in taken for p in node.inputs):
            taken.add(node)
            ready.append(node)
    return ready


def _extract(network: Network, device: str, nodes: list[Node], index: int) -> Subgraph:
    inside = set(nodes)
    inputs = {
        port: port.name if isinstance(port.node.op, Parameter) else f"{port.name}/in"
        for node in nodes
        for port in node.inputs
        if port.node not in inside and not isinstance(port.node.op, Constant)
    }
    outputs = {
        port: f"{port.name}/out"
        for port, users in network.consumers().items()
        if port.node in inside and any(user not in inside for user, _ in users)
    }
    part = network.extract(nodes, inputs, outputs, name=f"{network.name}_{index}")
    for node in part.nodes():
        if not isinstance(node.op, Constant):
            for port in node.outputs:  # what followed from values that are outside now
                port.desc = port.desc.without_value()
    sources, targets = ({name: port for port, name in ports.items()} for ports in (inputs, outputs))
    return Subgraph(device, part, nodes, sources, targets)
