"""ScatterUpdate, ScatterElementsUpdate and ScatterNDUpdate: elements replaced by index.

Where updates are few, each element of the result looks for those that name it, in their order.
Where they are many, each marks its place, and elements look there; where several may count, they
are listed by place, in their order. In any case no two work-items write the same element, the last
of several updates stays, and sums are those of updates one after the other, every time.
"""

from __future__ import annotations

from collections.abc import Mapping

from polydevice.dtype import ElementType
from polydevice.ops.op import Op
from polydevice.ops.scatter import (
    Reduction,
    ScatterElementsUpdate,
    ScatterNDUpdate,
    ScatterUpdate,
)
from polydevice.symbolic_trace import chosen
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.launch import Launch, Scratch
from polydevice_gpu.kernels.movement.scattering import (
    Elements,
    Lined,
    Scatter,
    Slices,
    Tuples,
)
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target

MANY = 128
"""Updates of an element from which it takes longer to look at all than to launch two more kernels.

On two processor cores 8,192 updates of 8,712 elements took 73 ms, and take 0.2 so."""

MANY_ON_GPUS = 1 << 10
"""Updates of an element from which GPUs list them: that takes six launches, and elements look at
all updates side by side.

On an H200 looking at 8,000 updates took 295 us for 8,712 elements, and 464 for 100 rows of 64;
listed, 8,192 take 47 for as many elements, and 20,000 rows of 64 27 into 2,000 and 47 into 100.
"""

_STEPS = ("IN_TURN", "CLEARS", "COUNTS", "BEGINS_LISTS", "FILLS", "ORDERS")
_FEW = "looking at all updates is expected to be faster"


class ScatterRef(Scatter, SingleLaunch):
    """One work-item computes one element."""

    source = "movement/scatter_ref.cl"
    name = "scatter_ref"

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Every update that may name an element is compared with it."""
        call.scalars(COUNT=call.node.inputs[0].elements, UPDATES=self.updates(call.node))
        self.declare_elements(call)
        self.declare_matches(call)
        self.declare_combination(call)
        call.dispatch((call.node.inputs[0].elements,))


class ScatterMarked(Scatter):
    """One work-item marks the place of one update, another one computes an element."""

    source = "movement/scatter_marked.cl"
    name = "scatter_marked"

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Updates must replace: others meet each other."""
        reduction = getattr(node.op, "reduction", Reduction.NONE)
        replaces = reduction is Reduction.NONE
        return super().refuses(node, target) or unless((replaces, "several updates may count"))

    def yields(self, node: GpuNode, target: Target) -> str:
        """Few updates are looked at."""
        many = chosen(lambda: self.updates(node) >= MANY)
        return unless((many, _FEW))

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return what clears the marks, what marks, and what computes elements."""
        places, x, named = self.places(node), node.inputs[0], _named(node)
        marks = Scratch(places, ElementType.i32)
        made = []
        for step, count in (("CLEARS", places), ("MARKS", named), ("", x.elements)):
            call = Call(self.name, self.source, node, target)
            call.define(CLEARS=step == "CLEARS", MARKS=step == "MARKS")
            call.buffer("MARKS", marks, "int", written=bool(step))
            if step == "CLEARS":
                call.scalars(PLACES=places)
            elif step:
                call.scalars(NAMED=named)
                self.declare_marks(call)
            else:
                call.scalars(COUNT=x.elements)
                self.declare_elements(call)
            call.dispatch((count,))
            made.append(call.launch())
        return made


class _Listed(Lined):
    """The updates of each place are listed in their order, and each element goes through a list."""

    source = "movement/scatter_listed.cl"

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Of updates that replace others one is enough."""
        reduces = getattr(node.op, "reduction", Reduction.NONE) is not Reduction.NONE
        return super().refuses(node, target) or unless((reduces, "its last updates replace others"))

    def call(self, node: GpuNode, target: Target, step: str, lists: Mapping[str, Scratch]) -> Call:
        """Return a launch that may write the lists."""
        call = Call("scatter_listed", self.source, node, target)
        call.define(**{each: each == step for each in _STEPS})
        for role, scratch in lists.items():
            call.buffer(role, scratch, "int", written=bool(step))
        return call

    def elements(self, node: GpuNode, target: Target, lists: Mapping[str, Scratch]) -> Call:
        """Return the launch that computes elements, but for the number of an element's list."""
        call = self.call(node, target, "", lists)
        call.scalars(COUNT=node.inputs[0].elements)
        self.declare_elements(call)
        self.declare_combination(call)
        call.dispatch((node.inputs[0].elements,))
        return call


class ScatterListedInTurn(_Listed):
    """One work-item lists the updates of a line, one after the other."""

    def yields(self, node: GpuNode, target: Target) -> str:
        """A work-item of a GPU would take long, and few updates are looked at."""
        sizes = node.inputs[0].elements, self.updates(node)
        many = chosen(lambda: all(size >= MANY for size in sizes))
        return unless(
            (not target.is_throughput, "one work-item would list many updates"),
            (many, _FEW),
        )

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return what makes lists, and what computes elements."""
        lines, wide = self.lines(node)
        sizes = {"BEGINS": lines * wide, "ENDS": lines * wide, "ORDER": lines * self.updates(node)}
        lists = {role: Scratch(size, ElementType.i32) for role, size in sizes.items()}
        makes = self.call(node, target, "IN_TURN", lists)
        self.declare_lines(makes)
        makes.dispatch((lines,))
        elements = self.elements(node, target, lists)
        self.declare_list(elements)
        return [makes.launch(), elements.launch()]


class ScatterListed(_Listed):
    """One work-item for each update, which counts those of its place that come before it."""

    def yields(self, node: GpuNode, target: Target) -> str:
        """Each launch takes a GPU some time, in which it looks at hundreds of updates."""
        many = chosen(lambda: self.updates(node) >= MANY_ON_GPUS)
        return unless(
            (target.is_throughput, "one after the other they need not be counted"),
            (many, _FEW),
        )

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return what counts, places and orders updates, and what computes elements."""
        places, named = self.places(node), _named(node)
        sizes = {"BEGINS": places, "ENDS": places, "ORDER": named}
        lists = {role: Scratch(size, ElementType.i32) for role, size in sizes.items()}
        kept = {"SLOTS": named, "ARRIVED": named, "TOTAL": 1}
        more = {role: Scratch(size, ElementType.i32) for role, size in kept.items()}
        made = []
        for step in _STEPS[1:]:
            call = self.call(node, target, step, {**lists, **more})
            of_places = step in {"CLEARS", "BEGINS_LISTS"}
            if of_places:
                call.scalars(PLACES=places)
            else:
                call.scalars(NAMED=named)
                self.declare_marks(call)
            call.dispatch((places if of_places else named,))
            made.append(call.launch())
        elements = self.elements(node, target, lists)
        elements.define(LIST="PLACE")
        return [*made, elements.launch()]


def _named(node: GpuNode) -> int:
    """Return how many places indices name."""
    indices = node.inputs[1]
    return indices.elements // (indices.shape[-1] if isinstance(node.op, ScatterNDUpdate) else 1)


@kernel(ScatterUpdate)
class ScatterUpdateMarked(Slices, ScatterMarked):
    """Slices, many of them."""


@kernel(ScatterUpdate)
class ScatterUpdateRef(Slices, ScatterRef):
    """Slices, any number."""


@kernel(ScatterElementsUpdate)
class ScatterElementsMarked(Elements, ScatterMarked):
    """Elements along an axis, many of them."""


@kernel(ScatterElementsUpdate)
class ScatterElementsListedInTurn(Elements, ScatterListedInTurn):
    """Elements along an axis, many of them, that are added up or the like, on a processor."""


@kernel(ScatterElementsUpdate)
class ScatterElementsListed(Elements, ScatterListed):
    """Likewise on a GPU."""


@kernel(ScatterElementsUpdate)
class ScatterElementsRef(Elements, ScatterRef):
    """Elements along an axis, any number."""


@kernel(ScatterNDUpdate)
class ScatterNdMarked(Tuples, ScatterMarked):
    """What tuples name, many of them."""


@kernel(ScatterNDUpdate)
class ScatterNdListedInTurn(Tuples, ScatterListedInTurn):
    """What tuples name, many of them, that are added up or the like, on a processor."""


@kernel(ScatterNDUpdate)
class ScatterNdListed(Tuples, ScatterListed):
    """Likewise on a GPU."""


@kernel(ScatterNDUpdate)
class ScatterNdRef(Tuples, ScatterRef):
    """What tuples name, any number."""
