"""Means over all positions by NumPy, which has no code to generate for a new size.

NumPy sums them in the order in which oneDNN does, so that answers are the same to the bit.
"""

from __future__ import annotations

import math
from typing import Any, TypeGuard

import numpy as np

from polydevice.dtype import Array
from polydevice.symbolic_size import is_within
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Algorithm, DataType
from polydevice_cpu.onednn.descriptor import (
    SymbolicDescriptor,
    channels_last_strides,
    same_steps,
)
from polydevice_cpu.onednn.primitive import Primitive, SymbolicPrimitive

MOST_NS = 80_000.0
"""How long NumPy may take for a mean: oneDNN's code takes a third at most, and 0.2 to 0.3 ms to
make."""

_POSITION_NS, _ELEMENT_NS = 20.0, 0.2

_MEANS = (Algorithm.POOLING_AVG_INCLUDE_PADDING, Algorithm.POOLING_AVG_EXCLUDE_PADDING)
_ALGORITHM, _SRC, _DST, _KERNEL, _ATTRIBUTES = 2, 3, 4, 6, 10
_STEPS = slice(7, 10)


def may_be_a_mean(given: Primitive) -> TypeGuard[SymbolicPrimitive]:
    """Whether a primitive is a mean and nothing else, as far as sizes do not decide that."""
    if not isinstance(given, SymbolicPrimitive) or given.name != "pooling_forward":
        return False
    src, dst, attributes = given.src, given.dst, given.arguments[_ATTRIBUTES]
    assert isinstance(attributes, Attributes)
    return (
        given.arguments[_ALGORITHM] in _MEANS
        and isinstance(src, SymbolicDescriptor)
        and src.data_type is dst.data_type is DataType.F32
        and src.strides is not None
        and dst.strides is not None
        and len(src.shape) > 2
        and not attributes.post_ops
    )


def is_a_mean(sizes: tuple[Any, ...], shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether it is one over all positions, of few elements.

    Args:
        sizes: of the arguments that the primitive is made with.
        shape: of its source.
        strides: of its source, in elements.
    """
    none = (0,) * (len(shape) - 2)
    positions = math.prod(shape[2:])
    return (
        sizes[_KERNEL] == shape[2:]
        and all(step == none for step in sizes[_STEPS])
        and shape[1] > 1  # or NumPy sums in another order
        and is_within(positions * _POSITION_NS + math.prod(shape) * _ELEMENT_NS, MOST_NS)
        and same_steps(shape, strides, channels_last_strides(shape))
    )


def mean(source: Array, target: Array) -> tuple[()]:
    """Write the mean of [N, C, spatial…], channels next to each other, to [N, C, 1…]."""
    np.add.reduce(source, tuple(range(2, source.ndim)), None, target, keepdims=True)
    np.divide(target, np.float32(math.prod(source.shape[2:])), target)
    return ()
