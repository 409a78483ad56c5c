"""What scatters are: which updates name which elements of the result, for kernels of all kinds."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

from polydevice.ops.scatter import Reduction, ScatterNDUpdate
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Kernel
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.views import integers

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

    def declare_combination(self, call: Call) -> None:
        """Define `COMBINE(v, u)`, `MEAN`, `MEAN_OF(v, n)` and `USE_OLD`."""
        op = call.node.op
        reduction = getattr(op, "reduction", Reduction.NONE)
        call.define(**{"COMBINE(v, u)": f"({_COMBINE[reduction]})"})
        floats = call.node.inputs[0].storage.is_float
        mean = "(v) / (n)" if floats else "((v) / (n) - ((v) % (n) != 0 && (v) < 0))"
        call.define(**{"MEAN_OF(v, n)": mean})
        call.define(MEAN=reduction is Reduction.MEAN, USE_OLD=getattr(op, "use_init_val", True))

    @abstractmethod
    def updates(self, node: GpuNode) -> int:
        """Return how many updates may name an element."""

    @abstractmethod
    def places(self, node: GpuNode) -> int:
        """Return how many places updates may name."""


class Lined(Scatter):
    """Updates in lines, none of which names a place of another."""

    @abstractmethod
    def declare_lines(self, call: Call) -> None:
        """Declare indices, and which places the updates of line i name, one after the other.

        Defines `LINES`, `WIDE` (places of a line), `UPDATES` (of a line), `LINE_COORDINATES`, which
        may declare some, and `ALONG_OF(t)`, which declares the place of update t in the line,
        `along`, or -1 outside.
        """

    @abstractmethod
    def declare_list(self, call: Call) -> None:
        """Define `LIST`: the number of the list that an element's updates are in, or -1."""

    @abstractmethod
    def lines(self, node: GpuNode) -> tuple[int, int]:
        """Return how many lines of updates there are, and places that a line may name."""


class Slices(Scatter):
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


class Elements(Lined):
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

    def declare_lines(self, call: Call) -> None:
        """A line runs along the axis."""
        indices, axis = call.node.inputs[1], self._axis(call.node)
        call.tensor("IN1", indices)
        call.unravel("LINE_UNRAVEL", "o", self._starts(call.node))
        lines, wide = self.lines(call.node)
        call.scalars(LINES=lines, WIDE=wide, UPDATES=indices.shape[axis])
        call.define(LINE_COORDINATES="LINE_UNRAVEL(i)")
        along = f"inside(IN1_LOAD(IN1_AT({self._line(call)})), WIDE)"
        call.define(**{"ALONG_OF(t)": f"const int along = {along};"})

    def declare_list(self, call: Call) -> None:
        """Lists are numbered line by line, as long as indices reach."""
        axis, starts = self._axis(call.node), self._starts(call.node)
        others = [k for k in range(len(starts)) if k != axis]
        call.scalars(
            WIDE=call.node.inputs[0].shape[axis], **{f"AXIS_{k}": starts[k] for k in others}
        )
        inside = " && ".join(f"o{k} < AXIS_{k}" for k in others) or "1"
        line = _row_major([f"o{k}" for k in range(len(starts))], axis)
        call.define(LIST=f"{inside} ? {line} * WIDE + o{axis} : -1")

    def lines(self, node: GpuNode) -> tuple[int, int]:
        """As many as there are beside each other, as long as the axis is."""
        return math.prod(self._starts(node)), node.inputs[0].shape[self._axis(node)]

    def _starts(self, node: GpuNode) -> list[int]:
        axis = self._axis(node)
        return [1 if k == axis else size for k, size in enumerate(node.inputs[1].shape)]

    def updates(self, node: GpuNode) -> int:
        """Those in a line."""
        return node.inputs[1].shape[self._axis(node)]

    def places(self, node: GpuNode) -> int:
        """All elements."""
        return node.inputs[0].elements


class Tuples(Lined):
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
        coordinates, place = self._place(call, "i")
        call.define(MARK_COORDINATES=coordinates)
        call.define(**{"PLACE_OF(i)": place, "NUMBER_OF(i)": "i"})

    def declare_lines(self, call: Call) -> None:
        """All tuples are one line: any may name any place."""
        coordinates, place = self._place(call, "t")
        node = call.node
        call.scalars(LINES=1, WIDE=self.places(node), UPDATES=self.updates(node))
        call.define(LINE_COORDINATES="")
        call.define(**{"ALONG_OF(t)": f"{coordinates} const int along = {place};"})

    def declare_list(self, call: Call) -> None:
        """Lists are numbered as places are."""
        call.define(LIST="PLACE")

    def lines(self, node: GpuNode) -> tuple[int, int]:
        """One."""
        return 1, self.places(node)

    def _place(self, call: Call, number: str) -> tuple[str, str]:
        """Declare indices; return what declares a tuple's coordinates, and the place they name."""
        x, indices = call.node.inputs[:2]
        depth = indices.shape[-1]
        call.tensor("IN1", indices, [tuple(range(indices.rank - 1)), (indices.rank - 1,)])
        call.scalars(**{f"AXIS_{k}": x.shape[k] for k in range(depth)})
        coordinates = " ".join(
            f"const int o{k} = inside(IN1_LOAD(IN1_AT({number}, {k})), AXIS_{k});"
            for k in range(depth)
        )
        outside = " || ".join(f"o{k} < 0" for k in range(depth)) or "0"
        return coordinates, f"{outside} ? -1 : {_row_major([f'o{k}' for k in range(depth)])}"

    def updates(self, node: GpuNode) -> int:
        """All tuples."""
        return math.prod(node.inputs[1].shape[:-1])

    def places(self, node: GpuNode) -> int:
        """What tuples can name."""
        return math.prod(node.inputs[0].shape[: node.inputs[1].shape[-1]])


def _row_major(coordinates: Sequence[str], without: int = -1) -> str:
    """Return the number of a place whose axes, but for one, have the sizes `AXIS_0` and so on."""
    place = ""
    for k, coordinate in enumerate(coordinates):
        if k != without:
            place = f"({place} * AXIS_{k} + {coordinate})" if place else coordinate
    return place or "0"
