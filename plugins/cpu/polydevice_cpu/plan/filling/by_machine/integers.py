"""Convolutions and products of bytes by machine code for all sizes, as oneDNN computes them.

oneDNN generates code for each size, most of which multiplies with AMX. Sums of bytes are exact in
any order, and what follows is computed in the same steps, so that answers are the same to the bit.
Of Tanh and GELU, which are not, all sizes are computed in AMX tiles or none.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeGuard

import numpy as np

from polydevice.dtype import Array
from polydevice.symbolic_size import Number, is_symbolic, is_within
from polydevice_cpu.algorithms.by_machine.code import has_avx512, may_share
from polydevice_cpu.algorithms.by_machine.windows.covers import FLOATS, Numbers
from polydevice_cpu.algorithms.by_machine.windows.following import (
    BY_CHANNEL,
    ELSEWHERE,
    LONGEST_ROUNDED,
    Function,
    Link,
    is_unlike_onednn,
)
from polydevice_cpu.algorithms.by_machine.windows.integers import TOGETHER, Held, Integers
from polydevice_cpu.algorithms.by_machine.windows.sums import Constants, Functions
from polydevice_cpu.algorithms.by_machine.windows.tiles import Terms
from polydevice_cpu.onednn.attributes import Attributes, Binary, PostOp, Prelu, Quantisation, Sum
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType
from polydevice_cpu.onednn.descriptor import Descriptor, SymbolicDescriptor, is_strided, row_major
from polydevice_cpu.onednn.primitive import Primitive, SymbolicPrimitive
from polydevice_cpu.plan.filling.by_machine.chains import is_known, lies_as, numbers_of, operand_of
from polydevice_cpu.plan.filling.recipe import Packing, ValueForm
from polydevice_cpu.plan.post_ops import OF_ONE_NUMBER, OF_TENSORS, link_of

_PRODUCT, _CONVOLUTIONS = "matmul", ("convolution_forward", "deconvolution_forward")
_PLACES = dict.fromkeys(_CONVOLUTIONS, (3, 4, 5, 6, 11)) | {_PRODUCT: (1, 2, 3, 4, 5)}
"""Where source, weights, bias, result and attributes are among the arguments."""

_HELD = {
    DataType.U8: Held.UNSIGNED,
    DataType.S8: Held.SIGNED,
    DataType.F32: Held.FLOATS,
}
_RANGES = {Held.UNSIGNED: (0.0, 255.0), Held.SIGNED: (-128.0, 127.0)}

_FLIP: float = struct.unpack("<f", struct.pack("<I", 0x80808080))[0]
"""Four times 128, as a float."""


_ZERO, _FACTOR = Arg.ATTR_ZERO_POINTS | Arg.SRC, Arg.ATTR_SCALES | Arg.SRC
_SCALES = Arg.ATTR_SCALES | Arg.WEIGHTS


LESS_US = 10.0
"""So much less each call takes where shapes take turns: oneDNN's code for a size is gone from the
processor's caches when it comes back. Of layers of 48 channels it takes 45 to 60 us then and 17
otherwise, where code for all sizes takes 8 to 10."""

MORE_NS, MORE_OF_SIGNED_NS, MORE_OF_OWN_NS, MORE_WITHOUT_TILES_NS = 0.15, 0.23, 0.5, 0.05
"""How much longer than by oneDNN's code with AMX a step takes: of bytes without a sign, with one,
and of channels of their own; and where there is no AMX."""


LONGER = 3
"""So many times as long as in floats it takes oneDNN to make code with AMX: 1 to 3 ms a size."""


class _Sides(NamedTuple):
    """What a primitive of bytes is made with."""

    source: Descriptor
    weights: Descriptor
    bias: Descriptor | None
    result: Descriptor
    attributes: Attributes


class Prepared(NamedTuple):
    """What is the same for all sizes of a primitive of bytes.

    Attributes:
        functions: machine code.
        bias, slopes, scales: one number for each channel of the result.
        shares: the two numbers of each function that follows.
        numbers: what these take.
        more_ns: how much longer than by oneDNN's code a step takes, for each thread.
    """

    functions: Functions
    bias: Array | None
    slopes: Array | None
    scales: Array
    shares: Sequence[tuple[float, float]]
    numbers: Numbers
    more_ns: float

    def is_worth_it(self, steps: int, most_us: float) -> bool:
        """Whether so many steps take at most so much longer than oneDNN's code.

        Args:
            steps: how many.
            most_us: what they may in floats; in plans that run often less than `LESS_US`.
        """
        if any(map(is_unlike_onednn, self.functions.chain)):
            return False  # of all sizes
        most_us = most_us * LONGER if most_us > LESS_US else most_us
        return bool(is_within(steps * self.more_ns, (most_us + LESS_US) * 1e3))

    def constants(self, weights: Array | None, part: slice = slice(None)) -> Constants:
        """Return what is read besides a source, for some channels of the result."""
        bias, slopes, scales = (
            None if each is None else each[part] for each in (self.bias, self.slopes, self.scales)
        )
        return Constants(weights, bias, slopes, self.shares, (1.0, _FLIP), scales)


def is_of_bytes(given: Primitive) -> TypeGuard[SymbolicPrimitive]:
    """Whether a primitive multiplies bytes by constants."""
    return (
        isinstance(given, SymbolicPrimitive)
        and given.name in _PLACES
        and _sides(given).source.data_type in (DataType.S8, DataType.U8)
    )


def pool_of_bytes(given: Primitive) -> Held | None:
    """What a pool is of, if of bytes; None for others."""
    if not isinstance(given, SymbolicPrimitive) or given.name != "pooling_forward":
        return None
    held = _HELD.get(given.src.data_type)
    return None if held is Held.FLOATS or given.dst.data_type != given.src.data_type else held


def numbers_of_pool(given: SymbolicPrimitive) -> Numbers:
    """Return what numbers of source and result of a pool take."""
    held = pool_of_bytes(given)
    return FLOATS if held is None else Numbers.of(Integers(held, held), is_own=True)


def read_of(given: SymbolicPrimitive) -> tuple[int, ...]:
    """Return what code reads, by index on execution: source, what is added, zero point and factor.

    The source once more where there is no such thing.
    """
    if given.name not in _PLACES:
        return (int(Arg.SRC),) * 4
    attributes = _sides(given).attributes
    integers, added = _integers(given), int(Arg.SRC)
    for number, post_op in enumerate(attributes.post_ops):
        link = _link(given, post_op, operand_of(number), None)
        if link is not None and link[0] in ELSEWHERE:
            added = operand_of(number)
    zero = _ZERO if integers.has_zero else int(Arg.SRC)
    return int(Arg.SRC), added, zero, _FACTOR if integers.has_factor else int(Arg.SRC)


def has_code_of_bytes(given: SymbolicPrimitive, *, in_tiles: bool) -> bool:
    """Whether there is machine code for a primitive of bytes, as far as sizes do not decide.

    Args:
        given: it.
        in_tiles: whether AMX tiles may compute it.
    """
    source, weights, bias, result, attributes = _sides(given)
    if any(map(is_symbolic, weights.shape)) or weights.data_type is not DataType.S8:
        return False
    are_open = is_strided(source) and is_strided(result)
    return (
        are_open
        and not isinstance(bias, SymbolicDescriptor)
        and result.data_type in _HELD
        and has_avx512("avx512_vnni")
        and (given.threads == 1 or may_share())
        and all(map(_is_plain, attributes.quantisation))
        and (in_tiles or _rest(given) is not None)
        and (in_tiles or not _has_unlike(given))
        and _links(given, None) is not None
    )


def is_depthwise(given: SymbolicPrimitive) -> bool:
    """Whether each channel has its own source."""
    if given.name == _PRODUCT:
        return False
    source, weights, *_ = _sides(given)
    return len(weights.shape) == len(source.shape) + 1 and weights.shape[1:3] == (1, 1)


def numbers_of_bytes(given: SymbolicPrimitive) -> Numbers:
    """Return what numbers of source and result take."""
    return Numbers.of(_integers(given), is_own=is_depthwise(given))


def prepared(
    given: SymbolicPrimitive, numbers: Mapping[int, int], forms: Sequence[ValueForm]
) -> Prepared | None:
    """Return what is the same for all sizes; None where a constant is not plain.

    Args:
        given: one that `has_code_of_bytes`.
        numbers: of the values that it reads and writes, by index on execution.
        forms: of values.
    """
    others = {at: numbers_of(forms[number]) for at, number in numbers.items() if at != Arg.WEIGHTS}
    links, scales, bias = _links(given, others), others.get(_SCALES), others.get(Arg.BIAS)
    if links is None or scales is None or (bias is None and Arg.BIAS in numbers):
        return None
    results = _results(given)
    if scales.size not in (1, results) or (bias is not None and bias.size != results):
        return None
    slopes = _by_channel(given, others)
    is_by_channel = any(link[0] in BY_CHANNEL for link in links)
    if is_by_channel and (slopes is None or slopes.size != results):
        return None
    terms = Terms.OWN_CHANNEL if is_depthwise(given) else Terms.ALL_CHANNELS
    chain, has_bias = [link[0] for link in links], bias is not None
    functions = Functions(chain, terms=terms, has_bias=has_bias, integers=_integers(given))
    scales = np.ascontiguousarray(np.broadcast_to(scales, (results,)))
    shares, takes = [link[1:] for link in links], numbers_of_bytes(given)
    return Prepared(functions, bias, slopes, scales, shares, takes, _more_ns(given))


def _more_ns(given: SymbolicPrimitive) -> float:
    """How much longer than by oneDNN's code a step takes, shared by its threads."""
    if is_depthwise(given):
        more_ns = MORE_OF_OWN_NS
    elif "amx" not in given.implementation:
        more_ns = MORE_WITHOUT_TILES_NS
    else:
        is_signed = _sides(given).source.data_type is DataType.S8
        more_ns = MORE_OF_SIGNED_NS if is_signed else MORE_NS
    return more_ns / given.threads


def _sides(given: SymbolicPrimitive) -> _Sides:
    source, weights, bias, result, attributes = (given.arguments[at] for at in _PLACES[given.name])
    assert isinstance(source, Descriptor)
    assert isinstance(weights, Descriptor)
    assert bias is None or isinstance(bias, Descriptor)
    assert isinstance(result, Descriptor)
    assert isinstance(attributes, Attributes)
    return _Sides(source, weights, bias, result, attributes)


def _results(given: SymbolicPrimitive) -> int:
    """Channels of the result."""
    weights = _sides(given).weights
    return weights.shape[0] if given.name in _CONVOLUTIONS else weights.shape[-1]


def _rest(given: SymbolicPrimitive) -> int | None:
    """Bytes of a position behind the last four; None where code does not read them."""
    weights = _sides(given).weights
    if is_depthwise(given):
        return 0
    if given.name == _PRODUCT:
        *outer, channels, _ = weights.shape
        is_one = math.prod(outer) == 1
    else:
        if len(weights.shape) != len(_sides(given).source.shape):
            return None  # groups
        _, channels, *window = weights.shape
        is_one = math.prod(window) == 1
    rest = channels % TOGETHER
    if given.name == _PRODUCT and not is_one:
        return None
    return None if rest and (channels < TOGETHER or not is_one) else rest


def _is_plain(given: Quantisation) -> bool:
    """Whether there is code for it."""
    if given.argument == Arg.WEIGHTS:
        return given.zero_point_mask is None
    return given.argument == Arg.SRC and not given.scale_mask and not given.zero_point_mask


def _integers(given: SymbolicPrimitive) -> Integers:
    """How bytes are read, and what becomes of sums."""
    source, *_, result, attributes = _sides(given)
    quantised = next((x for x in attributes.quantisation if x.argument == Arg.SRC), None)
    return Integers(
        _HELD[source.data_type],
        _HELD[result.data_type],
        quantised is not None and quantised.zero_point_mask is not None,
        quantised is not None and quantised.scale_mask is not None,
        _rest(given) or 0,
        _other(given),
    )


def _other(given: SymbolicPrimitive) -> Held:
    """What is added that lies elsewhere; floats where there is nothing."""
    *_, result, attributes = _sides(given)
    for post_op in attributes.post_ops:
        if isinstance(post_op, Binary) and lies_as(post_op.operand, result, of_any_type=True):
            return _HELD.get(post_op.operand.data_type, Held.FLOATS)
    return Held.FLOATS


def _links(
    given: SymbolicPrimitive, constants: Mapping[int, Array | None] | None
) -> list[Link] | None:
    """What follows sums; None where there is no code for it.

    Args:
        given: the primitive.
        constants: the numbers of constants; None while none are known.
    """
    *_, result, attributes = _sides(given)
    found = []
    for number, post_op in enumerate(attributes.post_ops):
        link = _link(given, post_op, operand_of(number), constants)
        if link is None:
            return None
        found.append(link)
    range_ = _RANGES.get(_HELD[result.data_type])
    if range_ is not None:
        found.append((Function.CLIP, *range_))
    functions = [link[0] for link in found]
    kinds = BY_CHANNEL, ELSEWHERE
    are_single = all(sum(map(functions.count, kind)) < 2 for kind in kinds)
    return found if are_single and len(found) <= LONGEST_ROUNDED else None


def _has_unlike(given: SymbolicPrimitive) -> bool:
    """Whether something follows that is not the same to the bit as oneDNN's."""
    links = map(link_of, _sides(given).attributes.post_ops)
    return any(link is not None and is_unlike_onednn(link[0]) for link in links)


def _link(
    given: SymbolicPrimitive,
    post_op: PostOp,
    index: int,
    constants: Mapping[int, Array | None] | None,
) -> Link | None:
    result = _sides(given).result
    if isinstance(post_op, Sum):
        is_own = post_op.data_type in (None, result.data_type)
        return (Function.SUM, 0.0, 0.0) if is_own and post_op.scale == 1 else None
    if isinstance(post_op, Prelu):
        is_by_channel = post_op.mask == 2 and given.name in _CONVOLUTIONS
        return (Function.PRELU, 0.0, 0.0) if is_by_channel else None
    if not isinstance(post_op, Binary):
        return link_of(post_op)
    operand = post_op.operand
    function = OF_TENSORS.get(post_op.algorithm)
    if function is not None and lies_as(operand, result, of_any_type=True):
        return (function, 0.0, 0.0) if operand.data_type in _HELD else None
    if operand.data_type is not DataType.F32:
        return None
    if post_op.algorithm == Algorithm.BINARY_ADD and _is_by_position(given, operand):
        return Function.MOVE, 0.0, 0.0
    if any(map(is_symbolic, operand.shape)):
        return None
    if math.prod(operand.shape) == 1 and post_op.algorithm in OF_ONE_NUMBER:
        number = np.ones(1) if constants is None else constants.get(index)
        return None if number is None else OF_ONE_NUMBER[post_op.algorithm](float(number[0]))
    is_shift = post_op.algorithm == Algorithm.BINARY_ADD and _is_by_channel(given, operand)
    return (Function.SHIFT, 0.0, 0.0) if is_shift else None


def _is_by_position(given: SymbolicPrimitive, operand: Descriptor) -> bool:
    """Whether there is one number for each row of a product, one behind the other."""
    result = _sides(given).result
    if given.name != _PRODUCT or not (is_strided(operand) and is_strided(result)):
        return False
    *rows, last = operand.shape
    *wanted, _ = result.shape
    assert operand.strides is not None
    if not is_known(last) or last != 1 or not all(map(_is_same, rows, wanted)):
        return False
    inner: Number | None = 1
    for size, stride in zip(reversed(rows), operand.strides[-2::-1], strict=True):
        if is_known(size) and size == 1:
            continue
        if inner is None or not _is_same(stride, inner):
            return False
        inner = size if is_known(inner) and inner == 1 else None
    return len(rows) == len(wanted)


def _is_same(one: Number, other: Number) -> bool:
    """Whether sizes are the same for all shapes."""
    return one is other or (is_known(one, other) and one == other)


def _is_by_channel(given: SymbolicPrimitive, operand: Descriptor) -> bool:
    """Whether there is one number for each channel of the result."""
    sizes = [1] * len(operand.shape)
    sizes[1 if given.name in _CONVOLUTIONS else -1] = _results(given)
    return [*operand.shape] == sizes


def _by_channel(given: SymbolicPrimitive, constants: Mapping[int, Array | None]) -> Array | None:
    """The numbers of the function that has others for each channel, if there is one."""
    for number, post_op in enumerate(_sides(given).attributes.post_ops):
        link = _link(given, post_op, operand_of(number), constants)
        if link is not None and link[0] in BY_CHANNEL:
            is_slope = isinstance(post_op, Prelu)
            return constants.get(operand_of(number, Arg.WEIGHTS if is_slope else Arg.SRC_1))
    return None


def packed_weights(
    given: SymbolicPrimitive, form: ValueForm, packing: Packing | None
) -> Array | None:
    """Return weights as code reads them, with channels of the result next to each other.

    Args:
        given: what multiplies by them.
        form: how they are made.
        packing: returns a constant in a layout, which is kept once; None for a copy.

    Returns:
        [elements of a window, channels], of 4 bytes each: of all channels four bytes of a source's,
        and of own ones 16 bits, and zeros. None where they are not plain.
    """
    array = form.given.storage.array
    if array is None or array.dtype != np.int8 or not form.is_packed or _rest(given) is None:
        return None
    weights = array.reshape(_sides(given).weights.shape)
    if is_depthwise(given):
        window = weights.reshape(len(weights), -1).T
        return np.ascontiguousarray(window, np.int32) & 0xFFFF
    if given.name == _PRODUCT:
        seen = weights.reshape(weights.shape[-2:])
    else:
        seen = np.moveaxis(weights, (0, 1), (-1, -2))
    *window, channels, results = seen.shape
    rest = channels % TOGETHER
    if rest:  # of windows of one element
        whole = channels - rest
        packed = np.zeros((whole // TOGETHER + 1, results, TOGETHER), np.int8)
        matrix = seen.reshape(channels, results)
        packed[:-1] = matrix[:whole].reshape(-1, TOGETHER, results).swapaxes(1, 2)
        packed[-1, :, TOGETHER - rest :] = matrix[whole:].T
    else:
        fours = seen.reshape(*window, channels // TOGETHER, TOGETHER, results).swapaxes(-1, -2)
        packed = np.ascontiguousarray(fours) if packing is None else _kept(fours, packing)
    return packed.reshape(-1).view(np.int32).reshape(-1, results)


def _kept(array: Array, packing: Packing) -> Array:
    """Bytes one behind the other, once for the network."""
    layout = Descriptor.strided(array.shape, row_major(array.shape), DataType.S8)
    made = packing(array, layout).storage.array
    assert made is not None
    return made.reshape(-1).view(np.int8)[: array.size]
