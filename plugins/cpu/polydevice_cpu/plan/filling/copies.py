"""Copies from one order of axes to another by NumPy, which has no code to generate for a size."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.descriptor import Descriptor, SymbolicDescriptor, same_steps
from polydevice_cpu.onednn.primitive import Primitive, SymbolicPrimitive
from polydevice_cpu.plan.value import Value

MOST_NS = 16_000.0
"""How long NumPy may take for a copy: oneDNN's code takes 0.25 ms to choose, make and bind, and a
plan runs eight times so."""

ROW = 8
"""So many elements next to each other NumPy copies at 0.2 to 0.6 ns each, fewer at 2.4."""

_FAST_NS, _SLOW_NS = 0.65, 2.4
_SRC, _DST, _ATTRIBUTES = 0, 2, 4


def may_be_a_copy(given: Primitive) -> TypeGuard[SymbolicPrimitive]:
    """Whether a primitive copies elements as they are, between layouts that strides tell."""
    if not isinstance(given, SymbolicPrimitive) or given.name != "reorder":
        return False
    src, dst, attributes = (given.arguments[place] for place in (_SRC, _DST, _ATTRIBUTES))
    assert isinstance(attributes, Attributes)
    return (
        _is_plain(src)
        and _is_plain(dst)
        and src.data_type is dst.data_type
        and not attributes.post_ops
        and not attributes.quantisation
    )


def _is_plain(layout: object) -> TypeGuard[SymbolicDescriptor]:
    return (
        isinstance(layout, SymbolicDescriptor)
        and layout.source is None
        and layout.strides is not None
    )


def is_a_copy(given: SymbolicPrimitive, source: Value, target: Value, sizes: Any) -> bool:
    """Whether a primitive copies few elements, and its layouts are those of the values.

    Args:
        given: one that `may_be_a_copy`.
        source: what it reads.
        target: what it writes.
        sizes: returns the numbers of a layout (shape and strides).
    """
    for place, value in ((_SRC, source), (_DST, target)):
        layout = given.arguments[place]
        assert isinstance(layout, Descriptor)
        shape, strides = sizes(layout)
        if (
            shape != value.shape
            or value.strides is None
            or not same_steps(shape, strides, value.strides)
        ):
            return False
    row: int = next((n for n, step in zip(shape, strides, strict=True) if step == 1 and n > 1), 1)
    each_ns = _FAST_NS if row >= ROW else _SLOW_NS
    return bool(math.prod(shape) * each_ns <= MOST_NS)


def copy(source: Array, target: Array) -> tuple[()]:
    """Write the elements of an array to another one of its shape and type."""
    np.copyto(target, source)
    return ()
