"""Pooling of a whole image is a reduction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.pooling import AvgPool
from polydevice.ops.reduce import ReduceMean
from polydevice.rewrites.facts import rank_of, shape_of
from polydevice.rewrites.rule import decomposes


def _is_whole(op: AvgPool, inputs: Sequence[Port]) -> bool:
    x = inputs[0]
    sizes = shape_of(x)[2:]
    window = op.window
    unpadded = not any(map(any, window.pads(sizes)))
    whole = tuple(window.kernel) == tuple(sizes) and unpadded
    return whole and x.element_type.is_float


@decomposes(AvgPool, where=_is_whole)
def _whole_average(build: Emitter, op: AvgPool, inputs: Sequence[Port]) -> Sequence[Port]:
    axes = build.value(np.arange(2, rank_of(inputs[0])))
    return build.emit_all(ReduceMean(keep_dims=True), inputs[0], axes)
