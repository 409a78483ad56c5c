"""What the API raises in place of exceptions that are none of polydevice's.

Mostly an InternalError: the report of an assumption of polydevice's own that did not hold. Made at
one place per call of the API (reading, loading, inferring), whatever raised and wherever.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING

from polydevice.errors import (
    DeviceMemoryError,
    InferenceError,
    InternalError,
    NetworkError,
    PolydeviceError,
)
from polydevice.node import Node

if TYPE_CHECKING:
    from polydevice.network import Network

REPORT_TO = "the project's issue tracker"
OURS = frozenset(
    {"polydevice", "polydevice_auto", "polydevice_cpu", "polydevice_gpu", "polydevice_hetero"}
)
"""Packages of this distribution; what raises in others is no defect of it."""
_BELOW = frozenset({"numpy", "ml_dtypes", *sys.stdlib_module_names})


def _is_ours(error: BaseException) -> bool:
    """Whether an exception comes from code of this distribution, or from NumPy called by it."""
    rooted = [frame.f_globals.get("__name__", "").partition(".")[0] for frame in _frames(error)]
    above = [root for root in rooted if root not in _BELOW]
    return bool(above) and above[-1] in OURS


def inference_error(doing: str, error: BaseException, layers: Mapping[str, str]) -> PolydeviceError:
    """Return the error to raise where an inference raised what is no error of polydevice's.

    That is a DeviceMemoryError for a lack of memory, an InternalError where an assumption of ours
    broke, and an InferenceError for what others' code raised.

    Args:
        doing: what failed ("inference of 'resnet' on CPU failed").
        error: what was raised.
        layers: name → type of the network's layers, of which a hash says which network it is.
    """
    name = _layer_of(error, layers)
    place = "" if name is None else f"; at node {name!r} ({layers[name]})"
    if isinstance(error, MemoryError):
        return DeviceMemoryError(f"{doing}: {_no_memory(error)}{place}")
    if not _is_ours(error):
        return InferenceError(f"{doing}: {error!r}")
    digest = hashlib.sha256(repr(sorted(layers.items())).encode("utf-8", "replace")).hexdigest()
    return InternalError(f"{doing}: {error!r}{place}; layers sha256:{digest}{_REPORT}")


def name_layer(error: PolydeviceError, layers: Mapping[str, str]) -> None:
    """Begin the message of what the values of an inference broke with the layer, if it lacks it.

    Args:
        error: what was raised.
        layers: name → type of the network's layers.
    """
    if isinstance(error, (InferenceError, NetworkError, DeviceMemoryError)):
        name = _layer_of(error, layers)
        if name is not None and repr(name) not in str(error):
            error.args = (f"node {name!r} ({layers[name]}): {error}",)


def _layer_of(error: BaseException, layers: Mapping[str, str]) -> str | None:
    """Return the name of the layer that the innermost function that knows one was at."""
    return next(
        (
            value
            for frame in reversed(list(_frames(error)))
            for value in _names(frame)
            if layers.get(value, "Parameter") not in ("Parameter", "Result")
        ),
        None,
    )


def _frames(error: BaseException) -> Iterator[FrameType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _names(frame: FrameType) -> Iterator[str]:
    """Yield what a function may know of the layer it is at: the layer, a step, or its name."""
    for key in ("node", "layer", "step", "name", "self"):
        value = frame.f_locals.get(key)
        value = value if isinstance(value, str) else getattr(value, "name", None)
        if isinstance(value, str):
            yield value


def foreign_error(
    doing: str, error: BaseException, network: Network | None = None, content: bytes | None = None
) -> PolydeviceError:
    """Return the error to raise instead of a foreign one: DeviceMemoryError, or InternalError.

    Args:
        doing: what failed ("CPU failed while loading a network").
        error: what was raised.
        network: what it was raised for, if it was read already.
        content: the model file, if it was not.
    """
    node = _node_of(error)
    place = [] if node is None else [f"at node {node.name!r} ({node.type}, {node.op.opset})"]
    if isinstance(error, MemoryError):  # nobody's defect
        return DeviceMemoryError("; ".join([f"{doing}: {_no_memory(error)}", *place]))
    parts = [f"{doing}: {error!r}", *place]
    if network is not None:
        parts.append(f"network {network.name!r}, {_hash_of(network)}")
    if content is not None:
        parts.append(f"model sha256:{hashlib.sha256(content).hexdigest()}")
    return InternalError("; ".join(parts) + _REPORT)


def _no_memory(error: MemoryError) -> str:
    return (
        f"there is no memory ({error}). Use smaller inputs or fewer requests, or set MEMORY_LIMIT "
        "to what it may use, so that it is refused beforehand"
    )


_REPORT = (
    f". This is a defect of polydevice: please report it to {REPORT_TO} with this message, the "
    "traceback and, if you may, the model (SECURITY.md if it came from a stranger)"
)


def _node_of(error: BaseException) -> Node | None:
    """Return the node that the innermost function with one was working on."""
    found = None
    for frame in _frames(error):
        for name in ("node", "self"):
            value = frame.f_locals.get(name)
            if isinstance(value, Node):
                found = value
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
