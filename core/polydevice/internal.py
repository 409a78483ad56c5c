"""internal: the report of an assumption of polydevice's own that did not hold.

Made at one place per call of the API (reading, loading), whatever raised and wherever.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from polydevice.errors import InternalError
from polydevice.node import Node

if TYPE_CHECKING:
    from polydevice.network import Network

REPORT_TO = "the project's issue tracker"


def internal_error(
    doing: str, error: BaseException, network: Network | None = None, content: bytes | None = None
) -> InternalError:
    """Return the error to raise instead of a foreign one.

    Args:
        doing: what failed ("CPU failed while loading a network").
        error: what was raised.
        network: what it was raised for, if it was read already.
        content: the model file, if it was not.
    """
    node = _node_of(error)
    parts = [f"{doing}: {error!r}"]
    if node is not None:
        parts.append(f"at node {node.name!r} ({node.type}, {node.op.opset})")
    if network is not None:
        parts.append(f"network {network.name!r}, {_hash_of(network)}")
    if content is not None:
        parts.append(f"model sha256:{hashlib.sha256(content).hexdigest()}")
    return InternalError(
        "; ".join(parts)
        + f". This is a defect of polydevice: please report it to {REPORT_TO} with "
        "this message, the traceback and, if you may, the model (SECURITY.md if it came from a "
        "stranger)"
    )


def _node_of(error: BaseException) -> Node | None:
    """Return the node that the innermost function with one was working on."""
    found = None
    trace = error.__traceback__
    while trace is not None:
        for name in ("node", "self"):
            value = trace.tb_frame.f_locals.get(name)
            if isinstance(value, Node):
                found = value
        trace = trace.tb_next
    return found


def _hash_of(network: Network) -> str:
    """Return a hash of the operations and how they are connected, without names and weights."""
    digest = hashlib.sha256()
    number = {node: index for index, node in enumerate(network.nodes())}
    for node in network.nodes():
        sources = [(number.get(port.node), port.index) for port in node.inputs]
        shapes = [str(port.desc.without_value()) for port in node.outputs]
        digest.update(repr((node.type, node.op.opset, sources, shapes)).encode())
    return f"sha256:{digest.hexdigest()}"
