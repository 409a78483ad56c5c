"""read_borders: a sum with a bordered value reads the border as a number, not from memory.

Networks whose residual sums widen, such as BlazeFace and ResNet's option A, add zeros to the
channels of what is handed on. The layer that sums then knows where these end, and Pad needs no
launch.
"""

from __future__ import annotations

import numpy as np

from polydevice.ops.pad import Pad, PadMode
from polydevice_gpu.graph import Border, GpuGraph, GpuNode, Value
from polydevice_gpu.kernels.kernel import kernels_of
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import Fused
from polydevice_gpu.views import integers

_LARGEST = 2.0**31
"""What the border is made of must be an int or a float."""


def read_borders(graph: GpuGraph, target: Target) -> None:
    """Make views of the Pad nodes that only such operations read."""
    del target  # all devices gain
    users = graph.users()
    for node in graph.nodes:
        if not isinstance(node.op, Pad) or node.on_host or not _is_plain(node):
            continue
        readers = users.get(node.output, [])
        if readers and all(_sums(reader, node.output) for reader in readers):
            begin = integers(node, 1)
            inside = tuple(zip(begin, node.inputs[0].shape, strict=True))
            fill = np.asarray(node.inputs[3].constant).item() if len(node.inputs) > 3 else 0
            node.output.border = Border(inside, float(fill))


def _is_plain(node: GpuNode) -> bool:
    """Whether a border is a finite number around a value that is computed."""
    op = node.operation(Pad)
    x, *parameters = node.inputs
    if op.pad_mode is not PadMode.CONSTANT or any(v.constant is None for v in parameters):
        return False
    fill = np.asarray(parameters[2].constant) if len(parameters) > 2 else np.zeros(())
    ends = [*integers(node, 1), *integers(node, 2)]
    if x.constant is not None or x.on_host or not x.elements or node.output.is_output:
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
