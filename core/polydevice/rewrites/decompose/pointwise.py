"""Broadcasting as PaddlePaddle aligns it is NumPy's of a reshaped operand."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.pointwise import AutoBroadcast, BinaryPointwise, pdpd_aligned
from polydevice.rewrites.facts import shape_of
from polydevice.rewrites.rule import decomposes
from polydevice.shape import Shape


@decomposes(BinaryPointwise, where=lambda op, x: op.auto_broadcast is AutoBroadcast.PDPD)
def _pdpd(build: Emitter, op: BinaryPointwise, inputs: Sequence[Port]) -> list[Port]:
    a, b = inputs
    aligned = pdpd_aligned(Shape(shape_of(a)), Shape(shape_of(b)), op.broadcast_axis).static
    numpy = op.replace(auto_broadcast=AutoBroadcast.NUMPY, broadcast_axis=-1)
    return build.emit_all(numpy, a, build.reshape(b, aligned))
