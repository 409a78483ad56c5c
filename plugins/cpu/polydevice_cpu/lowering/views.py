"""Operations that only look at the same bytes in another way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.slice import Slice, StridedSlice
from polydevice.ops.split import Split, VariadicSplit
from polydevice.ops.transpose import Transpose
from polydevice_cpu.implement import run
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn.descriptor import row_major
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


@lowers(Reshape, Squeeze, Unsqueeze, Transpose, Split, VariadicSplit, Slice, StridedSlice)
def lower_view(builder: PlanBuilder, node: Node) -> bool:
    """Compute nothing where NumPy's own function returns a view of its first input.

    The function is asked with an array of the value's shape and strides whose elements do not
    matter; where it would have to copy, the value is brought into row-major order first.
    """
    source, *others = node.inputs
    constants = [port.desc.constant for port in others]
    if any(constant is None for constant in constants):
        return False
    value = builder.value(source)
    if value.strides is None:
        value = builder.dense(value)
    looks = _reshaped(node, value) or _looks(builder, node, value, constants)
    if looks is None and not value.is_dense:
        value = builder.dense(value)
        looks = _reshaped(node, value) or _looks(builder, node, value, constants)
    if looks is None:
        return False
    for port, (shape, strides, skip) in zip(node.outputs, looks, strict=True):
        builder.set(port, value.view(shape, strides, skip_bytes=skip))
    return True


def _reshaped(node: Node, value: Value) -> list[_Look] | None:
    """The one view of a row-major value in which all elements stay where they are."""
    shape = node.outputs[0].shape
    if not isinstance(node.op, _RESHAPING) or shape is None or not value.is_dense:
        return None
    return [(shape.static, row_major(shape.static), 0)]


_RESHAPING = (Reshape, Squeeze, Unsqueeze)

_Look = tuple[tuple[int, ...], tuple[int, ...], int]
"""Sizes, strides in elements, and bytes skipped of a view."""


def _looks(
    builder: PlanBuilder, node: Node, value: Value, constants: list[Array | None]
) -> list[_Look] | None:
    """The views that a node makes of a value like this one; None where it has to copy."""
    elements = [None if x is None else (x.dtype, x.shape, x.tobytes()) for x in constants]
    given = value.shape, value.strides, value.dtype, *elements
    return builder.alike(node, given, lambda: _views(node, value, constants))


def _views(node: Node, value: Value, constants: list[Array | None]) -> list[_Look] | None:
    assert value.strides is not None
    item = value.dtype.itemsize
    reach = sum((n - 1) * s for n, s in zip(value.shape, value.strides, strict=True) if n) + 1
    # Never written and hardly ever read, so the system hands out no memory for it.
    memory = np.empty(max(reach, 1) * item, np.uint8)
    strides = [s * item for s in value.strides]
    fake: Array = np.ndarray(value.shape, value.dtype, memory, 0, strides)
    start = address_of(memory)
    views = []
    for result in run(node.op, [fake, *constants]):
        offset = address_of(result) - start
        if result.size and not (0 <= offset < memory.nbytes and np.may_share_memory(result, fake)):
            return None
        steps = tuple(s // item for s in result.strides)
        if any(s <= 0 and n > 1 for s, n in zip(steps, result.shape, strict=True)):
            return None
        views.append((result.shape, steps, offset if result.size else 0))
    return views
