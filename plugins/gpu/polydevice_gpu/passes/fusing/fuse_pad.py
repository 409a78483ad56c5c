"""fuse_pad: a border of what means 0 becomes padding of the convolution that reads it.

Transposes and reshapes may lie between, as where a network keeps its channels last, or where a
convolution of one axis is written as one of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.ops.convolution import Convolution
from polydevice.ops.pad import Pad, PadMode
from polydevice.ops.reshape import Reshape
from polydevice.ops.transpose import Transpose, permutation
from polydevice.ops.window import PadType
from polydevice.shape import are_same, is_one
from polydevice.symbolic_size import array_of
from polydevice_gpu import views
from polydevice_gpu.graph import GpuGraph, GpuNode, Value, constant_value
from polydevice_gpu.kernels.byte_terms import fill_of, zero_of
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.views import integers

Users = dict[Value, list[GpuNode]]
Padding = tuple[tuple[int, int], ...]
"""Elements before and behind, for each axis."""


@dataclass
class _Readers:
    """Where a border goes.

    Attributes:
        convolutions: each with the border of its data.
        between: views on the way, each with the border of what it shows.
    """

    convolutions: list[tuple[GpuNode, Padding]] = field(default_factory=list)
    between: list[tuple[GpuNode, Padding]] = field(default_factory=list)


def fuse_pad(graph: GpuGraph, target: Target) -> None:
    """Drop Pad nodes that only convolutions read, and that pad spatial axes with their zeros."""
    del target  # all devices gain
    users = graph.users()
    for node in list(graph.nodes):
        if not isinstance(node.op, Pad) or node.on_host or not _is_border(node):
            continue
        begin, end = integers(node, 1), integers(node, 2)
        found = _Readers()
        border = tuple(zip(begin, end, strict=True))
        if not _follow(found, node.output, border, _fill(node), users):
            continue
        for reader, border in found.convolutions:
            _pad_more(reader, border)
        for view, border in found.between:
            _shrink(view, border)
        graph.replace(node.output, node.inputs[0])
        name = found.convolutions[0][0].name
        graph.remove(node, "OPTIMIZED_OUT", name, f"padding of {name}")
        users = graph.users()


def _is_border(node: GpuNode) -> bool:
    op = node.op
    if not isinstance(op, Pad) or op.pad_mode is not PadMode.CONSTANT:
        return False
    if any(value.constant is None for value in node.inputs[1:]):
        return False
    begin, end = integers(node, 1), integers(node, 2)
    return min((*begin, *end), default=0) >= 0 and node.inputs[0].elements > 0


def _fill(node: GpuNode) -> float:
    return 0 if len(node.inputs) < 4 else np.asarray(node.inputs[3].constant).item()


def _follow(found: _Readers, value: Value, border: Padding, fill: float, users: Users) -> bool:
    """Note all who read a bordered value; False when one of them needs the border."""
    readers = users.get(value, [])
    if value.is_output or not readers:
        return False
    for reader in readers:
        if _reads_as_data(reader, value, fill) and not any(
            before + behind for before, behind in border[:2]
        ):
            found.convolutions.append((reader, border))
            continue
        shown = _shown(reader, border) if reader.inputs[0] is value else None
        if shown is None or not _follow(found, reader.output, shown, fill, users):
            return False
        found.between.append((reader, shown))
    return True


def _reads_as_data(reader: GpuNode, value: Value, fill: float) -> bool:
    return (
        isinstance(reader.op, Convolution)
        and fill == zero_of(reader)
        and fill_of(reader) is None
        and not reader.on_host
        and reader.inputs[0] is value
        and value not in reader.inputs[1:]
    )


def _shown(view: GpuNode, border: Padding) -> Padding | None:
    """Return the border in what a view shows; None when it is none there."""
    if view.on_host or not views.is_view(view) or len(view.outputs) > 1:
        return None
    x, out = view.inputs[0], view.output
    if isinstance(view.op, Transpose):
        return tuple(border[axis] for axis in permutation(integers(view, 1), x.rank))
    if views.seen_back(view, out.placed) is None or not are_same(_long(x.shape), _long(out.shape)):
        return None
    # Axes of size 1 come and go; a bordered one is longer.
    rest = iter([sides for sides, size in zip(border, x.shape, strict=True) if not is_one(size)])
    return tuple((0, 0) if is_one(size) else next(rest) for size in out.shape)


def _long(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if not is_one(size)]


def _shrink(view: GpuNode, border: Padding) -> None:
    """Let a view show its input without the border."""
    value = view.output
    sizes = zip(value.shape, border, strict=True)
    value.shape = tuple(size - before - behind for size, (before, behind) in sizes)
    if not isinstance(view.op, Transpose):
        shape = constant_value(f"{view.name}/shape", array_of(value.shape, np.int64))
        view.op, view.inputs[1:] = Reshape(special_zero=False), [shape]


def _pad_more(node: GpuNode, border: Padding) -> None:
    """Add to what the convolution pads itself; its data has the border still."""
    op = node.operation(Convolution)
    before, after = op.window(node.inputs[1].shape).pads(node.inputs[0].shape[2:])
    node.op = op.replace(
        pads_begin=tuple(a + b for a, (b, _) in zip(before, border[2:], strict=True)),
        pads_end=tuple(a + b for a, (_, b) in zip(after, border[2:], strict=True)),
        auto_pad=PadType.EXPLICIT,
    )
