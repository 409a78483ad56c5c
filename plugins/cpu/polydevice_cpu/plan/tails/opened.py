"""Opened: a network of open sizes beside its copy for some sizes; what parts need of sizes.

What sizes tell is constant in the copy. In the network of a part it is computed once more, from
shapes that are given as those of arrays without elements.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.io import Parameter
from polydevice.ops.reshape import ShapeOf
from polydevice.shape import Shape
from polydevice_cpu.plan.tails.segments import Segment

if TYPE_CHECKING:
    from polydevice_cpu.plan.building.builder import PlanBuilder


class NotSharedError(Exception):
    """Something follows from sizes otherwise than by way of a shape."""


class Opened:
    """The nodes of a network of open sizes, and of its copy of which the sizes are known.

    Attributes:
        network: of open sizes.
        is_alike: whether each node has its copy.
    """

    def __init__(self, builder: PlanBuilder, network: Network) -> None:
        """Find which is which."""
        self.network = network
        self._open, sized = network.nodes(), builder.nodes
        self.is_alike = [node.name for node in self._open] == [node.name for node in sized]
        self._sized = sized
        self._numbers = {node: number for number, node in enumerate(sized)}
        self._places = {node: number for number, node in enumerate(self._open)}

    def number(self, node: Node) -> int:
        """The number of a node of known sizes."""
        return self._numbers[node]

    def told(self, node: Node) -> tuple[bool, ...]:
        """Which inputs of a node of known sizes are known."""
        return tuple(port.desc.constant is not None for port in node.inputs)

    def of(self, node: Node) -> Node:
        """The node of open sizes that a node of known sizes is a copy of."""
        return self._open[self._numbers[node]]

    def copy(self, port: Port) -> Port:
        """The port of known sizes that is a copy of one of open sizes."""
        return self._sized[self._places[port.node]].outputs[port.index]

    def is_told(self, port: Port) -> bool:
        """Whether sizes tell the value of a port of open sizes, and no input does: an empty one."""
        return self.copy(port).desc.constant is not None and not isinstance(port.node.op, Parameter)

    def in_order(self, nodes: Iterable[Node]) -> list[Node]:
        """Nodes of open sizes, producers first."""
        return sorted(nodes, key=self._places.__getitem__)


class Asked(NamedTuple):
    """What a part of a tail needs as a network.

    Attributes:
        read: what it reads.
        shapes: of what the shapes are told besides; see `take_shapes`.
        nodes: what makes constants of shapes.
    """

    read: Sequence[Port]
    shapes: Sequence[Port]
    nodes: Iterable[Node]


def by_sizes(part: Segment, late: Container[Port], opened: Opened) -> Asked:
    """Return what a part of the network of open sizes needs as a network.

    Args:
        part: of the network of open sizes.
        late: what the whole tail computes.
        opened: the network.

    Raises:
        NotSharedError: something follows from sizes otherwise.
    """
    own = set(part.outputs)
    outside = dict.fromkeys(port for node in part.nodes for port in node.inputs if port not in own)
    read = dict.fromkeys(
        port for port in outside if port.desc.constant is None and not opened.is_told(port)
    )
    more: set[Node] = set()
    asked: dict[Port, None] = {}
    left = [port.node for port in outside if port.desc.constant is None and opened.is_told(port)]
    while left:
        node = left.pop()
        if node in more:
            continue
        more.add(node)
        for port in node.inputs:
            if port.desc.constant is not None:
                continue
            if opened.is_told(port) or (
                isinstance(port.node.op, ShapeOf) and not isinstance(node.op, ShapeOf)
            ):  # of a shape a part may be known
                left.append(port.node)
            elif not isinstance(node.op, ShapeOf) or port.desc.rank is None:
                raise NotSharedError
            elif port in late:
                read.update({} if port in own else {port: None})
            elif opened.copy(port).desc.is_static:
                asked[port] = None
            else:  # which nobody computes, as what is asked of its shape is known
                raise NotSharedError
    return Asked(list(read), [port for port in asked if port not in read], more)


def take_shapes(network: Network, first: int) -> None:
    """Let inputs of a network, from the first on, be of no elements: only shapes are asked of them.

    Their first size is 0, and the others are what is asked for.
    """
    replaced: dict[Port, Port] = {}
    users = network.consumers()
    for parameter in network.parameters[first:]:
        shape = parameter.output.shape
        assert shape is not None
        parameter.op = Parameter(ElementType.u8, Shape([0, *shape]))
        parameter.infer()
        for node, _ in users.get(parameter.output, ()):
            build = Emitter(node.name, evaluate=network.evaluate)
            whole = build.emit(node.op, parameter.output)
            replaced[node.output] = build.cut(whole, 0, 1, 1 << 31)
    network.replace(replaced)
