"""growth: whether the result of an operation fits, found out before it is computed, and its memory.

Needed where sizes are known at inference alone: a Tile, a Range, a padding or a product of two
vectors makes any number of bytes of a few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.errors import PolydeviceError
from polydevice.ops.control_flow import If, Iteration
from polydevice.ops.op import Op
from polydevice.tensor import desc_of

SMALL_ELEMENTS = 1 << 23
"""Results of other operations have at most the product of their inputs' elements, mostly far fewer;
up to this product nothing is asked, since describing a node takes 20 to 80 µs."""

COUNTED_BYTES = 1 << 16
"""Results from this size on count as memory of the network; counting one takes some 3 µs."""


def is_small(op: Op, inputs: Sequence[Array]) -> bool:
    """Whether nothing need be asked about an operation's result on inputs of these sizes.

    What has bodies is not asked: they ask for what they make. To infer one takes milliseconds.
    """
    if isinstance(op, (Iteration, If)):
        return True
    sizes = (max(array.size, 1) for array in inputs if not array.dtype.hasobject)
    return not op.sized_by_values and math.prod(sizes) <= SMALL_ELEMENTS


def admit(op: Op, inputs: Sequence[Array]) -> None:
    """Return if the operation's result, which is not small by its inputs, may be allocated.

    Raises:
        DeviceMemoryError: it is more than the network may use.
    """
    try:
        descs = op.infer([desc_of(array) for array in inputs])
    except PolydeviceError:
        return  # computing it says what is wrong
    size = sum(desc.span_bytes or 0 for desc in descs if desc.is_static)
    current_bounds().admit(size, op.type)


def counted(op: Op, result: Array | np.generic | list[Array] | None) -> Any:
    """Return what an operation computed as an array, counted as the network's until it is gone.

    NumPy makes scalars of what has no axes. A view is not counted: what it looks at is.

    Raises:
        DeviceMemoryError: it is more than the network may use.
    """
    if isinstance(result, np.generic):
        return np.asarray(result)
    if not isinstance(result, np.ndarray):  # a sequence, or nothing
        return result
    if result.nbytes >= COUNTED_BYTES and result.base is None:
        memory = current_bounds().memory
        if memory is not None:
            memory.hold(result, result.nbytes, op.type)
    return result
