"""What OneHot and ReverseSequence are made of: comparisons of indices with positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.ops.arithmetic import Add, Subtract
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.comparison import Equal, Less
from polydevice.ops.gather import GatherElements
from polydevice.ops.generate import NegativeIndices, OneHot
from polydevice.ops.reverse import ReverseSequence
from polydevice.ops.select import Select
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import Value
from polydevice_gpu.passes.decompose import decomposes, reshape

if TYPE_CHECKING:
    from polydevice_gpu.passes.lower import Builder


@decomposes(OneHot, when=lambda _, inputs: inputs[1].constant is not None)
def _one_hot(build: Builder, op: OneHot, inputs: Sequence[Value]) -> list[Value]:
    indices, depth, on, off = inputs
    kind = indices.element_type
    size = int(np.asarray(depth.constant).reshape(-1)[0])
    axis = normalize_axis(op.axis, indices.rank + 1)
    shape = (*indices.shape[:axis], 1, *indices.shape[axis:])
    column = reshape(build, indices, shape)
    positions = np.arange(size).reshape(-1, *[1] * (indices.rank - axis)).astype(kind.dtype)
    place = build.constant(positions, kind)
    if op.negative_indices_mode is NegativeIndices.NORMALIZE and kind.is_signed:
        zero, count = (build.constant(np.asarray(v, kind.dtype), kind) for v in (0, size))
        negative = build.one(Less(), column, zero)
        column = build.one(Select(), negative, build.one(Add(), column, count), column)
    found = build.one(Equal(), column, place)
    return build.add(Select(), found, reshape(build, on, ()), reshape(build, off, ()))


@decomposes(ReverseSequence, when=lambda _, inputs: inputs[0].elements > 0)
def _reverse_sequence(build: Builder, op: ReverseSequence, inputs: Sequence[Value]) -> list[Value]:
    """Read each element from length - 1 - position, where that lies in the sequence."""
    x, lengths = inputs
    batch, axis = normalize_axis(op.batch_axis, x.rank), normalize_axis(op.seq_axis, x.rank)
    kind = lengths.element_type

    def along(axis: int, size: int) -> tuple[int, ...]:
        return tuple(size if i == axis else 1 for i in range(x.rank))

    length = reshape(build, lengths, along(batch, x.shape[batch]))
    positions = np.arange(x.shape[axis], dtype=kind.dtype).reshape(along(axis, x.shape[axis]))
    place = build.constant(positions, kind)
    one = build.constant(np.asarray(1, kind.dtype), kind)
    mirrored = build.one(Subtract(), build.one(Subtract(), length, one), place)
    index = build.one(Select(), build.one(Less(), place, length), mirrored, place)
    whole = build.one(Broadcast(), index, build.constant(np.array(x.shape, np.int64)))
    return build.add(GatherElements(axis=axis), x, whole)
