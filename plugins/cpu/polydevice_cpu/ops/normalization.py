"""Normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.normalization import (
    GRN,
    LRN,
    MVN,
    MVNV2,
    BatchNormInference,
    BatchNormInferenceV1,
    EpsMode,
    GroupNormalization,
    NormalizeL2,
)
from polydevice.shape import normalize_axis
from polydevice_cpu.algorithms.precision import narrow, widen
from polydevice_cpu.implement import implements


def _per_channel(vector: Array, rank: int) -> Array:
    return vector.reshape(-1, *(1,) * (rank - 2))


@implements(BatchNormInference)
def batch_norm(
    op: BatchNormInference, x: Array, gamma: Array, beta: Array, mean: Array, variance: Array
) -> Array:
    """Fold the four vectors into one factor and one summand per channel."""
    factor = widen(gamma) / np.sqrt(widen(variance) + widen(x).dtype.type(op.epsilon))
    summand = widen(beta) - widen(mean) * factor
    y = widen(x) * _per_channel(factor, x.ndim) + _per_channel(summand, x.ndim)
    return narrow(y, x.dtype)


@implements(BatchNormInferenceV1)
def batch_norm_v1(
    op: BatchNormInferenceV1, gamma: Array, beta: Array, x: Array, mean: Array, variance: Array
) -> Array:
    """The same, with inputs in another order."""
    return batch_norm(op, x, gamma, beta, mean, variance)


@implements(LRN)
def lrn(op: LRN, x: Array, axes: Array) -> Array:
    """Sum squares in the window along one axis after the other."""
    wide = widen(x)
    chosen = [normalize_axis(int(axis), x.ndim) for axis in axes.reshape(-1)]
    total = wide * wide
    for axis in chosen:
        total = _window_sum(total, axis, op.size)
    scale = wide.dtype.type(op.alpha / op.size ** len(chosen))
    return narrow(wide / (wide.dtype.type(op.bias) + scale * total) ** op.beta, x.dtype)


def _window_sum(x: Array, axis: int, size: int) -> Array:
    """Sum the elements from (size - 1) // 2 before to size // 2 after each, along an axis."""
    moved = np.moveaxis(x, axis, -1)
    length = moved.shape[-1]
    before, after = min((size - 1) // 2, length), min(size // 2, length)
    total = np.array(moved)
    for shift in range(1, after + 1):
        total[..., : length - shift] += moved[..., shift:]
    for shift in range(1, before + 1):
        total[..., shift:] += moved[..., : length - shift]
    return np.moveaxis(total, -1, axis)


def _normalized(
    x: Array, axes: tuple[int, ...], eps: float, inside: bool, variance: bool = True
) -> Array:
    """Return (x - mean) / deviation over some axes."""
    if not x.size:
        return x
    centred = x - x.mean(axis=axes, keepdims=True)
    if not variance:
        return np.asarray(centred)
    spread: Any = (centred * centred).mean(axis=axes, keepdims=True)
    small = x.dtype.type(eps)
    deviation = np.sqrt(spread + small) if inside else np.sqrt(spread) + small
    return np.asarray(centred / deviation)


@implements(MVN)
def mvn(op: MVN, x: Array, axes: Array) -> Array:
    """Centre, then divide by the deviation."""
    chosen = tuple({normalize_axis(int(axis), x.ndim) for axis in axes.reshape(-1)})
    inside = op.eps_mode is EpsMode.INSIDE_SQRT
    return narrow(_normalized(widen(x), chosen, op.eps, inside, op.normalize_variance), x.dtype)


@implements(MVNV2)
def mvn_v2(op: MVNV2, x: Array) -> Array:
    """Axes follow from the rank."""
    y = _normalized(widen(x), op.axes(x.ndim), op.eps, True, op.normalize_variance)
    return narrow(y, x.dtype)


ROW_LIMIT = 4096
"""Longest row summed without intermediate sums, whose rounding grows with the length."""


def sum_of_squares(x: Array, axes: tuple[int, ...]) -> Array:
    """Sum squares along axes that stay; of short rows without an array of the squares."""
    if axes == (x.ndim - 1,) and x.shape[-1] <= ROW_LIMIT:
        return np.asarray(np.einsum("...i,...i->...", x, x))[..., np.newaxis]
    return np.asarray(np.square(x).sum(axis=axes, keepdims=True))


@implements(NormalizeL2)
def normalize_l2(op: NormalizeL2, x: Array, axes: Array) -> Array:
    """Divide by the norm."""
    wide = widen(x)
    chosen = tuple({normalize_axis(int(axis), x.ndim) for axis in axes.reshape(-1)})
    if not chosen:  # "each element is divided by itself": 1, and 0 for zeros
        return np.asarray(x != 0, x.dtype)
    total = sum_of_squares(wide, chosen)
    small = wide.dtype.type(op.eps)
    total = total + small if op.eps_mode is EpsMode.ADD else np.maximum(total, small)
    return narrow(wide / np.sqrt(total), x.dtype)


@implements(GRN)
def grn(op: GRN, x: Array) -> Array:
    """Divide by the norm over the channels."""
    wide = widen(x)
    total = (wide * wide).sum(axis=1, keepdims=True) + wide.dtype.type(op.bias)
    return narrow(wide / np.sqrt(total), x.dtype)


@implements(GroupNormalization)
def group_normalization(op: GroupNormalization, x: Array, scale: Array, bias: Array) -> Array:
    """Normalise [N, groups, everything else], then scale and shift channels."""
    wide = widen(x)
    if x.size == 0:
        return x
    grouped = wide.reshape(x.shape[0], op.num_groups, -1)
    y = _normalized(grouped, (2,), op.epsilon, True).reshape(x.shape)
    factor, summand = (_per_channel(widen(v), x.ndim) for v in (scale, bias))
    return narrow(y * factor + summand, x.dtype)
