"""Concat."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.concat import Concat
from polydevice_cpu.implement import implements


@implements(Concat)
def concat(op: Concat, *inputs: Array) -> Array:
    """Join the arrays."""
    return np.concatenate(inputs, axis=op.axis)
