"""fuse_pad: a border of zeros becomes padding of the convolution that reads it."""

from __future__ import annotations

import numpy as np

from polydevice.ops.convolution import Convolution
from polydevice.ops.pad import Pad, PadMode
from polydevice.window import PadType
from polydevice_gpu.graph import GpuGraph, GpuNode
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.views import integers


def fuse_pad(graph: GpuGraph, target: Target) -> None:
    """Drop Pad nodes that only convolutions read, and that pad spatial axes with zeros."""
    del target  # all devices gain
    users = graph.users()
    for node in list(graph.nodes):
        readers = users.get(node.output, []) if node.outputs else []
        if not isinstance(node.op, Pad) or node.output.is_output or not _is_border(node):
            continue
        if not readers or not all(_reads_as_data(reader, node) for reader in readers):
            continue
        begin, end = integers(node, 1)[2:], integers(node, 2)[2:]
        for reader in readers:
            _pad_more(reader, begin, end)
            reader.inputs[0] = node.inputs[0]
        graph.remove(node, "OPTIMIZED_OUT", readers[0].name, f"padding of {readers[0].name}")


def _is_border(node: GpuNode) -> bool:
    op = node.op
    if not isinstance(op, Pad) or op.pad_mode is not PadMode.CONSTANT:
        return False
    if any(value.constant is None for value in node.inputs[1:]):
        return False
    begin, end = integers(node, 1), integers(node, 2)
    zero = len(node.inputs) < 4 or not np.any(np.asarray(node.inputs[3].constant))
    return zero and not any((*begin[:2], *end[:2])) and min((*begin, *end), default=0) >= 0


def _reads_as_data(reader: GpuNode, pad: GpuNode) -> bool:
    return (
        isinstance(reader.op, Convolution)
        and not reader.on_host
        and reader.inputs[0] is pad.output
        and pad.output not in reader.inputs[1:]
    )


def _pad_more(node: GpuNode, begin: list[int], end: list[int]) -> None:
    """Add to what the convolution pads itself."""
    op = node.op
    assert isinstance(op, Convolution)
    before, after = op.window(node.inputs[1].shape).pads(node.inputs[0].shape[2:])
    node.op = op.replace(
        pads_begin=tuple(a + b for a, b in zip(before, begin, strict=True)),
        pads_end=tuple(a + b for a, b in zip(after, end, strict=True)),
        auto_pad=PadType.EXPLICIT,
    )
