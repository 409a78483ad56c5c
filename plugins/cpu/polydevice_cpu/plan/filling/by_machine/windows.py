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
from polydevice_cpu.algorithms.by_machine.code import Code, may_share
from polydevice_cpu.algorithms.by_machine.windows.phases import Phase, code_of_phases, phases
from polydevice_cpu.algorithms.by_machine.windows.sums import (
    Constants,
    Functions,
    Measures,
    TileCalls,
    Windows,
    arguments,
    code_of,
    cover_of,
    divided_by,
    of_rows,
    taken_us,
)
from polydevice_cpu.algorithms.by_machine.windows.tiles import Function, Terms
from polydevice_cpu.onednn.attributes import Attributes
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
from polydevice_cpu.plan.filling.by_machine.chains import (
    ONE_SLOPE_PER_CHANNEL,
    inputs_of,
    is_known,
    links,
    numbers_of,
)
from polydevice_cpu.plan.filling.recipe import Packing, ValueForm
from polydevice_cpu.plan.value import Value

_CONVOLUTION, _TRANSPOSED = "convolution_forward", "deconvolution_forward"
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

MOST_WEIGHTS_BYTES = 1 << 20
"""Weights of convolutions along one axis, which are read for every few positions: up to so many
they take as long as oneDNN's code for a size (0.8 to 1.1 times; 1.8 with 1.8 MB), which it takes
1 to 25 ms to generate, as it unrolls positions."""

_Geometry = Sequence[tuple[int, ...]]

_SRC, _WEIGHTS, _BIAS, _DST, _ATTRIBUTES = 3, 4, 5, 6, 11
_GEOMETRY = slice(7, 11)
_OF_PRODUCTS = 1, 2, 3, 4, 5
_OF_POOLS, _GEOMETRY_OF_POOLS = (2, 10), slice(5, 10)
_POOLS = (
    *(Algorithm.POOLING_AVG_INCLUDE_PADDING, Algorithm.POOLING_AVG_EXCLUDE_PADDING),
    Algorithm.POOLING_MAX,
)
_LEAST = float(np.finfo(np.float32).min)
_OF_MEANS = Constants(None, None, None, [(1.0, 0.0)])
_LARGEST = Constants(None, None, None, [], (_LEAST, _LEAST))


def may_be_by_machine(given: Primitive) -> TypeGuard[SymbolicPrimitive]:
    """Whether a primitive is a convolution, pool or product that there is machine code for."""
    if not isinstance(given, SymbolicPrimitive) or given.name not in (_CONVOLUTION, _TRANSPOSED):
        return _may_be_a_pool(given) or _may_be_of_rows(given)
    src, weights, bias, dst, attributes = (
        given.arguments[place] for place in (_SRC, _WEIGHTS, _BIAS, _DST, _ATTRIBUTES)
    )
    assert isinstance(src, Descriptor)
    assert isinstance(weights, Descriptor)
    assert isinstance(attributes, Attributes)
    rank = len(weights.shape)
    if given.name == _TRANSPOSED:
        steps, gaps, pads, _ = cast("_Geometry", given.arguments[_GEOMETRY])
        has_code = rank == len(src.shape) == 3 and gaps == (0,) and is_known(*steps, *pads)
    elif given.implementation == _DEPTHWISE:
        has_code = weights.shape[1:3] == (1, 1) and rank == 5
    else:
        has_code = rank == len(src.shape) < 5 and given.implementation in _WITH_ALL_CHANNELS
    is_small = is_known(*weights.shape) and 4 * math.prod(weights.shape) <= MOST_WEIGHTS_BYTES
    return (
        has_code
        and (rank > 3 or is_small)
        and links(attributes, dst, as_onednn=rank > 3) is not None
        and (given.threads == 1 or may_share())
        and not isinstance(bias, SymbolicDescriptor)
        and all(map(is_open, (src, dst)))
        and not attributes.quantisation
    )


def stays_by_machine(given: SymbolicPrimitive) -> bool:
    """Whether a primitive that `may_be_by_machine` is computed so in plans that run often, too.

    A convolution along one axis is, also a transposed one. Where windows reach far over its ends,
    oneDNN adds up each element of them by itself, so that answers of plans that it computes differ
    by a rounding.
    """
    return given.name in (_CONVOLUTION, _TRANSPOSED) and len(given.src.shape) == 3


def _may_be_a_pool(given: Primitive) -> TypeGuard[SymbolicPrimitive]:
    if not isinstance(given, SymbolicPrimitive) or given.name != "pooling_forward":
        return False
    algorithm, attributes = (given.arguments[place] for place in _OF_POOLS)
    assert isinstance(attributes, Attributes)
    return (
        algorithm in _POOLS
        and given.implementation == "jit:avx512_core"
        and (given.threads == 1 or may_share())
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
        and (given.threads == 1 or may_share())
        and src.shape[1] == alone == 1 != matrices
        and channels <= MOST_CHANNELS
        and (not isinstance(bias, Descriptor) or bias.shape == (1, 1, 1, results))
        and not attributes.quantisation
        and links(attributes, dst, as_onednn=True) is not None
        and ONE_SLOPE_PER_CHANNEL not in attributes.post_ops
    )


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
        stays: whether it is computed so in plans that run often, too.
        phases: of a transposed convolution.
    """

    window: tuple[int, ...]
    is_depthwise: bool
    functions: Functions
    constants: Constants
    stays: bool = False
    phases: Sequence[Phase] = ()


class WindowSizes:
    """What a primitive's sizes come to while they are formulas.

    Attributes:
        numbers: a number that is 0 where channels lie next to each other, and `Measures`.
        cover: what is to be computed.
        least_wide: positions of a row that are added up in oneDNN's order, if not one or any; -1
            where that is asked for each size.
    """

    def __init__(
        self, given: SymbolicPrimitive, windows: Windows, behind: Sequence[Number] = ()
    ) -> None:
        """Compute them.

        Args:
            given: of layouts that are open, and numbers of channels that are known.
            windows: where they lie.
            behind: how far the last ones reach over the end; nothing of what is no convolution.
        """
        self.least_wide, channels = -1, given.src.shape[1]
        if len(behind) == 2 and is_known(channels, *behind, *windows.pads, *windows.gaps):
            reach = max(windows.pads[1], behind[1], 1)
            if is_in_order(windows, behind, channels, reach):
                self.least_wide = 0 if windows.is_depthwise else reach
        source, result = _as_picture(given.src.shape), _as_picture(given.dst.shape)
        apart: Number = 0
        for layout in (given.src, given.dst):
            channels, *sizes = layout.shape[1:]
            assert layout.strides is not None
            wanted = [channels]
            for size in reversed(sizes):
                wanted.append(wanted[-1] * size)
            batch, *others = reversed(wanted)
            for step, each in zip(layout.strides, (batch, 1, *others), strict=True):
                apart |= 0 if step is each else step ^ each
        self.numbers = apart, tuple(Measures.of(source, result, windows))
        self.cover = cover_of(source[1], result[1], windows)

    @classmethod
    def of(cls, given: SymbolicPrimitive) -> WindowSizes | None:
        """Return those of a convolution or pool; None where layouts or channels are not known."""
        sides, arguments_of = (given.src, given.dst), given.arguments
        if given.name in ("matmul", _TRANSPOSED) or not all(map(is_open, sides)):
            return None
        if any(is_symbolic(side.shape[1]) for side in sides):
            return None
        if given.name == "pooling_forward":
            steps, window, gaps, pads, _ = cast("_Geometry", arguments_of[_GEOMETRY_OF_POOLS])
            return cls(given, _windows(window, (steps, gaps, pads), is_depthwise=True))
        weights = arguments_of[_WEIGHTS]
        assert isinstance(weights, Descriptor)
        axes, geometry = len(given.src.shape) - 2, cast("_Geometry", arguments_of[_GEOMETRY])
        is_depthwise = given.implementation == _DEPTHWISE
        windows = _windows(weights.shape[-axes:], geometry[:3], is_depthwise=is_depthwise)
        return cls(given, windows, geometry[3])


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
        """Return what is told addresses of `inputs_of` and result; None where oneDNN computes it.

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
        threads, code, weights = given.threads, given.implementation, numbers[Arg.WEIGHTS]
        if weights not in self._forms:
            others = *inputs_of(given), Arg.DST
            constants = {at: forms[n] for at, n in numbers.items() if at not in others}
            self._forms[weights] = _form(given, constants, packing)
        form = self._forms[weights]
        if form is None:
            return None
        if given.name == "matmul":
            return _product(sides, form, threads)
        if given.name == _TRANSPOSED:
            return _transposed(sides, form, threads)
        known, told, is_told = self._sizes[place], None, False
        if known is not None and known.least_wide >= 0 and not form.stays:
            apart, measures = sizes(known)
            if not apart:  # as most are: in half the time
                wide, is_told = measures[4][0], True
                if wide == 1 or wide >= known.least_wide:
                    told = Measures(*measures).told(known.cover)
        if not is_told:
            told = self._asked(given, place, sides, sizes, form)
        if told is None:
            return None
        if not form.stays and taken_us(told, MORE_NS.get(code, 0.0)) > threads * MOST_US[code]:
            return None
        return code_of(form.functions, told, form.constants, threads)

    def _asked(
        self,
        given: SymbolicPrimitive,
        place: int,
        sides: tuple[Value, Value],
        sizes: Callable[[object], Any],
        form: _Form,
    ) -> TileCalls | None:
        """What code of a convolution is told; None where oneDNN computes it."""
        *geometry, behind = sizes(given)[_GEOMETRY]
        windows = _windows(form.window, geometry, is_depthwise=form.is_depthwise)
        channels, wide = sides[0].shape[1], sides[1].shape[-1]
        if not form.stays and not is_in_order(windows, behind, channels, wide):
            return None
        return self._told(place, sides, windows, sizes)

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
        if not all(map(_is_channels_last, sides)):
            return None
        source, result = (_as_picture(side.shape) for side in sides)
        return arguments(source, result, windows)

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
        windows = _windows(window, (steps, gaps, pads), is_depthwise=True)
        told = self._told(place, sides, windows, sizes)
        threads = given.threads
        if told is None or taken_us(told) > threads * MOST_POOLS_US:
            return None
        if is_max:
            return code_of(_of_pools(Terms.LARGEST), told, _LARGEST, threads)
        code = _of_pools(Terms.PLAIN, Function.QUOTIENT)
        made = code_of(code, told, _OF_MEANS, threads)
        return None if made is None else divided_by(made, math.prod(window))


def _transposed(sides: tuple[Value, Value], form: _Form, threads: int) -> Code | None:
    """What is told addresses of source and result; None where oneDNN computes it."""
    if not all(map(_is_channels_last, sides)):
        return None
    source, result = (side.shape for side in sides)
    return code_of_phases(form.functions, form.phases, source, result, threads)


def _product(sides: tuple[Value, Value], form: _Form, threads: int) -> Code | None:
    """What is told addresses of source and result; None where oneDNN computes it."""
    if any(side.strides != row_major(side.shape) for side in sides):
        return None
    rows, _, positions, _ = sides[0].shape
    told = of_rows(rows, form.window, positions)
    if taken_us(told, MORE_NS[_PRODUCT]) > threads * MOST_US[_PRODUCT]:
        return None
    return code_of(form.functions, told, form.constants, threads)


@lru_cache
def _of_pools(terms: Terms, *chain: Function) -> Functions:
    return Functions(chain, terms=terms, has_bias=False)


def _form(
    given: SymbolicPrimitive, constants: Mapping[int, ValueForm], packing: Packing
) -> _Form | None:
    """What is the same for all sizes; None where there is no code, or a constant is not plain."""
    attributes = next(each for each in given.arguments if isinstance(each, Attributes))
    is_depthwise = given.implementation == _DEPTHWISE
    followed, has_bias = links(attributes, given.dst) or (), Arg.BIAS in constants
    weights, others = constants[Arg.WEIGHTS], {**constants}
    del others[Arg.WEIGHTS]
    found = {index: numbers_of(form) for index, form in others.items()}
    array = weights.given.storage.array
    chain, shares = [link[0] for link in followed], [link[1:] for link in followed]
    terms = Terms.OWN_CHANNEL if is_depthwise else Terms.ALL_CHANNELS
    code = Functions(chain, terms=terms, has_bias=has_bias)
    if array is None or array.dtype != np.float32 or not weights.is_packed:
        return None
    if any(each is None for each in found.values()):
        return None
    bias = found.pop(Arg.BIAS, None)
    slopes = next(iter(found.values()), None)
    if given.name == "matmul":
        packed = _dense(packing, array)
        return _Form(array.shape[1:], False, code, Constants(packed, bias, None, shares))
    if given.name == _TRANSPOSED:
        (step,), _, (pad,), _ = cast("_Geometry", given.arguments[_GEOMETRY])
        known = Constants(None, bias, slopes, shares)
        made = phases(array.transpose(2, 1, 0), step, pad, known, partial(_dense, packing))
        return None if made is None else _Form(array.shape[-1:], False, code, known, True, made)
    axes = len(given.src.shape) - 2
    numbers = Constants(_packed(array, axes, given, packing), bias, slopes, shares)
    return _Form(array.shape[-axes:], is_depthwise, code, numbers, stays_by_machine(given))


def _dense(packing: Packing, array: Array) -> Array:
    """Numbers as they lie one behind the other, kept once for the network."""
    packed = packing(array, Descriptor.dense(array.shape)).storage.array
    assert packed is not None
    return packed.view(array.dtype)[: array.size].reshape(array.shape)


def _packed(array: Array, axes: int, given: SymbolicPrimitive, packing: Packing) -> Array | None:
    """Weights by elements; where oneDNN has them so, they are not packed once more."""
    order = *range(array.ndim - axes, array.ndim), *range(1, array.ndim - axes), 0
    wanted = array.transpose(order).reshape(-1)
    theirs = packing(array, given.witness.weights).storage.array
    if theirs is not None and np.array_equal(theirs.reshape(-1).view(np.float32), wanted):
        return theirs
    return packing(array, _by_elements(array.shape, axes)).storage.array


def _by_elements(shape: tuple[int, ...], axes: int) -> Descriptor:
    """The layout of weights with channels of the result next to each other, and behind windows."""
    results, *groups = shape[:-axes]
    steps = row_major((*shape[-axes:], *groups, results))
    return Descriptor.strided(shape, (1, *steps[axes:-1], *steps[:axes]))


def _as_picture(shape: tuple[int, ...]) -> tuple[int, ...]:
    """[N, C, W] as [N, C, W, 1], in which windows along W may have gaps."""
    return (*shape, 1) if len(shape) == 3 else shape


def _windows(sizes: tuple[int, ...], geometry: _Geometry, *, is_depthwise: bool) -> Windows:
    """Windows of two axes, as `_as_picture` has them.

    Args:
        sizes: of one.
        geometry: steps, gaps and pads.
        is_depthwise: whether each channel has its own source.
    """
    steps, gaps, pads = geometry
    if len(sizes) == 1:
        return Windows((*sizes, 1), (*steps, 1), (*gaps, 0), (*pads, 0), is_depthwise)
    return Windows(sizes, steps, gaps, pads, is_depthwise)


def _is_channels_last(value: Value) -> bool:
    strides = value.strides
    last = channels_last_strides(value.shape)
    return strides is not None and same_steps(value.shape, strides, last)
