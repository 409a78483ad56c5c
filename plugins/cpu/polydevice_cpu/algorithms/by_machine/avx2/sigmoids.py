"""Functions of powers of e, emitted for halves of vectors: in fewer steps than oneDNN's.

All of them need exp(-x / 2), of which the square is infinite where exp(-x) is: so nothing asks
where numbers are too large.
"""

from __future__ import annotations

import math
import struct
from functools import partial

from polydevice_cpu.algorithms.by_machine.instructions import (
    DIVIDE,
    LOAD,
    MAX,
    MIN,
    MUL,
    SUB,
    Instructions,
)

_MAGIC = 1.5 * 2.0**23
"""A number to which whole ones are added so that its last bits are theirs."""

_TERMS = -2.59069675e-4, 2.61864945e-3, -2.08345501e-2, 1.24997865e-1, -4.99999853e-1, 1.0
"""exp(-x / 2) for |x| <= log(2): the polynomial whose largest error is the least, 9e-8 of it."""

_MOST = 100.0
"""1 + exp(-x) is 1 there, and infinite at -x."""

_TINIEST = 170.0
"""exp(-x / 2) is a normal number there."""

_SHARE = math.sqrt(0.5) * 0.3275911
_ERFC = 0.5307027145, -0.7265760135, 0.7107068705, -0.142248368, 0.1274147960
"""erfc(x) = 2 t (...) exp(-x^2), t = 1 / (1 + 0.3275911 x), 0 <= x, right to 1.5e-7 (Abramowitz
and Stegun, Handbook of Mathematical Functions, 7.1.26)."""

_FARTHEST = 30.0
"""GELU is the number itself there, and 0 at -x."""

_OF_CUBES = 2 * math.sqrt(2 / math.pi), 2 * math.sqrt(2 / math.pi) * 0.044715
"""GELU by tanh is x times the logistic function of a x + b x^3."""

_TANH_ONE = 9.0
"""From here on tanh(x) is 1."""

_TANH_P = 1.33546301e-8, 2.0609057e-5, 3.49558646e-3, 0.133810242, 0.999999979
_TANH_Q = 7.77654471e-7, 3.28563219e-4, 0.0258769757, 0.467143398, 1.0
"""tanh(x) = x P(x^2) / Q(x^2), fitted to the least relative error, 2e-8; in f32 within 3e-7."""

_ADD_PRODUCT, _SUBTRACT_PRODUCT, _TIMES_AND_ADD, _TIMES_CONSTANT_AND_ADD = 0xB8, 0xBC, 0xA8, 0x98
"""r = r + a b, r = r - a b, r = a r + b and r = b r + a; b may be a constant."""


class Sigmoids:
    """Emits functions of a vector, in place; others hold what comes between."""

    def __init__(self, code: Instructions, spare: tuple[int, int, int, int]) -> None:
        """Use these other vectors."""
        self._code = code
        self._kept, self._made, self._power, self._limit = spare

    def logistic(self, x: int) -> None:
        """1 / (1 + exp(-x)); NaN stays."""
        self._divisor(x)
        self._load(self._power, 1.0)
        self._code.of_vectors(DIVIDE, x, self._power, self._made)

    def swish(self, x: int, pointer: int, behind: int) -> None:
        """Make x / (1 + exp(-a x)) of x; a is at a place in memory, in numbers of 4 bytes."""
        self._code.of_vectors(LOAD, self._kept, 0, x)
        self._code.vector(MUL, x, x, pointer, behind=behind, is_one=True)
        self._divisor(x)
        self._code.of_vectors(DIVIDE, x, self._kept, self._made)

    def tanh(self, x: int) -> None:
        """A quotient of polynomials within -1 and 1; NaN stays."""
        code, square, made = self._code, self._power, self._made
        self._limited(x, MIN, _TANH_ONE)
        self._limited(x, MAX, -_TANH_ONE)
        code.of_vectors(MUL, square, x, x)
        self._polynomial(made, square, _TANH_P)
        code.of_vectors(MUL, x, x, made)
        self._polynomial(made, square, _TANH_Q)
        code.of_vectors(DIVIDE, x, x, made)
        self._limited(x, MIN, 1.0)
        self._limited(x, MAX, -1.0)

    def gelu_tanh(self, x: int) -> None:
        """Make x / (1 + exp(-a x - b x^3)) of x, which is the same as by tanh."""
        self._code.of_vectors(LOAD, self._kept, 0, x)
        first, second = _OF_CUBES
        self._code.of_vectors(MUL, self._power, x, x)
        self._load(self._made, first)
        self._with(_TIMES_CONSTANT_AND_ADD, self._power, self._made, second)
        self._code.of_vectors(MUL, x, x, self._power)
        self._divisor(x)
        self._code.of_vectors(DIVIDE, x, self._kept, self._made)

    def gelu(self, x: int) -> None:
        """Take |x| / 2 times erfc(|x| / sqrt(2)) from x or 0, the larger one."""
        code, share = self._code, self._limit
        code.of_vectors(LOAD, self._kept, 0, x)
        code.of_vectors(MUL, x, x, x)
        self._limited(x, MIN, _TINIEST)
        self._root(x)
        size = x
        code.literal(0xDB, size, self._kept, 0x7FFFFFFF, prefix=1)
        self._load(share, _FARTHEST)
        code.of_vectors(MIN, size, share, size)
        self._load(share, 1.0)
        self._with(_ADD_PRODUCT, share, size, _SHARE)
        self._load(self._power, 1.0)
        code.of_vectors(DIVIDE, share, self._power, share)
        code.of_vectors(MUL, size, size, share)
        code.of_vectors(MUL, self._made, self._made, size)
        self._polynomial(size, share, _ERFC)
        code.clear(share)
        code.of_vectors(MAX, self._kept, share, self._kept)
        product = partial(code.vector, kind=2, prefix=1, is_memory=False)
        product(_SUBTRACT_PRODUCT, self._kept, self._made, size)
        code.of_vectors(LOAD, x, 0, self._kept)

    def _divisor(self, x: int) -> None:
        """Make 1 + exp(-x); x is lost."""
        self._limited(x, MIN, _MOST)
        self._limited(x, MAX, -_MOST)
        self._root(x)
        self._with(_TIMES_AND_ADD, self._made, self._made, 1.0)

    def _root(self, x: int) -> None:
        """Make exp(-x / 2), a normal number and no infinite one; x is lost."""
        made, power = self._made, self._power
        self._load(power, _MAGIC)
        self._with(_ADD_PRODUCT, power, x, -0.5 / math.log(2))
        self._with(SUB, made, power, _MAGIC)
        self._with(_ADD_PRODUCT, x, made, 2 * math.log(2))
        self._polynomial(made, x, _TERMS)
        bits = partial(self._code.vector, prefix=1, is_memory=False)
        bits(0x72, 6, power, power, last_byte=23)  # what was added moves to the exponent
        bits(0xFE, made, made, power)

    def _polynomial(self, result: int, x: int, terms: tuple[float, ...]) -> None:
        self._load(result, terms[0])
        for term in terms[1:]:
            self._with(_TIMES_AND_ADD, result, x, term)

    def _limited(self, x: int, opcode: int, limit: float) -> None:
        """NaN, as the second operand, stays."""
        self._load(self._limit, limit)
        self._code.of_vectors(opcode, x, self._limit, x)

    def _load(self, register: int, number: float) -> None:
        self._with(LOAD, register, 0, number)

    def _with(self, opcode: int, register: int, first: int, number: float) -> None:
        """Append an instruction on a vector and a constant."""
        (bits,) = struct.unpack("<I", struct.pack("<f", number))
        is_of_products = opcode in {_ADD_PRODUCT, _TIMES_AND_ADD, _TIMES_CONSTANT_AND_ADD}
        kind, prefix = (2, 1) if is_of_products else (1, 0)
        self._code.literal(opcode, register, first, bits, kind=kind, prefix=prefix)
