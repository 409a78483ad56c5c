"""Which inputs say sizes by their values: how many to take, or what to reshape to.

Plans are made for such values as they are for shapes, so that what is behind them runs on the
device. Found by asking which layers have no size although their inputs have one.
"""

from __future__ import annotations

import time

from polydevice.errors import NetworkError
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.io import Constant, Parameter
from polydevice_gpu.compiler.query import tried_shapes
from polydevice_gpu.host_layers import why_always_on_host

MOST_VALUES = 16
"""Elements of an input that may say sizes."""

LEAST_ELEMENTS = 1 << 16
"""Of a network's constants, or of a value in it: for less, a plan for each value costs more than
the host takes."""

_SECONDS = 1.0
"""How long to look for sizes of other inputs."""


def size_inputs(network: Network) -> frozenset[str]:
    """Return the inputs by whose values plans have to be made.

    Args:
        network: is not changed.
    """
    if not any(_may_say_sizes(node) for node in network.parameters):
        return frozenset()
    copy = network.clone()
    copy.evaluate = network.evaluate
    if copy.is_dynamic and not _takes_some(copy):
        return frozenset()
    found: set[str] = set()
    largest = 0
    for node in copy.nodes():
        largest = max(largest, *(_elements(port) for port in node.outputs), 0)
        if any(not port.desc.is_static for port in node.outputs) and not why_always_on_host(node):
            found |= _behind(node)
    return frozenset(found if largest >= LEAST_ELEMENTS else ())


def _may_say_sizes(node: Node) -> bool:
    desc = node.output.desc
    return desc.element_type.is_integer and desc.is_static and _elements(node.output) <= MOST_VALUES


def _elements(port: Port) -> int:
    shape = port.desc.shape
    return 0 if shape is None or not port.desc.is_static else shape.elements


def _takes_some(network: Network) -> bool:
    """Give inputs sizes that the network takes; whether any were found."""
    end = time.monotonic() + _SECONDS
    for shapes in tried_shapes(network):
        try:
            network.reshape(shapes)
        except NetworkError:
            if time.monotonic() > end:
                return False
        else:
            return True
    return False


def _behind(node: Node) -> set[str]:
    """Return the inputs that say a layer's sizes; none if something else says them too."""
    if not all(port.desc.is_static for port in node.inputs):
        return set()
    found: set[str] = set()
    ports = [port for port in node.inputs if _is_small(port)]
    seen = set(ports)
    while ports:
        port = ports.pop()
        op = port.node.op
        if isinstance(op, Constant) or port.desc.constant is not None:
            continue
        if isinstance(op, Parameter):
            if not _may_say_sizes(port.node):
                return set()
            found.add(port.node.name)
            continue
        if op.has_bodies or op.is_stateful or not all(map(_is_small, port.node.inputs)):
            return set()
        ports += [each for each in port.node.inputs if each not in seen]
        seen.update(port.node.inputs)
    return found


def _is_small(port: Port) -> bool:
    """Whether a value may be a part of how a size is computed."""
    return port.desc.is_static and _elements(port) <= MOST_VALUES
