"""read_borders: pointwise operations read a border as a number, not from memory.

Networks whose residual sums widen, such as BlazeFace and ResNet's option A, add zeros to the
channels of what is handed on. The layer that sums then knows where these end, and Pad needs no
launch. Elsewhere Pad is a copy that knows it, in vectors, with whatever is pointwise behind it.
"""

from __future__ import annotations

import numpy as np

from polydevice.ops.pad import Pad, PadMode
from polydevice_gpu.graph import Border, GpuGraph, GpuNode, Value
from polydevice_gpu.kernels.kernel import kernels_of
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import Fragment, Fused
from polydevice_gpu.views import integers

_LARGEST = 2.0**31
"""What the border is made of must be an int or a float."""


def read_borders(graph: GpuGraph, target: Target) -> None:
    """Make views of Pad nodes, and copies where not only sums read them."""
    del target  # all devices gain
    users = graph.users()
    for node in list(graph.nodes):
        if not isinstance(node.op, Pad) or node.on_host or not _is_plain(node):
            continue
        begin = integers(node, 1)
        inside = tuple(zip(begin, node.inputs[0].shape, strict=True))
        fill = np.asarray(node.inputs[3].constant).item() if len(node.inputs) > 3 else 0
        readers = users.get(node.output, [])
        shown = node.output
        if shown.is_output or not readers or not all(_sums(each, shown) for each in readers):
            shown = _copied(graph, node)
        shown.border = Border(inside, float(fill))


def _copied(graph: GpuGraph, pad: GpuNode) -> Value:
    """Make a copy of a Pad, of a view that stands before it; return what this shows."""
    shown = pad.output.like(f"{pad.name}/bordered")
    graph.insert_before(pad, GpuNode(shown.name, pad.op, pad.inputs, [shown], ()))
    pad.op, pad.inputs = Fused(Fragment((shown.storage,))), [shown]
    pad.result_type = shown.storage
    return shown


def _is_plain(node: GpuNode) -> bool:
    """Whether a border is a finite number around a value that is computed."""
    op = node.operation(Pad)
    x, *parameters = node.inputs
    if op.pad_mode is not PadMode.CONSTANT or any(v.constant is None for v in parameters):
        return False
    fill = np.asarray(parameters[2].constant) if len(parameters) > 2 else np.zeros(())
    ends = [*integers(node, 1), *integers(node, 2)]
    if x.constant is not None or x.on_host or not x.elements:
        return False
    return min(ends) >= 0 and bool(np.all(np.abs(fill.astype(np.float64)) < _LARGEST))


def _sums(reader: GpuNode, value: Value) -> bool:
    """Whether a node computes with a value and another of its shape that could take it over."""
    if not isinstance(reader.op, Fused) or reader.output.shape != value.shape:
        return False
    return any(
        other.shape == value.shape
        and other.producer is not None
        and not isinstance(other.producer.op, Pad)
        and bool(kernels_of(type(other.producer.op)))
        for other in reader.inputs
        if other is not value
    )
