"""Gather, GatherElements and GatherND: elements chosen by indices."""

from __future__ import annotations

import math

from polydevice.ops.gather import Gather, GatherElements, GatherND, GatherTree
from polydevice.ops.op import Op
from polydevice.shape import normalize_axis
from polydevice.symbolic_size import is_symbolic
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels.addressing import step_along
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.views import integers


@kernel(Gather)
class GatherRef(SingleLaunch):
    """One work-item fetches one element, or on a processor a vector of a row.

    1,840 rows of 64 floats, as a cache of keys has them, on two busy cores (PoCL): 0.04 ms, and
    0.4 one by one.
    """

    def refuses(self, node: GpuNode, target: Target) -> str:
        """The axis must be known."""
        return unless((node.inputs[2].constant is not None, "its axis is not known ahead"))

    def describe(self, call: Call, op: Gather, mode: Mode) -> None:
        """Coordinates: batch, the axes before, the index, the axes behind."""
        node = call.node
        x, indices, out = node.inputs[0], node.inputs[1], node.output
        axis = normalize_axis(integers(node, 2)[0], x.rank)
        batch = op.batch_dims + indices.rank if op.batch_dims < 0 else op.batch_dims
        before, behind = tuple(range(batch, axis)), tuple(range(axis + 1, x.rank))
        picked = indices.rank - batch
        width = _width(call.target, (x, behind), (out, tuple(range(axis + picked, out.rank))))
        widths = (width,) if width > 1 else ()
        call.tensor("IN0", x, [tuple(range(batch)), before, (axis,), behind], widths)
        call.tensor("IN1", indices, [tuple(range(batch)), tuple(range(batch, indices.rank))])
        sizes = [
            math.prod(x.shape[:batch]),
            math.prod(x.shape[a] for a in before),
            math.prod(indices.shape[batch:]),
            math.prod(x.shape[a] for a in behind),
        ]
        call.scalars(OUTER=sizes[1], AXIS=x.shape[axis])
        call.define(NEGATIVE=op.negative_indices, WIDTH=width)
        groups = [
            tuple(range(batch)),
            before,
            tuple(range(axis, axis + picked)),
            tuple(range(axis + picked, out.rank)),
        ]
        call.result(groups, widths)
        call.dispatch((sizes[3] // width, sizes[2], sizes[0] * sizes[1]))


def _width(target: Target, *rows: tuple[Value, tuple[int, ...]]) -> int:
    """Return how many elements of rows, of values and some of their axes, to move at once."""
    sizes = [value.shape[axis] for value, axes in rows for axis in axes]
    if target.is_throughput or not sizes or any(map(is_symbolic, sizes)):
        return 1  # neighbours in lockstep read neighbours; other sizes want other vectors
    if any(compute_type(value.storage) != "float" for value, _ in rows):
        return 1
    if any(step_along(value.placed, value.shape, [axes]) != 1 for value, axes in rows):
        return 1
    length = math.prod(rows[0][0].shape[axis] for axis in rows[0][1])
    return math.gcd(length, min(16, max(target.vector_width, 1)))


@kernel(GatherElements)
class GatherElementsRef(SingleLaunch):
    """One work-item fetches one element."""

    def describe(self, call: Call, op: GatherElements, mode: Mode) -> None:
        """Replace the coordinate of one axis by the index."""
        node = call.node
        x, indices = node.inputs[0], node.inputs[1]
        axis = normalize_axis(op.axis, x.rank)
        call.tensor("IN0", x)
        call.tensor("IN1", indices, [tuple(range(indices.rank))])
        call.unravel("UNRAVEL", "o", indices.shape)
        names = ", ".join("found" if a == axis else f"o{a}" for a in range(x.rank))
        call.define(ELEMENT=f"IN0_LOAD(IN0_AT({names}))")
        call.scalars(COUNT=indices.elements, AXIS=x.shape[axis])
        call.result([tuple(range(indices.rank))])
        call.dispatch((indices.elements,))


@kernel(GatherND)
class GatherNdRef(SingleLaunch):
    """One work-item fetches one element."""

    def describe(self, call: Call, op: GatherND, mode: Mode) -> None:
        """Coordinates: batch, the tuple of indices, the rest of the axes."""
        node = call.node
        x, indices, out = node.inputs[0], node.inputs[1], node.output
        batch, depth = op.batch_dims, indices.shape[-1]
        rest = tuple(range(batch + depth, x.rank))
        groups: list[tuple[int, ...]] = [tuple(range(batch))]
        call.tensor("IN0", x, [*groups, *[(batch + d,) for d in range(depth)], rest])
        tuples = tuple(range(batch, indices.rank - 1))
        call.tensor("IN1", indices, [*groups, tuples, (indices.rank - 1,)])
        lines = []
        for d in range(depth):
            call.scalars(**{f"AXIS_{d}": x.shape[batch + d]})
            lines.append(f"int f{d} = IN1_LOAD(IN1_AT(b, t, {d})); if (f{d} < 0) f{d} += AXIS_{d};")
        names = "".join(f"f{d}, " for d in range(depth))
        inside = [f"f{d} >= 0 && f{d} < AXIS_{d}" for d in range(depth)]
        call.define(FIND=" ".join(lines), INSIDE=" && ".join(["1", *inside]))
        call.define(ELEMENT=f"IN0_LOAD(IN0_AT(b, {names}r))")
        leading = 1 if op.flatten_batch and batch > 1 else batch
        last = out.rank - len(rest)
        call.result(
            [tuple(range(leading)), tuple(range(leading, last)), tuple(range(last, out.rank))]
        )
        call.dispatch((
            math.prod(x.shape[a] for a in rest),
            math.prod(indices.shape[a] for a in tuples),
            math.prod(x.shape[:batch]),
        ))  # fmt: skip


@kernel(GatherTree)
class GatherTreeRef(SingleLaunch):
    """One work-item traces one beam."""

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Back over the steps, then forwards to the first end."""
        node = call.node
        steps, batches, beams = node.output.shape
        for index, value in enumerate(node.inputs[:4]):
            groups = [(0,), (1,), (2,)] if index < 2 else [tuple(range(value.rank))]
            call.tensor(f"IN{index}", value, groups)
        call.scalars(STEPS=steps, BEAMS=beams)
        call.result()
        call.dispatch((beams, batches))
