"""SoftMax and LogSoftmax."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.softmax import LogSoftmax, SoftMax
from polydevice_cpu.implement import implements
from polydevice_cpu.precision import narrow, widen


def _shifted(x: Array, axis: int) -> Array:
    """Subtract the maximum, so that exp() cannot overflow; in f32 for narrow floats."""
    wide = widen(x)
    return np.asarray(wide - wide.max(axis=axis, keepdims=True, initial=-np.inf))


@implements(SoftMax)
def softmax(op: SoftMax, x: Array) -> Array:
    """The largest term is 1, so that the sum is at least 1."""
    y = np.exp(_shifted(x, op.axis))
    return narrow(y / y.sum(axis=op.axis, keepdims=True), x.dtype)


@implements(LogSoftmax)
def log_softmax(op: LogSoftmax, x: Array) -> Array:
    """Compute in the shifted domain, where the largest term is 0."""
    shifted = _shifted(x, op.axis)
    y = shifted - np.log(np.exp(shifted).sum(axis=op.axis, keepdims=True))
    return narrow(y, x.dtype)
