"""What multiplies every position by the same numbers, by machine code for as many as there are.

Convolutions with windows of one element, and products with constants. Code adds numbers in the
order in which oneDNN's does, so that answers are the same to the bit, reads the weights that oneDNN
reads, and takes as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.symbolic_size import is_symbolic, is_within
from polydevice_cpu.algorithms.by_machine.amx.layer import Matrices, code_at_positions
from polydevice_cpu.algorithms.by_machine.code import Code, Told, may_share, told_numbers
from polydevice_cpu.algorithms.by_machine.windows.covers import FLOATS
from polydevice_cpu.algorithms.by_machine.windows.following import (
    ELSEWHERE,
    Function,
    Link,
    shares_of,
)
from polydevice_cpu.algorithms.by_machine.windows.sums import (
    FEW_NS,
    POSITIONS_AT,
    STEP_NS,
    Constants,
    Functions,
    code_of_all,
    of_positions,
    told_of,
)
from polydevice_cpu.algorithms.by_machine.windows.tiles import Terms
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import (
    OF_ONE_ELEMENT,
    PRODUCT,
    Arg,
    kind_of_code,
)
from polydevice_cpu.onednn.descriptor import Descriptor, SymbolicDescriptor, is_open
from polydevice_cpu.onednn.primitive import SymbolicPrimitive
from polydevice_cpu.plan.filling.by_machine import integers
from polydevice_cpu.plan.filling.by_machine.chains import (
    by_channel_of,
    chain_of,
    inputs_of,
    numbers_of,
    rows_of,
)
from polydevice_cpu.plan.filling.by_machine.tiles import matrices_of, may_be_in_tiles
from polydevice_cpu.plan.filling.by_machine.weights import in_rows
from polydevice_cpu.plan.filling.recipe import Packing, ValueForm

MOST_CHANNELS = {OF_ONE_ELEMENT: 1024, PRODUCT: 512}
"""oneDNN's code whose order of adding is followed, and up to how many channels of a source: of
more, sums of some are added."""

MOST_WITH_AVX2 = 320
"""The same of windows of one element with AVX2, in whose code sums of so many channels each are
added up (seen in oneDNN 3.2 with up to 2,048 of them)."""

MOST_IN_CHUNKS = 4096
"""Up to so many, in products: sums of 1,024 channels each, or of 512 where there are no more than
1,024 in all, are added up (seen in oneDNN 3.2 with 300 random products)."""

MOST_STAYING = 4096
"""Up to so many channels of a source are multiplied in the order in which they lie, in plans that
run often, too: 2,048 to 512 of 7x7 take 680 us, as oneDNN's code, which it takes 1 ms to make."""

MORE_NS, FOR_NOW_US, STAYING_US = 0.02, 150.0, 3.0
"""How much longer than oneDNN's code a step takes (-40 to 15 %), and how much longer all may: until
a plan has run often, and then. Code of oneDNN is for one number of positions, and gone from the
processor's cache when 30 shapes have taken turns: a Conformer takes 0.72 ms instead of 0.92 so."""

FOR_WEIGHTS_US = 6e-5
"""How much longer it may take for each byte of weights until then: oneDNN's code for some positions
may want them in another layout, and 16 MB take 20 ms to be brought into it, an eighth of which is
half of this."""

_ALWAYS_US = 1e9
"""What is never exceeded."""

_MOST_STAYING_US = 300.0
"""The same of what stays with AVX-512: of 768 to 4,096 channels up to 50 positions take 0.9 to 1.1
times as long as in oneDNN's code, of 400 1.0 to 1.2 times; with AVX2 0.85 to 1.05 whatever they
are."""

_CONVOLUTION_AT, _PRODUCT_AT = (4, 5, 6, 11), (2, 3, 4, 5)
"""Where weights, bias, result and attributes are among the arguments."""

_Sides = tuple[Descriptor, "Descriptor | None", SymbolicDescriptor, Attributes]


class AtPositions(NamedTuple):
    """A primitive that machine code computes.

    Attributes:
        inputs: what it reads, by index on execution, in the order in which code is told of it.
        sizes: the place of two numbers: how many positions there are, and one that is 0 where they
            lie one behind the other.
        staying_us: how much longer than oneDNN's code it may take where it is computed so in plans
            that run often, too; 0 where it is not.
        weights_bytes: what it multiplies by.
    """

    inputs: Sequence[int]
    sizes: int
    staying_us: float = 0.0
    weights_bytes: int = 0

    @property
    def stays(self) -> bool:
        """Whether it is computed so in plans that run often, too."""
        return self.staying_us > 0.0

    def most_us(self, others: float | None, *, is_for_now: bool) -> float | None:
        """Return how much longer than oneDNN's code it may take, if others may take so long."""
        if self.stays:
            return self.staying_us
        more = self.weights_bytes * FOR_WEIGHTS_US if is_for_now else 0.0
        return None if others is None else others + more


class _Ready(NamedTuple):
    """What is the same for all sizes of a step.

    Attributes:
        functions: machine code.
        parts: of the result's channels, and what is read for each.
        row: channels of a row of the weights.
        given, results: channels.
        code: what is told of one position.
        places: where that tells how many there are.
        steps: vectors that are computed for a position.
        threads: how many share the work.
        of_bytes: what else is the same, of bytes.
    """

    functions: Functions
    parts: Sequence[tuple[slice, Constants]]
    row: int
    given: int
    results: int
    code: Code
    places: Sequence[int]
    steps: int
    threads: int
    of_bytes: integers.Prepared | None = None


def at_positions(
    given: SymbolicPrimitive, sizes: int, *, is_alone: bool = False
) -> AtPositions | None:
    """Return how machine code computes a primitive; None where it does for no sizes.

    Args:
        given: one that treats positions alike.
        sizes: see `AtPositions`.
        is_alone: whether one thread has to compute what several do in another plan.
    """
    if integers.is_of_bytes(given):
        in_tiles = may_be_in_tiles(given)
        has_code = integers.has_code_of_bytes(given, in_tiles=in_tiles)
        has_code = has_code and not integers.is_depthwise(given)
        return AtPositions(integers.read_of(given), sizes) if has_code else None
    if kind_of_code(given) not in MOST_CHANNELS:
        return None
    weights, bias, result, attributes = _arguments(given)
    if not is_open(given.src) or not is_open(result) or attributes.quantisation:
        return None
    channels, _ = _channels(given, weights)
    stays = channels > _most_in_order(given)
    chain = chain_of(attributes, result, as_onednn=True)
    if _is_in_chunks(given) and stays:
        stays = not _may_be_in_chunks(chain or ())
        if channels > MOST_IN_CHUNKS or given.threads > 1 or (stays and is_alone):
            return None
    is_known = not any(map(is_symbolic, weights.shape)) and not isinstance(bias, SymbolicDescriptor)
    has_code = (
        is_known
        and (not stays or channels <= MOST_STAYING)
        and (given.threads == 1 or may_share())
        and chain is not None
    )
    if not has_code:
        return None
    staying_us = 0.0 if not stays else _ALWAYS_US if _is_by_avx2(given) else _MOST_STAYING_US
    return AtPositions(inputs_of(given), sizes, staying_us, 4 * math.prod(weights.shape))


class PositionsByMachine:
    """What computes a template's primitives at all positions; for one thread at a time."""

    def __init__(self) -> None:
        """Begin with none."""
        self._ready: dict[int, _Ready | None] = {}
        self._in_tiles: dict[int, Matrices | None] = {}

    def code(
        self,
        given: SymbolicPrimitive,
        positions: int,
        numbers: Mapping[int, int],
        forms: Sequence[ValueForm],
        packing: Packing,
        most_us: float,
    ) -> Code | None:
        """Return what is told addresses of inputs and result; None where oneDNN computes it.

        Args:
            given: one that there is `AtPositions` of.
            positions: how many.
            numbers: of the values that it reads and writes, by index on execution.
            forms: of values.
            packing: returns a constant in a layout.
            most_us: how much longer than oneDNN's code it may take.
        """
        step = numbers[Arg.DST]
        if step not in self._in_tiles:
            self._in_tiles[step] = _in_tiles(given, numbers, forms)
        matrices = self._in_tiles[step]
        if matrices is not None:
            code = code_at_positions(matrices, positions, given.threads)
            if code is not None:
                return code
        if step not in self._ready:
            self._ready[step] = _ready(given, numbers, forms, packing)
        ready = self._ready[step]
        if ready is None:
            return None
        steps, threads = positions * ready.steps, ready.threads
        if ready.of_bytes is not None:
            is_worth_it = ready.of_bytes.is_worth_it(steps, most_us)
        else:
            is_worth_it = is_within(steps * MORE_NS, threads * most_us * 1e3)
        if not is_worth_it:
            return None
        if threads > 1 and steps * STEP_NS >= FEW_NS:
            return _shared(ready, positions)
        told, starts, pointers, size, kept, _ = ready.code
        told = told_numbers(told)
        for place in ready.places:
            told[place] = positions
        return Code(told, starts, pointers, size, kept)


def _arguments(given: SymbolicPrimitive) -> _Sides:
    """Weights, bias, result and attributes."""
    places = _PRODUCT_AT if kind_of_code(given) == PRODUCT else _CONVOLUTION_AT
    weights, bias, result, attributes = (given.arguments[place] for place in places)
    assert isinstance(weights, Descriptor)
    assert bias is None or isinstance(bias, Descriptor)
    assert isinstance(result, SymbolicDescriptor)
    assert isinstance(attributes, Attributes)
    return weights, bias, result, attributes


def _channels(given: SymbolicPrimitive, weights: Descriptor) -> tuple[int, int]:
    """Channels of the source and of the result."""
    if kind_of_code(given) == PRODUCT:
        return weights.shape[-2], weights.shape[-1]
    return weights.shape[1], weights.shape[0]


def _ready(
    given: SymbolicPrimitive,
    numbers: Mapping[int, int],
    forms: Sequence[ValueForm],
    packing: Packing,
) -> _Ready | None:
    """What is the same for all sizes; None where there is no code, or a constant is not plain."""
    if integers.is_of_bytes(given):
        return _of_bytes(given, numbers, forms, packing)
    weights, _, result, attributes = _arguments(given)
    source, results = _channels(given, weights)
    form, bias, bias_at = forms[numbers[Arg.WEIGHTS]], None, numbers.get(Arg.BIAS)
    given_weights = form.given.storage.array
    if given_weights is None or given_weights.dtype != np.float32 or not form.is_packed:
        return None
    if bias_at is not None:
        bias = numbers_of(forms[bias_at])
        if bias is None or bias.size != results:
            return None
    matrix = given_weights.reshape(weights.shape)
    plain = matrix.reshape(source, results)
    if kind_of_code(given) == OF_ONE_ELEMENT:
        plain = matrix.reshape(results, source).T
    packed = in_rows(packing(given_weights, given.witness.weights).storage.array, plain)
    if packed is None:
        return None
    behind = [at for at in numbers if at >= Arg.ATTR_POST_OP]
    others = {at: numbers_of(forms[numbers[at]]) for at in behind}
    followed, by_channel = chain_of(attributes, result, others), by_channel_of(attributes, result)
    slopes = rows_of(by_channel, others, results) if by_channel else None
    if followed is None or (by_channel and slopes is None):
        return None
    chain, has_bias = [link[0] for link in followed], bias is not None
    functions = Functions(chain, terms=Terms.ALL_CHANNELS, has_bias=has_bias, is_padded=True)
    shares = shares_of(followed, results)
    cuts = _cuts(given, source)
    if _is_in_chunks(given) and len(cuts) > 2 and _may_be_in_chunks(followed):
        target = forms[numbers[Arg.DST]].given.storage.root
        roots = [forms[numbers[at]].given.storage.root for at in inputs_of(given)]
        if any(root is target for root in roots):
            return None
        return _in_chunks(followed, packed, (bias, slopes), cuts, results)

    def known(own: Array, part: slice) -> Constants:
        return Constants(
            own,
            None if bias is None else bias[part],
            None if slopes is None else slopes[:, part],
            shares,
        )

    return _told_once(functions, packed, known, (source, results), given.threads)


def _in_tiles(
    given: SymbolicPrimitive,
    numbers: Mapping[int, int],
    forms: Sequence[ValueForm],
) -> Matrices | None:
    """What is the same for all sizes where AMX tiles compute it; None elsewhere."""
    if not integers.is_of_bytes(given):
        return None
    found = integers.prepared(given, numbers, forms)
    if found is None:
        return None
    return matrices_of(given, found, forms[numbers[Arg.WEIGHTS]])


def _of_bytes(
    given: SymbolicPrimitive,
    numbers: Mapping[int, int],
    forms: Sequence[ValueForm],
    packing: Packing,
) -> _Ready | None:
    """The same of bytes."""
    form, found = forms[numbers[Arg.WEIGHTS]], integers.prepared(given, numbers, forms)
    plain, array = integers.packed_weights(given, form, None), form.given.storage.array
    if found is None or plain is None or array is None:
        return None
    packed = in_rows(packing(array, given.witness.weights).storage.array, plain)
    if packed is None:
        kept = integers.packed_weights(given, form, packing)
        assert kept is not None
        packed = kept[None]
    channels = given.src.shape[1 if given.name == "convolution_forward" else -1]
    sides = channels, plain.shape[-1]
    return _told_once(found.functions, packed, found.constants, sides, given.threads, found)


def _told_once(
    functions: Functions,
    packed: Array,
    known: Callable[[Array, slice], Constants],
    channels: tuple[int, int],
    threads: int,
    of_bytes: integers.Prepared | None = None,
) -> _Ready | None:
    """What is the same for all sizes, of weights in rows; None where there is no code."""
    (source, results), row = channels, packed.shape[-1]
    numbers = FLOATS if of_bytes is None else of_bytes.numbers
    parts, told, steps = [], list[Told](), 0
    for number, own in enumerate(packed):
        part = slice(number * row, min(number * row + row, results))
        constants, given = known(own, part), of_positions(*channels, part, row, 1, numbers)
        parts.append((part, constants))
        calls = told_of(functions, given, constants)
        if calls is None:
            return None
        told += calls
        steps += given.steps
    sizes = row, source, results
    return _made_ready(functions, parts, told, sizes, steps, threads, of_bytes)


def _made_ready(
    functions: Functions,
    parts: Sequence[tuple[slice, Constants]],
    told: Sequence[Told],
    sizes: tuple[int, int, int],
    steps: int,
    threads: int = 1,
    of_bytes: integers.Prepared | None = None,
) -> _Ready:
    """What is the same for all sizes, of calls for one position."""
    code = Code.of(told, parts)
    ends = [*code.starts[1:], len(code.numbers)]
    places = [end + POSITIONS_AT for end in ends]
    return _Ready(functions, parts, *sizes, code, places, steps, threads, of_bytes)


def _may_be_in_chunks(chain: Sequence[Link]) -> bool:
    """Whether sums of some channels may be kept in the result before a chain is computed.

    Where not, all are added in one go, in plans that run often, too.
    """
    functions = [function for function, *_ in chain]
    return Function.SUM not in functions and sum(map(functions.count, ELSEWHERE)) < 2


def _most_in_order(given: SymbolicPrimitive) -> int:
    """Up to how many channels of a source oneDNN's code adds in the order in which they lie."""
    return MOST_WITH_AVX2 if _is_by_avx2(given) else MOST_CHANNELS[kind_of_code(given)]


def _is_by_avx2(given: SymbolicPrimitive) -> bool:
    return given.implementation == f"{OF_ONE_ELEMENT}:avx2"


def _is_in_chunks(given: SymbolicPrimitive) -> bool:
    """Whether sums of more channels are sums of chunks here, too, in the order of oneDNN's."""
    return kind_of_code(given) == PRODUCT or _is_by_avx2(given)


def _cuts(given: SymbolicPrimitive, channels: int) -> list[int]:
    """Where chunks of channels of a source begin, and the last one ends."""
    most = _most_in_order(given)
    if kind_of_code(given) == PRODUCT and channels > 2 * most:
        most = 2 * most
    return [*range(0, channels, most), channels]


def _in_chunks(
    chain: Sequence[Link],
    packed: Array,
    by_channel: Sequence[Array | None],
    cuts: Sequence[int],
    results: int,
) -> _Ready | None:
    """What is the same for all sizes where sums of chunks are added up; None without code.

    Args:
        chain: what follows.
        packed: weights.
        by_channel: a bias, and rows of numbers of channels, if there are any.
        cuts: where chunks begin, and the last one ends.
        results: channels of the result.
    """
    source, row = cuts[-1], packed.shape[-1]
    added: Link = (Function.SUM, 0.0, 0.0)
    shifted: list[Link] = [(Function.SHIFT, 0.0, 0.0)] if by_channel[0] is not None else []
    last = [added, *shifted, *chain]
    rows = [each.reshape(-1, results) for each in by_channel if each is not None]
    slopes = np.concatenate(rows) if rows else None
    links = [[], *[[added]] * (len(cuts) - 3), last]
    made = [
        Functions(
            [link[0] for link in each], terms=Terms.ALL_CHANNELS, has_bias=False, is_padded=True
        )
        for each in links
    ]
    parts, told, steps = [], list[Told](), 0
    for number, own in enumerate(packed):
        part = slice(number * row, min(number * row + row, results))
        own_slopes = None if slopes is None else slopes[:, part]
        for terms, functions, each in zip(pairwise(cuts), made, links, strict=True):
            shares = shares_of(each, results)
            constants = Constants(own[slice(*terms)], None, own_slopes, shares)
            given = of_positions(source, results, part, row, 1, terms=slice(*terms))
            calls = told_of(functions, given, constants)
            if calls is None:
                return None
            parts.append((part, constants))
            told += calls
            steps += given.steps
    return _made_ready(made[-1], parts, told, (row, source, results), steps)


def _shared(ready: _Ready, positions: int) -> Code | None:
    """What threads share."""
    functions, parts, row, source, results, *_, of_bytes = ready
    numbers = FLOATS if of_bytes is None else of_bytes.numbers
    calls = [
        (functions, of_positions(source, results, part, row, positions, numbers), known)
        for part, known in parts
    ]
    return code_of_all(calls, ready.threads)
