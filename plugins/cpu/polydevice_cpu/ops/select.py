"""Select."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.select import Select
from polydevice_cpu.implement import implements
from polydevice_cpu.ops.arithmetic import align


@implements(Select)
def select(op: Select, condition: Array, a: Array, b: Array) -> Array:
    """NumPy's where; both branches exist already, so nothing is computed in vain."""
    condition = align(a, condition, op.auto_broadcast)
    return np.asarray(np.where(condition, a, align(a, b, op.auto_broadcast)))
