"""PReLU with slopes by channel: slopes in a shape that broadcasts."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.activation import PRelu, slope_shape
from polydevice.rewrites.facts import rank_of, shape_of
from polydevice.rewrites.rule import decomposes
from polydevice.shape import Shape


@decomposes(
    PRelu,
    where=lambda op, x: (
        len(slope_shape(range(rank_of(x[0])), Shape(shape_of(x[1])))) != rank_of(x[1])
    ),
)
def _prelu(build: Emitter, op: PRelu, inputs: Sequence[Port]) -> list[Port]:
    x, slope = inputs
    aligned = slope_shape(range(rank_of(x)), Shape(shape_of(slope))).static
    return build.emit_all(op, x, build.reshape(slope, aligned))
