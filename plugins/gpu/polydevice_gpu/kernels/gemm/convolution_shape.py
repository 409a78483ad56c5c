"""The numbers of a convolution node: its window, groups and channels."""

from __future__ import annotations

import math

from polydevice.ops.convolution import Convolution
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.geometry import Geometry, spatial, written_groups
from polydevice_gpu.layout import Layout, collapse


def convolution_geometry(node: GpuNode) -> Geometry:
    """Return the window of a convolution node."""
    op = node.operation(Convolution)
    x, w = node.inputs[0], node.inputs[1]
    window = op.window(w.shape)
    begin, _ = window.pads(x.shape[2:])
    return Geometry.of(_window_of(node), window.strides, window.dilations, begin)


def taps_of(node: GpuNode) -> int:
    """Return the elements of a convolution node's window, at a tenth of its geometry's cost."""
    return math.prod(_window_of(node))


def _window_of(node: GpuNode) -> tuple[int, ...]:
    return node.inputs[1].shape[3 if node.operation(Convolution).grouped else 2 :]


def groups_of(node: GpuNode) -> tuple[int, int, int]:
    """Return groups, output channels per group, input channels per group."""
    op, w = node.operation(Convolution), node.inputs[1]
    if op.grouped:
        return w.shape[0], w.shape[1], w.shape[2]
    return 1, w.shape[0], w.shape[1]


def has_channels_inside(layout: Layout, alignment: int = 1) -> bool:
    """Whether channels lie side by side, every pixel's first at a multiple of `alignment`."""
    channel, *others = layout.pitches[1], layout.pitches[0], *layout.pitches[2:]
    return channel == 1 and all(n % alignment == 0 for n in (layout.offset, *others))


def is_flat(node: GpuNode) -> bool:
    """Whether pixels form one row: 1x1 windows over data whose pixels follow each other evenly."""
    geometry = convolution_geometry(node)
    if (
        geometry.taps != 1
        or geometry.strides != (1, 1, 1)
        or any(geometry.pads)
        or spatial(node.inputs[0].shape) != spatial(node.output.shape)
    ):
        return False
    pixels = (0, *range(2, node.output.rank))
    return all(
        len(collapse([(v.shape[a], v.placed.pitches[a]) for a in pixels])) <= 1
        for v in (node.inputs[0], node.output)
    )


def pixel_groups(node: GpuNode) -> tuple[list[tuple[int, ...]], tuple[int, int, int, int]]:
    """Return the axes behind batch, z, y, x, channel, and the sizes of batch, z, y, x."""
    rank, out = node.output.rank, node.output
    if is_flat(node):
        pixels = (0, *range(2, rank))
        return [(), (), (), pixels, (1,)], (1, 1, 1, out.elements // out.shape[1])
    return written_groups(rank), (out.shape[0], *spatial(out.shape))
