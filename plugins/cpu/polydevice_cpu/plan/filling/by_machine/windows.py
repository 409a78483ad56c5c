"""Convolutions and pools by machine code for all sizes, where oneDNN would generate some for each.

Over two axes it adds numbers in the order in which oneDNN's code does, so that answers are the same
to the bit; along one axis, and behind GELU, it computes in plans that run often, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from polydevice.dtype import Array
from polydevice.symbolic_size import Number, is_symbolic, is_within
from polydevice_cpu.algorithms.by_machine.amx.layer import Matrices
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.windows.covers import FLOATS, Numbers, Windows, cover_of
from polydevice_cpu.algorithms.by_machine.windows.following import shares_of
from polydevice_cpu.algorithms.by_machine.windows.sums import (
    Constants,
    Functions,
    Measures,
    TileCalls,
    arguments,
    code_of,
    code_of_all,
    of_rows,
    taken_us,
)
from polydevice_cpu.algorithms.by_machine.windows.tiles import Terms
from polydevice_cpu.algorithms.by_machine.windows.transposed import Phase, calls_of_phases, phases
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import PRODUCT, Arg, kind_of_code
from polydevice_cpu.onednn.descriptor import (
    Descriptor,
    channels_last_strides,
    is_open,
    row_major,
    same_steps,
)
from polydevice_cpu.onednn.primitive import SymbolicPrimitive
from polydevice_cpu.plan.filling.by_machine.chains import (
    by_channel_of,
    chain_of,
    inputs_of,
    is_known,
    numbers_of,
    rows_of,
)
from polydevice_cpu.plan.filling.by_machine.integers import (
    Prepared,
    is_depthwise,
    is_of_bytes,
    numbers_of_bytes,
    numbers_of_pool,
    packed_weights,
    prepared,
)
from polydevice_cpu.plan.filling.by_machine.pools import code_of_pool, is_of_largest
from polydevice_cpu.plan.filling.by_machine.suitable_windows import (
    GEOMETRY,
    GEOMETRY_OF_POOLS,
    MORE_NS,
    MOST_US,
    TRANSPOSED,
    WEIGHTS,
    Geometry,
    groups_of,
    is_in_order,
    most_channels,
    stays_by_machine,
)
from polydevice_cpu.plan.filling.by_machine.tiles import code_in_tiles, matrices_of
from polydevice_cpu.plan.filling.by_machine.weights import bundle_of, dense, of_windows
from polydevice_cpu.plan.filling.folded import Fold, fold_of
from polydevice_cpu.plan.filling.recipe import Packing, ValueForm
from polydevice_cpu.plan.value import Value


class _Form(NamedTuple):
    """What is the same for all sizes of a step.

    Attributes:
        window: sizes of a window; of a product those of its matrices.
        is_depthwise: whether each channel has its own source.
        functions: machine code.
        constants: what is read besides.
        stays: whether it is computed so in plans that run often, too.
        phases: of a transposed convolution.
        of_bytes: what else is the same, of bytes.
        in_tiles: what is the same where AMX tiles compute it.
        row: how many channels of the result a row of weights has, where it is some of them.
        groups: of channels, if each has not one.
    """

    window: tuple[int, ...]
    is_depthwise: bool
    functions: Functions
    constants: Constants
    stays: bool = False
    phases: Sequence[Phase] = ()
    of_bytes: Prepared | None = None
    in_tiles: Matrices | None = None
    row: int = 0
    groups: int = 1


class WindowSizes:
    """What a primitive's sizes come to while they are formulas.

    Attributes:
        numbers: a number that is 0 where channels lie next to each other, and `Measures`.
        cover: what is to be computed.
        least_wide: positions of a row that are added up in oneDNN's order, if not one or any; -1
            where that is asked for each size.
    """

    def __init__(
        self,
        given: SymbolicPrimitive,
        fold: Fold,
        windows: Windows,
        behind: Sequence[Number] = (),
    ) -> None:
        """Compute them.

        Args:
            given: of layouts that are open, and numbers of channels that are known.
            fold: how its pictures are seen.
            windows: where they lie.
            behind: how far the last ones reach over the end; nothing of what is no convolution.
        """
        self.least_wide, channels = -1, given.src.shape[1] // windows.groups
        if len(behind) == 2 and is_known(channels, *behind, *windows.pads, *windows.gaps):
            reach = max(windows.pads[1], behind[1], 1)
            most = most_channels(given, windows)
            if is_in_order(windows, behind, channels, reach, most):
                self.least_wide = 0 if windows.is_depthwise else reach
        source, result = fold.shape(given.src.shape), fold.shape(given.dst.shape)
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
        numbers = numbers_of_bytes(given) if is_of_bytes(given) else numbers_of_pool(given)
        self.numbers = apart, tuple(Measures.of(source, result, windows, numbers))
        self.cover = cover_of(source[1], result[1], windows, numbers)

    @classmethod
    def of(cls, given: SymbolicPrimitive) -> WindowSizes | None:
        """Return those of a convolution or pool; None where layouts or channels are not known."""
        sides, arguments_of = (given.src, given.dst), given.arguments
        if given.name in ("matmul", TRANSPOSED) or not all(map(is_open, sides)):
            return None
        fold = fold_of(given)
        if fold is None:
            return None
        if any(is_symbolic(side.shape[1]) for side in sides):
            return None
        if given.name == "pooling_forward":
            steps, window, gaps, pads, _ = cast("Geometry", arguments_of[GEOMETRY_OF_POOLS])
            return cls(given, fold, fold.windows(window, (steps, gaps, pads), is_own=True))
        weights = arguments_of[WEIGHTS]
        assert isinstance(weights, Descriptor)
        axes, geometry = len(given.src.shape) - 2, cast("Geometry", arguments_of[GEOMETRY])
        is_own, groups = is_depthwise(given), groups_of(given)
        windows = fold.windows(weights.shape[-axes:], geometry[:3], is_own=is_own, groups=groups)
        behind = geometry[3] if axes == 1 else fold.each(geometry[3], 0)
        return cls(given, fold, windows, behind)


class WindowsByMachine:
    """What computes a template's convolutions; threads: see `PlanTemplate`."""

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
        most_us: float,
    ) -> Code | None:
        """Return what is told addresses of what is read and result; None where oneDNN computes it.

        Args:
            given: one that `may_be_by_machine`.
            place: what it shares with those that are made of the same.
            sides: what it reads and writes.
            numbers: of the values that it reads and writes, by index on execution.
            forms: of values.
            sizes: returns the numbers of a primitive, or of `WindowSizes`.
            packing: returns a constant in a layout.
            most_us: how much longer than oneDNN's code that of bytes may take.
        """
        if given.name == "pooling_forward":
            return self._pool(given, place, sides, sizes)
        weights = numbers[Arg.WEIGHTS]
        if weights not in self._forms:
            self._forms[weights] = _form(given, numbers, forms, packing)
        form = self._forms[weights]
        if form is None:
            return None
        if form.of_bytes is not None:
            return self._of_bytes(given, place, sides, sizes, form, most_us)
        if given.name == "matmul":
            return _product(sides, form, given.threads)
        if given.name == TRANSPOSED:
            return _transposed(sides, form, given.threads)
        return self._of_floats(given, place, sides, sizes, form)

    def _of_floats(
        self,
        given: SymbolicPrimitive,
        place: int,
        sides: tuple[Value, Value],
        sizes: Callable[[object], Any],
        form: _Form,
    ) -> Code | None:
        """What is told addresses of what is read and result; None where oneDNN computes it."""
        threads, code = given.threads, kind_of_code(given)
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
        if form.row:
            told = told._replace(cover=told.cover._replace(row=form.row))
        takes_us = 0.0 if form.stays else taken_us(told, MORE_NS.get(code, 0.0))
        if not is_within(takes_us, threads * MOST_US[code]):
            return None
        return code_of(form.functions, told, form.constants, threads)

    def _of_bytes(
        self,
        given: SymbolicPrimitive,
        place: int,
        sides: tuple[Value, Value],
        sizes: Callable[[object], Any],
        form: _Form,
        most_us: float,
    ) -> Code | None:
        """What is told addresses of what is read and result; None where oneDNN computes it."""
        found = form.of_bytes
        assert found is not None
        if given.name == TRANSPOSED:
            return _transposed_bytes(sides, form, found, given.threads, most_us)
        windows, _ = _windows_of(given, sizes, form)
        if form.in_tiles is not None and self._is_plain(place, sides, sizes):
            source, result = (side.shape for side in sides)
            if len(source) == 5:
                source, result = (_fold(given).shape(each) for each in (source, result))
            code = code_in_tiles(form.in_tiles, source, result, windows, given.threads)
            if code is not None:
                return code
        if form.constants.weights is None:
            return None
        told = self._told(given, place, sides, windows, sizes, found.numbers)
        if told is None or not found.is_worth_it(told.steps, most_us):
            return None
        return code_of(form.functions, told, form.constants, given.threads)

    def _asked(
        self,
        given: SymbolicPrimitive,
        place: int,
        sides: tuple[Value, Value],
        sizes: Callable[[object], Any],
        form: _Form,
    ) -> TileCalls | None:
        """What code of a convolution is told; None where oneDNN computes it."""
        windows, behind = _windows_of(given, sizes, form)
        channels, wide = sides[0].shape[1] // form.groups, _fold(given).shape(sides[1].shape)[-1]
        most = most_channels(given, windows, wide)
        if not form.stays and not is_in_order(windows, behind, channels, wide, most):
            return None
        return self._told(given, place, sides, windows, sizes)

    def _is_plain(
        self, place: int, sides: tuple[Value, Value], sizes: Callable[[object], Any]
    ) -> bool:
        """Whether channels of source and result lie next to each other, and all without gaps."""
        known = self._sizes[place]
        return (known is not None and not sizes(known)[0]) or all(map(_is_channels_last, sides))

    def _told(
        self,
        given: SymbolicPrimitive,
        place: int,
        sides: tuple[Value, Value],
        windows: Windows,
        sizes: Callable[[object], Any],
        numbers: Numbers = FLOATS,
    ) -> TileCalls | None:
        """What code is told; None where channels do not lie next to each other."""
        known = self._sizes[place]
        if known is not None:
            apart, measures = sizes(known)
            if not apart:
                return Measures(*measures).told(known.cover)
        if not all(map(_is_channels_last, sides)):
            return None
        source, result = (_fold(given).shape(side.shape) for side in sides)
        return arguments(source, result, windows, numbers)

    def _pool(
        self,
        given: SymbolicPrimitive,
        place: int,
        sides: tuple[Value, Value],
        sizes: Callable[[object], Any],
    ) -> Code | None:
        """What is told addresses of source and result; None where oneDNN computes it."""
        steps, window, gaps, pads, behind = sizes(given)[GEOMETRY_OF_POOLS]
        if not is_of_largest(given) and (any(pads) or any(behind)):
            return None
        windows = _fold(given).windows(window, (steps, gaps, pads), is_own=True)
        told = self._told(given, place, sides, windows, sizes, numbers_of_pool(given))
        return None if told is None else code_of_pool(given, told, math.prod(window))


def _transposed(sides: tuple[Value, Value], form: _Form, threads: int) -> Code | None:
    """What is told addresses of source and result; None where oneDNN computes it."""
    if not all(map(_is_channels_last, sides)):
        return None
    source, result = (side.shape for side in sides)
    calls = calls_of_phases(form.functions, form.phases, source, result)
    return None if calls is None else code_of_all(calls, threads)


def _transposed_bytes(
    sides: tuple[Value, Value], form: _Form, found: Prepared, threads: int, most_us: float
) -> Code | None:
    """The same of bytes; None where that takes too long, too."""
    if not all(map(_is_channels_last, sides)):
        return None
    source, result = (side.shape for side in sides)
    calls = calls_of_phases(form.functions, form.phases, source, result, found.numbers)
    if calls is None or not found.is_worth_it(sum(told.steps for _, told, _ in calls), most_us):
        return None
    return code_of_all(calls, threads)


def _product(sides: tuple[Value, Value], form: _Form, threads: int) -> Code | None:
    """What is told addresses of source and result; None where oneDNN computes it."""
    if any(side.strides != row_major(side.shape) for side in sides):
        return None
    rows, _, positions, _ = sides[0].shape
    told = of_rows(rows, form.window, positions)
    takes_us = 0.0 if form.stays else taken_us(told, MORE_NS[PRODUCT])
    if not is_within(takes_us, threads * MOST_US[PRODUCT]):
        return None
    return code_of(form.functions, told, form.constants, threads)


def _form(
    given: SymbolicPrimitive,
    numbers: Mapping[int, int],
    forms: Sequence[ValueForm],
    packing: Packing,
) -> _Form | None:
    """What is the same for all sizes; None where there is no code, or a constant is not plain."""
    if is_of_bytes(given):
        return _form_of_bytes(given, numbers, forms, packing)
    no_constants = *inputs_of(given), Arg.DST
    constants = {at: forms[n] for at, n in numbers.items() if at not in no_constants}
    attributes = next(each for each in given.arguments if isinstance(each, Attributes))
    is_own = is_depthwise(given)
    weights = constants.pop(Arg.WEIGHTS)
    found = {index: numbers_of(form) for index, form in constants.items()}
    if any(each is None for each in found.values()):
        return None
    followed, has_bias = chain_of(attributes, given.dst, found) or (), Arg.BIAS in found
    array = weights.given.storage.array
    chain = [function for function, *_ in followed]
    shares = shares_of(followed, given.dst.shape[1])
    terms = Terms.OWN_CHANNEL if is_own else Terms.ALL_CHANNELS
    groups = groups_of(given)
    bundle = None if groups == 1 else bundle_of(weights.given.shape)
    emit = partial(Functions, chain, terms=terms, has_bias=has_bias, bundle=bundle)
    code = emit()
    if array is None or array.dtype != np.float32 or not weights.is_packed:
        return None
    bias = found.get(Arg.BIAS)
    by_channel = by_channel_of(attributes, given.dst)
    slopes = rows_of(by_channel, found, given.dst.shape[1]) if by_channel else None
    if by_channel and slopes is None:
        return None
    if given.name == "matmul":
        packed = dense(packing, array)
        known, stays = Constants(packed, bias, None, shares), stays_by_machine(given)
        return _Form(array.shape[1:], False, code, known, stays)
    if given.name == TRANSPOSED:
        known, window = Constants(None, bias, slopes, shares), array.shape[2:]
        elements = np.moveaxis(array, (0, 1), (-1, -2))
        made = _phases(given, elements, known, partial(dense, packing))
        return None if made is None else _Form(window, False, code, known, True, made)
    axes = len(given.src.shape) - 2
    own, row = of_windows(array, axes, given, packing)
    if row and bundle is None:
        code = emit(is_padded=True)
    known = Constants(own, bias, slopes, shares)
    stays = stays_by_machine(given)
    return _Form(array.shape[-axes:], is_own, code, known, stays, row=row, groups=groups)


def _form_of_bytes(
    given: SymbolicPrimitive,
    numbers: Mapping[int, int],
    forms: Sequence[ValueForm],
    packing: Packing,
) -> _Form | None:
    """The same of bytes."""
    form, found = forms[numbers[Arg.WEIGHTS]], prepared(given, numbers, forms)
    if found is None:
        return None
    in_tiles = matrices_of(given, found, form)
    weights = None if in_tiles is not None else packed_weights(given, form, packing)
    if weights is None and in_tiles is None:
        return None
    axes, layout = len(given.src.shape) - 2, given.arguments[WEIGHTS]
    assert isinstance(layout, Descriptor)
    window, is_own, known = layout.shape[-axes:], is_depthwise(given), found.constants(weights)
    if given.name == TRANSPOSED:
        assert weights is not None
        elements = weights.reshape(*window, -1, weights.shape[-1])
        made = _phases(given, elements, known, np.ascontiguousarray)
        if made is None:
            return None
        return _Form(window, False, found.functions, known, True, made, found)
    return _Form(window, is_own, found.functions, known, True, (), found, in_tiles)


def _phases(
    given: SymbolicPrimitive,
    elements: Array,
    known: Constants,
    pack: Callable[[Array], Array],
) -> list[Phase] | None:
    """Phases of a transposed convolution along one or two axes, by its weights, by elements."""
    steps, _, pads, _ = cast("Geometry", given.arguments[GEOMETRY])
    if len(steps) == 1:
        elements, steps, pads = elements[:, np.newaxis], (*steps, 1), (*pads, 0)
    return phases(elements, tuple(steps), tuple(pads), known, pack)


def _fold(given: SymbolicPrimitive) -> Fold:
    """How pictures are seen, of what there is code for."""
    fold = fold_of(given)
    assert fold is not None
    return fold


def _windows_of(
    given: SymbolicPrimitive, sizes: Callable[[object], Any], form: _Form
) -> tuple[Windows, Sequence[int]]:
    """Windows of these sizes, and how far the last ones reach over the end."""
    *geometry, behind = sizes(given)[GEOMETRY]
    fold, is_own = _fold(given), form.is_depthwise
    windows = fold.windows(form.window, geometry, is_own=is_own, groups=form.groups)
    return windows, fold.each(behind, 0)


def _is_channels_last(value: Value) -> bool:
    strides = value.strides
    last = channels_last_strides(value.shape)
    return strides is not None and same_steps(value.shape, strides, last)
