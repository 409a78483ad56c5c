"""ScatterUpdate, ScatterElementsUpdate and ScatterNDUpdate: elements replaced by index.

Where updates are few, each element of the result looks for those that name it, in their order.
Where they are many, each marks its place, and elements look there. Either way no two work-items
write the same element, and of several updates the last one stays, every time.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.ops.op import Op
from polydevice.ops.scatter import (
    Reduction,
    ScatterElementsUpdate,
    ScatterNDUpdate,
    ScatterUpdate,
)
from polydevice.shape import normalize_axis
from polydevice.symbolic_trace import chosen
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Kernel, Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.launch import Launch, Scratch
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.views import integers

MANY = 128
"""Updates of an element from which it takes longer to look at all than to launch two more kernels.

On two processor cores 8,192 updates of 8,712 elements took 73 ms, and take 0.2 so."""

_COMBINE = {
    Reduction.NONE: "u",
    Reduction.SUM: "v + u",
    Reduction.SUB: "v - u",
    Reduction.PROD: "v * u",
    Reduction.MIN: "u < v ? u : v",
    Reduction.MAX: "u > v ? u : v",
    Reduction.MEAN: "v + u",
}


class Scatter(Kernel):
    """What all scatters declare; elements of the result have the coordinates `COORDINATES`."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """An axis must be known."""
        has_none = isinstance(node.op, ScatterNDUpdate)
        known = has_none or node.inputs[3].constant is not None
        return unless((known, "its axis is not known ahead"))

    @abstractmethod
    def declare_elements(self, call: Call) -> None:
        """Declare inputs, result, `COORDINATES`, `OLD`, `UPDATE(t)`, `STORE(v)`, and `PLACE`."""

    @abstractmethod
    def declare_matches(self, call: Call) -> None:
        """Define `MATCHES(t)`: whether update t names the element of these coordinates."""

    @abstractmethod
    def declare_marks(self, call: Call) -> None:
        """Declare indices, `MARK_COORDINATES`, `PLACE_OF(i)` and `NUMBER_OF(i)`."""

    @abstractmethod
    def updates(self, node: GpuNode) -> int:
        """Return how many updates may name an element."""

    @abstractmethod
    def places(self, node: GpuNode) -> int:
        """Return how many places updates may name."""


class ScatterRef(Scatter, SingleLaunch):
    """One work-item computes one element."""

    source = "movement/scatter_ref.cl"
    name = "scatter_ref"

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Every update that may name an element is compared with it."""
        call.scalars(COUNT=call.node.inputs[0].elements, UPDATES=self.updates(call.node))
        self.declare_elements(call)
        self.declare_matches(call)
        reduction = getattr(op, "reduction", Reduction.NONE)
        call.define(**{"COMBINE(v, u)": f"({_COMBINE[reduction]})"})
        floats = call.node.inputs[0].storage.is_float
        mean = "(v) / (n)" if floats else "((v) / (n) - ((v) % (n) != 0 && (v) < 0))"
        call.define(**{"MEAN_OF(v, n)": mean})
        call.define(MEAN=reduction is Reduction.MEAN, USE_OLD=getattr(op, "use_init_val", True))
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
        return unless((many, "looking at all updates is expected to be faster"))

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return what clears the marks, what marks, and what computes elements."""
        places, x, indices = self.places(node), node.inputs[0], node.inputs[1]
        named = indices.elements // (
            indices.shape[-1] if isinstance(node.op, ScatterNDUpdate) else 1
        )
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


class _Slices(Scatter):
    """ScatterUpdate: indices along an axis."""

    def declare_elements(self, call: Call) -> None:
        """Coordinates: the axes before, the axis, the axes behind."""
        x, indices, updates = call.node.inputs[:3]
        axis = normalize_axis(integers(call.node, 3)[0], x.rank)
        before, behind = tuple(range(axis)), tuple(range(axis + 1, x.rank))
        picked = tuple(range(axis, axis + indices.rank))
        rest = tuple(range(axis + indices.rank, updates.rank))
        call.tensor("IN0", x, [before, (axis,), behind])
        call.tensor("IN2", updates, [before, picked, rest])
        inner = math.prod(x.shape[a] for a in behind)
        call.scalars(AXIS=x.shape[axis], INNER=inner)
        call.define(
            COORDINATES="const int c = i % INNER, a = i / INNER % AXIS, b = i / INNER / AXIS;",
            OLD="IN0_LOAD(IN0_AT(b, a, c))",
            PLACE="a",
        )
        call.define(**{"UPDATE(t)": "IN2_LOAD(IN2_AT(b, t, c))"})
        call.result([before, (axis,), behind])
        call.define(**{"STORE(v)": "WRITE(v, b, a, c)"})

    def declare_matches(self, call: Call) -> None:
        """Compare with the coordinate along the axis."""
        indices = call.node.inputs[1]
        call.tensor("IN1", indices, [tuple(range(indices.rank))])
        call.define(**{"MATCHES(t)": "wrapped(IN1_LOAD(IN1_AT(t)), AXIS) == a"})

    def declare_marks(self, call: Call) -> None:
        """A place is a coordinate along the axis."""
        indices = call.node.inputs[1]
        call.tensor("IN1", indices, [tuple(range(indices.rank))])
        call.scalars(AXIS=self.places(call.node))
        call.define(MARK_COORDINATES="")
        call.define(**{"PLACE_OF(i)": "inside(IN1_LOAD(IN1_AT(i)), AXIS)", "NUMBER_OF(i)": "i"})

    def updates(self, node: GpuNode) -> int:
        """All indices."""
        return node.inputs[1].elements

    def places(self, node: GpuNode) -> int:
        """As long as the axis is."""
        return node.inputs[0].shape[normalize_axis(integers(node, 3)[0], node.inputs[0].rank)]


class _Elements(Scatter):
    """ScatterElementsUpdate: updates of an element are those in its line along the axis."""

    def _axis(self, node: GpuNode) -> int:
        return normalize_axis(integers(node, 3)[0], node.inputs[0].rank)

    def _line(self, call: Call) -> str:
        rank, axis = call.node.inputs[0].rank, self._axis(call.node)
        return ", ".join("t" if k == axis else f"o{k}" for k in range(rank))

    def declare_elements(self, call: Call) -> None:
        """Coordinates: one per axis."""
        x, _, updates = call.node.inputs[:3]
        call.tensor("IN0", x)
        call.tensor("IN2", updates)
        call.unravel("UNRAVEL", "o", x.shape)
        own = ", ".join(f"o{k}" for k in range(x.rank))
        call.define(COORDINATES="UNRAVEL(i)", OLD=f"IN0_LOAD(IN0_AT({own}))", PLACE="i")
        call.define(**{"UPDATE(t)": f"IN2_LOAD(IN2_AT({self._line(call)}))"})
        call.result()
        call.define(**{"STORE(v)": f"WRITE(v, {own})"})

    def declare_matches(self, call: Call) -> None:
        """Compare with the coordinate along the axis, where indices reach so far."""
        x, indices = call.node.inputs[:2]
        axis = self._axis(call.node)
        call.tensor("IN1", indices)
        inside = ["1"]
        for k in range(x.rank):
            if k != axis:
                call.scalars(**{f"LIMIT_{k}": indices.shape[k]})
                inside.append(f"o{k} < LIMIT_{k}")
        call.scalars(AXIS=x.shape[axis])
        matches = f"wrapped(IN1_LOAD(IN1_AT({self._line(call)})), AXIS) == o{axis}"
        call.define(**{"MATCHES(t)": " && ".join([*inside, matches])})

    def declare_marks(self, call: Call) -> None:
        """A place is an element; updates are numbered along the axis."""
        x, indices = call.node.inputs[:2]
        axis = self._axis(call.node)
        call.tensor("IN1", indices)
        call.unravel("MARK_UNRAVEL", "o", indices.shape)
        own = ", ".join(f"o{k}" for k in range(x.rank))
        call.scalars(**{f"AXIS_{k}": x.shape[k] for k in range(x.rank)})
        call.define(
            MARK_COORDINATES="MARK_UNRAVEL(i) "
            f"const int along = inside(IN1_LOAD(IN1_AT({own})), AXIS_{axis});"
        )
        place = _row_major(["along" if k == axis else f"o{k}" for k in range(x.rank)])
        call.define(**{
            "PLACE_OF(i)": f"along < 0 ? -1 : {place}",
            "NUMBER_OF(i)": f"o{axis}",
        })  # fmt: skip

    def updates(self, node: GpuNode) -> int:
        """Those in a line."""
        return node.inputs[1].shape[self._axis(node)]

    def places(self, node: GpuNode) -> int:
        """All elements."""
        return node.inputs[0].elements


class _Tuples(Scatter):
    """ScatterNDUpdate: tuples of coordinates."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """One update per tuple of indices."""
        every = node.inputs[2].rank > 0 or node.inputs[1].shape[-1] == node.inputs[0].rank
        reason = unless((every, "one update is for several elements"))
        return reason or super().refuses(node, target)

    def declare_elements(self, call: Call) -> None:
        """Coordinates: one per index of a tuple, the rest of the axes together."""
        x, indices, updates = call.node.inputs[:3]
        depth, count = indices.shape[-1], indices.rank - 1
        rest = tuple(range(depth, x.rank))
        groups: list[tuple[int, ...]] = [*[(k,) for k in range(depth)], rest]
        call.tensor("IN0", x, groups)
        behind = [tuple(range(count)), tuple(range(count, updates.rank))]
        call.tensor("IN2", updates, behind if updates.rank else [(), ()])
        sizes = [*x.shape[:depth], math.prod(x.shape[k] for k in rest)]
        call.unravel("UNRAVEL", "o", sizes)
        own = ", ".join(f"o{k}" for k in range(depth + 1))
        call.scalars(**{f"AXIS_{k}": x.shape[k] for k in range(depth)})
        call.define(
            COORDINATES="UNRAVEL(i)",
            OLD=f"IN0_LOAD(IN0_AT({own}))",
            PLACE=_row_major([f"o{k}" for k in range(depth)]),
        )
        call.define(**{"UPDATE(t)": f"IN2_LOAD(IN2_AT(t, o{depth}))"})
        call.result(groups)
        call.define(**{"STORE(v)": f"WRITE(v, {own})"})

    def declare_matches(self, call: Call) -> None:
        """Compare with each index of a tuple."""
        indices = call.node.inputs[1]
        call.tensor("IN1", indices, [tuple(range(indices.rank - 1)), (indices.rank - 1,)])
        parts = [
            f"wrapped(IN1_LOAD(IN1_AT(t, {k})), AXIS_{k}) == o{k}" for k in range(indices.shape[-1])
        ]
        call.define(**{"MATCHES(t)": " && ".join(parts) or "1"})

    def declare_marks(self, call: Call) -> None:
        """A place is what a tuple names."""
        x, indices = call.node.inputs[:2]
        depth = indices.shape[-1]
        call.tensor("IN1", indices, [tuple(range(indices.rank - 1)), (indices.rank - 1,)])
        call.scalars(**{f"AXIS_{k}": x.shape[k] for k in range(depth)})
        call.define(
            MARK_COORDINATES=" ".join(
                f"const int o{k} = inside(IN1_LOAD(IN1_AT(i, {k})), AXIS_{k});"
                for k in range(depth)
            )
        )
        outside = " || ".join(f"o{k} < 0" for k in range(depth)) or "0"
        place = _row_major([f"o{k}" for k in range(depth)])
        call.define(**{"PLACE_OF(i)": f"{outside} ? -1 : {place}", "NUMBER_OF(i)": "i"})

    def updates(self, node: GpuNode) -> int:
        """All tuples."""
        return math.prod(node.inputs[1].shape[:-1])

    def places(self, node: GpuNode) -> int:
        """What tuples can name."""
        return math.prod(node.inputs[0].shape[: node.inputs[1].shape[-1]])


def _row_major(coordinates: Sequence[str]) -> str:
    """Return the number of a place whose axes have the sizes `AXIS_0` and so on."""
    place = "0"
    for k, coordinate in enumerate(coordinates):
        place = f"({place} * AXIS_{k} + {coordinate})" if k else coordinate
    return place


@kernel(ScatterUpdate)
class ScatterUpdateMarked(_Slices, ScatterMarked):
    """Slices, many of them."""


@kernel(ScatterUpdate)
class ScatterUpdateRef(_Slices, ScatterRef):
    """Slices, any number."""


@kernel(ScatterElementsUpdate)
class ScatterElementsMarked(_Elements, ScatterMarked):
    """Elements along an axis, many of them."""


@kernel(ScatterElementsUpdate)
class ScatterElementsRef(_Elements, ScatterRef):
    """Elements along an axis, any number."""


@kernel(ScatterNDUpdate)
class ScatterNdMarked(_Tuples, ScatterMarked):
    """What tuples name, many of them."""


@kernel(ScatterNDUpdate)
class ScatterNdRef(_Tuples, ScatterRef):
    """What tuples name, any number."""
