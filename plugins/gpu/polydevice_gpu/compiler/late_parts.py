"""LateParts: layers behind sizes that only an inference tells, as networks of the device's own.

Once such sizes are known, their layers are nothing but a network whose inputs have other shapes in
every inference: it is loaded like one, and has plans as for any new shape. What the host has to
compute in it, and sizes that become known later still, are found when its own plans are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from polydevice.executable_network import ExecutableNetwork
from polydevice.network import Network
from polydevice.node import Node
from polydevice.shape import Dim, Shape
from polydevice.symbolic_trace import chosen
from polydevice_gpu.graph import GpuGraph, GpuNode, Value
from polydevice_gpu.host_layers import LEAST_ELEMENTS, is_late
from polydevice_gpu.kernels.types import storage_type
from polydevice_gpu.runtime.host import HostGroup

MOST = 16
"""Parts that are kept for others to use, of a network whose plans have parts of their own."""


class LateParts:
    """Of one network: its parts, of which those that are equal in several plans are one."""

    def __init__(
        self, load: Callable[[Network], ExecutableNetwork] | None, layers: int, *, varies: bool
    ) -> None:
        """Begin without any.

        Args:
            load: loads a network on the device; None where the host computes all of them.
            layers: how many the network has: a part is less, or it would have itself as a part.
            varies: whether the network's own sizes vary, for which its parts have to serve too.
        """
        self._load = load
        self._layers = layers
        self._varies = varies
        self._found: list[tuple[Network, ExecutableNetwork]] = []

    def order(self, graph: GpuGraph) -> None:
        """Bring what does not wait for late sizes to the front, so that parts are few."""
        if self._load is None:
            return
        waiting: set[Value] = set()
        first, second = [], []
        for node in graph.nodes:
            if (node.on_host and is_late(node)) or not waiting.isdisjoint(node.inputs):
                waiting.update(node.outputs)
                second.append(node)
            else:
                first.append(node)
        graph.nodes = first + second

    def begin(self, nodes: Sequence[GpuNode]) -> int:
        """Return which of neighbouring host nodes is the first of a part; their number for none."""
        start = next((place for place, node in enumerate(nodes) if is_late(node)), len(nodes))
        part = nodes[start:]
        made = {value for node in part for value in node.outputs}
        read = {value for node in part for value in node.inputs} - made
        if (
            self._load is None
            or len(part) >= self._layers
            or not all(map(_is_held, (*read, *made)))
            or chosen(lambda: sum(_elements(value) for value in read) < LEAST_ELEMENTS)
        ):
            return len(nodes)
        for node in part:
            node.is_late = True
        return start

    def shape_of(self, value: Value) -> Shape | None:
        """Return what is known of the shape of a part's input, for all shapes of the network."""
        shape = value.partial if value.on_host else Shape(value.shape)
        return Shape([Dim()] * len(shape)) if shape is not None and self._varies else shape

    def executable(self, group: HostGroup) -> ExecutableNetwork:
        """Return what runs a part: that of an equal one, or a new one."""
        assert self._load is not None
        for network, known in self._found:
            if _are_equal(network, group.network):
                return known
        made = self._load(group.network)
        self._found.append((group.network, made))
        if len(self._found) > MOST:
            del self._found[0]  # the plans that run it keep it
        return made

    def close(self, end: float) -> None:
        """Close all of them; waits until `end`, of ``time.monotonic()``."""
        found, self._found, self._load = self._found, [], None
        for _, executable in found:
            executable.close_by(end)


def _elements(value: Value) -> int:
    if value.constant is not None:
        return int(value.constant.size)
    return 0 if value.on_host else value.elements


def _is_held(value: Value) -> bool:
    """Whether device memory can hold a value once its size is known."""
    return value.kind == "tensor" and storage_type(value.element_type, fp64=True) is not None


def _are_equal(one: Network, other: Network) -> bool:
    """Whether two networks compute the same from the same inputs, under the same names."""
    mine, theirs = one.nodes(), other.nodes()
    if len(mine) != len(theirs):
        return False
    places = {node: place for place, node in enumerate(mine)}
    others = {node: place for place, node in enumerate(theirs)}

    def read(node: Node, numbers: dict[Node, int]) -> list[tuple[int, int]]:
        return [(numbers[port.node], port.index) for port in node.inputs]

    return all(
        a.name == b.name and read(a, places) == read(b, others) and _is_same(a, b)
        for a, b in zip(mine, theirs, strict=True)
    )


def _is_same(one: Node, other: Node) -> bool:
    a, b = one.constant, other.constant
    if a is None or b is None:
        return a is b and (one.op is other.op or (not one.op.has_bodies and one.op == other.op))
    return a is b or (a.dtype == b.dtype and np.array_equal(a, b))
