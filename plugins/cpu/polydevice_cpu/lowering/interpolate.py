"""Resizing of images where oneDNN samples at the same places."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.interpolate import Interpolate, Interpolate1, Interpolate4, Resize
from polydevice_cpu.implement import run
from polydevice_cpu.lowering.table import lowers
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitives import resampling
from polydevice_cpu.plan.step import PrimitiveStep

if TYPE_CHECKING:
    from polydevice.network import Node
    from polydevice_cpu.plan.builder import Builder


@lowers(Interpolate, Interpolate1, Interpolate4, Resize)
def lower_interpolate(builder: Builder, node: Node) -> bool:
    """Resize the spatial axes, nearest or linear."""
    source, *others = node.inputs
    constants = [port.desc.constant for port in others]
    shape, target = source.shape, node.outputs[0].shape
    if source.element_type is not ElementType.f32 or shape is None or target is None:
        return False
    before, after = shape.static, target.static
    if any(c is None for c in constants) or not 3 <= len(before) <= 5 or before[:2] != after[:2]:
        return False
    if 0 in before or 0 in after:
        return False
    given = [c for c in constants if c is not None]
    linear = _linear(node, before, after, given)
    if linear is None:
        return False
    value = builder.value(source)
    if not value.in_reach:
        return False
    result = Descriptor.any(after, value.descriptor.data_type)
    made = resampling(value.descriptor, result, Attributes(), linear=linear)
    if made is None or made.is_reference:
        return False
    output = builder.new(made.dst)
    builder.emit(
        PrimitiveStep(node.name, node.type, made, {Arg.SRC: value, Arg.DST: output}, (Arg.DST,))
    )
    builder.set(node.outputs[0], output)
    return True


def _linear(
    node: Node, before: tuple[int, ...], after: tuple[int, ...], constants: list[Array]
) -> bool | None:
    """True: the same as oneDNN's linear; False: as its nearest; None: neither.

    The NumPy function is asked where each output comes from: along each axis it resizes impulses,
    one per input element, which gives the weight of every input in every output.
    """
    kinds = {False, True}
    for axis in range(2, len(before)):
        size, resized = before[axis], after[axis]
        if size == 1 and resized == 1:
            continue
        weights = _weights(node, before, axis, constants)
        if weights is None or weights.shape != (size, resized):
            return None
        kinds = {kind for kind in kinds if _same(weights, size, resized, linear=kind)}
    return min(kinds) if kinds else None


def _weights(
    node: Node, before: tuple[int, ...], axis: int, constants: list[Array]
) -> Array | None:
    """[input, output] weights along one axis; None when asking would cost too much."""
    size = before[axis]
    others = [n if d == axis else min(n, 64) for d, n in enumerate(before)]
    if size * size * int(np.prod(others[2:])) > 1 << 24:
        return None
    impulses = np.zeros((1, size, *before[2:]), np.float32)
    index = [slice(None)] * len(before)
    index[1] = index[axis] = np.arange(size)  # type: ignore[call-overload]
    impulses[tuple(index)] = 1
    (result,) = run(node.op, [impulses, *constants])
    along = [0] * len(before)
    along[1] = along[axis] = slice(None)  # type: ignore[call-overload]
    return np.asarray(result[tuple(along)])


def _same(weights: Array, size: int, resized: int, *, linear: bool) -> bool:
    position = np.clip((np.arange(resized) + 0.5) * size / resized - 0.5, 0, size - 1)
    expected = np.zeros((size, resized))
    columns = np.arange(resized)
    if linear:
        low = np.floor(position).astype(int)
        high = np.minimum(low + 1, size - 1)
        np.add.at(expected, (low, columns), 1 - (position - low))
        np.add.at(expected, (high, columns), position - low)
        return bool(np.allclose(weights, expected, atol=1e-4))
    # Half-way positions are rounded away from zero in oneDNN; NumPy would round to even.
    nearest = np.minimum(np.floor(position + 0.5).astype(int), size - 1)
    expected[nearest, columns] = 1
    return bool(np.array_equal(weights, expected))
