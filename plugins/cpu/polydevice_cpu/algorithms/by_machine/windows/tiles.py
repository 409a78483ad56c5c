"""What machine code for windows computes at once, in registers: sums, and what follows."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    DIVIDE,
    LOAD,
    MAX,
    MIN,
    MUL,
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
    SUB,
    Instructions,
)
from polydevice_cpu.algorithms.by_machine.windows.window_code import AT, GIVEN_AT, SIZES, WindowCode

BLOCK = 16
"""Channels of a vector."""

LONGEST = 8
"""Functions that may follow."""


class Terms(Enum):
    """What is added up for a channel of the result, or compared."""

    ALL_CHANNELS = "each element of a window, of all channels, times a weight"
    OWN_CHANNEL = "each element of a window, of this channel, times a weight"
    PLAIN = "each element of a window, of this channel"
    LARGEST = "the largest element of a window, of this channel; NaN is none"


class Function(Enum):
    """What may follow, of two numbers, as oneDNN computes it."""

    LINEAR = "linear"
    HARDSIGMOID = "hardsigmoid"
    HARDSWISH = "hardswish"
    RELU = "relu"
    LEAKY = "leaky relu"
    """Of a slope, and 0."""
    ELU = "elu"
    """Of what e^x - 1 is multiplied by, and 0."""
    GELU = "gelu"
    """With the error function."""
    PRELU = "prelu"
    """Of a slope for each channel."""
    QUOTIENT = "quotient"
    LOGISTIC = "logistic"
    SWISH = "swish"
    """Of a share of which the logistic function is taken."""
    CLIP = "clip"
    """Between the two."""
    ROUND = "round"
    """To whole numbers, halves to even ones."""
    SUM = "sum"
    """With what the result has held, so that nothing may be computed twice."""
    ADD = "add"
    """With what lies elsewhere as the result does."""


Link = tuple[Function, float, float]
"""A function that follows, and its two numbers."""


_NUMBERS = (
    *("sign", "least", "most", "log2(e)", "half", "log(2)", "one", "bias of exponents"),
    *("x^5", "x^4", "x^3", "x^2", "x", "two"),
    *("of |x|", "t^5", "t^4", "t^3", "t^2", "t"),
)
_AS_BITS = (
    *(0x80000000, 0xC2AEAC50, 0x42B17218, 0x3FB8AA3B, 0x3F000000, 0x3F317218, 0x3F800000, 0x7F),
    *(0x3C07CFCE, 0x3D2B9D0D, 0x3E2AAD40, 0x3EFFFEE3, 0x3F7FFFFB, 0x40000000),
    *(0x3E6D3388, 0x3F87DC22, 0xBFBA00E3, 0x3FB5F0E3, 0xBE91A98E, 0x3E827906),
)
OF_POWERS = struct.unpack("<10q", struct.pack("<20I", *_AS_BITS))
"""Numbers that functions of powers of e need, two of 4 bytes each: a polynomial for these, and one
for the error function (Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26)."""


class Tile(NamedTuple):
    """What is computed at once, in registers.

    Attributes:
        blocks: of channels; 1 to 3 for sums over all channels.
        width: how many positions; at most 24 vectors in all.
    """

    blocks: int
    width: int


_THERE, _NOT_ABOVE, _TINY = 1, 2, 3
_NOT_NEGATIVE = _NOT_ABOVE
"""Masks: which channels of the last block there are, where a sum is not above 0, where a power is
too small, and where a sum has no sign."""

_ZERO, _ONE, _SHARE, _MOVED, _FACTOR, _COPY, _LEAST = 31, 30, 29, 28, 27, 26, 25
_FACTORS, _SPREADS = range(24, 30), (30, 31)
"""Vectors besides the sums, which are the first ones."""


def append_item(
    code: WindowCode, tile: Tile, chain: Sequence[Function], *, terms: Terms, has_bias: bool
) -> None:
    """Compute so many positions, all channels."""
    code.load(RDI, RSP, AT["given"])
    code.given(RBX, "bias")
    code.given(R12, "tiles")
    for register, place in ((RSI, "source"), (RCX, "result"), (RDX, "weights")):
        code.load(register, RSP, AT[place])
    next_block = len(code.text)
    code.load(RDI, RSP, AT["given"])
    code.given(R8, "last_block")
    code.raw("4983fc017406")  # if R12 == 1, which is the last one, leave the next one out
    code.raw("41b8ffff0000")  # R8 = 0xffff
    code.raw("c4c17892c8")  # kmovw k1, r8d
    _append_sums(code, tile, terms)
    _append_rest(code, tile, chain, has_bias=has_bias)
    moved = [RCX, RDX, RBX, *[RSI] * (terms is not Terms.ALL_CHANNELS)]
    for register in moved * tile.blocks:
        code.step(register, 4 * BLOCK)
    code.again(R12, next_block)


def _append_sums(code: Instructions, tile: Tile, terms: Terms) -> None:
    """Add up a tile: what each sum starts with, and its elements, line by line."""
    sums = tile.blocks * tile.width
    if terms is Terms.LARGEST:
        code.spread(_LEAST, RDI, behind=2 * len(SIZES))
    for sum_ in range(sums):
        if terms is Terms.LARGEST:
            code.of_vectors(MAX, sum_, _LEAST, _LEAST)
        else:
            code.clear(sum_)
    code.move(RBP, RSI)
    code.move(RDI, RDX)
    code.load(R14, RSP, AT["lines"])
    next_line = len(code.text)
    if terms is Terms.ALL_CHANNELS:
        _append_line(code, tile)
    else:
        code.move(R13, R9)
        next_element = len(code.text)
        for block, mask in enumerate(_masks(tile)):
            _append_own(code, tile.width, terms, block, mask)
        code.add(RBP, R10)
        code.add(RDI, R11)
        code.again(R13, next_element)
    code.add(RBP, RSP, AT["next_source"])
    code.add(RDI, RSP, AT["next_weights"])
    code.again(R14, next_line)


def _append_line(code: Instructions, tile: Tile) -> None:
    """Add a line of all channels: two elements at a time, and one that is left.

    What counts and moves takes the place of products: one at a time takes 10 % longer.
    """
    code.move(R13, R9)
    code.raw("49d1fd")  # sar r13, 1
    is_one = code.ahead("0f84")  # jz
    next_elements = len(code.text)
    _append_elements(code, tile, 2)
    code.again(R13, next_elements)
    code.here(is_one)
    code.raw("41f6c101")  # test r9b, 1
    is_done = code.ahead("0f84")
    _append_elements(code, tile, 1)
    code.here(is_done)


def _masks(tile: Tile) -> list[int]:
    """The mask of each block's elements."""
    return [0] * (tile.blocks - 1) + [_THERE]


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
    _at_positions(code, width, R8, RAX, R15, append)


def _append_elements(code: Instructions, tile: Tile, count: int) -> None:
    """Add one or two elements of a line, which follow each other, times their weights."""
    factors = [_FACTORS[number * tile.blocks :][: tile.blocks] for number in range(count)]
    for place, each in zip(((RDI,), (RDI, R11, 1)), factors, strict=False):
        for block, (mask, factor) in enumerate(zip(_masks(tile), each, strict=True)):
            code.vector(LOAD, factor, 0, *place, behind=block, mask=mask)
    code.move(R8, RBP)
    _at_positions(code, tile.width, R8, RAX, R15, partial(_append_products, code, tile, factors))
    code.scaled(RBP, RBP, R10, count)
    code.scaled(RDI, RDI, R11, count)


def _append_products(
    code: Instructions, tile: Tile, factors: Sequence[Sequence[int]], position: int, *place: int
) -> None:
    """Add the products of numbers that follow each other with the weights of all blocks."""
    product = partial(code.vector, 0xB8, kind=2, prefix=1)
    if tile.blocks == 1:
        for number, (factor,) in enumerate(factors):
            product(position, factor, *place, behind=number, is_one=True)
        return
    for number, (each, spread) in enumerate(zip(factors, _SPREADS, strict=False)):
        code.spread(spread, *place, behind=number)
        for block, factor in enumerate(each):
            product(block * tile.width + position, factor, spread, is_memory=False)


def _append_rest(
    code: Instructions, tile: Tile, chain: Sequence[Function], *, has_bias: bool
) -> None:
    """Add what follows to each block of sums, and store them."""
    masks = _masks(tile)
    code.load(RDI, RSP, AT["given"])
    for block, mask in enumerate(masks):
        sums = range(block * tile.width, (block + 1) * tile.width)
        for sum_ in sums if has_bias else ():
            code.vector(ADD, sum_, sum_, RBX, behind=block, mask=mask)
        for number, function in enumerate(chain):
            places = [2 * (len(SIZES) + 1 + each) for each in (number, len(chain), -1)]
            append_function(code, sums, function, places, (block, mask))
    code.load(RDI, RSP, AT["apart"])
    code.scaled(R13, RDI, RDI, 2)
    for block, mask in enumerate(masks):
        code.move(R8, RCX)

        def stored(position: int, *place: int, block: int = block, mask: int = mask) -> None:
            sum_ = block * tile.width + position
            code.vector(STORE, sum_, 0, *place, behind=block, mask=mask)

        _at_positions(code, tile.width, R8, RDI, R13, stored)


def _at_positions(
    code: Instructions,
    width: int,
    start: int,
    step: int,
    steps: int,
    access: Callable[..., None],
) -> None:
    """Access so many places, `step` apart; `steps` is three times as much. Moves the start."""
    for first in range(0, width, 4):
        if first:
            code.scaled(start, start, step, 4)
        places = ((start,), (start, step, 1), (start, step, 2), (start, steps, 1))
        for position, place in zip(range(first, min(first + 4, width)), places, strict=False):
            access(position, *place)


def append_function(
    code: Instructions,
    sums: Sequence[int],
    function: Function,
    places: Sequence[int],
    where: tuple[int, int] = (0, 0),
) -> None:
    """Compute a function of sums, in the steps in which oneDNN does.

    Args:
        code: where to.
        sums: vectors.
        function: which.
        places: of its two numbers, of `OF_POWERS` and of a 1, in numbers of 4 bytes behind RDI.
        where: number and mask of the block of channels, for those that read more of them.
    """
    own, of_powers, one = places
    if function in {Function.SUM, Function.ADD}:
        _append_tensor(code, sums, function, where)
        return
    if function in {Function.LOGISTIC, Function.SWISH, Function.ELU, Function.GELU}:
        for sum_ in sums:
            _append_of_powers(code, sum_, function, own, of_powers)
        return
    code.clear(_ZERO)
    if function is Function.PRELU:
        code.load(R8, RDI, GIVEN_AT["slopes"])
        code.vector(LOAD, _SHARE, 0, RBX, R8, behind=where[0], mask=where[1])
    else:
        code.spread(_ONE, RDI, behind=one)
        code.spread(_SHARE, RDI, behind=own)
        code.spread(_MOVED, RDI, behind=own + 1)
    for sum_ in sums:
        _append_short(code, sum_, function)


def _append_short(code: Instructions, sum_: int, function: Function) -> None:
    """Compute a function of one vector, whose numbers are loaded."""
    if function is Function.LINEAR:
        code.vector(0xA8, sum_, _SHARE, _MOVED, kind=2, prefix=1, is_memory=False)
    elif function is Function.RELU:
        code.of_vectors(MAX, sum_, sum_, _ZERO)
    elif function is Function.CLIP:
        code.of_vectors(MAX, sum_, sum_, _SHARE)
        code.of_vectors(MIN, sum_, sum_, _MOVED)
    elif function is Function.ROUND:
        code.vector(0x08, sum_, 0, sum_, kind=3, prefix=1, is_memory=False)
        code.text.append(0)  # to the nearest
    elif function is Function.QUOTIENT:
        code.of_vectors(DIVIDE, sum_, sum_, _SHARE)
    elif function in {Function.PRELU, Function.LEAKY}:
        code.not_above(_NOT_ABOVE, sum_, _ZERO)  # 0 times a slope below 0 is -0, as oneDNN's
        code.vector(MUL, sum_, sum_, _SHARE, is_memory=False, mask=_NOT_ABOVE)
    else:
        made = _COPY if function is Function.HARDSWISH else sum_
        code.of_vectors(MUL, made, sum_, _SHARE)
        code.of_vectors(ADD, made, made, _MOVED)
        code.of_vectors(MIN, made, made, _ONE)
        code.of_vectors(MAX, made, made, _ZERO)
        if function is Function.HARDSWISH:
            code.of_vectors(MUL, sum_, made, sum_)


def _append_tensor(
    code: Instructions, sums: Sequence[int], function: Function, where: tuple[int, int]
) -> None:
    """Add what the result has held, or what lies elsewhere as the result does."""
    code.load(RBP, RSP, AT["apart"])
    code.scaled(R14, RBP, RBP, 2)
    code.move(R8, RCX)
    if function is Function.ADD:
        code.add(R8, RDI, GIVEN_AT["other"])
        code.subtract(R8, RDI, GIVEN_AT["result"])
    block, mask = where

    def append(number: int, *place: int) -> None:
        code.vector(ADD, sums[number], sums[number], *place, behind=block, mask=mask)

    _at_positions(code, len(sums), R8, RBP, R14, append)


def _append_of_powers(
    code: Instructions, sum_: int, function: Function, own: int, place: int
) -> None:
    """Compute a function of powers of e below 1: all but GELU in the steps in which oneDNN does."""

    def one(opcode: int, register: int, first: int) -> None:
        behind = place + _NUMBERS.index("one")
        code.vector(opcode, register, first, RDI, behind=behind, is_one=True)

    if function is Function.GELU:
        _append_gelu(code, sum_, place)
        return
    if function is not Function.LOGISTIC:
        code.vector(LOAD, _MOVED, 0, sum_, is_memory=False)
    if function is Function.SWISH:
        code.vector(MUL, sum_, sum_, RDI, behind=own, is_one=True)
    _append_power(code, sum_, place)
    if function is Function.ELU:
        one(SUB, sum_, sum_)
        code.vector(MUL, sum_, sum_, RDI, behind=own, is_one=True)
        code.vector(STORE, _MOVED, 0, sum_, is_memory=False, mask=_NOT_NEGATIVE)
        return
    one(ADD, _COPY, sum_)
    code.of_vectors(DIVIDE, sum_, sum_, _COPY)
    code.spread(_COPY, RDI, behind=place + _NUMBERS.index("one"))
    code.vector(SUB, sum_, _COPY, sum_, is_memory=False, mask=_NOT_NEGATIVE)
    if function is Function.SWISH:
        code.of_vectors(MUL, sum_, sum_, _MOVED)


def _append_gelu(code: Instructions, sum_: int, place: int) -> None:
    """Compute x / 2 times 1 + erf(x / sqrt(2)), which below 0 is no difference."""

    def at(name: str) -> int:
        return place + _NUMBERS.index(name)

    code.vector(LOAD, _MOVED, 0, sum_, is_memory=False)
    code.of_vectors(MUL, sum_, sum_, sum_)
    code.vector(MUL, sum_, sum_, RDI, behind=at("half"), is_one=True)
    _append_power(code, sum_, place)
    code.clear(_ZERO)
    code.of_vectors(SUB, _SHARE, _ZERO, _MOVED)
    code.of_vectors(MAX, _SHARE, _SHARE, _MOVED)
    code.spread(_ONE, RDI, behind=at("of |x|"))
    multiplied = partial(code.vector, 0xA8, kind=2, prefix=1, is_one=True)
    multiplied(_SHARE, _ONE, RDI, behind=at("one"))
    code.spread(_ONE, RDI, behind=at("one"))
    code.of_vectors(DIVIDE, _SHARE, _ONE, _SHARE)
    code.spread(_COPY, RDI, behind=at("t^5"))
    for name in ("t^4", "t^3", "t^2", "t"):
        multiplied(_COPY, _SHARE, RDI, behind=at(name))
    code.of_vectors(MUL, _COPY, _COPY, _SHARE)
    code.of_vectors(MUL, sum_, sum_, _COPY)
    code.vector(0x27, _NOT_NEGATIVE, _MOVED, RDI, behind=at("sign"), kind=2, prefix=2, is_one=True)
    code.spread(_COPY, RDI, behind=at("two"))
    code.vector(SUB, sum_, _COPY, sum_, is_memory=False, mask=_NOT_NEGATIVE)
    code.of_vectors(MUL, sum_, sum_, _MOVED)
    code.vector(MUL, sum_, sum_, RDI, behind=at("half"), is_one=True)


def _append_power(code: Instructions, sum_: int, place: int) -> None:
    """Compute exp(-abs(x)), and a mask of where x is not negative."""

    def number(
        opcode: int,
        register: int,
        name: str,
        first: int | None = None,
        kind: int = 1,
        prefix: int = 0,
    ) -> None:
        behind, other = place + _NUMBERS.index(name), register if first is None else first
        vector = partial(code.vector, kind=kind, prefix=prefix, is_one=True)
        vector(opcode, register, other, RDI, behind=behind)

    rest, power = _COPY, _FACTOR
    number(0x27, _NOT_NEGATIVE, "sign", first=sum_, kind=2, prefix=2)
    number(0xEB, sum_, "sign", prefix=1)
    number(0xC2, _TINY, "least", first=sum_)
    code.text.append(1)  # below
    number(MIN, sum_, "most")
    number(MAX, sum_, "least")
    # So many times log(2), and the rest.
    number(MUL, power, "log2(e)", first=sum_)
    number(ADD, power, "half")
    code.vector(0x08, power, 0, power, kind=3, prefix=1, is_memory=False)
    code.text.append(1)  # rounded down
    code.vector(LOAD, rest, 0, sum_, is_memory=False)
    number(0xBC, rest, "log(2)", first=power, kind=2, prefix=1)  # rest -= power * log(2)
    # 2^(n - 1), of which there is one for every n
    number(SUB, power, "one")
    code.vector(0x5B, power, 0, power, prefix=1, is_memory=False)
    number(0xFE, power, "bias of exponents", prefix=1)
    code.vector(0x72, 6, power, power, prefix=1, is_memory=False)
    code.text.append(23)
    code.vector(0xEF, power, power, power, prefix=1, is_memory=False, mask=_TINY)
    code.spread(sum_, RDI, behind=place + _NUMBERS.index("x^5"))
    for name in ("x^4", "x^3", "x^2", "x", "one"):
        number(0xA8, sum_, name, first=rest, kind=2, prefix=1)  # sum = sum * rest + number
    code.of_vectors(MUL, sum_, sum_, power)
    number(MUL, sum_, "two")
