"""RegionYolo and ReorgYolo."""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.yolo import RegionYolo, ReorgYolo
from polydevice.shape import normalize_axis
from polydevice_cpu.implement import implements


@implements(RegionYolo)
def region_yolo(op: RegionYolo, x: Array) -> Array:
    """Apply sigmoid and SoftMax to their channels."""
    batch, channels, height, width = x.shape
    if channels != op.regions * (op.coords + 1 + op.classes):
        raise InferenceError(
            f"RegionYolo: {channels} channels are not regions × (coords + 1 + "
            f"classes) = {op.regions * (op.coords + 1 + op.classes)}"
        )
    wide = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    parts = (batch, op.regions, op.coords + 1 + op.classes, height, width)
    y = np.array(wide.reshape(parts))
    y[:, :, :2] = _sigmoid(y[:, :, :2])
    if op.do_softmax:
        y[:, :, op.coords] = _sigmoid(y[:, :, op.coords])
        classes = y[:, :, op.coords + 1 :]
        classes = np.exp(classes - classes.max(axis=2, keepdims=True, initial=-np.inf))
        y[:, :, op.coords + 1 :] = classes / classes.sum(axis=2, keepdims=True)
    else:
        y[:, :, op.coords :] = _sigmoid(y[:, :, op.coords :])
    result: Array = y.reshape(x.shape).astype(x.dtype)
    if not op.do_softmax:
        return result
    first, last = normalize_axis(op.axis, 4), normalize_axis(op.end_axis, 4)
    flat = math.prod(x.shape[first : last + 1])
    return result.reshape((*x.shape[:first], flat, *x.shape[last + 1 :]))


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (np.tanh(0.5 * x) + 1))  # does not overflow


@implements(ReorgYolo)
def reorg_yolo(op: ReorgYolo, x: Array) -> Array:
    """Read the memory as if it had the inverse's shape, then take every stride-th element."""
    batch, channels, height, width = x.shape
    stride, depth = op.stride, channels // op.stride**2
    # As Darknet does it: x's memory taken as [N, C / s², H × s, W × s].
    y = x.reshape(batch, depth, height, stride, width, stride)
    y = np.transpose(y, (0, 3, 5, 1, 2, 4))  # [N, s, s, C / s², H, W]
    return y.reshape((batch, channels * stride**2, height // stride, width // stride))
