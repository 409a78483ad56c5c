"""settle_lists: lists of which all tensors are known while a model is read are no lists any more.

Models cut a tensor into a list, take from it, or put parts into one that is joined in the end.
Where the number of parts is known, that is a Split, and a Concat; loops over such lists are written
out, as no device runs their iterations but one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.errors import PolydeviceError
from polydevice.network import Network
from polydevice.network.names import namer
from polydevice.node import Node, Port
from polydevice.ops.concat import Concat
from polydevice.ops.containers import (
    ConcatFromSequence,
    SequenceAt,
    SequenceConstruct,
    SequenceEmpty,
    SequenceErase,
    SequenceInsert,
    SequenceLength,
    SplitToSequence,
)
from polydevice.ops.control_flow import Iteration
from polydevice.ops.op import Op
from polydevice.ops.reshape import Squeeze, Unsqueeze
from polydevice.rewrites.control_flow.collect_parts import joins_of_list
from polydevice.rewrites.control_flow.unroll_loops import unroll_loops
from polydevice.rewrites.pattern import Replacements
from polydevice.shape import normalize_axis

MOST_PARTS = 256
"""Of a list: each is a value of its own then."""

MOST_NODES = 512
"""That loops may become."""

Item: TypeAlias = "Port | tuple[Node, int]"
"""A tensor of a list, or what makes it one by cutting another: the node, and the part's number."""

Items: TypeAlias = "tuple[Item, ...]"


def settle_lists(network: Network) -> int:
    """Replace what reads such lists, and loops that carry them; return how many nodes."""
    if not any(port.desc.kind == "sequence" for node in network.nodes() for port in node.outputs):
        return 0
    found = _settle(network)
    most = len(network.nodes()) + MOST_NODES

    def is_written_out(node: Node) -> bool:
        return _has_lists(network, node)

    while unroll_loops(
        network,
        all_counts=True,
        most_nodes=most - len(network.nodes()),
        where=is_written_out,
    ):
        found += 1 + _settle(network)
    return found


def _has_lists(network: Network, node: Node) -> bool:
    """Whether a loop reads or carries a list, and not only collects parts that are joined then."""
    op = node.op
    assert isinstance(op, Iteration)
    lists = {port for port in (*node.inputs, *node.outputs) if port.desc.kind == "sequence"}
    places = sorted(tie.output for tie in op.body_outputs)
    for edge in op.back_edges:
        if not joins_of_list(network, node, edge):
            continue
        before = [tie.input for tie in op.body_inputs if tie.parameter == edge.parameter]
        behind = [places.index(t.output) for t in op.body_outputs if t.result == edge.result]
        lists -= {node.inputs[number] for number in before}
        lists -= {node.outputs[number] for number in behind}
    return bool(lists)


def _settle(network: Network) -> int:
    replacements, settling = Replacements(), _Settling(network)
    for node in network.nodes():
        made = settling.of(node)
        if made is not None:
            replacements.put(node.output, made)
    found = replacements.apply(network)
    if found:
        network.infer()
    return found


class _Settling:
    """What is known of the lists of one network."""

    def __init__(self, network: Network) -> None:
        self._network, self._unique = network, namer(network)
        self._users = network.consumers()
        self._lists: dict[Port, Items] = {}
        self._parts: dict[Node, list[Port]] = {}
        self._made: dict[Port, Port] = {}

    def of(self, node: Node) -> Port | None:
        """What takes the place of a node's output; None where it stays. Producers come first."""
        if len(node.outputs) != 1:
            return None
        items = self._listed(node)
        if items is not None and len(items) <= MOST_PARTS:
            self._lists[node.output] = items
        read = _READS.get(type(node.op))
        known = self._lists.get(node.inputs[0]) if node.inputs else None
        if known is None:
            return None
        build = Emitter(node.name, evaluate=self._network.evaluate, origins=node.layers)
        try:
            if read is not None:
                made = read(self, build, node, known)
            else:
                made = self._put_together(build, node)
        except PolydeviceError:  # says at inference what is wrong
            return None
        if made is not None:
            build.name_nodes([made], self._unique, node)
            self._made[node.output] = made
        return made

    def _listed(self, node: Node) -> Items | None:
        """The items of the list that a node makes; None where they are not known."""
        op = node.op
        if isinstance(op, SequenceEmpty):
            return ()
        if isinstance(op, SequenceConstruct):
            return tuple(map(self._now, node.inputs))
        if isinstance(op, SplitToSequence):
            sizes = _sizes(node)
            return None if sizes is None else tuple((node, k) for k in range(len(sizes)))
        if not isinstance(op, (SequenceInsert, SequenceErase)):
            return None
        items = self._lists.get(node.inputs[0])
        if items is None:
            return None
        is_put = isinstance(op, SequenceInsert)
        place = _place(node, 1 + is_put, len(items), default=len(items) if is_put else -1)
        if place is None or not 0 <= place < len(items) + is_put:
            return None
        new = (self._now(node.inputs[1]),) if is_put else ()
        return (*items[:place], *new, *items[place + 1 - is_put :])

    def _now(self, port: Port) -> Port:
        """What takes the place of a port."""
        return self._made.get(port, port)

    def tensor(self, item: Item) -> Port:
        """Return an item; a list that is cut of another tensor is cut at once."""
        if isinstance(item, Port):
            return item
        node, number = item
        if node not in self._parts:
            self._parts[node] = self._cut(node)
        return self._parts[node][number]

    def _cut(self, node: Node) -> list[Port]:
        op, x = node.operation(SplitToSequence), self._now(node.inputs[0])
        sizes, shape = _sizes(node), x.shape
        assert sizes is not None
        assert shape is not None
        axis = normalize_axis(op.axis, len(shape))
        build = Emitter(f"{node.name}/parts", evaluate=self._network.evaluate, origins=node.layers)
        parts = build.split(x, axis, sizes)
        if len(node.inputs) == 1 and not op.keepdims:
            parts = [build.emit(Squeeze(), part, [axis]) for part in parts]
        build.name_nodes(parts[:1], self._unique)
        return parts

    def _put_together(self, build: Emitter, node: Node) -> Port | None:
        """A list that stays one, as something else reads it, from what it consists of."""
        items = self._lists.get(node.output)
        if not items or not isinstance(node.op, (SequenceInsert, SequenceErase)):
            return None
        readers = self._users.get(node.output, [])
        if all(
            type(reader.op) in (*_READS, SequenceInsert, SequenceErase) for reader, _ in readers
        ):
            return None
        return build.emit(SequenceConstruct(), *map(self.tensor, items))


def _sizes(node: Node) -> list[int] | None:
    """How long the parts of a tensor are that becomes a list; None where it cannot be cut."""
    op, x = node.operation(SplitToSequence), node.inputs[0]
    if x.shape is None or x.element_type is ElementType.string:
        return None
    size = x.shape[normalize_axis(op.axis, len(x.shape))]
    if not isinstance(size, int) or not size:
        return None
    if len(node.inputs) == 1:
        sizes = [1] * size if size <= MOST_PARTS else []
    else:
        split = node.inputs[1].desc.constant
        if split is None or split.dtype.kind not in "iu":
            return None
        sizes = split.reshape(-1).tolist()
        if split.ndim == 0:
            length = sizes[0]
            if length < 1 or size > length * MOST_PARTS:
                return None
            sizes = [min(length, size - start) for start in range(0, size, length)]
    return sizes if sizes and min(sizes) > 0 and sum(sizes) == size else None


def _place(node: Node, number: int, count: int, *, default: int) -> int | None:
    """The position that an input tells, counted from the front; None where it is not known."""
    if len(node.inputs) <= number:
        place = default
    else:
        value = node.inputs[number].desc.constant
        if value is None or value.size != 1:
            return None
        place = int(value.item())
    return place + count if place < 0 else place


def _at(settling: _Settling, build: Emitter, node: Node, items: Items) -> Port | None:
    del build
    place = _place(node, 1, len(items), default=0)
    if place is None or not 0 <= place < len(items):
        return None
    return settling.tensor(items[place])


def _length(settling: _Settling, build: Emitter, node: Node, items: Items) -> Port:
    del settling
    return build.value(len(items), node.output.element_type)


def _joined(settling: _Settling, build: Emitter, node: Node, items: Items) -> Port | None:
    op = node.operation(ConcatFromSequence)
    if not items or node.inputs[0].element_type is ElementType.string:
        return None
    parts: Sequence[Port] = list(map(settling.tensor, items))
    ranks = {None if part.shape is None else len(part.shape) for part in parts}
    if len(ranks) > 1 or None in ranks:
        return None
    (rank,) = ranks
    axis = normalize_axis(op.axis, (rank or 0) + op.new_axis)
    if op.new_axis:
        parts = [build.emit(Unsqueeze(), part, [axis]) for part in parts]
    return parts[0] if len(parts) == 1 else build.emit(Concat(axis=axis), *parts)


_READS: dict[type[Op], Callable[[_Settling, Emitter, Node, Items], Port | None]] = {
    SequenceAt: _at,
    SequenceLength: _length,
    ConcatFromSequence: _joined,
}
"""What takes something out of a list."""
