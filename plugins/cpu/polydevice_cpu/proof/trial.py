"""Trying a claim: the primitive on random data between guard bytes, against NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise, Prelu, Sum
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import ALIGNMENT_BYTES, MemoryObject, aligned
from polydevice_cpu.onednn.primitive import Primitive, run_once
from polydevice_cpu.onednn.primitives import reorder
from polydevice_cpu.proof import functions
from polydevice_cpu.proof.claim import Claim, Link
from polydevice_cpu.proof.functions import EPSILON, TINY, Bounded

ACCURACY_ELEMENTS = 16_384
"""How many numbers a function is tried on."""
ELEMENTS = 1024
"""Small tensors are tried again with other numbers until this many results are compared."""
MOST_TRIALS = 8
SAMPLE = 1 << 13
"""How many of the first results, of the last and of those between are compared."""
LEAST_MARGIN_BYTES = 1 << 14
MOST_MARGIN_BYTES = 1 << 18
_PERIOD = 16_381  # a prime: where numbers repeat, they do so in step with no size
_NAN, _LARGE, _SMALL = 0xFF, 0x7F, 0xFE
_INTEGRAL = (DataType.U8, DataType.S8)
_ROUNDING = {DataType.BF16: 2.0**-8, DataType.F16: 2.0**-11}


class Guarded:
    """Memory of a tensor between margins of guard bytes, which must not count nor be written.

    They are NaN as numbers; for maxima and minima, which may drop a NaN, very large and small.
    """

    def __init__(self, descriptor: Descriptor, fill: int = _NAN) -> None:
        size = descriptor.size_bytes
        # As far as code goes that takes an operand for one of 16 channels where it has one.
        margin = min(max(16 * size, LEAST_MARGIN_BYTES), MOST_MARGIN_BYTES)
        margin = -(-margin // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self._all = aligned(size + 2 * margin)
        self._inside = slice(margin, margin + size)
        self._all[:margin] = self._all[margin + size :] = self._fill = fill
        if size != math.prod(descriptor.shape) * descriptor.dtype.itemsize:
            self._all[self._inside] = fill  # gaps between elements are guards too
        self.descriptor = descriptor
        self.memory = MemoryObject(descriptor, self._all[self._inside].ctypes.data)

    def put(self, array: Array) -> None:
        """Write a tensor in f32, in the layout and type that the memory has."""
        source = Descriptor.dense(array.shape)
        self._move(MemoryObject(source, array.ctypes.data), self.memory, source, self.descriptor)

    def take(self) -> Array:
        """Read the tensor as f32."""
        dense = Descriptor.dense(self.descriptor.shape)
        array = np.empty(self.descriptor.shape, np.float32)
        self._move(self.memory, MemoryObject(dense, array.ctypes.data), self.descriptor, dense)
        return array

    @property
    def is_intact(self) -> bool:
        """Whether nothing wrote outside the tensor."""
        pattern = bytes([self._fill])
        return all(
            bytes(side) == pattern * side.size
            for side in (self._all[: self._inside.start], self._all[self._inside.stop :])
        )

    @staticmethod
    def _move(
        source: MemoryObject, target: MemoryObject, before: Descriptor, after: Descriptor
    ) -> None:
        move = reorder(before, after, Attributes())
        if move is None:
            raise InferenceError(f"oneDNN cannot reorder {before} to {after}")
        run_once(move, {Arg.SRC: source, Arg.DST: target})


@dataclass
class _Data:
    """Random numbers of one trial: the source, the weights, operands by argument, the sum."""

    rng: np.random.Generator
    source: Array
    weights: Array | None
    operands: dict[int, Array]
    before: Array


def failure(claim: Claim) -> str:
    """Return in which way the primitive is wrong; empty where every trial was right."""
    elements = max(math.prod(claim.primitive.dst.shape), 1)
    for seed in range(min(MOST_TRIALS, -(-ELEMENTS // elements))):
        data = _data(claim, np.random.default_rng(seed))
        try:
            found = _tried(claim, data)
        except InferenceError as error:
            found = str(error)
        if found:
            return found
    return ""


def _tried(claim: Claim, data: _Data) -> str:
    made = claim.primitive
    given: dict[int, Guarded] = {Arg.SRC: _placed(made.src, data.source)}
    if data.weights is not None:
        given[Arg.WEIGHTS] = _placed(made.weights, data.weights)
    for link in claim.links:
        if link.memory is not None:
            array = data.operands[link.argument].reshape(link.memory.shape)
            given[link.argument] = _placed(link.memory, array, _fill(link))
    if claim.zero:
        zero = Guarded(Descriptor.dense((1,), DataType.S32))
        zero.put(np.full(1, claim.zero, np.float32))
        given[Arg.ATTR_ZERO_POINTS | Arg.SRC] = zero
    result = Guarded(made.dst)
    if any(isinstance(link.post_op, Sum) for link in claim.links):
        result.put(data.before)
    arguments: dict[int, MemoryObject] = {index: placed.memory for index, placed in given.items()}
    arguments[Arg.DST] = result.memory
    run_once(made, arguments)
    if not result.is_intact:
        return "it writes outside the result"
    seen = _Seen(made.dst.shape, data.rng)
    return _difference(seen, seen.of(result.take()), _expected(claim, data, seen), made.dst)


def _placed(descriptor: Descriptor, array: Array, fill: int = _NAN) -> Guarded:
    placed = Guarded(descriptor, fill)
    placed.put(array)
    return placed


def _fill(link: Link) -> int:
    if isinstance(link.post_op, Binary):
        fills = {Algorithm.BINARY_MAX: _LARGE, Algorithm.BINARY_MIN: _SMALL}
        return fills.get(link.post_op.algorithm, _NAN)
    return _NAN


class _Seen:
    """Which results are compared: all, or of many the first, the last and some between."""

    def __init__(self, shape: tuple[int, ...], rng: np.random.Generator) -> None:
        self.shape = shape
        elements = math.prod(shape)
        if elements <= 3 * SAMPLE:
            flat = np.arange(elements)
        else:
            first = np.arange(SAMPLE)
            between = rng.integers(SAMPLE, elements - SAMPLE, SAMPLE)
            flat = np.concatenate([first, between, first + (elements - SAMPLE)])
        self.places = np.unravel_index(flat, shape)

    def of(self, array: Array) -> Array:
        """What is seen of a tensor of the result's shape, or of one that is broadcast to it."""
        seen: Array = np.broadcast_to(array, self.shape)[self.places].astype(np.float64)
        return seen


def _expected(claim: Claim, data: _Data, seen: _Seen) -> Bounded:
    value, rounding = data.source, 0.0
    if claim.base is not None:
        base = claim.base()
        value = _computed(base, data, claim.zero)
        rounding = _ROUNDING.get(base.dst.data_type, 4 * EPSILON)
    wide = seen.of(value)
    bounded: Bounded = (wide, rounding * np.abs(wide))
    for link in claim.links:
        bounded = _applied(link, bounded, data, seen)
    return bounded


def _computed(base: Primitive, data: _Data, zero: int) -> Array:
    sources = [_placed(base.src, data.source - np.float32(zero))]
    given: dict[int, MemoryObject] = {Arg.SRC: sources[0].memory}
    if data.weights is not None:
        sources.append(_placed(base.weights, data.weights))
        given[Arg.WEIGHTS] = sources[1].memory
    result = Guarded(base.dst)
    given[Arg.DST] = result.memory
    run_once(base, given)
    return result.take()


def _applied(link: Link, given: Bounded, data: _Data, seen: _Seen) -> Bounded:
    post_op = link.post_op
    if isinstance(post_op, Eltwise):
        return functions.eltwise(post_op, given)
    if isinstance(post_op, Sum):
        return functions.binary(Algorithm.BINARY_ADD, given, post_op.scale * seen.of(data.before))
    operand = seen.of(data.operands[link.argument].reshape(link.shape))
    if isinstance(post_op, Prelu):
        return functions.prelu(given, operand)
    return functions.binary(post_op.algorithm, given, operand)


def _difference(seen: _Seen, got: Array, expected: Bounded, dst: Descriptor) -> str:
    if dst.data_type in _INTEGRAL:
        limits = np.iinfo(dst.dtype)
        expected = functions.eltwise(Eltwise(Algorithm.ROUND), expected)
        expected = functions.eltwise(Eltwise(Algorithm.CLIP, limits.min, limits.max), expected)
    want, error = expected
    with np.errstate(all="ignore"):
        allowed = error + _ROUNDING.get(dst.data_type, 4 * EPSILON) * np.abs(want)
        largest = np.finfo(np.float32).max
        wrong = ~(
            (np.abs(got - want) <= allowed)
            | (np.isnan(got) & np.isnan(want))
            | ((got == np.copysign(np.inf, want)) & (np.abs(want) + allowed > largest))
        )
    count = int(wrong.sum())
    if not count:
        return ""
    first = int(np.argmax(wrong))
    place = [int(axis[first]) for axis in seen.places]
    return (
        f"{count} of {got.size} results are wrong, the first at {place}: "
        f"{got[first]:.8g} where {want[first]:.8g} is right"
    )


def _data(claim: Claim, rng: np.random.Generator) -> _Data:
    if claim.is_integral:
        return _integral_data(claim, rng)
    made = claim.primitive
    src, dst = made.src, made.dst
    # Sums of these products are exact, so that their order does not matter.
    eighths = rng.integers(-16, 17, _PERIOD).astype(np.float32) / 8
    source = eighths
    if src.data_type in _INTEGRAL:
        source = _integers(src.data_type, rng)
    elif claim.base is None and src.data_type is DataType.F32:
        source = _spread(rng)
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
        if link.memory is not None and link.memory.data_type in _INTEGRAL:
            numbers = np.roll(_integers(link.memory.data_type, rng), 101 * (number + 1))
            operands[link.argument] = np.resize(numbers, link.memory.shape)
        elif link.memory is not None:
            numbers = (np.roll(eighths, 101 * (number + 1)) + 3) / 4  # 0.25 to 1.25
            signs = rng.choice(np.array([-1, 1], np.float32), _PERIOD)
            operands[link.argument] = np.resize(numbers * signs, link.memory.shape)
    return _Data(
        rng,
        np.resize(source, src.shape),
        weights,
        operands,
        np.resize(np.roll(eighths, 13), dst.shape if adds else 1),
    )


def _integral_data(claim: Claim, rng: np.random.Generator) -> _Data:
    """Integers of the whole range, whose sums are exact in f32, scaled to what the chain expects.

    Extremes lie next to each other, which instructions that add pairs in 16 bits saturate on.
    """
    made = claim.primitive
    src, weights, dst = made.src, made.weights, made.dst
    source = _integers(src.data_type, rng)
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
        elif link.memory.data_type in _INTEGRAL:
            values = _integers(link.memory.data_type, rng)
        elif link.argument == Arg.BIAS:
            values = rng.uniform(-30, 30, min(size, _PERIOD)) / max(first, TINY)
        else:
            values = rng.uniform(0.25, 1.25, min(size, _PERIOD))
        operands[link.argument] = np.resize(values.astype(np.float32), shape)
    adds = any(isinstance(link.post_op, Sum) for link in claim.links)
    integral = dst.data_type in _INTEGRAL
    before = _integers(dst.data_type, rng) if integral else np.float32(rng.normal(size=_PERIOD))
    return _Data(
        rng,
        np.resize(source, src.shape),
        np.resize(numbers, weights.shape),
        operands,
        np.resize(before, dst.shape if adds else 1),
    )


def _integers(data_type: DataType, rng: np.random.Generator) -> Array:
    """All the integers of a type, its extremes more often."""
    low, high = (0, 255) if data_type is DataType.U8 else (-128, 127)
    values = rng.integers(low, high + 1, _PERIOD).astype(np.float32)
    values[::53], values[1::53] = high, low
    return values


def _spread(rng: np.random.Generator) -> Array:
    """Numbers of all magnitudes that functions are asked for, of both signs, zero, and near 1."""
    size = 2.0 ** rng.uniform(-20, 5, _PERIOD)
    size[::5] = 2.0 ** rng.uniform(-100, 100, size[::5].size)
    size[::7] = 1 + 2.0 ** rng.uniform(-24, -2, size[::7].size) * rng.choice(
        [-1, 1], size[::7].size
    )
    size *= rng.choice([-1, 1], _PERIOD)
    size[::97] = 0
    usual = rng.normal(size=_PERIOD) * 4
    return np.where(rng.random(_PERIOD) < 0.5, size, usual).astype(np.float32)
