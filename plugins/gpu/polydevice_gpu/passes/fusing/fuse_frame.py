"""fuse_frame: a video frame that is converted, then resized, becomes one ResampleYuv.

The pattern is what preprocessing makes: NV12 or I420 to RGB or BGR, for a batch of frames with a
Concat behind, → Transpose to NCHW → Convert → Resample over height and width. The image in the
frame's size, 24 MB in f32 at 1080p, then never exists, and only pixels that are read are converted.
"""

from __future__ import annotations

import math

from polydevice.dtype import ElementType
from polydevice.ops.color import FromYuv
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.transpose import Transpose, permutation
from polydevice_gpu.graph import GpuGraph, GpuNode, Value
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import Fused, Resample, ResampleYuv
from polydevice_gpu.views import integers

Users = dict[Value, list[GpuNode]]

_FRAMES = (ElementType.u8, ElementType.f16, ElementType.f32)
_RESULTS = (ElementType.f16, ElementType.f32)
_MOST_READS = 4
"""How often a pixel may be converted on average: bilinear resizing reads four for each result."""
_MOST_TAPS = 8
"""Loops over the taps are unrolled."""


def fuse_frame(graph: GpuGraph, target: Target) -> None:
    """Fuse every frame; runs before pointwise operations join the conversion."""
    del target  # all devices gain
    users = graph.users()
    for node in list(graph.nodes):
        if isinstance(node.op, Resample) and node.op.axes == (2, 3) and _is_worth(node):
            found = _find(node, users)
            if found is not None:
                _replace(graph, node, *found)
                users = graph.users()


def _is_worth(node: GpuNode) -> bool:
    taps = [table.shape[1] for table in (node.inputs[1], node.inputs[3])]
    reads = math.prod(node.output.shape[2:]) * math.prod(taps)
    pixels = math.prod(node.inputs[0].shape[2:])
    return max(taps) <= _MOST_TAPS and reads <= _MOST_READS * pixels


def _find(node: GpuNode, users: Users) -> tuple[list[GpuNode], list[GpuNode]] | None:
    """Return the conversions, in the order of the batch, and what lies between; None otherwise."""
    if node.output.element_type not in _RESULTS or node.on_host:
        return None
    between: list[GpuNode] = []
    current = _only_read_by(node, node.inputs[0], users)
    while current is not None and (_is_cast(current) or _is_to_nchw(current)):
        between.append(current)
        current = _only_read_by(current, current.inputs[0], users)
    if current is None or sum(map(_is_to_nchw, between)) != 1:
        return None
    frames = [current]
    if isinstance(current.op, Concat) and current.op.axis in (0, -4):
        between.append(current)
        above = [_only_read_by(current, value, users) for value in current.inputs]
        frames = [each for each in above if each is not None]
        if len(frames) != len(above) or len({type(frame.op) for frame in frames}) != 1:
            return None
    fits = all(
        isinstance(each.op, FromYuv) and each.inputs[0].element_type in _FRAMES for each in frames
    )
    return (frames, between) if fits else None


def _only_read_by(reader: GpuNode, value: Value, users: Users) -> GpuNode | None:
    """Return what computes a value, if nobody else reads it."""
    producer = value.producer
    if producer is None or producer.on_host or value.is_output or users.get(value) != [reader]:
        return None
    return producer


def _is_cast(node: GpuNode) -> bool:
    """Whether a node only makes floating point of its input."""
    if not isinstance(node.op, Fused) or len(node.inputs) != 1:
        return False
    steps = node.op.fragment.steps
    return node.output.element_type in _RESULTS and all(isinstance(s.op, Convert) for s in steps)


def _is_to_nchw(node: GpuNode) -> bool:
    if not isinstance(node.op, Transpose) or node.inputs[1].constant is None:
        return False
    return list(permutation(integers(node, 1), node.inputs[0].rank)) == [0, 3, 1, 2]


def _replace(graph: GpuGraph, node: GpuNode, frames: list[GpuNode], between: list[GpuNode]) -> None:
    """Resample every frame by itself, and join the results if there are several."""
    result, tables = node.output, node.inputs[1:]
    sizes = (result.shape[2], result.shape[3])
    parts: list[Value] = []
    for frame in frames:
        part = result
        if len(frames) > 1:
            shape = (frame.output.shape[0], 3, *sizes)
            part = Value(
                f"{frame.name}/resized", result.element_type, shape, storage=result.storage
            )
        op = frame.operation(FromYuv)
        made = GpuNode(
            f"{node.name}/{frame.name}" if len(frames) > 1 else node.name,
            ResampleYuv(op, result.element_type),
            [*frame.inputs, *tables],
            [part],
            frame.origins,
        )
        graph.insert_before(node, made)
        parts.append(part)
        graph.nodes.remove(frame)
    host = result.producer
    if len(parts) > 1:
        host = GpuNode(f"{node.name}/batch", Concat(axis=0), parts, [result], node.origins)
        graph.insert_before(node, host)
        graph.nodes.remove(node)
    else:
        assert host is not None
        host.origins = [*node.origins, *host.origins]
        graph.nodes.remove(node)
    for each in between:
        graph.remove(each, "OPTIMIZED_OUT", host.name, f"part of {host.name}")
