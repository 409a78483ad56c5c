"""ScatterUpdate, ScatterElementsUpdate and ScatterNDUpdate: elements replaced by index.

Each element of the result looks for the updates that name it, in their order. So no two
work-items write the same element, and of several updates the last one stays, every time.
"""

from __future__ import annotations

import math

from polydevice.ops.op import Op
from polydevice.ops.scatter import (
    Reduction,
    ScatterElementsUpdate,
    ScatterNDUpdate,
    ScatterUpdate,
)
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
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


def _declare_reduction(call: Call, op: Op) -> None:
    reduction = getattr(op, "reduction", Reduction.NONE)
    call.define(**{"COMBINE(v, u)": f"({_COMBINE[reduction]})"})
    floats = call.node.inputs[0].storage.is_float
    mean = "(v) / (n)" if floats else "((v) / (n) - ((v) % (n) != 0 && (v) < 0))"
    call.define(**{"MEAN_OF(v, n)": mean})
    call.define(MEAN=reduction is Reduction.MEAN, USE_OLD=getattr(op, "use_init_val", True))


@kernel(ScatterUpdate)
class ScatterUpdateRef(SingleLaunch):
    """One work-item computes one element."""

    source = "movement/scatter_ref.cl"
    name = "scatter_ref"

    def refuses(self, node: GpuNode, target: Target) -> str:
        """The axis must be known."""
        return unless((node.inputs[3].constant is not None, "its axis is not known ahead"))

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Coordinates: the axes before, the axis, the axes behind."""
        node = call.node
        x, indices, updates = node.inputs[:3]
        axis = normalize_axis(integers(node, 3)[0], x.rank)
        before, behind = tuple(range(axis)), tuple(range(axis + 1, x.rank))
        picked = tuple(range(axis, axis + indices.rank))
        rest = tuple(range(axis + indices.rank, updates.rank))
        call.tensor("IN0", x, [before, (axis,), behind])
        call.tensor("IN1", indices, [tuple(range(indices.rank))])
        call.tensor("IN2", updates, [before, picked, rest])
        inner = math.prod(x.shape[a] for a in behind)
        call.scalars(COUNT=x.elements, UPDATES=indices.elements, AXIS=x.shape[axis], INNER=inner)
        call.define(
            COORDINATES="const int c = i % INNER, a = i / INNER % AXIS, b = i / INNER / AXIS;",
            OLD="IN0_LOAD(IN0_AT(b, a, c))",
        )
        call.define(**{
            "MATCHES(t)": "wrapped(IN1_LOAD(IN1_AT(t)), AXIS) == a",
            "UPDATE(t)": "IN2_LOAD(IN2_AT(b, t, c))",
        })  # fmt: skip
        _declare_reduction(call, node.op)
        call.result([before, (axis,), behind])
        call.define(**{"STORE(v)": "WRITE(v, b, a, c)"})
        call.dispatch((x.elements,))


@kernel(ScatterElementsUpdate)
class ScatterElementsRef(SingleLaunch):
    """One work-item computes one element."""

    source = "movement/scatter_ref.cl"
    name = "scatter_ref"

    def refuses(self, node: GpuNode, target: Target) -> str:
        """The axis must be known."""
        return unless((node.inputs[3].constant is not None, "its axis is not known ahead"))

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Updates of an element are those in its line along the axis."""
        node = call.node
        x, indices, updates = node.inputs[:3]
        axis = normalize_axis(integers(node, 3)[0], x.rank)
        call.tensor("IN0", x)
        call.tensor("IN1", indices)
        call.tensor("IN2", updates)
        call.unravel("UNRAVEL", "o", x.shape)
        own = ", ".join(f"o{k}" for k in range(x.rank))
        line = ", ".join("t" if k == axis else f"o{k}" for k in range(x.rank))
        inside = ["1"]
        for k in range(x.rank):
            if k != axis:
                call.scalars(**{f"LIMIT_{k}": indices.shape[k]})
                inside.append(f"o{k} < LIMIT_{k}")
        call.scalars(COUNT=x.elements, UPDATES=indices.shape[axis], AXIS=x.shape[axis])
        call.define(COORDINATES="UNRAVEL(i)", OLD=f"IN0_LOAD(IN0_AT({own}))")
        matches = f"wrapped(IN1_LOAD(IN1_AT({line})), AXIS) == o{axis}"
        call.define(**{
            "MATCHES(t)": " && ".join([*inside, matches]),
            "UPDATE(t)": f"IN2_LOAD(IN2_AT({line}))",
        })  # fmt: skip
        _declare_reduction(call, node.op)
        call.result()
        call.define(**{"STORE(v)": f"WRITE(v, {own})"})
        call.dispatch((x.elements,))


@kernel(ScatterNDUpdate)
class ScatterNdRef(SingleLaunch):
    """One work-item computes one element."""

    source = "movement/scatter_ref.cl"
    name = "scatter_ref"

    def refuses(self, node: GpuNode, target: Target) -> str:
        """One update per tuple of indices."""
        every = node.inputs[2].rank > 0 or node.inputs[1].shape[-1] == node.inputs[0].rank
        return unless((every, "one update is for several elements"))

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Coordinates: one per index of a tuple, the rest of the axes together."""
        node = call.node
        x, indices, updates = node.inputs[:3]
        depth = indices.shape[-1]
        tuples = tuple(range(indices.rank - 1))
        rest = tuple(range(depth, x.rank))
        groups: list[tuple[int, ...]] = [*[(k,) for k in range(depth)], rest]
        call.tensor("IN0", x, groups)
        call.tensor("IN1", indices, [tuples, (indices.rank - 1,)])
        if updates.rank:
            behind = tuple(range(len(tuples), updates.rank))
            call.tensor("IN2", updates, [tuples, behind])
        else:
            call.tensor("IN2", updates, [(), ()])
        sizes = [*x.shape[:depth], math.prod(x.shape[k] for k in rest)]
        call.unravel("UNRAVEL", "o", sizes)
        own = ", ".join(f"o{k}" for k in range(depth + 1))
        parts = []
        for k in range(depth):
            call.scalars(**{f"AXIS_{k}": x.shape[k]})
            parts.append(f"wrapped(IN1_LOAD(IN1_AT(t, {k})), AXIS_{k}) == o{k}")
        count = math.prod(indices.shape[k] for k in tuples)
        call.scalars(COUNT=x.elements, UPDATES=count)
        call.define(COORDINATES="UNRAVEL(i)", OLD=f"IN0_LOAD(IN0_AT({own}))")
        call.define(**{
            "MATCHES(t)": " && ".join(parts) or "1",
            "UPDATE(t)": f"IN2_LOAD(IN2_AT(t, o{depth}))",
        })  # fmt: skip
        _declare_reduction(call, node.op)
        call.result(groups)
        call.define(**{"STORE(v)": f"WRITE(v, {own})"})
        call.dispatch((x.elements,))
