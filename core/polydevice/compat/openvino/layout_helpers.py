"""``openvino.layout_helpers``: the axes of a layout by what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polydevice.compat.openvino.types.layout import NOTE, Layout, layout_of

if TYPE_CHECKING:
    from polydevice.compat.openvino.graph.ports import Output

__all__ = [
    "batch_idx",
    "channels_idx",
    "depth_idx",
    "get_layout",
    "has_batch",
    "has_channels",
    "has_depth",
    "has_height",
    "has_width",
    "height_idx",
    "set_layout",
    "width_idx",
]


def has_batch(layout: Any) -> bool:
    """Whether an axis is the batch."""
    return layout_of(layout).has_name("N")


def batch_idx(layout: Any) -> int:
    """Return the axis of the batch; raises RuntimeError when there is none."""
    return layout_of(layout).get_index_by_name("N")


def has_channels(layout: Any) -> bool:
    """Whether an axis is the channels."""
    return layout_of(layout).has_name("C")


def channels_idx(layout: Any) -> int:
    """Return the axis of the channels; raises RuntimeError when there is none."""
    return layout_of(layout).get_index_by_name("C")


def has_depth(layout: Any) -> bool:
    """Whether an axis is the depth."""
    return layout_of(layout).has_name("D")


def depth_idx(layout: Any) -> int:
    """Return the axis of the depth; raises RuntimeError when there is none."""
    return layout_of(layout).get_index_by_name("D")


def has_height(layout: Any) -> bool:
    """Whether an axis is the height."""
    return layout_of(layout).has_name("H")


def height_idx(layout: Any) -> int:
    """Return the axis of the height; raises RuntimeError when there is none."""
    return layout_of(layout).get_index_by_name("H")


def has_width(layout: Any) -> bool:
    """Whether an axis is the width."""
    return layout_of(layout).has_name("W")


def width_idx(layout: Any) -> int:
    """Return the axis of the width; raises RuntimeError when there is none."""
    return layout_of(layout).get_index_by_name("W")


def get_layout(port: Output) -> Layout:
    """Return the layout that an input or output of a model was given; "..." for none."""
    return Layout(str(port._note_node.rt_info.get(NOTE) or "..."))


def set_layout(port: Output, layout: Any) -> None:
    """Say what the axes of an input or output of a model mean; nothing is transposed."""
    port._note_node.rt_info[NOTE] = str(layout_of(layout))
