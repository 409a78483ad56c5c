"""shorten_views: Reshape, Transpose, Reshape that only exchange axes become one Transpose.

PyTorch's exports flatten batch and heads around the transpose of the keys, [N, H, T, E] →
[NH, T, E] → [NH, E, T] → [N, H, E, T]: of a part of a larger tensor no pitches can show the middle
of that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.transpose import Transpose, permutation
from polydevice.shape import happen_to_be_equal, is_one, stay_equal
from polydevice.symbolic_size import array_of
from polydevice_gpu.graph import GpuGraph, GpuNode, Value, constant_value
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.passes.drop_unused import drop_unused
from polydevice_gpu.views import integers, is_view

_RESHAPES = (Reshape, Squeeze, Unsqueeze)
Axes = list[list[int]]
"""Which axes of the chain's beginning lie behind each axis; those of size 1 are left out."""


def shorten_views(graph: GpuGraph, target: Target) -> None:
    """Shorten every chain that merges axes, exchanges some, and takes them apart again."""
    for node in list(graph.nodes):
        if not isinstance(node.op, _RESHAPES) or node.on_host or not is_view(node):
            continue
        chain = _chain(node)
        while len(chain) > 2:
            axes = _axes_behind(chain)
            if axes is not None and all(len(group) <= 1 for group in axes):
                _replace(graph, chain, [axis for group in axes for axis in group])
                break
            del chain[0]
    drop_unused(graph, target)


def _chain(last: GpuNode) -> list[GpuNode]:
    """Return the reshapes and transposes that end with a node, in order."""
    chain = [last]
    while True:
        before = chain[0].inputs[0].producer
        if before is None or before.on_host or not isinstance(before.op, (*_RESHAPES, Transpose)):
            return chain
        if not is_view(before):
            return chain
        chain.insert(0, before)


def _axes_behind(chain: Sequence[GpuNode]) -> Axes | None:
    """Return where the result's axes come from; None if a reshape cuts through one.

    None as well where nothing would be gained: no axes are merged before they are exchanged.
    """
    start = chain[0].inputs[0]
    if start.constant is not None or not start.elements:
        return None
    sizes = start.shape
    axes: Axes = [[] if is_one(size) else [axis] for axis, size in enumerate(sizes)]
    gains = False
    for node in chain:
        if isinstance(node.op, Transpose):
            gains = gains or any(len(group) > 1 for group in axes)
            axes = [axes[axis] for axis in permutation(integers(node, 1), len(axes))]
            continue
        regrouped = _regrouped([axis for group in axes for axis in group], sizes, node.output.shape)
        if regrouped is None:
            return None
        axes = regrouped
    return axes if gains else None


def _regrouped(order: Sequence[int], sizes: Sequence[int], shape: Sequence[int]) -> Axes | None:
    """Share axes out, in order, among the axes of a shape; None if one must be cut."""
    left = list(order)
    axes: Axes = []
    for size in shape:
        group: list[int] = []
        while left and not is_one(size):
            part = sizes[left[0]]
            if part is not size and not happen_to_be_equal(size % part, 0):
                break
            size = 1 if part is size else size // part
            group.append(left.pop(0))
        if not stay_equal(size, 1):
            return None
        axes.append(group)
    return axes


def _replace(graph: GpuGraph, chain: Sequence[GpuNode], order: list[int]) -> None:
    """Compute the result by one Transpose, and a Reshape where axes of size 1 come or go."""
    start, last = chain[0].inputs[0], chain[-1]
    single = [axis for axis in range(start.rank) if axis not in order]
    full = [*single, *order]
    turned = Value(
        f"{last.name}/turned", start.element_type, [start.shape[a] for a in full],
        storage=start.storage,
    )  # fmt: skip
    pattern = constant_value(f"{last.name}/order", np.asarray(full, np.int64))
    origins = dict.fromkeys(origin for step in chain for origin in step.origins)
    node = GpuNode(turned.name, Transpose(), [start, pattern], [turned], origins)
    graph.insert_before(last, node)
    shape = constant_value(f"{last.name}/shape", array_of(last.output.shape, np.int64))
    last.op, last.inputs = Reshape(special_zero=False), [turned, shape]
