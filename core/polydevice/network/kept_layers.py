"""Layers that a device keeps in f32 although it was told to compute in less.

A node's note `KEEP_F32` asks for it; its text says why. The accuracy guard writes such notes, and
users may. They are part of IR files, of exported networks, and of parts of networks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from polydevice.dataclass import dataclass
from polydevice.network import Network
from polydevice.node import Node

KEEP_F32 = "keep_f32"
"""Key of a node's notes (`Node.rt_info`)."""

GUARD = "accuracy_guard"
"""Key of a network's notes: what the accuracy guard measured, as lines of text."""


ALL_F32 = "accuracy_guard_all_f32"
"""Key of a network's notes: the guard loaded it in f32, since nothing less was within the bound."""


@dataclass(frozen=True)
class KeptLayers:
    """Which layers of a network are kept in f32.

    Attributes:
        reasons: layer → why.
        inner: names of the nodes in bodies of such layers.
    """

    reasons: Mapping[str, str] = field(default_factory=dict)
    inner: frozenset[str] = frozenset()

    @classmethod
    def of(cls, network: Network) -> KeptLayers:
        """Read the notes of a network's nodes."""
        marked = [node for node in network.nodes() if KEEP_F32 in node.rt_info]
        inner = {name for node in marked for name in _inside(node)}
        reasons = {node.name: str(node.rt_info[KEEP_F32]) for node in marked}
        return cls(reasons, frozenset(inner))

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.reasons)

    def has(self, layers: Iterable[str]) -> bool:
        """Whether one of these layers is kept, or is an iteration's of a loop that is."""
        if not self.reasons:
            return False
        return any(name in self.reasons or name in self.inner or self._in_loop(name)
                   for name in layers)  # fmt: skip

    def _in_loop(self, name: str) -> bool:
        return bool(self.inner) and any(name.startswith(f"{kept}/") for kept in self.reasons)

    def lines(self, network: Network) -> list[str]:
        """Say what is kept and what the accuracy guard measured, for `explain`."""
        said = str(network.rt_info.get(GUARD, ""))
        lines = [f"accuracy guard: {said}"] if said else []
        return lines + [f"kept in f32: {name}: {why}" for name, why in self.reasons.items()]


NONE_KEPT = KeptLayers()


def keep(network: Network, reasons: Mapping[str, str]) -> None:
    """Mark layers of a network.

    Args:
        network: which is changed.
        reasons: names of nodes → why.
    """
    for node in network.nodes():
        if node.name in reasons:
            node.rt_info[KEEP_F32] = reasons[node.name]


def _inside(node: Node) -> list[str]:
    names = []
    for body in _bodies(node):
        for inner in body.nodes():
            names += [inner.name, *_inside(inner)]
    return names


def _bodies(node: Node) -> list[Network]:
    if not node.op.has_bodies:
        return []
    values = vars(node.op).values()
    return [value for value in values if isinstance(value, Network)]
