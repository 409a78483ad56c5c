"""Trying a claim: the primitive on random data between guard bytes, against NumPy."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise, Prelu, Sum
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType
from polydevice_cpu.onednn.descriptor import Descriptor, row_major
from polydevice_cpu.onednn.engine import ALIGNMENT_BYTES, MemoryObject, address_of, aligned
from polydevice_cpu.onednn.primitive import Primitive, run_once
from polydevice_cpu.onednn.primitives import reorder
from polydevice_cpu.proof import functions
from polydevice_cpu.proof.claim import Claim, Link
from polydevice_cpu.proof.data import INTEGRAL, MOST_TRIALS, Data, data_of
from polydevice_cpu.proof.functions import EPSILON, Bounded

ACCURACY_ELEMENTS = 16_384
"""How many numbers a function is tried on."""
ELEMENTS = 1024
"""Small tensors are tried again with other numbers until this many results are compared."""
SAMPLE = 1 << 12
"""How many of the first results, of the last and of those between are compared."""
MARGINS_BYTES = 1 << 14, 1 << 18
"""How much lies before and behind a tensor, at least and at most."""
SCRATCHPAD_MARGINS_BYTES = 1 << 18, 1 << 21
"""The same of a scratchpad: code that keeps too little room in it writes lines of a source behind
it, where the heap would be."""
_NAN, _LARGE, _SMALL = 0xFF, 0x7F, 0xFE
_ROUNDING = {DataType.BF16: 2.0**-8, DataType.F16: 2.0**-11}


def margin_bytes(size_bytes: int, margins: tuple[int, int]) -> int:
    """Return how far guards reach on each side of so many bytes: at least, and at most."""
    least, most = margins
    # As far as code goes that takes an operand for one of 16 channels where it has one.
    margin = min(max(16 * size_bytes, least), most)
    return -(-margin // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class Guarded:
    """Memory of a tensor between margins of guard bytes, which must not count nor be written.

    They are NaN as numbers; for maxima and minima, which may drop a NaN, very large and small.
    """

    def __init__(
        self,
        descriptor: Descriptor,
        fill: int = _NAN,
        margins: tuple[int, int] = MARGINS_BYTES,
    ) -> None:
        size = descriptor.size_bytes
        margin = margin_bytes(size, margins)
        self._all = aligned(size + 2 * margin)
        self._inside = slice(margin, margin + size)
        self._all[:margin] = self._all[margin + size :] = self._fill = fill
        if size != math.prod(descriptor.shape) * descriptor.dtype.itemsize:
            self._all[self._inside] = fill  # gaps between elements are guards too
        self.descriptor = descriptor
        self.memory = MemoryObject(descriptor, address_of(self._all) + margin)
        self._plain: Array | None = None
        if descriptor.strides is not None and descriptor.data_type is DataType.F32:
            strides = [4 * stride for stride in descriptor.strides]
            self._plain = np.ndarray(descriptor.shape, np.float32, self._all, margin, strides)

    def put(self, array: Array) -> None:
        """Write a tensor in f32, in the layout and type that the memory has."""
        if self._plain is not None:  # oneDNN would make code for it first
            self._plain[...] = array
            return
        source = Descriptor.dense(array.shape)
        self._move(MemoryObject(source, array.ctypes.data), self.memory, source, self.descriptor)

    def take(self) -> Array:
        """Read the tensor as f32; what is returned may be the memory itself."""
        if self._plain is not None:
            return self._plain
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


def failure(claim: Claim) -> str:
    """Return in which way the primitive is wrong; empty where every trial was right."""
    elements = max(math.prod(claim.primitive.dst.shape), 1)
    for seed in range(min(MOST_TRIALS, -(-ELEMENTS // elements))):
        data = data_of(claim, seed)
        try:
            found = _tried(claim, data)
        except InferenceError as error:
            found = str(error)
        if found:
            return found
    return ""


def _tried(claim: Claim, data: Data) -> str:
    made = claim.primitive
    given: dict[int, Guarded] = {Arg.SRC: _placed(made.src, data.source)}
    if data.weights is not None:
        given[Arg.WEIGHTS] = _placed(made.weights, data.weights)
    seen = _Seen(made.dst, data.seed)
    expected = _expected(claim, data, seen, given)  # first: what is tried might write its source
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
    room = None
    if made.scratchpad_bytes:
        room = Guarded(made.scratchpad, margins=SCRATCHPAD_MARGINS_BYTES)
        arguments[Arg.SCRATCHPAD] = room.memory
    run_once(made, arguments)
    if not result.is_intact:
        return "it writes outside the result"
    if room is not None and not room.is_intact:
        return "it writes outside its scratchpad"
    return _difference(seen, seen.of(result.take()), expected, made.dst)


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
    """Which results are compared: all, or of many the first, the last and some between.

    They are counted as they lie in memory, where that is plain.
    """

    def __init__(self, result: Descriptor, seed: int) -> None:
        self._shape = result.shape
        strides = result.strides or row_major(result.shape)
        # Of axes of size 1 too, which may have any stride: where they stand changes nothing.
        self._order = sorted(range(len(strides)), key=lambda axis: (-strides[axis], axis))
        self._found: dict[int, Array] = {}
        self.count = elements = math.prod(result.shape)
        self._flat: Array | None = None
        if elements > 3 * SAMPLE:
            self.count = 3 * SAMPLE
            between = np.random.default_rng(seed).integers(SAMPLE, elements - SAMPLE, SAMPLE)
            first = np.arange(SAMPLE)
            self._flat = np.concatenate([first, between, first + (elements - SAMPLE)])

    def _places(self, axis: int) -> Array:
        """Where the results lie along an axis."""
        if axis not in self._found:
            flat = np.arange(self.count) if self._flat is None else self._flat
            behind = self._order[self._order.index(axis) + 1 :]
            step = math.prod(self._shape[other] for other in behind)
            self._found[axis] = np.asarray(flat // step % self._shape[axis])
        return self._found[axis]

    def place(self, number: int) -> list[int]:
        """Where one of the results lies."""
        return [int(self._places(axis)[number]) for axis in range(len(self._shape))]

    def of(self, array: Array) -> Array:
        """What is seen of a tensor of the result's shape, or of one that is broadcast to it."""
        if array.shape == self._shape:
            lying = array.transpose(self._order)
            if lying.flags.c_contiguous:
                row = lying.reshape(-1)
                same: Array = row if self._flat is None else row[self._flat]
                return same.astype(np.float64)
        missing = len(self._shape) - array.ndim
        axes = [axis for axis, size in enumerate(array.shape) if size != 1]
        if not axes:
            return np.full(self.count, array.reshape(-1)[0], np.float64)
        kept = array.reshape([array.shape[axis] for axis in axes])
        seen: Array = kept[tuple(self._places(missing + axis) for axis in axes)]
        return seen.astype(np.float64)


def _expected(claim: Claim, data: Data, seen: _Seen, given: Mapping[int, Guarded]) -> Bounded:
    value, rounding = data.source, 0.0
    if claim.base is not None:
        base = claim.base()
        value = _computed(base, data, claim.zero, given)
        rounding = _ROUNDING.get(base.dst.data_type, 4 * EPSILON)
    wide = seen.of(value)
    bounded: Bounded = (wide, rounding * np.abs(wide))
    for link in claim.links:
        bounded = _applied(link, bounded, data, seen)
    return bounded


def _computed(base: Primitive, data: Data, zero: int, placed: Mapping[int, Guarded]) -> Array:
    """What the base computes, of what is placed already where that suits it."""
    source = placed[Arg.SRC]
    if zero or source.descriptor != base.src:
        source = _placed(base.src, data.source - np.float32(zero))
    given: dict[int, MemoryObject] = {Arg.SRC: source.memory}
    if data.weights is not None:
        weights = placed[Arg.WEIGHTS]
        if weights.descriptor != base.weights:
            weights = _placed(base.weights, data.weights)
        given[Arg.WEIGHTS] = weights.memory
    result = Guarded(base.dst)
    given[Arg.DST] = result.memory
    run_once(base, given)
    return result.take()


def _applied(link: Link, given: Bounded, data: Data, seen: _Seen) -> Bounded:
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
    if dst.data_type in INTEGRAL:
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
    return (
        f"{count} of {got.size} results are wrong, the first at {seen.place(first)}: "
        f"{got[first]:.8g} where {want[first]:.8g} is right"
    )
