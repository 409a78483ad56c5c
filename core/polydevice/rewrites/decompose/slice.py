"""SliceScatter writes to places that are known beforehand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.scatter import ScatterUpdate
from polydevice.ops.slice import SliceScatter, resolved, slice_index
from polydevice.rewrites.decompose.scatter import put_in
from polydevice.rewrites.facts import array_of, count_of, parameters_known, shape_of
from polydevice.rewrites.rule import decomposes


@decomposes(SliceScatter, where=lambda op, inputs: parameters_known(op, inputs[1:]))
def _slice_scatter(build: Emitter, op: SliceScatter, inputs: Sequence[Port]) -> list[Port]:
    """Put a block in, or scatter to places that are known beforehand."""
    x, updates = inputs[:2]
    start, stop, step, *axes = ([int(n) for n in array_of(v).reshape(-1)] for v in inputs[2:])
    items = slice_index(len(shape_of(x)), start, stop, step, axes[0] if axes else None)
    index = tuple(resolved(item, size) for item, size in zip(items, shape_of(x), strict=True))
    taken = [range(size)[item] for item, size in zip(index, shape_of(x), strict=True)]
    if not all(taken):
        return [x]
    if all(places.step == 1 for places in taken):
        return [put_in(build, x, updates, [places.start for places in taken])]
    places = np.arange(count_of(x), dtype=np.int64).reshape(shape_of(x))[index].reshape(-1)
    flat = build.emit(
        ScatterUpdate(),
        build.reshape(x, (count_of(x),)),
        build.value(places),
        build.reshape(updates, (count_of(updates),)),
        0,
    )
    return [build.reshape(flat, shape_of(x))]
