"""What a claim is tried on: numbers at random, the same ones in every process."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.onednn.attributes import Eltwise, Sum
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType
from polydevice_cpu.proof.claim import Claim
from polydevice_cpu.proof.functions import TINY

INTEGRAL = (DataType.U8, DataType.S8)
MOST_TRIALS = 8
"""How often a claim is tried."""
_PERIOD = 16_381  # a prime: where numbers repeat, they do so in step with no size


@dataclass
class Data:
    """Random numbers of one trial: the source, the weights, operands by argument, the sum."""

    seed: int
    source: Array
    weights: Array | None
    operands: dict[int, Array]
    before: Array


def data_of(claim: Claim, seed: int) -> Data:
    """Return what a claim is tried on, of one seed other numbers than of another."""
    if claim.is_integral:
        return _integral_data(claim, seed)
    made = claim.primitive
    src, dst = made.src, made.dst
    source = eighths = _eighths(seed)
    if src.data_type in INTEGRAL:
        source = _integers(src.data_type, seed)
    elif claim.base is None and src.data_type is DataType.F32:
        source = _spread(seed)
    weights = None
    if made.has_weights:
        shape = made.weights.shape
        outputs = dst.shape[-1] if made.kind == "matmul" else dst.shape[1]
        terms = max(math.prod(shape) // max(outputs, 1), 1)
        scale = np.float32(2.0 ** -round(math.log2(terms) / 2))
        weights = np.resize(np.roll(eighths, 7) * scale, shape)
    adds = any(isinstance(link.post_op, Sum) for link in claim.links)
    operands = {}
    for number, link in enumerate(claim.links):
        if link.memory is not None and link.memory.data_type in INTEGRAL:
            numbers = np.roll(_integers(link.memory.data_type, seed), 101 * (number + 1))
            operands[link.argument] = np.resize(numbers, link.memory.shape)
        elif link.memory is not None:
            operands[link.argument] = np.resize(_factors(seed, number), link.memory.shape)
    return Data(
        seed,
        np.resize(source, src.shape),
        weights,
        operands,
        np.resize(np.roll(eighths, 13), dst.shape if adds else 1),
    )


@lru_cache(maxsize=MOST_TRIALS)
def _eighths(seed: int) -> Array:
    """Numbers whose products have exact sums, so that the order of these does not matter."""
    return np.random.default_rng(seed).integers(-16, 17, _PERIOD).astype(np.float32) / 8


@lru_cache(maxsize=64)
def _factors(seed: int, number: int) -> Array:
    """Numbers between 0.25 and 1.25 of both signs, others for each function of a chain."""
    signs = np.random.default_rng([seed, number]).choice(np.array([-1, 1], np.float32), _PERIOD)
    factors: Array = (np.roll(_eighths(seed), 101 * (number + 1)) + 3) / 4 * signs
    return factors


def _integral_data(claim: Claim, seed: int) -> Data:
    """Integers of the whole range, whose sums are exact in f32, scaled to what the chain expects.

    Extremes lie next to each other, which instructions that add pairs in 16 bits saturate on.
    """
    made, rng = claim.primitive, np.random.default_rng(seed)
    src, weights, dst = made.src, made.weights, made.dst
    source = _integers(src.data_type, seed)
    numbers = np.clip(np.rint(rng.normal(size=_PERIOD) * 60), -128, 127).astype(np.float32)
    numbers[::61], numbers[1::61] = 127, -128
    outputs = dst.shape[-1] if made.kind == "matmul" else dst.shape[1]
    terms = max(math.prod(weights.shape) // max(outputs, 1), 1)
    # So that results fill the range of what the first function of the chain rounds, if it does.
    first = next(
        (
            abs(link.post_op.alpha)
            for link in claim.links
            if isinstance(link.post_op, Eltwise) and link.post_op.algorithm is Algorithm.LINEAR
        ),
        1.0,
    )
    spread = 60 / max(first, TINY) / (60 * 120 * math.sqrt(terms))
    operands: dict[int, Array] = {}
    for link in claim.links:
        if link.memory is None:
            continue
        shape = link.memory.shape
        size = math.prod(shape)
        if link.argument == Arg.ATTR_SCALES | Arg.WEIGHTS:
            values = spread * rng.uniform(0.5, 1.5, min(size, _PERIOD))
        elif link.memory.data_type in INTEGRAL:
            values = _integers(link.memory.data_type, seed + 1)
        elif link.argument == Arg.BIAS:
            values = rng.uniform(-30, 30, min(size, _PERIOD)) / max(first, TINY)
        else:
            values = rng.uniform(0.25, 1.25, min(size, _PERIOD))
        operands[link.argument] = np.resize(values.astype(np.float32), shape)
    adds = any(isinstance(link.post_op, Sum) for link in claim.links)
    integral = dst.data_type in INTEGRAL
    before = (
        _integers(dst.data_type, seed + 2) if integral else np.float32(rng.normal(size=_PERIOD))
    )
    return Data(
        seed,
        np.resize(source, src.shape),
        np.resize(numbers, weights.shape),
        operands,
        np.resize(before, dst.shape if adds else 1),
    )


@lru_cache(maxsize=64)
def _integers(data_type: DataType, seed: int) -> Array:
    """All the integers of a type, its extremes more often."""
    rng = np.random.default_rng(seed)
    low, high = (0, 255) if data_type is DataType.U8 else (-128, 127)
    values = rng.integers(low, high + 1, _PERIOD).astype(np.float32)
    values[::53], values[1::53] = high, low
    return values


@lru_cache(maxsize=MOST_TRIALS)
def _spread(seed: int) -> Array:
    """Numbers of all magnitudes that functions are asked for, of both signs, zero, and near 1."""
    rng = np.random.default_rng(seed)
    size = 2.0 ** rng.uniform(-20, 5, _PERIOD)
    size[::5] = 2.0 ** rng.uniform(-100, 100, size[::5].size)
    size[::7] = 1 + 2.0 ** rng.uniform(-24, -2, size[::7].size) * rng.choice(
        [-1, 1], size[::7].size
    )
    size *= rng.choice([-1, 1], _PERIOD)
    size[::97] = 0
    usual = rng.normal(size=_PERIOD) * 4
    return np.where(rng.random(_PERIOD) < 0.5, size, usual).astype(np.float32)
