"""OneHot compares indices with positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.arithmetic import Add
from polydevice.ops.comparison import Equal, Less
from polydevice.ops.convert import Convert
from polydevice.ops.generate import NegativeIndices, OneHot
from polydevice.ops.select import Select
from polydevice.rewrites.facts import array_of, is_known, rank_of, shape_of
from polydevice.rewrites.rule import decomposes
from polydevice.shape import normalize_axis


@decomposes(OneHot, where=lambda _, inputs: is_known(inputs[1]))
def _one_hot(build: Emitter, op: OneHot, inputs: Sequence[Port]) -> list[Port]:
    indices, depth, on, off = inputs
    size = int(array_of(depth).reshape(-1)[0])
    if size - 1 > np.iinfo(indices.element_type.dtype).max:  # positions that the type cannot count
        indices = build.emit(Convert(destination_type=ElementType.i64), indices)
    kind = indices.element_type
    axis = normalize_axis(op.axis, rank_of(indices) + 1)
    shape = (*shape_of(indices)[:axis], 1, *shape_of(indices)[axis:])
    column = build.reshape(indices, shape)
    positions = np.arange(size).reshape(-1, *[1] * (rank_of(indices) - axis)).astype(kind.dtype)
    place = build.value(positions, kind)
    if op.negative_indices_mode is NegativeIndices.NORMALIZE and kind.is_signed:
        zero, count = (build.value(v, kind) for v in (0, size))
        negative = build.emit(Less(), column, zero)
        column = build.emit(Select(), negative, build.emit(Add(), column, count), column)
    found = build.emit(Equal(), column, place)
    return build.emit_all(Select(), found, build.reshape(on, ()), build.reshape(off, ()))
