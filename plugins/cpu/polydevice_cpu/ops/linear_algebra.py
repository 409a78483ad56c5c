"""Determinants."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.linear_algebra import Det
from polydevice_cpu.implement import implements
from polydevice_cpu.precision import narrow, widen


@implements(Det)
def det(_op: Det, x: Array) -> Array:
    """Factorise with LAPACK."""
    return narrow(np.asarray(np.linalg.det(widen(x))), x.dtype)
