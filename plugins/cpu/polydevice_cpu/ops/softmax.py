"""SoftMax and LogSoftmax."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.softmax import LogSoftmax, SoftMax
from polydevice_cpu.implement import implements


@implements(SoftMax)
def softmax(op: SoftMax, x: Array) -> Array:
    """Subtract the maximum first, so that exp() cannot overflow."""
    y = np.exp(x - x.max(axis=op.axis, keepdims=True))
    return np.asarray(y / y.sum(axis=op.axis, keepdims=True))


@implements(LogSoftmax)
def log_softmax(op: LogSoftmax, x: Array) -> Array:
    """Compute in the shifted domain, where the largest term is 0."""
    shifted = x - x.max(axis=op.axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=op.axis, keepdims=True)))
