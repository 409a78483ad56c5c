"""Checkpoints: the values of a network that a device keeps anyway, and so can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.errors import PolydeviceError
from polydevice.exec_graph import original_layers
from polydevice.executable_network import ExecutableNetwork
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.quantize import FakeQuantize
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear

_UNKNOWN_BYTES = 1 << 24
"""What a value of unknown size is taken for when groups are cut."""


@dataclass(frozen=True)
class Checkpoint:
    """A value to compare.

    Attributes:
        port: that the network's nodes are connected by.
        kernel: that makes it on the device, as its execution graph says; "" when it does not.
        layers: the network's nodes that the kernel computes, in the network's order.
    """

    port: Port
    kernel: str
    layers: tuple[Node, ...]


def checkpoints(network: Network, executable: ExecutableNetwork) -> list[Checkpoint]:
    """Return the values that are worth comparing, in the network's order.

    What a device computes in one step stays one step: only what leaves the step is looked at, so
    that looking does not change what is computed. Where a device does not describe its execution,
    that is every value.
    """
    order = {node: number for number, node in enumerate(network.nodes())}
    steps = _steps(executable, {node.name: node for node in order})
    if not steps:
        steps = [("", (node,)) for node in order if not _is_given(node)]
    consumers = network.consumers()
    together = _together(steps)
    found: dict[Port, Checkpoint] = {}
    for kernel, nodes in steps:
        inside = set(nodes)
        layers = tuple(sorted(inside, key=order.__getitem__))
        for node in layers:
            for port in node.outputs:
                readers = {reader for reader, _ in consumers.get(port, [])}
                leaves = any(reader not in together[node] for reader in readers)
                if port.desc.kind == "tensor" and leaves and port not in found:
                    found[port] = Checkpoint(port, kernel, layers)
    return sorted(found.values(), key=lambda c: (order[c.port.node], c.port.index))


def groups(found: Sequence[Checkpoint], limit_bytes: int) -> Iterator[list[Checkpoint]]:
    """Cut into groups whose values take at most so many bytes together, at least one in each."""
    group: list[Checkpoint] = []
    held = 0
    for checkpoint in found:
        size = _bytes_of(checkpoint.port)
        if group and held + size > limit_bytes:
            yield group
            group, held = [], 0
        group.append(checkpoint)
        held += size
    if group:
        yield group


def _bytes_of(port: Port) -> int:
    desc = port.desc
    known = desc.shape is not None and desc.shape.is_static
    return (desc.span_bytes if known else None) or _UNKNOWN_BYTES


def read_from_outside(checkpoint: Checkpoint) -> list[Port]:
    """Return the ports that a step reads and that neither it makes nor anybody knows ahead."""
    inside = set(checkpoint.layers)
    ports = [port for node in checkpoint.layers for port in node.inputs]
    outside = [p for p in ports if p.node not in inside and p.desc.constant is None]
    return list(dict.fromkeys(outside))


def _steps(
    executable: ExecutableNetwork, by_name: dict[str, Node]
) -> list[tuple[str, tuple[Node, ...]]]:
    """Return (kernel, the network's nodes that it computes) for each step of the device."""
    try:
        graph = executable.get_exec_graph_info()
    except PolydeviceError:
        return []  # the device does not describe its execution
    steps = []
    for layer in graph.nodes():
        nodes = tuple(by_name[name] for name in original_layers(layer, by_name))
        nodes = tuple(node for node in nodes if not _is_given(node))
        if nodes:
            steps.append((layer.rt_info.get("primitiveType", ""), nodes))
    return steps


def _together(steps: Sequence[tuple[str, tuple[Node, ...]]]) -> dict[Node, set[Node]]:
    """Map every node to those that some step computes together with it.

    What is computed in two steps, once for each of its readers, leaves neither.
    """
    together: dict[Node, set[Node]] = {}
    for _, nodes in steps:
        for node in nodes:
            together.setdefault(node, set()).update(nodes)
    return together


def _is_given(node: Node) -> bool:
    return isinstance(node.op, (Constant, Parameter, Result))


def step_of(port: Port) -> float:
    """Return the difference of neighbouring values of a quantised tensor; 0 for others.

    The largest, where channels differ; a thousandth more, for the rounding of the values.
    """
    op, inputs = port.node.op, port.node.inputs
    known = [p.desc.constant for p in inputs]
    if isinstance(op, DequantizeLinear) and known[1] is not None:
        return float(np.abs(known[1].astype(np.float64)).max(initial=0)) * 1.001
    if isinstance(op, FakeQuantize) and known[3] is not None and known[4] is not None:
        spread = np.abs(known[4].astype(np.float64) - known[3].astype(np.float64))
        return float(spread.max(initial=0)) / (op.levels - 1) * 1.001
    return float(isinstance(op, QuantizeLinear))
