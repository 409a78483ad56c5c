"""What IR files cannot express of a network."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from polydevice.dtype import ElementType
from polydevice.errors import UnsupportedOperationError
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.control_flow import If, Iteration
from polydevice.ops.io import Constant, Parameter, Result

_FOREIGN_TYPES = frozenset(
    {
        ElementType.i2,
        ElementType.c64,
        ElementType.c128,
        ElementType.f8e4m3fnuz,
        ElementType.f8e5m2fnuz,
    }
)
"""Element types that IR files do not have."""


def check_writable(network: Network) -> None:
    """Check that IR can express every operation of a network.

    Raises:
        UnsupportedOperationError: listing type, reason, number of nodes and the first node.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for node in _all_nodes(network):
        reason = obstacle(node)
        if reason is not None:
            groups.setdefault((node.type, reason), []).append(node.name)
    if not groups:
        return
    lines = [
        f"  {kind}: {len(names)} {'node' if len(names) == 1 else 'nodes'}, "
        f"first {names[0]!r}: {reason}"
        for (kind, reason), names in groups.items()
    ]
    raise UnsupportedOperationError(
        f"network {network.name!r} cannot be written as IR:\n" + "\n".join(lines) + "\n"
        "Keep the model in the format it was read from."
    )


def _all_nodes(network: Network) -> Iterator[Node]:
    for node in network.nodes():
        yield node
        for value in node.op.attributes().values():
            if isinstance(value, Network):
                yield from _all_nodes(value)


def obstacle(node: Node) -> str | None:
    """Say why IR cannot express a node, or None."""
    if node.op.domain in ("onnx", "com.microsoft"):
        return f"OpenVINO's operation sets have no such operation (it is of {node.op.domain})"
    for port in node.outputs:
        if port.desc.kind != "tensor":
            return f"IR has no values of kind {port.desc.kind}"
        if port.element_type in _FOREIGN_TYPES:
            return f"IR has no element type {port.element_type}"
    if isinstance(node.op, (Constant, Parameter, Result, Iteration, If)):
        return None
    for field in dataclasses.fields(node.op):
        value = getattr(node.op, field.name)
        said = field.metadata.get("ir") != "" or field.metadata.get("came_with") is not None
        if not said and value != field.default:
            return f"IR has no attribute for {field.name}={value!r}"
    return None
