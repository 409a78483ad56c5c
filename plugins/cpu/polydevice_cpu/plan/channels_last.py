"""Functions of single elements by NumPy, in the order in which these lie in memory.

Images whose channels lie next to each other would be brought into row-major order and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from polydevice.ops.convert import Convert
from polydevice.ops.logical import LogicalNot
from polydevice.ops.pointwise import AutoBroadcast, BinaryPointwise
from polydevice.ops.select import Select
from polydevice.shape import all_happen_to_be_equal
from polydevice_cpu.onednn.descriptor import channels_last_strides, row_major
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node

_IMAGE = (3, 4, 5)
"""Axes of images of one to three."""


class ChannelsLast(NamedTuple):
    """What a step reads, and how its result is to be seen.

    Attributes:
        inputs: with channels as the last axis.
        shape: of the result, likewise.
        strides: of the result with channels as axis 1.
    """

    inputs: list[Value]
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _lies(value: Value, shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a value that is no block has these sizes and strides."""
    assert value.strides is not None
    return all_happen_to_be_equal(value.shape, shape) and all_happen_to_be_equal(
        value.strides, strides
    )


def as_channels_last(node: Node, values: Sequence[Value]) -> ChannelsLast | None:
    """Return how a node computes on what all has its channels last; None where it does not.

    Args:
        node: with one output.
        values: of its inputs; single numbers may be among them.
    """
    op, result = node.op, node.outputs[0].shape
    if not isinstance(op, (BinaryPointwise, Select, Convert, LogicalNot)) or result is None:
        return None
    if getattr(op, "auto_broadcast", None) is AutoBroadcast.PDPD:
        return None
    shape = result.static
    if len(shape) not in _IMAGE or 0 in shape:
        return None
    strides, moved = channels_last_strides(shape), (shape[0], *shape[2:], shape[1])
    inputs, are_turned = [], False
    for port, value in zip(node.inputs, values, strict=True):
        if value.dtype != port.element_type.dtype or value.strides is None:
            return None
        if value.elements == 1 and len(value.shape) <= len(shape):
            inputs.append(value)
        elif _lies(value, shape, strides) and not value.is_dense:
            inputs.append(value.view(moved, row_major(moved)))
            are_turned = True
        else:
            return None
    return ChannelsLast(inputs, moved, strides) if are_turned else None
