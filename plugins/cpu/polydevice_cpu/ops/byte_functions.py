"""ByteFunction."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.implement import implements
from polydevice_cpu.passes.integers.byte_functions import ByteFunction


@implements(ByteFunction)
def byte_function(_: ByteFunction, x: Array, table: Array) -> Array:
    """Look up."""
    result: Array = table[x.view(np.uint8)]
    return result
