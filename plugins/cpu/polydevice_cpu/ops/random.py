"""Random numbers."""

from __future__ import annotations

import math
import secrets

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.random import Alignment, Multinomial, RandomUniform
from polydevice_cpu.algorithms.precision import narrow, widen
from polydevice_cpu.algorithms.random_bits import mersenne, mersenne_of_sequence, philox
from polydevice_cpu.implement import implements

_I32 = np.iinfo(np.int32)


def _seeds(op: RandomUniform | Multinomial) -> tuple[int, int]:
    """Return both seeds; where both are 0 the numbers shall differ every time."""
    if op.global_seed == 0 and op.op_seed == 0:
        return secrets.randbits(32), secrets.randbits(32)
    return op.global_seed, op.op_seed


@implements(RandomUniform)
def random_uniform(op: RandomUniform, shape: Array, low: Array, high: Array) -> Array:
    """Draw bits and scale them to the limits.

    As in OpenVINO's CPU plugin all floats are drawn as f32, and i64 as i32 where the limits allow.
    """
    sizes = [int(size) for size in shape.reshape(-1)]
    if any(size < 0 for size in sizes):
        raise InferenceError(f"RandomUniform: shape {sizes} has a negative size")
    count = math.prod(sizes)
    kind = op.output_type
    key, counter = _seeds(op)
    if kind.is_float:
        limits = widen(low.reshape(())), widen(high.reshape(()))
        return _floats(op, key, counter, count, *limits).astype(kind.dtype).reshape(sizes)
    first, last = int(low.reshape(-1)[0]), int(high.reshape(-1)[0])
    if first >= last:
        raise InferenceError(f"RandomUniform: low {first} must be below high {last}")
    wide = first < _I32.min or last > _I32.max
    bits = _bits(op, key, counter, count * (2 if wide else 1)).astype(np.uint64)
    if wide:
        bits = bits[0 : 2 * count : 2] + (bits[1 : 2 * count : 2] << np.uint64(32))
    offsets = bits[:count] % np.uint64(last - first)
    return np.asarray((offsets.astype(np.int64) + first).astype(kind.dtype).reshape(sizes))


def _bits(op: RandomUniform, key: int, counter: int, count: int) -> Array:
    if op.alignment is Alignment.TENSORFLOW:
        return philox(key, counter, count)
    return mersenne(key, count)


def _floats(
    op: RandomUniform, key: int, counter: int, count: int, low: Array, high: Array
) -> Array:
    """Take as many bits as an f32's fraction has, and scale [0, 1)."""
    digits = 24 if op.alignment is Alignment.PYTORCH else 23
    bits = _bits(op, key, counter, count)[:count] & np.uint32((1 << digits) - 1)
    unit = bits.astype(np.float32) / np.float32(1 << digits)
    return np.asarray(unit * (high - low) + low)


@implements(Multinomial)
def multinomial(op: Multinomial, probabilities: Array, samples: Array) -> Array:
    """Look up uniform numbers in the running sum of probabilities."""
    count = int(samples.reshape(-1)[0])
    weights = widen(probabilities)
    if op.log_probs:
        weights = np.exp(weights)
    batch, classes = weights.shape
    if classes == 0 or (not op.with_replacement and count > classes):
        raise InferenceError(f"Multinomial: {count} samples cannot be drawn of {classes} classes")
    bits = mersenne_of_sequence(_seeds(op), batch * count)
    uniform = (bits.astype(np.float32) / np.float32(2**32)).reshape(batch, count)
    total = np.cumsum(weights, axis=1)
    total /= total[:, -1:]
    if op.with_replacement:
        chosen = (total[:, np.newaxis, :] < uniform[:, :, np.newaxis]).sum(axis=2)
        return np.asarray(np.minimum(chosen, classes - 1).astype(op.convert_type.dtype))
    return _without_replacement(total, uniform).astype(op.convert_type.dtype)


def _without_replacement(total: Array, uniform: Array) -> Array:
    """Remove each class drawn from the running sum, and scale the rest up to 1."""
    rows = np.arange(len(total))
    classes = total.shape[1]
    result = np.zeros(uniform.shape, np.int64)
    for draw in range(uniform.shape[1]):
        reached = uniform[:, draw, np.newaxis] <= total
        chosen = np.where(reached.any(axis=1), reached.argmax(axis=1), classes - 1)
        result[:, draw] = chosen
        below = np.where(chosen > 0, total[rows, np.maximum(chosen - 1, 0)], 0)
        share = (total[rows, chosen] - below)[:, np.newaxis]
        beyond = np.arange(classes) >= chosen[:, np.newaxis]
        total = np.where(beyond, total - share, total)
        total = narrow(total / (1 - share), total.dtype)
    return result
