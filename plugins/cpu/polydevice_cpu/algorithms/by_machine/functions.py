"""Functions of vectors of 16 numbers, emitted: all of those that recurrent cells know, and erf.

Constants are read where they lie behind what code is told; NaN stays NaN.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import NamedTuple

from polydevice_cpu.algorithms.by_machine.avx2.sigmoids import Sigmoids
from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    DIVIDE,
    LOAD,
    MAX,
    MIN,
    MUL,
    RSI,
    SUB,
    Instructions,
)
from polydevice_cpu.algorithms.special_functions import ERF_ONE, ERF_P, ERF_Q

AND, OR, MAX_OF_INTEGERS = 0xDB, 0xEB, 0x3D
BELOW, ABOVE = 1, 14
"""What vectors are compared for."""

TEMPORARY = 24, 25, 26, 27
"""Vectors that functions use."""

_MASK = 7
_SIGN, _REST = 1 << 31, (1 << 31) - 1

_TERMS = 0.00139486429, 0.00836918689, 0.0416662395, 0.166665047, 0.5, 1.0
"""(exp(x) - 1) / x for |x| < log(2) / 2, right to 1.1e-8."""

_ODD = 1 / 13, 1 / 11, 1 / 9, 1 / 7, 1 / 5, 1 / 3, 1.0
"""log(1 + z) = 2 t (1 + t^2 / 3 + ...), t = z / (2 + z), right to 1.4e-8 for 0 <= z <= 1."""

_LEAST, _MOST = -87.33654475, 89.0
"""Below the first exp(x) is no normal number; that of the second is infinite."""

_NOTHING = -110.0
"""Where exp(x) is 0."""


class Activation(NamedTuple):
    """A function by its name in lower case, with its numbers."""

    name: str
    alpha: float
    beta: float


class Functions(Instructions):
    """Code that has functions of vectors; RSI is where constants lie."""

    def __init__(self) -> None:
        super().__init__()
        self.constants: list[bytes] = []

    def activate(self, x: int, activation: Activation) -> None:
        """Append a function, in place."""
        functions: dict[str, Callable[[int, float, float], None]] = {
            "sigmoid": self._sigmoid, "tanh": self._tanh, "relu": self._relu,
            "affine": self._affine, "leakyrelu": self._leaky_relu,
            "thresholdedrelu": self._thresholded_relu, "scaledtanh": self._scaled_tanh,
            "hardsigmoid": self._hard_sigmoid, "elu": self._elu, "softsign": self._soft_sign,
            "softplus": self._soft_plus, "erf": self._erf, "exp": self._exp,
            "square": self._square, "abs": self._abs, "sqrt": self._sqrt, "round": self._round,
            "logistic": self._logistic,
        }  # fmt: skip
        functions[activation.name](x, activation.alpha, activation.beta)

    def bound(self, x: int, least: float | None, most: float | None) -> None:
        """Append what limits numbers; NaN, as the second operand, stays."""
        for opcode, limit in ((MAX, least), (MIN, most)):
            if limit is not None:
                self.fill(TEMPORARY[0], limit)
                self.of_vectors(opcode, x, TEMPORARY[0], x)

    def fill(self, register: int, value: float) -> None:
        """Fill a vector with a constant."""
        self.spread(register, RSI, behind=self._place(struct.pack("<f", value)))

    def with_constant(
        self, opcode: int, register: int, first: int, value: float, *, kind: int = 1
    ) -> None:
        """Append an instruction on a vector and a constant."""
        behind, prefix = self._place(struct.pack("<f", value)), int(kind == 2)
        self.vector(
            *(opcode, register, first, RSI), behind=behind, kind=kind, prefix=prefix, is_one=True
        )

    def add_product(self, sum_: int, first: int, second: int) -> None:
        """Append sum += first * second."""
        self.vector(0xB8, sum_, first, second, kind=2, prefix=1, is_memory=False)

    def replace(self, x: int, other: int, mask: int) -> None:
        """Append what replaces elements that a mask says."""
        self.vector(0x28, x, 0, other, is_memory=False, mask=mask)

    def keep(self, x: int, other: int, mask: int) -> None:
        """Append x = other where a mask says, and 0 elsewhere."""
        self.vector(LOAD, x, 0, other, is_memory=False, mask=mask)

    def with_bits(self, opcode: int, register: int, first: int, bits: int) -> None:
        """Append an integer instruction on a vector and a constant."""
        behind = self._place(struct.pack("<I", bits))
        self.vector(opcode, register, first, RSI, behind=behind, prefix=1, is_one=True)

    def _place(self, number: bytes) -> int:
        if number not in self.constants:
            self.constants.append(number)
        return self.constants.index(number)

    def _compared(self, first: int, second: int, how: int) -> None:
        self.vector(0xC2, _MASK, first, second, is_memory=False, last_byte=how)

    def _scaled_power(self, x: int, power: int) -> None:
        """Append x *= 2^power."""
        self.vector(0x2C, x, x, power, kind=2, prefix=1, is_memory=False)

    def _polynomial(self, result: int, x: int, terms: tuple[float, ...]) -> None:
        self.fill(result, terms[0])
        for term in terms[1:]:
            self.with_constant(0xA8, result, x, term, kind=2)

    def _reduced(self, x: int) -> tuple[int, int]:
        """Append what splits exp(x): return (e, n), exp(x) = (1 + e) * 2^n."""
        power, result = TEMPORARY[:2]
        self.with_constant(MUL, power, x, 1 / math.log(2))
        self.vector(
            0x08, power, 0, power, kind=3, prefix=1, is_memory=False, last_byte=0
        )  # vrndscaleps
        self.with_constant(0xBC, x, power, math.log(2), kind=2)  # x -= power * log(2)
        self._polynomial(result, x, _TERMS)
        self.of_vectors(MUL, result, result, x)
        return result, power

    def _exponential(self, x: int) -> int:
        """Append exp(x), x up to 89; return where it is."""
        result, power = self._reduced(x)
        self.with_constant(ADD, result, result, 1)
        self._scaled_power(result, power)
        return result

    def _exponential_less_1(self, x: int) -> int:
        """Append exp(x) - 1, x between -88 and 0, right where it is small, too."""
        result, power = self._reduced(x)
        whole = TEMPORARY[2]
        self.fill(whole, 1)
        self._scaled_power(whole, power)
        self.with_constant(SUB, power, whole, 1)
        self.vector(0xA8, result, whole, power, kind=2, prefix=1, is_memory=False)
        return result

    def _sigmoid(self, x: int, _: float, __: float) -> None:
        if self.is_halved:
            Sigmoids(self, TEMPORARY).logistic(x)
            return
        zero = TEMPORARY[0]
        self.clear(zero)
        self.of_vectors(SUB, x, zero, x)
        self.bound(x, -_MOST, _MOST)
        result = self._exponential(x)
        self.with_constant(ADD, result, result, 1)
        self.fill(TEMPORARY[0], 1)
        self.of_vectors(DIVIDE, x, TEMPORARY[0], result)

    def _logistic(self, x: int, _: float, __: float) -> None:
        """As a sigmoid, and precise where that is small: exp(-|x|) or 1, by 1 + exp(-|x|)."""
        if self.is_halved:
            Sigmoids(self, TEMPORARY).logistic(x)
            return
        given, share, zero = TEMPORARY[3], TEMPORARY[2], TEMPORARY[0]
        self.of_vectors(LOAD, given, 0, x)
        self.with_bits(OR, x, x, _SIGN)
        self.bound(x, _NOTHING, None)
        result = self._exponential(x)
        self.with_constant(ADD, x, result, 1)
        self.fill(share, 1)
        self.clear(zero)
        self._compared(given, zero, BELOW)
        self.replace(share, result, _MASK)
        self.of_vectors(DIVIDE, x, share, x)

    def _tanh(self, x: int, _: float, __: float) -> None:
        """-e / (2 + e), e = exp(-2 |x|) - 1, and the sign of x."""
        if self.is_halved:
            Sigmoids(self, TEMPORARY).tanh(x)
            return
        sign = TEMPORARY[3]
        self.with_bits(AND, sign, x, _SIGN)
        self.with_bits(OR, x, x, _SIGN)
        self.of_vectors(ADD, x, x, x)
        self.bound(x, -20, None)
        result = self._exponential_less_1(x)
        self.with_constant(ADD, x, result, 2)
        self.of_vectors(DIVIDE, x, result, x)
        self.with_bits(AND, x, x, _REST)
        self.vector(OR, x, x, sign, prefix=1, is_memory=False)

    def _relu(self, x: int, _: float, __: float) -> None:
        self.bound(x, 0, None)

    def _affine(self, x: int, alpha: float, beta: float) -> None:
        self.fill(TEMPORARY[0], alpha)
        self.with_constant(0xA8, x, TEMPORARY[0], beta, kind=2)

    def _leaky_relu(self, x: int, alpha: float, _: float) -> None:
        zero, scaled = TEMPORARY[:2]
        self.clear(zero)
        self.with_constant(MUL, scaled, x, alpha)
        self._compared(x, zero, BELOW)
        self.replace(x, scaled, _MASK)

    def _thresholded_relu(self, x: int, alpha: float, _: float) -> None:
        self.fill(TEMPORARY[0], alpha)
        self._compared(x, TEMPORARY[0], ABOVE)
        self.keep(x, x, _MASK)

    def _scaled_tanh(self, x: int, alpha: float, beta: float) -> None:
        self.with_constant(MUL, x, x, beta)
        self._tanh(x, 0, 0)
        self.with_constant(MUL, x, x, alpha)

    def _hard_sigmoid(self, x: int, alpha: float, beta: float) -> None:
        self._affine(x, alpha, beta)
        self.bound(x, 0, 1)

    def _elu(self, x: int, alpha: float, _: float) -> None:
        given = TEMPORARY[3]
        self.of_vectors(LOAD, given, 0, x)
        self.bound(x, _LEAST, 0)
        result = self._exponential_less_1(x)
        self.with_constant(MUL, result, result, alpha)
        self.clear(x)
        self._compared(given, x, BELOW)
        self.of_vectors(LOAD, x, 0, given)
        self.replace(x, result, _MASK)

    def _soft_sign(self, x: int, _: float, __: float) -> None:
        size = TEMPORARY[0]
        self.with_bits(AND, size, x, _REST)
        self.with_constant(ADD, size, size, 1)
        self.of_vectors(DIVIDE, x, x, size)

    def _soft_plus(self, x: int, _: float, __: float) -> None:
        """The larger one of x and 0, and log(1 + exp(-|x|))."""
        given, square, small = TEMPORARY[3], TEMPORARY[2], TEMPORARY[1]
        self.of_vectors(LOAD, given, 0, x)
        self.bound(given, 0, None)
        self.with_bits(OR, x, x, _SIGN)
        self.bound(x, _NOTHING, None)
        self._exponential(x)
        self.with_constant(ADD, x, small, 2)
        self.of_vectors(DIVIDE, small, small, x)
        self.of_vectors(MUL, square, small, small)
        self._polynomial(x, square, _ODD)
        self.of_vectors(ADD, small, small, small)
        self.vector(0xA8, x, small, given, kind=2, prefix=1, is_memory=False)

    def _exp(self, x: int, _: float, __: float) -> None:
        self.bound(x, _NOTHING, _MOST)
        self.of_vectors(LOAD, x, 0, self._exponential(x))

    def _square(self, x: int, _: float, __: float) -> None:
        self.of_vectors(MUL, x, x, x)

    def _abs(self, x: int, _: float, __: float) -> None:
        self.with_bits(AND, x, x, _REST)

    def _sqrt(self, x: int, _: float, __: float) -> None:
        self.of_vectors(0x51, x, 0, x)

    def _round(self, x: int, _: float, __: float) -> None:
        self.vector(
            0x08, x, 0, x, kind=3, prefix=1, is_memory=False, last_byte=0
        )  # vrndscaleps, to the nearest, even ones of two

    def _erf(self, x: int, _: float, __: float) -> None:
        """As `special_functions.erf` computes it."""
        square, sum_ = TEMPORARY[1:3]
        self.bound(x, -ERF_ONE, ERF_ONE)
        self.of_vectors(MUL, square, x, x)
        self._polynomial(sum_, square, ERF_Q[::-1])
        self.of_vectors(DIVIDE, x, x, sum_)
        self._polynomial(sum_, square, ERF_P[::-1])
        self.of_vectors(MUL, x, x, sum_)
        self.bound(x, -1, 1)
