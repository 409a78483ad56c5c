"""Operations that only look at the same bytes in another way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.gather import Gather
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.slice import Slice, StridedSlice
from polydevice.ops.split import Split, VariadicSplit
from polydevice.ops.transpose import Transpose
from polydevice_cpu.implement import run
from polydevice_cpu.lowering.table import lowers
from polydevice_cpu.onednn.descriptor import row_major
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


@lowers(Gather)
def lower_gather(builder: PlanBuilder, node: Node) -> bool:
    """Look at what constant, evenly spaced indices select."""
    op = node.op
    assert isinstance(op, Gather)
    source, indices_port, axis_port = node.inputs
    indices, axis_array = indices_port.desc.constant, axis_port.desc.constant
    if indices is None or axis_array is None or op.batch_dims or not indices.size:
        return False
    value = builder.value(source)
    if value.strides is None:
        value = builder.dense(value)
    assert value.strides is not None
    axis = int(axis_array.reshape(-1)[0]) % len(value.shape)
    size = value.shape[axis]
    flat = indices.reshape(-1).astype(np.int64)
    if not op.negative_indices and flat.min() < 0:
        return False
    flat = np.where(flat < 0, flat + size, flat)
    steps = np.diff(flat)
    step = int(steps[0]) if steps.size else 1
    if flat.min() < 0 or flat.max() >= size or step <= 0 or (steps != step).any():
        return False
    stride = value.strides[axis]
    inner = row_major(indices.shape)
    shape = (*value.shape[:axis], *indices.shape, *value.shape[axis + 1 :])
    strides = (
        *value.strides[:axis],
        *(stride * step * s for s in inner),
        *value.strides[axis + 1 :],
    )
    skip = int(flat[0]) * stride * value.dtype.itemsize
    builder.set(node.outputs[0], value.view(shape, strides, skip_bytes=skip))
    return True


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
    views = _views(node, value, constants)
    if views is None and not value.is_dense:
        value = builder.dense(value)
        views = _views(node, value, constants)
    if views is None:
        return False
    for port, view in zip(node.outputs, views, strict=True):
        builder.set(port, view)
    return True


def _views(node: Node, value: Value, constants: list[Array | None]) -> list[Value] | None:
    assert value.strides is not None
    item = value.dtype.itemsize
    reach = sum((n - 1) * s for n, s in zip(value.shape, value.strides, strict=True) if n) + 1
    # Never written and hardly ever read, so the system hands out no memory for it.
    memory = np.empty(max(reach, 1) * item, np.uint8)
    strides = [s * item for s in value.strides]
    fake: Array = np.ndarray(value.shape, value.dtype, memory, 0, strides)
    start = memory.__array_interface__["data"][0]
    views = []
    for result in run(node.op, [fake, *constants]):
        offset = result.__array_interface__["data"][0] - start
        if result.size and not (0 <= offset < memory.nbytes and np.may_share_memory(result, fake)):
            return None
        steps = tuple(s // item for s in result.strides)
        if any(s <= 0 and n > 1 for s, n in zip(steps, result.shape, strict=True)):
            return None
        views.append(value.view(result.shape, steps, skip_bytes=offset if result.size else 0))
    return views
