"""Det and Inverse."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.linear_algebra import Det, Inverse
from polydevice_cpu.algorithms.precision import narrow, widen
from polydevice_cpu.implement import implements


@implements(Det)
def det(_op: Det, x: Array) -> Array:
    """Factorise with LAPACK."""
    return narrow(np.asarray(np.linalg.det(widen(x))), x.dtype)


@implements(Inverse)
def inverse(op: Inverse, x: Array) -> Array:
    """Solve for the identity with LAPACK."""
    try:
        y = np.linalg.inv(widen(x))
    except np.linalg.LinAlgError:
        raise InferenceError("Inverse: a matrix is singular, so it has no inverse") from None
    return narrow(np.swapaxes(y, -1, -2) if op.adjoint else y, x.dtype)
