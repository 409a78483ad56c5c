"""Placement: where each node of a loaded network runs, and why."""

from __future__ import annotations

from polydevice.dataclass import dataclass
from polydevice.tensor import TensorDesc


@dataclass(frozen=True)
class Placement:
    """One node of a network as its user knows it.

    Attributes:
        node: the node's name.
        type: its operation type.
        device: where it runs; "" for what was computed when the network was loaded.
        reason: why it runs there.
        subgraph: number of the part it belongs to; None for inputs, constants and results.
        bytes_in: bytes that cross from other devices to reach it; None when a shape is dynamic.
    """

    node: str
    type: str
    device: str
    reason: str
    subgraph: int | None = None
    bytes_in: int | None = 0


def bytes_of(desc: TensorDesc) -> int | None:
    """Return the size of a value in bytes, None while its shape is not known."""
    if not desc.is_static or desc.shape is None:
        return None
    return desc.shape.elements * desc.element_type.dtype.itemsize
