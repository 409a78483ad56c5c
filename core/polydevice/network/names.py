"""Names that nothing in a network has yet."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polydevice.network.graph import Graph


def unique_name(network: Graph, name: str) -> str:
    """Return `name`, or `name` with the first free number behind it."""
    return first_free(name, {node.name for node in network.nodes()})


def namer(network: Graph) -> Callable[[str], str]:
    """Return a function that gives a new name for a wanted one, a different one each time."""
    taken = {node.name for node in network.nodes()}

    def unique(name: str) -> str:
        free = first_free(name, taken)
        taken.add(free)
        return free

    return unique


def first_free(name: str, taken: AbstractSet[str]) -> str:
    """Return `name`, or `name` with the first free number behind it."""
    if name not in taken:
        return name
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"
