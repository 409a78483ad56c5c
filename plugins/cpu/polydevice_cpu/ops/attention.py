"""Attention."""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice_cpu.algorithms.precision import narrow, widen
from polydevice_cpu.algorithms.product import product
from polydevice_cpu.implement import implements


@implements(ScaledDotProductAttention)
def scaled_dot_product_attention(
    op: ScaledDotProductAttention, query: Array, key: Array, value: Array, *optional: Array
) -> Array:
    """Subtract each row's maximum before exp; a row that sees nothing gives NaN, as in OpenVINO.

    The sink enters maximum and sum as if it were one more key whose value is 0.
    """
    q, k, v = widen(query), widen(key), widen(value)
    scale = (
        optional[1].reshape(()).astype(q.dtype)
        if len(optional) > 1
        else q.dtype.type(1 / math.sqrt(max(q.shape[-1], 1)))
    )
    scores = product(q * scale, k.swapaxes(-1, -2))
    if op.causal:
        hidden = np.arange(k.shape[-2]) > np.arange(q.shape[-2])[:, np.newaxis]
        scores = np.where(hidden, -np.inf, scores)
    elif optional and optional[0].dtype == np.bool_:
        scores = np.where(optional[0], scores, -np.inf)
    elif optional:
        scores = scores + widen(optional[0])
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    sink = widen(optional[2]) if len(optional) > 2 else None
    if sink is not None:
        largest = np.maximum(largest, sink)
    weights = np.exp(scores - largest)
    total = weights.sum(axis=-1, keepdims=True)
    weights /= total if sink is None else total + np.exp(sink - largest)
    return narrow(product(weights, v), query.dtype)
