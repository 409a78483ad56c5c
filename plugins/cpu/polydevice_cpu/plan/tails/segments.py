"""Segments: parts of a tail whose sizes depend on the same unknown ones, each planned by itself.

Where tokens are shared out among experts, each expert gets another number of them every time. A
plan for all of them would be one for this combination of numbers, which hardly comes back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from polydevice.dtype import ElementType
from polydevice.node import Node, Port
from polydevice.ops.broadcast import Broadcast, Tile
from polydevice.ops.generate import Eye, OneHot, Range
from polydevice.ops.nms import NonMaxSuppression
from polydevice.ops.op import Op
from polydevice.ops.pad import Pad
from polydevice.ops.reshape import Reshape, ShapeOf
from polydevice.ops.search import NonZero, Unique
from polydevice.ops.slice import Slice, StridedSlice
from polydevice.ops.split import VariadicSplit
from polydevice.ops.strings import StringNormalizer, StringSplit
from polydevice.ops.topk import TopK
from polydevice_cpu.lower import is_heavy

Sources = frozenset[Node]
"""The nodes whose data decide a size; none where it is known."""


TELLING: tuple[type[Op], ...] = (
    *(NonMaxSuppression, NonZero, StringNormalizer, StringSplit, Unique),
)
"""Operations whose sizes data tells, whatever the sizes that they read."""

TOLD: dict[type[Op], int] = {
    **dict.fromkeys((Eye, Range), 0),
    **dict.fromkeys((Broadcast, OneHot, Pad, Reshape, Slice, StridedSlice, Tile, TopK), 1),
    VariadicSplit: 1,
}
"""Operations whose sizes follow from values of inputs, and the first of these."""


@dataclass
class Segment:
    """Nodes of a tail that run one after the other, behind all segments before.

    Attributes:
        sources: what the sizes depend on that its nodes read.
        nodes: in order.
        is_first: whether its nodes read nothing late, so that a plan would be this tail again.
        is_apart: whether it is one node, with which no plan would know all sizes, or to no avail.
    """

    sources: Sources
    nodes: list[Node] = field(default_factory=list)
    is_first: bool = False
    is_apart: bool = False

    @property
    def is_planned(self) -> bool:
        """Whether it has operations that are much slower on NumPy, and may be planned."""
        return not (self.is_first or self.is_apart) and any(
            is_heavy(type(node.op)) for node in self.nodes
        )

    @property
    def outputs(self) -> list[Port]:
        """What its nodes compute."""
        return [port for node in self.nodes for port in node.outputs]

    def reads(self) -> list[Port]:
        """What its nodes read and others compute."""
        own = set(self.outputs)
        read = (port for node in self.nodes for port in node.inputs)
        return list(dict.fromkeys(p for p in read if p not in own and p.desc.constant is None))


def segments(nodes: Sequence[Node], late: Collection[Port]) -> list[Segment]:
    """Cut a tail: first the nodes that read nothing late, then the rest by sources.

    What needs none to know its sizes, and is not heavy, goes with what it reads. What tells sizes
    itself, has bodies, or is about texts, is a segment of its own, so that those before and behind
    it may be planned: 31 nodes around NonMaxSuppression take 70 us so, and 110 one by one.
    """
    found = [Segment(frozenset(), is_first=True)]
    place: dict[Port, int] = {}
    sources: dict[Port, Sources] = {}
    behind: dict[Port, Sources] = {}  # of values that follow from sizes, what these depend on
    for node in nodes:
        read = [port for port in node.inputs if port in late]
        unknown = [port not in behind and port.desc.constant is None for port in node.inputs]
        told = node.inputs[TOLD.get(type(node.op), len(unknown)) :]
        of_node: Sources = frozenset().union(
            *(sources[port] for port in read), *(behind.get(port, frozenset()) for port in told)
        )
        number = max((place[port] for port in read), default=0)
        if isinstance(node.op, ShapeOf):
            behind[node.output] = of_node
        elif not (any(unknown) or node.op.is_stateful):
            of_values = frozenset[Node]().union(*(behind.get(port, []) for port in node.inputs))
            behind.update(dict.fromkeys(node.outputs, of_values))
        tells = _tells(node, unknown)
        if read and (tells or _has_texts(node)):
            found.append(Segment(of_node, is_apart=True))
            number = len(found) - 1
        elif read and (of_node or number == 0 or is_heavy(type(node.op))):
            number = _place(found, max(number, 1), of_node)
        found[number].nodes.append(node)
        for port in node.outputs:
            place[port] = number
            is_known = port.shape is not None and port.shape.is_static
            known = of_node and not (tells and read)
            sources[port] = frozenset() if is_known else of_node if known else of_node | {node}
    return [segment for segment in found if segment.nodes]


def _tells(node: Node, unknown: Sequence[bool]) -> bool:
    """Whether nobody knows what sizes it makes before it runs, or what it runs.

    Args:
        node: it.
        unknown: of each input, whether its values do not follow from sizes.
    """
    first = TOLD.get(type(node.op), len(unknown))
    return isinstance(node.op, TELLING) or node.op.has_bodies or any(unknown[first:])


def _has_texts(node: Node) -> bool:
    """Whether it reads or makes texts, for which a plan has nothing but the same functions."""
    return any(p.element_type is ElementType.string for p in (*node.inputs, *node.outputs))


def _place(found: list[Segment], earliest: int, sources: Sources) -> int:
    """The number of a segment with these sources, from the earliest on; a new one if need be."""
    for number in range(earliest, len(found)):
        if found[number].sources == sources and not found[number].is_apart:
            return number
    found.append(Segment(sources))
    return len(found) - 1
