"""TopK."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.topk import TopK, TopKMode, TopKSort
from polydevice.shape import normalize_axis
from polydevice_cpu.algorithms.by_machine.ranking.first import first
from polydevice_cpu.algorithms.ranking import extreme, largest, smallest
from polydevice_cpu.implement import implements
from polydevice_cpu.ops.gather import flat_index

FEW = 100
"""Up to so many elements NumPy takes less: to tell code about them takes 10 us."""


@implements(TopK)
def topk(op: TopK, x: Array, k: Array) -> tuple[Array, Array]:
    """Sort stably along the axis and take the first k; NaN counts as the largest."""
    axis = normalize_axis(op.axis, x.ndim)
    size, count = x.shape[axis], int(k.reshape(-1)[0])
    if not 0 <= count <= size:
        raise InferenceError(f"TopK: k {count} is outside [0, {size}], the size of axis {axis}")
    is_largest, by_index = op.mode is TopKMode.MAX, op.sort is TopKSort.INDEX
    kind = op.index_element_type.dtype
    if x.size > FEW:
        made = first(x, axis, count, kind, descending=is_largest, by_index=by_index)
        if made is not None:
            return made
    found = extreme(x, axis, largest=is_largest) if count == 1 else None
    index, values = (_ranked(op, x, axis, count), None) if found is None else found
    if values is None:
        values = x.take(index if x.ndim == 1 else flat_index(x, index, axis))
    return values, index.astype(kind, copy=False)


def _ranked(op: TopK, x: Array, axis: int, count: int) -> Array:
    last = axis == x.ndim - 1
    keys = x if last else np.moveaxis(x, axis, -1)
    index = largest(keys, count) if op.mode is TopKMode.MAX else smallest(keys, count)
    if op.sort is TopKSort.INDEX:
        index = np.sort(index, axis=-1)
    return index if last else np.moveaxis(index, -1, axis)
