"""Convolutions and pools by machine code for all sizes, where oneDNN would generate some for each.

It adds numbers in the order in which oneDNN's code does, so that answers are the same to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard, cast

import numpy as np

from polydevice.dtype import Array
from polydevice.symbolic_size import Number, is_symbolic
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.window_sums import (
    Constants,
    Functions,
    Measures,
    TileCalls,
    Windows,
    arguments,
    code_of,
    cover_of,
    of_rows,
    taken_us,
)
from polydevice_cpu.algorithms.by_machine.window_tiles import LONGEST, Function, Terms
from polydevice_cpu.onednn.attributes import Attributes, Eltwise, PostOp, Prelu, Sum
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType
from polydevice_cpu.onednn.descriptor import (
    Descriptor,
    SymbolicDescriptor,
    channels_last_strides,
    is_open,
    row_major,
    same_steps,
)
from polydevice_cpu.onednn.primitive import Primitive, SymbolicPrimitive
from polydevice_cpu.plan.filling.recipe import Packing, ValueForm
from polydevice_cpu.plan.value import Value

_DEPTHWISE, _PRODUCT = "brdgmm_dw:avx512_core", "brg:avx512_core"
_WITH_ALL_CHANNELS = "brgconv:avx512_core", "jit:avx512_core"
"""oneDNN's code whose order of adding is followed; other code pads with zeros, or adds in parts."""

MOST_US = {"brgconv:avx512_core": 700.0, "jit:avx512_core": 110.0}
MOST_US |= {_DEPTHWISE: 60.0, _PRODUCT: 150.0}
"""How much longer than oneDNN's the code may take: a plan runs eight times so, and oneDNN takes
0.95, 0.45, 0.25 and 0.35 ms to choose, generate and bind code for a size."""

MORE_NS = {"brgconv:avx512_core": 0.015, "jit:avx512_core": 0.04, _DEPTHWISE: 0.03, _PRODUCT: 0.03}
"""How much longer a step takes than in oneDNN's code: -3 to 20, 15 to 25, -12 to 15 and, where
there are few channels, -50 to 40 %."""

MOST_POOLS_US = 80.0
"""How long it may take for pools: oneDNN's takes a third at least, and 0.2 to 0.3 ms to make."""

MOST_CHANNELS = 96
"""Channels of a source that oneDNN adds in one go."""

_Link = tuple[Function, float, float]
_Geometry = Sequence[tuple[int, ...]]

_SRC, _WEIGHTS, _BIAS, _DST, _ATTRIBUTES = 3, 4, 5, 6, 11
_GEOMETRY = slice(7, 11)
_OF_PRODUCTS = 1, 2, 3, 4, 5
_ONE_SLOPE_PER_CHANNEL, _SUMS = Prelu(2), (Sum(), Sum(1.0, DataType.F32))
_OF_POOLS, _GEOMETRY_OF_POOLS = (2, 10), slice(5, 10)
_POOLS = (
    *(Algorithm.POOLING_AVG_INCLUDE_PADDING, Algorithm.POOLING_AVG_EXCLUDE_PADDING),
    Algorithm.POOLING_MAX,
)
_LEAST = float(np.finfo(np.float32).min)
_LARGEST = Constants(None, None, None, [], (_LEAST, _LEAST))

_FUNCTIONS = {
    Algorithm.LINEAR: Function.LINEAR,
    Algorithm.HARD_SWISH: Function.HARDSWISH,
    Algorithm.RELU: Function.RELU,
    Algorithm.LOGISTIC: Function.LOGISTIC,
    Algorithm.SWISH: Function.SWISH,
}


def may_be_by_machine(given: Primitive) -> TypeGuard[SymbolicPrimitive]:
    """Whether a primitive is a convolution, pool or product that there is machine code for."""
    if not isinstance(given, SymbolicPrimitive) or given.name != "convolution_forward":
        return _may_be_a_pool(given) or _may_be_of_rows(given)
    src, weights, bias, dst, attributes = (
        given.arguments[place] for place in (_SRC, _WEIGHTS, _BIAS, _DST, _ATTRIBUTES)
    )
    assert isinstance(weights, Descriptor)
    assert isinstance(attributes, Attributes)
    is_known = (
        weights.shape[1:3] == (1, 1) and len(weights.shape) == 5
        if given.implementation == _DEPTHWISE
        else len(weights.shape) == 4 and given.implementation in _WITH_ALL_CHANNELS
    )
    return (
        is_known
        and given.threads == 1
        and not isinstance(bias, SymbolicDescriptor)
        and all(map(is_open, (src, dst)))
        and not attributes.quantisation
        and _links(attributes) is not None
    )


def _may_be_a_pool(given: Primitive) -> TypeGuard[SymbolicPrimitive]:
    if not isinstance(given, SymbolicPrimitive) or given.name != "pooling_forward":
        return False
    algorithm, attributes = (given.arguments[place] for place in _OF_POOLS)
    assert isinstance(attributes, Attributes)
    return (
        algorithm in _POOLS
        and given.implementation == "jit:avx512_core"
        and given.threads == 1
        and is_open(given.src)
        and given.dst.data_type is DataType.F32
        and len(given.src.shape) == 4
        and not attributes.post_ops
    )


def _may_be_of_rows(given: Primitive) -> TypeGuard[SymbolicPrimitive]:
    """Whether each row is multiplied by some matrices, as transposed convolutions are computed."""
    if not isinstance(given, SymbolicPrimitive) or given.name != "matmul":
        return False
    src, weights, bias, dst, attributes = (given.arguments[place] for place in _OF_PRODUCTS)
    assert isinstance(weights, Descriptor)
    assert isinstance(attributes, Attributes)
    if not (is_open(src) and is_open(dst)) or isinstance(bias, SymbolicDescriptor):
        return False
    if len(weights.shape) != 4 or any(map(is_symbolic, (*weights.shape, src.shape[1]))):
        return False
    alone, matrices, channels, results = weights.shape
    return (
        given.implementation == _PRODUCT
        and given.threads == 1
        and src.shape[1] == alone == 1 != matrices
        and channels <= MOST_CHANNELS
        and (not isinstance(bias, Descriptor) or bias.shape == (1, 1, 1, results))
        and not attributes.quantisation
        and _links(attributes) is not None
        and _ONE_SLOPE_PER_CHANNEL not in attributes.post_ops
    )


def _links(attributes: Attributes) -> tuple[_Link, ...] | None:
    """What follows; None where there is no code for it."""
    links = list(map(_link, attributes.post_ops))
    found = tuple(each for each in links if each is not None)
    is_known = len(found) == len(links) <= LONGEST
    return found if is_known and attributes.post_ops.count(_ONE_SLOPE_PER_CHANNEL) < 2 else None


def _link(post_op: PostOp) -> _Link | None:
    if post_op == _ONE_SLOPE_PER_CHANNEL:
        return Function.PRELU, 0.0, 0.0
    if post_op in _SUMS:
        return Function.SUM, 0.0, 0.0
    if not isinstance(post_op, Eltwise) or post_op.algorithm not in _FUNCTIONS:
        return None
    function = _FUNCTIONS[post_op.algorithm]
    is_leaky = function is Function.RELU and post_op.alpha != 0
    return None if is_leaky else (function, post_op.alpha, post_op.beta)


def is_in_order(windows: Windows, behind: Sequence[int], channels: int, wide: int) -> bool:
    """Whether oneDNN adds elements line by line, and those of a line from the left.

    It does not where windows at an end of a row lack their middle, which it adds first of all
    others, nor where those of fewer positions than they reach over an end, but of several (seen in
    oneDNN 3.2 with 5,000 random convolutions).

    Args:
        windows: where they lie.
        behind: how far the last ones reach over the end.
        channels: of the source.
        wide: positions of a row of the result.
    """
    if windows.is_depthwise:
        return True
    reach = max(windows.pads[1], behind[1])
    is_whole = reach <= (windows.sizes[1] - 1) // 2 and windows.gaps[1] == 0
    is_whole = is_whole and (wide == 1 or reach <= wide)
    return is_whole and channels <= MOST_CHANNELS


class _Form(NamedTuple):
    """What is the same for all sizes of a step.

    Attributes:
        window: sizes of a window; of a product those of its matrices.
        is_depthwise: whether each channel has its own source.
        functions: machine code.
        constants: what is read besides.
    """

    window: tuple[int, ...]
    is_depthwise: bool
    functions: Functions
    constants: Constants


class WindowSizes:
    """What a primitive's sizes come to while they are formulas.

    Attributes:
        numbers: a number that is 0 where channels lie next to each other, and `Measures`.
        cover: what is to be computed.
    """

    def __init__(self, given: SymbolicPrimitive, windows: Windows) -> None:
        """Compute them.

        Args:
            given: of layouts that are open, and numbers of channels that are known.
            windows: where they lie.
        """
        source, result = given.src.shape, given.dst.shape
        apart: Number = 0
        for layout in (given.src, given.dst):
            _, channels, height, width = layout.shape
            row = width * channels
            assert layout.strides is not None
            for step, wanted in zip(layout.strides, (height * row, 1, row, channels), strict=True):
                apart |= 0 if step is wanted else step ^ wanted
        self.numbers = apart, tuple(Measures.of(source, result, windows))
        self.cover = cover_of(source[1], result[1], windows)

    @classmethod
    def of(cls, given: SymbolicPrimitive) -> WindowSizes | None:
        """Return those of a convolution or pool; None where layouts or channels are not known."""
        sides, arguments_of = (given.src, given.dst), given.arguments
        if given.name == "matmul" or not all(map(is_open, sides)):
            return None
        if any(is_symbolic(side.shape[1]) for side in sides):
            return None
        if given.name == "pooling_forward":
            steps, window, gaps, pads, _ = cast("_Geometry", arguments_of[_GEOMETRY_OF_POOLS])
            return cls(given, Windows(window, steps, gaps, pads, is_depthwise=True))
        weights = arguments_of[_WEIGHTS]
        assert isinstance(weights, Descriptor)
        steps, gaps, pads, _ = cast("_Geometry", arguments_of[_GEOMETRY])
        is_depthwise = given.implementation == _DEPTHWISE
        return cls(given, Windows(weights.shape[-2:], steps, gaps, pads, is_depthwise))


class WindowsByMachine:
    """What computes a template's convolutions; for one thread at a time."""

    def __init__(self) -> None:
        """Begin with none."""
        self._forms: dict[int, _Form | None] = {}
        self._sizes: dict[int, WindowSizes | None] = {}

    def sizes(self, given: SymbolicPrimitive, place: int) -> WindowSizes | None:
        """Return what a primitive's sizes come to, while they are formulas; None without any.

        Args:
            given: one that `may_be_by_machine`.
            place: what it shares with those that are made of the same.
        """
        if place not in self._sizes:
            self._sizes[place] = WindowSizes.of(given)
        return self._sizes[place]

    def code(
        self,
        given: SymbolicPrimitive,
        place: int,
        sides: tuple[Value, Value],
        numbers: Mapping[int, int],
        forms: Sequence[ValueForm],
        sizes: Callable[[object], Any],
        packing: Packing,
    ) -> Code | None:
        """Return what is told addresses of source and result; None where oneDNN computes it.

        Args:
            given: one that `may_be_by_machine`.
            place: what it shares with those that are made of the same.
            sides: what it reads and writes.
            numbers: of the values that it reads and writes, by index on execution.
            forms: of values.
            sizes: returns the numbers of a primitive, or of `WindowSizes`.
            packing: returns a constant in a layout.
        """
        if given.name == "pooling_forward":
            return self._pool(given, place, sides, sizes)
        weights = numbers[Arg.WEIGHTS]
        if weights not in self._forms:
            constants = {at: forms[n] for at, n in numbers.items() if at not in (Arg.SRC, Arg.DST)}
            self._forms[weights] = _form(given, constants, packing)
        form = self._forms[weights]
        if form is not None and given.name == "matmul":
            return _product(sides, form)
        if form is None:
            return None
        steps, gaps, pads, behind = sizes(given)[_GEOMETRY]
        windows = Windows(form.window, steps, gaps, pads, form.is_depthwise)
        if not is_in_order(windows, behind, sides[0].shape[1], sides[1].shape[3]):
            return None
        told = self._told(place, sides, windows, sizes)
        code = given.implementation
        if told is None or taken_us(told, MORE_NS[code]) > MOST_US[code]:
            return None
        return code_of(form.functions, told, form.constants)

    def _told(
        self,
        place: int,
        sides: tuple[Value, Value],
        windows: Windows,
        sizes: Callable[[object], Any],
    ) -> TileCalls | None:
        """What code is told; None where channels do not lie next to each other."""
        known = self._sizes[place]
        if known is not None:
            apart, numbers = sizes(known)
            if not apart:
                return Measures(*numbers).told(known.cover)
        source, result = sides
        is_right = _is_channels_last(source) and _is_channels_last(result)
        return arguments(source.shape, result.shape, windows) if is_right else None

    def _pool(
        self,
        given: SymbolicPrimitive,
        place: int,
        sides: tuple[Value, Value],
        sizes: Callable[[object], Any],
    ) -> Code | None:
        """What is told addresses of source and result; None where oneDNN computes it."""
        is_max = given.arguments[_OF_POOLS[0]] == Algorithm.POOLING_MAX
        steps, window, gaps, pads, behind = sizes(given)[_GEOMETRY_OF_POOLS]
        if not is_max and (any(pads) or any(behind)):
            return None
        told = self._told(
            place, sides, Windows(window, steps, gaps, pads, is_depthwise=True), sizes
        )
        if told is None or taken_us(told) > MOST_POOLS_US:
            return None
        if is_max:
            return code_of(_of_pools(Terms.LARGEST), told, _LARGEST)
        code = _of_pools(Terms.PLAIN, Function.QUOTIENT)
        return code_of(code, told, _of_means(math.prod(window)))


def _product(sides: tuple[Value, Value], form: _Form) -> Code | None:
    """What is told addresses of source and result; None where oneDNN computes it."""
    if any(side.strides != row_major(side.shape) for side in sides):
        return None
    rows, _, positions, _ = sides[0].shape
    told = of_rows(rows, form.window, positions)
    if taken_us(told, MORE_NS[_PRODUCT]) > MOST_US[_PRODUCT]:
        return None
    return code_of(form.functions, told, form.constants)


@lru_cache
def _of_means(count: int) -> Constants:
    return Constants(None, None, None, [(count, 0.0)])


@lru_cache
def _of_pools(terms: Terms, *chain: Function) -> Functions:
    return Functions(chain, terms=terms, has_bias=False)


def _form(
    given: SymbolicPrimitive, constants: Mapping[int, ValueForm], packing: Packing
) -> _Form | None:
    """What is the same for all sizes; None where there is no code, or a constant is not plain."""
    attributes = next(each for each in given.arguments if isinstance(each, Attributes))
    is_depthwise = given.implementation == _DEPTHWISE
    links, has_bias = _links(attributes) or (), Arg.BIAS in constants
    weights, others = constants[Arg.WEIGHTS], {**constants}
    del others[Arg.WEIGHTS]
    found = {index: _numbers(form) for index, form in others.items()}
    array = weights.given.storage.array
    chain, shares = [link[0] for link in links], [link[1:] for link in links]
    terms = Terms.OWN_CHANNEL if is_depthwise else Terms.ALL_CHANNELS
    code = Functions(chain, terms=terms, has_bias=has_bias)
    if array is None or array.dtype != np.float32 or not weights.is_packed:
        return None
    if any(each is None for each in found.values()):
        return None
    bias = found.pop(Arg.BIAS, None)
    slopes = next(iter(found.values()), None)
    if given.name == "matmul":
        packed = packing(array, Descriptor.dense(array.shape)).storage.array
        return _Form(array.shape[1:], False, code, Constants(packed, bias, None, shares))
    numbers = Constants(_packed(array, given, packing), bias, slopes, shares)
    return _Form(array.shape[-2:], is_depthwise, code, numbers)


def _packed(array: Array, given: SymbolicPrimitive, packing: Packing) -> Array | None:
    """Weights by elements; where oneDNN has them so, they are not packed once more."""
    order = *range(array.ndim - 2, array.ndim), *range(1, array.ndim - 2), 0
    wanted = array.transpose(order).reshape(-1)
    theirs = packing(array, given.witness.weights).storage.array
    if theirs is not None and np.array_equal(theirs.reshape(-1).view(np.float32), wanted):
        return theirs
    return packing(array, _by_elements(array.shape)).storage.array


def _by_elements(shape: tuple[int, ...]) -> Descriptor:
    """The layout of weights with channels of the result next to each other, and behind windows."""
    results, *groups, across, along = shape
    steps = row_major((across, along, *groups, results))
    return Descriptor.strided(shape, (1, *steps[2:-1], *steps[:2]))


def _is_channels_last(value: Value) -> bool:
    strides, (_, channels, height, width) = value.strides, value.shape
    row = width * channels
    if strides == (height * row, 1, row, channels):  # as most are, which is told sooner
        return True
    last = channels_last_strides(value.shape)
    return strides is not None and same_steps(value.shape, strides, last)


def _numbers(form: ValueForm) -> Array | None:
    """The numbers of a constant that is the same for all sizes, and as oneDNN reads it."""
    value, array = form.given, form.given.storage.array
    if form.place >= 0 or array is None or value.offset_bytes:
        return None
    if value.dtype != np.float32 or not value.is_dense or not array.flags.c_contiguous:
        return None
    return array.reshape(-1).view(np.float32)
