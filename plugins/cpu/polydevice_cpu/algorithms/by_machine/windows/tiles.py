"""What machine code for windows computes at once, in registers: sums, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    LOAD,
    MAX,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
    RAX,
    RBP,
    RBX,
    RCX,
    RDI,
    RDX,
    RSI,
    RSP,
    STORE,
    Instructions,
)
from polydevice_cpu.algorithms.by_machine.windows.following import (
    BY_CHANNEL,
    ELSEWHERE,
    Function,
    append_function,
)
from polydevice_cpu.algorithms.by_machine.windows.groups import append_channels, append_taps
from polydevice_cpu.algorithms.by_machine.windows.integers import (
    Held,
    Integers,
    append_larger,
    append_line,
    append_own,
    append_scaled,
    append_start,
    append_stored,
    append_stored_integers,
)
from polydevice_cpu.algorithms.by_machine.windows.window_code import AT, WindowCode, at_positions

BLOCK = 16
"""Channels of a vector of AVX-512."""


class Terms(Enum):
    """What is added up for a channel of the result, or compared."""

    ALL_CHANNELS = "each element of a window, of all channels, times a weight"
    OWN_CHANNEL = "each element of a window, of this channel, times a weight"
    PLAIN = "each element of a window, of this channel"
    LARGEST = "the largest element of a window, of this channel; NaN is none"


class Tile(NamedTuple):
    """What is computed at once, in registers.

    Attributes:
        blocks: of channels; 1 to 3 for sums over all channels.
        width: how many positions; at most 24 vectors in all.
    """

    blocks: int
    width: int


_THERE = 1
"""Mask: which channels of the last block there are."""

_FACTOR, _LEAST = 27, 25
_FACTORS, _SPREADS = range(24, 30), (30, 31)
"""Vectors besides the sums, which are the first ones."""

_BRIEF_FACTORS, _BRIEF_SPREADS = range(18, 21), (21, 22)
"""The same of short vectors without masks: nothing else uses these, see `avx2.homes`."""


def append_item(
    code: WindowCode,
    tile: Tile,
    chain: Sequence[Function],
    *,
    terms: Terms,
    has_bias: bool,
    integers: Integers | None,
    is_padded: bool = False,
) -> None:
    """Compute so many positions, all channels.

    Where weights are padded, those of the last block are read without a mask.
    """
    code.load(RDI, RSP, AT["given"])
    if code.bundle is not None:
        code.load(RBX, RSP, AT["bias"])
    else:
        code.given(RBX, "bias")
    code.given(R12, "tiles")
    for register, place in ((RSI, "source"), (RCX, "result"), (RDX, "weights")):
        code.load(register, RSP, AT[place])
    next_block = len(code.text)

    def append_sums(mask: int) -> None:
        masks = [0] * (tile.blocks - 1) + [mask]
        _append_sums(code, tile, masks, terms, integers)

    def append_others(mask: int) -> None:
        masks = [0] * (tile.blocks - 1) + [mask]
        append_rest(code, tile, masks, chain, terms=terms, has_bias=has_bias, integers=integers)

    if not code.is_halved:
        _find_last(code)
        code.set_mask(_THERE, R8)
        append_sums(_THERE)
        append_others(_THERE)
    elif is_padded:
        append_sums(0)
        _append_either(code, append_others)
    else:
        _append_either(code, append_sums, append_others)
    source, result = (4, 4) if integers is None else _sizes(integers)
    moved = [(RCX, result), (RDX, 4), (RBX, 4)]
    if terms is not Terms.ALL_CHANNELS:
        moved.append((RSI, source))
    for register, size_bytes in moved:
        code.step(register, size_bytes * code.lanes * tile.blocks)
    code.again(R12, next_block)


def _find_last(code: WindowCode) -> None:
    """Let R8 be the bits of a block's channels: of the last one, if R12 is 1."""
    code.load(RDI, RSP, AT["given"])
    code.given(R8, "last_block")
    code.raw("4983fc017406")  # if R12 == 1, which is the last one, leave the next one out
    code.raw("41b8ffff0000")  # R8 = 0xffff


def _append_either(code: WindowCode, *appended: Callable[[int], None]) -> None:
    """Compute a tile of short vectors: with a mask, which takes several instructions, or not."""
    _find_last(code)
    code.raw("4180f8ff")  # cmp r8b, 255
    some = code.ahead("0f85")  # jne
    for append in appended:
        append(0)
    done = code.ahead()
    code.here(some)
    code.set_mask(_THERE, R8)
    for append in appended:
        append(_THERE)
    code.here(done)


def _sizes(integers: Integers) -> tuple[int, int]:
    """Bytes of a number of the source, and of the result."""
    return integers.source.size_bytes, integers.result.size_bytes


def _append_sums(
    code: WindowCode,
    tile: Tile,
    masks: Sequence[int],
    terms: Terms,
    integers: Integers | None,
) -> None:
    """Add up a tile: what each sum starts with, and its elements, line by line."""
    sums = tile.blocks * tile.width
    if integers is not None:
        append_start(code, tile.blocks, integers, is_own=terms is not Terms.ALL_CHANNELS)
    if terms is Terms.LARGEST:
        code.spread(_LEAST, RDI, behind=2 * len(code.places))
    for sum_ in range(sums):
        if terms is Terms.LARGEST:
            code.vector(LOAD, sum_, 0, _LEAST, is_memory=False)
        else:
            code.clear(sum_)
    code.move(RBP, RSI)
    code.move(RDI, RDX)
    code.load(R14, RSP, AT["lines"])
    next_line = len(code.text)
    if terms is Terms.ALL_CHANNELS and integers is not None:
        append_line(code, tile.blocks, tile.width, masks, integers)
    elif code.bundle is not None and code.bundle.size == 1:
        append_taps(code, code.bundle, partial(_append_elements, code, tile, masks))
    elif code.bundle is not None:
        bundle = code.bundle
        append_taps(code, bundle, partial(append_channels, code, bundle, tile.width))
    elif terms is Terms.ALL_CHANNELS:
        _append_line(code, tile, masks)
    else:
        code.move(R13, R9)
        next_element = len(code.text)
        for block, mask in enumerate(masks):
            if integers is None:
                _append_own(code, tile.width, terms, block, mask)
            elif terms is Terms.LARGEST:
                append_larger(code, tile.width, block, mask, integers)
            else:
                append_own(code, tile.width, block, mask, integers)
        code.add(RBP, R10)
        code.add(RDI, R11)
        code.again(R13, next_element)
    code.add(RBP, RSP, AT["next_source"])
    code.add(RDI, RSP, AT["next_weights"])
    code.again(R14, next_line)


def _append_line(code: Instructions, tile: Tile, masks: Sequence[int]) -> None:
    """Add a line of all channels: two elements at a time, and one that is left.

    What counts and moves takes the place of products: one at a time takes 10 % longer.
    """
    code.move(R13, R9)
    code.raw("49d1fd")  # sar r13, 1
    is_one = code.ahead("0f84")  # jz
    next_elements = len(code.text)
    _append_elements(code, tile, masks, 2)
    code.again(R13, next_elements)
    code.here(is_one)
    code.raw("41f6c101")  # test r9b, 1
    is_done = code.ahead("0f84")
    _append_elements(code, tile, masks, 1)
    code.here(is_done)


def _append_own(code: Instructions, width: int, terms: Terms, block: int, mask: int) -> None:
    """Add, multiplied or not, or compare one element of each channel of a block."""
    vector = partial(code.vector, behind=block, mask=mask)

    def append(position: int, *place: int) -> None:
        sum_ = block * width + position
        if terms is Terms.PLAIN:
            vector(ADD, sum_, sum_, *place)
        elif terms is Terms.OWN_CHANNEL:
            vector(0xB8, sum_, _FACTOR, *place, kind=2, prefix=1)
        else:
            # Of NaN and a number, and of equal ones, the instruction gives the last. oneDNN takes
            # an element where the largest so far is below it, which is the same.
            vector(LOAD, _FACTOR, 0, *place)
            code.of_vectors(MAX, sum_, _FACTOR, sum_)

    if terms is Terms.OWN_CHANNEL:
        vector(LOAD, _FACTOR, 0, RDI)
    code.move(R8, RBP)
    at_positions(code, width, R8, RAX, R15, append)


def _append_elements(code: Instructions, tile: Tile, masks: Sequence[int], count: int) -> None:
    """Add one or two elements of a line, which follow each other, times their weights.

    Short vectors are too few for the weights of two: those of the second one take their place.
    """
    together = [range(count)] if not code.is_halved else [range(n, n + 1) for n in range(count)]
    places, vectors, spreads = ((RDI,), (RDI, R11, 1)), _FACTORS, _SPREADS
    if code.is_halved and not any(masks):
        vectors, spreads = _BRIEF_FACTORS, _BRIEF_SPREADS
    for numbers in together:
        factors = [
            (number, vectors[(number - numbers[0]) * tile.blocks :][: tile.blocks])
            for number in numbers
        ]
        for number, each in factors:
            for block, (mask, factor) in enumerate(zip(masks, each, strict=True)):
                code.vector(LOAD, factor, 0, *places[number], behind=block, mask=mask)
        code.move(R8, RBP)
        append = partial(_append_products, code, tile, factors, spreads)
        at_positions(code, tile.width, R8, RAX, R15, append)
    code.scaled(RBP, RBP, R10, count)
    code.scaled(RDI, RDI, R11, count)


def _append_products(
    code: Instructions,
    tile: Tile,
    factors: Sequence[tuple[int, Sequence[int]]],
    spreads: Sequence[int],
    position: int,
    *place: int,
) -> None:
    """Add the products of numbers that follow each other with the weights of all blocks."""
    product = partial(code.vector, 0xB8, kind=2, prefix=1)
    if tile.blocks == 1:
        for number, (factor,) in factors:
            product(position, factor, *place, behind=number, is_one=True)
        return
    for (number, each), spread in zip(factors, spreads, strict=False):
        code.spread(spread, *place, behind=number)
        for block, factor in enumerate(each):
            product(block * tile.width + position, factor, spread, is_memory=False)


def append_rest(
    code: WindowCode,
    tile: Tile,
    masks: Sequence[int],
    chain: Sequence[Function],
    *,
    terms: Terms,
    has_bias: bool,
    integers: Integers | None,
) -> None:
    """Add what follows to each block of sums, and store them."""
    code.load(RDI, RSP, AT["given"])
    for block, mask in enumerate(masks):
        sums = range(block * tile.width, (block + 1) * tile.width)
        if integers is not None and terms is not Terms.LARGEST:
            is_own = terms is Terms.OWN_CHANNEL
            append_scaled(code, sums, block, mask, integers, is_own=is_own, has_bias=has_bias)
        elif has_bias:
            for sum_ in sums:
                code.vector(ADD, sum_, sum_, RBX, behind=block, mask=mask)
        for number, function in enumerate(chain):
            places = [2 * (code.pairs + each) for each in (number, len(chain), -1)]
            alike = BY_CHANNEL if function in BY_CHANNEL else ELSEWHERE
            which = sum(map(chain[:number].count, alike))
            append_function(code, sums, function, places, (block, mask, which))
    code.load(RDI, RSP, AT["apart"])
    code.scaled(R13, RDI, RDI, 2)
    for block, mask in enumerate(masks):
        code.move(R8, RCX)

        def stored(position: int, *place: int, block: int = block, mask: int = mask) -> None:
            sum_ = block * tile.width + position
            if integers is None or integers.result is Held.FLOATS:
                code.vector(STORE, sum_, 0, *place, behind=block, mask=mask)
            elif terms is Terms.LARGEST:
                append_stored_integers(code, sum_, *place, block=block, mask=mask)
            else:
                append_stored(code, sum_, *place, block=block, mask=mask)

        at_positions(code, tile.width, R8, RDI, R13, stored)
