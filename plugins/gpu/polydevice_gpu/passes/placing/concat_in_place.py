"""concat_in_place: what is going to be concatenated is computed right where it belongs.

A value moves into its part of the concatenation when it has memory of its own and all who write
and read it accept the wider pitches; the others are copied by the concatenation's kernel. What a
concatenation looks at through reshapes and transposes moves too, and so does a concatenation that
is part of a larger one. One whose parts already lie side by side, because a larger one holds them
all, is a view of that.
"""

from __future__ import annotations

from dataclasses import field

from polydevice.dataclass import dataclass
from polydevice.ops.concat import Concat
from polydevice_gpu import views
from polydevice_gpu.graph import Fate, GpuGraph, GpuNode, Memory, Place, Value
from polydevice_gpu.kernels.movement.concat import lies_there, parts
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout


def concat_in_place(graph: GpuGraph, target: Target) -> None:
    """Move values into concatenations; a concatenation of none but such costs nothing."""
    homes = _homes(graph)
    mover = _Mover(homes, graph.users(), set(graph.outputs.values()), target)
    # The outer ones first: what lies in an inner one then moves along with it.
    for node in reversed(graph.nodes):
        if not isinstance(node.op, Concat) or node.on_host or node.is_view:
            continue
        if mover.look_at_parts(node):
            continue
        for value, layout in zip(node.inputs, parts(node), strict=True):
            if value.storage is node.output.storage:
                mover.move(value, node.output, layout)
    for node in graph.nodes:
        if isinstance(node.op, Concat) and not node.on_host and _is_in_place(node):
            node.is_view = True
            for origin in node.origins:
                reason = "its parts are computed right where they belong"
                graph.fates[origin] = Fate("OPTIMIZED_OUT", node.name, reason)


def _is_in_place(node: GpuNode) -> bool:
    layouts = parts(node)
    return all(
        lies_there(value, node.output, layout) or not value.elements
        for value, layout in zip(node.inputs, layouts, strict=True)
    )


@dataclass
class _Home:
    """Who looks at a piece of memory.

    Attributes:
        values: all of them; the first is the one that is computed into it.
        looks: the nodes that make views of it, in order.
    """

    values: list[Value] = field(default_factory=list)
    looks: list[GpuNode] = field(default_factory=list)


def _homes(graph: GpuGraph) -> dict[Memory, _Home]:
    """Return what looks at each piece of memory that is computed during an inference."""
    homes: dict[Memory, _Home] = {}
    entered = set(graph.inputs.values())
    for node in graph.nodes:
        for value in node.outputs:
            if value.memory is None or value.memory.place is not Place.ARENA:
                continue
            if node.is_view:
                home = homes.get(value.memory)
                if home is None:
                    continue  # a view of an input of the network
                home.values.append(value)
                if node not in home.looks:
                    home.looks.append(node)
            elif value not in entered:
                homes.setdefault(value.memory, _Home()).values.append(value)
    return homes


@dataclass
class _Mover:
    homes: dict[Memory, _Home]
    users: dict[Value, list[GpuNode]]
    outputs: set[Value]
    target: Target

    def look_at_parts(self, node: GpuNode) -> bool:
        """Make a concatenation a view of the memory in which all its parts lie side by side."""
        first, out = node.inputs[0], node.output
        home = self.homes.get(out.memory) if out.memory is not None else None
        if home is None or not self._is_own(home, out) or not first.elements:
            return False
        places = {value.memory for value in node.inputs}
        kept = {id(value): value.layout for value in home.values}
        if len(places) > 1 or first.memory is None or first.memory.place is not Place.ARENA:
            return False
        out.layout = Layout(first.placed.pitches, first.placed.offset)
        beside = all(
            value.placed.offset == part.offset and value.placed.same_as(part, value.shape)
            for value, part in zip(node.inputs, parts(node), strict=True)
        )
        if beside and first.storage is out.storage and self._suits(home):
            self._settle(home, first.memory)
            return True
        self._restore(home, kept)
        return False

    def move(self, value: Value, whole: Value, part: Layout) -> None:
        """Let a value, and all that share its memory, lie in a part of another if that suits."""
        home = self.homes.get(value.memory) if value.memory is not None else None
        if home is None or value not in home.values or whole.memory is None:
            return
        root = home.values[0]
        if root.memory is whole.memory or not self._is_own(home, root):
            return
        layout = _traced_back(value, root, part)
        if layout is None:
            return
        kept = {id(each): each.layout for each in home.values}
        root.layout = layout
        if self._suits(home) and value.placed.same_as(part, value.shape):
            self._settle(home, whole.memory)
        else:
            self._restore(home, kept)

    def _is_own(self, home: _Home, root: Value) -> bool:
        """Whether the memory is all the value's, and its kernel leaves its place to others."""
        producer = root.producer
        return (
            producer is not None
            and producer.choice is not None
            and not producer.choice.kernel.fixes_layout
            and home.values[0] is root
            and root.memory is not None
            and root.memory.elements == max(root.elements, 1)
            and sum(not _is_look(each) for each in home.values) == 1
            and not any(each in self.outputs or each.is_output for each in home.values)
        )

    def _suits(self, home: _Home) -> bool:
        """Follow the first value's new layout through all views; whether every kernel agrees."""
        for look in home.looks:
            function = views.find_view(type(look.op))
            layouts = function(look) if function is not None else None
            if layouts is None:
                return False
            for value, layout in zip(look.outputs, layouts, strict=True):
                value.layout = layout
        producer = home.values[0].producer
        assert producer is not None
        return self._runs(producer) and all(
            self._reads(user, value)
            for value in home.values
            for user in self.users.get(value, [])
            if not user.is_view
        )

    def _runs(self, node: GpuNode) -> bool:
        if node.choice is None:
            return False
        kernel = node.choice.kernel
        mode = kernel.modes[node.choice.mode]
        fits = kernel.mode_supports(node, mode, self.target)
        return fits and not kernel.refuses(node, self.target)

    def _reads(self, user: GpuNode, value: Value) -> bool:
        return self._runs(user) and all(
            user.choice.kernel.accepts_layout(user, index, value.placed, self.target)
            for index, read in enumerate(user.inputs)
            if read is value and user.choice is not None
        )

    def _settle(self, home: _Home, memory: Memory) -> None:
        for each in home.values:
            each.memory = memory

    def _restore(self, home: _Home, kept: dict[int, Layout | None]) -> None:
        for each in home.values:
            each.layout = kept[id(each)]


def _is_look(value: Value) -> bool:
    return value.producer is not None and value.producer.is_view


def _traced_back(value: Value, root: Value, layout: Layout) -> Layout | None:
    """Return how `root` must lie so that `value`, a view of it, has a layout; None if it cannot."""
    while value is not root:
        node = value.producer
        if node is None or not node.is_view:
            return None
        found = views.seen_back(node, layout)
        if found is None:
            return None
        layout, value = found, node.inputs[0]
    return layout
