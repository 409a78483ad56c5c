"""Image patches are strided parts, put together."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.concat import Concat
from polydevice.ops.pad import Pad
from polydevice.ops.patches import ExtractImagePatches
from polydevice.ops.slice import Slice
from polydevice.rewrites.facts import count_of, result_shapes, shape_of
from polydevice.rewrites.rule import decomposes


@decomposes(ExtractImagePatches, where=lambda _, inputs: count_of(inputs[0]) > 0)
def _patches(build: Emitter, op: ExtractImagePatches, inputs: Sequence[Port]) -> list[Port]:
    (x,) = inputs
    window = op.window
    begin, end = window.pads(shape_of(x)[2:])
    if any(begin) or any(end):
        x = build.emit(Pad(), x, [0, 0, *begin], [0, 0, *end], build.like(0, x))
    (shape,) = result_shapes(op, inputs)
    parts = []
    for tap in itertools.product(*(range(size) for size in op.sizes)):
        first = [t * d for t, d in zip(tap, window.dilations, strict=True)]
        last = [
            f + (n - 1) * s + 1 for f, n, s in zip(first, shape[2:], window.strides, strict=True)
        ]
        parts.append(build.emit(Slice(), x, first, last, window.strides, [2, 3]))
    return [parts[0] if len(parts) == 1 else build.emit(Concat(axis=1), *parts)]
