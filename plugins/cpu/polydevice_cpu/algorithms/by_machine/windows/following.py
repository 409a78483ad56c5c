"""What may follow sums of windows, and how machine code computes it in registers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import Enum
from functools import partial

from polydevice_cpu.algorithms.by_machine.avx2.sigmoids import Sigmoids
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    DIVIDE,
    LOAD,
    MAX,
    MIN,
    MUL,
    R8,
    R14,
    RBP,
    RBX,
    RCX,
    RDI,
    RSP,
    STORE,
    SUB,
    Instructions,
)
from polydevice_cpu.algorithms.by_machine.windows.window_code import (
    AT,
    OTHERS,
    WindowCode,
    at_positions,
)

LONGEST, LONGEST_ROUNDED = 8, 24
"""Functions that may follow; and where some are steps that bring sums to few bits and back."""


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
    GELU_TANH = "gelu by tanh"
    """There is code for halves of vectors alone."""
    TANH = "tanh"
    PRELU = "prelu"
    """Of a slope for each channel."""
    SHIFT = "shift"
    """By a number for each channel, which is added."""
    SCALE = "scale"
    """By a number for each channel, which is multiplied by."""
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
    SUBTRACT = "subtract"
    """What lies elsewhere as the result does."""
    MOVE = "move"
    """By a number for each position of an only line, which is added; they lie elsewhere."""


_OPCODES = {Function.SUM: ADD, Function.ADD: ADD, Function.SUBTRACT: SUB}
"""Of what computes with a tensor of the result's shape."""

_BY_NUMBERS = {Function.SHIFT: ADD, Function.SCALE: MUL}
"""Of what computes with one number for each channel."""

_OF_POWERS_OF_E = {
    *(Function.LOGISTIC, Function.SWISH, Function.ELU, Function.GELU, Function.TANH),
}

BY_CHANNEL = Function.SHIFT, Function.SCALE, Function.PRELU
"""Those that have another number for each channel; where, code is told: see `shares_of`."""

ELSEWHERE = Function.ADD, Function.SUBTRACT, Function.MOVE
"""Those that read what lies elsewhere."""

_OF_PLACES = {*_OPCODES, *BY_CHANNEL, Function.MOVE}
"""Those that compute otherwise for each channel or position."""

_SIGMOIDS = (
    *(Function.LOGISTIC, Function.SWISH, Function.GELU, Function.GELU_TANH, Function.TANH),
)
"""What is computed in fewer steps where vectors are in halves."""


def is_unlike_onednn(function: Function) -> bool:
    """Return whether something is not the same to the bit as oneDNN's."""
    return function in {Function.GELU, Function.TANH} or (
        function in _SIGMOIDS and not has_avx512()
    )


AS_FLOATS = 0x5B
"""The instruction that makes integers of 32 bits floats."""

Link = tuple[Function, float, float]
"""A function that follows, and its two numbers."""


Share = tuple[float, float] | int
"""What code is told of a function that follows: two numbers of 4 bytes, or one of 8."""


def shares_of(chain: Sequence[Link], channels: int) -> list[Share]:
    """Return what code is told of each function: of those `BY_CHANNEL`, where their numbers begin.

    Those of several lie one row behind the other. Bytes are no floats here: where a library has
    the processor flush tiny numbers, Python reads them as 0.

    Args:
        chain: what follows.
        channels: of a row, as many as the result has.
    """
    found, begin = list[Share](), 0
    for function, *numbers in chain:
        if function in BY_CHANNEL:
            found.append(begin)
            begin += 4 * channels
        else:
            first, second = numbers
            found.append((first, second))
    return found


def others_of(chain: Sequence[Function]) -> int:
    """Return how many addresses of what lies elsewhere code is told: one where it reads none."""
    return max(sum(map(list(chain).count, ELSEWHERE)), 1)


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


_NOT_ABOVE, _TINY = 2, 3
_NOT_NEGATIVE = _NOT_ABOVE
"""Masks: where a sum is not above 0, where a power is too small, and where a sum has no sign."""

_ZERO, _ONE, _SHARE, _MOVED, _POWER, _COPY = 31, 30, 29, 28, 27, 26
"""Vectors besides the sums, which are the first ones."""


def append_function(
    code: Instructions,
    sums: Sequence[int],
    function: Function,
    places: Sequence[int],
    where: tuple[int, int, int] = (0, 0, 0),
) -> None:
    """Compute a function of sums, in the steps in which oneDNN does.

    Args:
        code: where to.
        sums: vectors.
        function: which.
        places: of its two numbers, of `OF_POWERS` and of a 1, in numbers of 4 bytes behind RDI.
        where: number and mask of the block of channels, for those that read more of them; and
            which of the tensors that lie elsewhere is read, or of the rows of numbers of channels.
    """
    own, of_powers, one = places
    if function in _OF_PLACES:
        assert isinstance(code, WindowCode)
        _append_of_places(code, sums, function, where, own)
        return
    if code.is_halved and function in _SIGMOIDS:
        for sum_ in sums:
            _append_sigmoid(code, sum_, function, own)
        return
    assert function is not Function.GELU_TANH, "there is code for halves of vectors alone"
    if function in _OF_POWERS_OF_E:
        for sum_ in sums:
            _append_of_powers(code, sum_, function, own, of_powers)
        return
    code.clear(_ZERO)
    code.spread(_ONE, RDI, behind=one)
    code.spread(_SHARE, RDI, behind=own)
    code.spread(_MOVED, RDI, behind=own + 1)
    for sum_ in sums:
        _append_short(code, sum_, function)


def _append_sigmoid(code: Instructions, sum_: int, function: Function, own: int) -> None:
    """Compute a function that is made of the logistic one, or as it is."""
    sigmoids = Sigmoids(code, (_MOVED, _COPY, _POWER, _SHARE))
    if function is Function.LOGISTIC:
        sigmoids.logistic(sum_)
    elif function is Function.SWISH:
        sigmoids.swish(sum_, RDI, own)
    elif function is Function.GELU:
        sigmoids.gelu(sum_)
    elif function is Function.TANH:
        sigmoids.tanh(sum_)
    else:
        sigmoids.gelu_tanh(sum_)


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
        code.vector(
            0x08, sum_, 0, sum_, kind=3, prefix=1, is_memory=False, last_byte=0
        )  # to the nearest
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


def _append_of_places(
    code: WindowCode,
    sums: Sequence[int],
    function: Function,
    where: tuple[int, int, int],
    own: int,
) -> None:
    """Compute what has other numbers for each channel of a block, each position, or both."""
    block, mask, row = where
    if function in _OPCODES:
        _append_tensor(code, sums, function, where)
        return
    if function is Function.MOVE:
        code.load(R8, RSP, AT["positions"])
        code.add(R8, RSP, AT["place"])
        code.subtract(R8, RSP, AT["left"])
        code.given(R14, "other")
        code.scaled(R8, R14, R8, 4)
        for position, sum_ in enumerate(sums):
            code.vector(ADD, sum_, sum_, R8, behind=position, is_one=True)
        return
    code.given(R8, "slopes")
    if row:
        code.add(R8, RDI, own // 2)
    code.vector(LOAD, _SHARE, 0, RBX, R8, behind=block, mask=mask)
    code.clear(_ZERO)
    for sum_ in sums:
        if function is not Function.PRELU:
            code.of_vectors(_BY_NUMBERS[function], sum_, sum_, _SHARE)
        else:
            _append_short(code, sum_, function)


def _append_tensor(
    code: WindowCode, sums: Sequence[int], function: Function, where: tuple[int, int, int]
) -> None:
    """Add what the result has held, or what lies elsewhere as the result does; or subtract that."""
    code.load(RBP, RSP, AT["apart"])
    code.move(R8, RCX)
    block, mask, which = where
    loads, opcode = code.loads, _OPCODES[function]
    if function is not Function.SUM:
        loads = code.loads_other
        code.subtract(R8, RDI, code.places["result"])
        for bits in ("49c1", "48c1") if code.shift else ():  # of R8, and of RBP
            last = 0 if bits == "49c1" else 5
            code.raw(f"{bits}{(0xE0 if code.shift > 0 else 0xF8) + last:02x}02")  # shl, sar
        code.add(R8, RDI, code.places[OTHERS[which]])
    code.scaled(R14, RBP, RBP, 2)

    def append(number: int, *place: int) -> None:
        if loads is None:
            code.vector(opcode, sums[number], sums[number], *place, behind=block, mask=mask)
            return
        code.vector(loads, _COPY, 0, *place, behind=block, kind=2, prefix=1, mask=mask)
        code.vector(AS_FLOATS, _COPY, 0, _COPY, is_memory=False)
        code.of_vectors(opcode, sums[number], sums[number], _COPY)

    at_positions(code, len(sums), R8, RBP, R14, append)


def _append_of_powers(
    code: Instructions, sum_: int, function: Function, own: int, place: int
) -> None:
    """Compute a function of powers of e below 1: all but GELU and TANH in oneDNN's steps."""

    def one(opcode: int, register: int, first: int) -> None:
        behind = place + _NUMBERS.index("one")
        code.vector(opcode, register, first, RDI, behind=behind, is_one=True)

    if function in {Function.GELU, Function.TANH}:
        append = _append_gelu if function is Function.GELU else _append_tanh
        append(code, sum_, place)
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


def _append_tanh(code: Instructions, sum_: int, place: int) -> None:
    """Compute -e / (2 + e), e = exp(-2 |x|) - 1, and the sign of x; NaN stays."""

    def constant(register: int, name: str) -> int:
        code.spread(register, RDI, behind=place + _NUMBERS.index(name))
        return register

    bits = partial(code.vector, prefix=1, is_memory=False)
    multiplied = partial(code.vector, kind=2, prefix=1, is_memory=False)
    rest, power = _COPY, _POWER
    sign = constant(_ZERO, "sign")
    bits(0xDB, _MOVED, sum_, sign)
    bits(0xEB, sum_, sum_, sign)
    code.of_vectors(ADD, sum_, sum_, sum_)
    code.of_vectors(MAX, sum_, constant(_ONE, "least"), sum_)
    code.of_vectors(MUL, power, sum_, constant(_ONE, "log2(e)"))
    code.vector(
        0x08, power, 0, power, kind=3, prefix=1, is_memory=False, last_byte=0
    )  # to the nearest
    code.vector(LOAD, rest, 0, sum_, is_memory=False)
    multiplied(0xBC, rest, power, constant(_ONE, "log(2)"))  # rest -= power * log(2)
    constant(sum_, "x^5")
    for name in ("x^4", "x^3", "x^2", "one"):  # a term of 1, so that small numbers are precise
        multiplied(0xA8, sum_, rest, constant(_ONE, name))
    code.of_vectors(MUL, sum_, sum_, rest)
    multiplied(0x2C, _SHARE, _ONE, power)  # 2^power
    code.of_vectors(SUB, _ONE, _SHARE, _ONE)
    multiplied(0xA8, sum_, _SHARE, _ONE)
    code.of_vectors(ADD, rest, sum_, constant(_ONE, "two"))
    code.of_vectors(DIVIDE, sum_, sum_, rest)
    bits(0xDF, sum_, sign, sum_)  # without the sign
    bits(0xEB, sum_, sum_, _MOVED)


def _append_power(code: Instructions, sum_: int, place: int) -> None:
    """Compute exp(-abs(x)), and a mask of where x is not negative."""

    def number(
        opcode: int,
        register: int,
        name: str,
        first: int | None = None,
        kind: int = 1,
        prefix: int = 0,
        last_byte: int | None = None,
    ) -> None:
        behind, other = place + _NUMBERS.index(name), register if first is None else first
        vector = partial(code.vector, kind=kind, prefix=prefix, is_one=True)
        vector(opcode, register, other, RDI, behind=behind, last_byte=last_byte)

    rest, power = _COPY, _POWER
    number(0x27, _NOT_NEGATIVE, "sign", first=sum_, kind=2, prefix=2)
    number(0xEB, sum_, "sign", prefix=1)
    number(0xC2, _TINY, "least", first=sum_, last_byte=1)  # below
    number(MIN, sum_, "most")
    number(MAX, sum_, "least")
    # So many times log(2), and the rest.
    number(MUL, power, "log2(e)", first=sum_)
    number(ADD, power, "half")
    code.vector(
        0x08, power, 0, power, kind=3, prefix=1, is_memory=False, last_byte=1
    )  # rounded down
    code.vector(LOAD, rest, 0, sum_, is_memory=False)
    number(0xBC, rest, "log(2)", first=power, kind=2, prefix=1)  # rest -= power * log(2)
    # 2^(n - 1), of which there is one for every n
    number(SUB, power, "one")
    code.vector(0x5B, power, 0, power, prefix=1, is_memory=False)
    number(0xFE, power, "bias of exponents", prefix=1)
    code.vector(0x72, 6, power, power, prefix=1, is_memory=False, last_byte=23)
    code.vector(0xEF, power, power, power, prefix=1, is_memory=False, mask=_TINY)
    code.spread(sum_, RDI, behind=place + _NUMBERS.index("x^5"))
    for name in ("x^4", "x^3", "x^2", "x", "one"):
        number(0xA8, sum_, name, first=rest, kind=2, prefix=1)  # sum = sum * rest + number
    code.of_vectors(MUL, sum_, sum_, power)
    number(MUL, sum_, "two")
