"""Rows normalised to a mean of 0 and a variance of 1, scaled and shifted, and what follows.

oneDNN takes 12 us for 576 rows of 32 numbers and 5 for 100 of 96; this takes half of that, and
rounding behind it next to nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from polydevice.processor.machine_code import function_of
from polydevice.symbolic_size import single_bits
from polydevice_cpu.algorithms.by_machine.code import Told, has_vectors, told
from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    DIVIDE,
    LOAD,
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
    RBX,
    RCX,
    RDI,
    RDX,
    STORE,
    SUB,
)
from polydevice_cpu.algorithms.by_machine.rows.chain import (
    HELD,
    Chain,
    Operand,
    Step,
    with_quotients,
)

MOST_OPERANDS = 2

_LANES, _AT_ONCE = 16, 4
_X, _SUM, _MEAN, _SOME = 0, 2, 3, 1
_SUMS = _SUM, 4, 5, 6
_READ = 7, 8, 9, 10
_OPERANDS_AT = R11, R13

_ADDED_UP = (
    "62f3fd481bd101c5ec58d1"  # vextractf64x4 ymm1, zmm2, 1; vaddps ymm2, ymm2, ymm1
    "c4e37d19d101c5e858d1"  # vextractf128 xmm1, ymm2, 1; vaddps xmm2, xmm2, xmm1
    "c4e37904ca4ec5e858d1"  # vpermilps xmm1, xmm2, 0x4e; vaddps xmm2, xmm2, xmm1
    "c4e37904cab1c5e858d1"  # vpermilps xmm1, xmm2, 0xb1; vaddps xmm2, xmm2, xmm1
)
"""The sum of zmm2's elements, in xmm2."""

_SPREAD = "62f27d4818d2"
"""vbroadcastss zmm2, xmm2"""

_ROOT = "c5ea51d2"
"""vsqrtss xmm2, xmm2, xmm2"""

_INVERSE = "c5fa5ed2"
"""vdivss xmm2, xmm0, xmm2"""


def prepared(
    rows: int,
    length: int,
    epsilon: float,
    steps: Sequence[Step] = (),
    *,
    affine: bool,
    is_outside: bool = False,
    begin: int = 0,
) -> Told | None:
    """Return code that is told addresses of rows, scale, shift, operands of steps, and results.

    Args:
        rows: how many there are, one behind the other.
        length: of each.
        epsilon: what is added to variances.
        steps: what is done to numbers then; operands are one number for all of them.
        affine: whether there are a scale and a shift.
        is_outside: whether epsilon is added to the roots of variances instead.
        begin: how many rows of those that it is told are passed over.

    Returns:
        None where there is no such code.
    """
    steps = with_quotients(steps, [True] * len(steps))
    operands = sum(isinstance(step, int) and step != HELD for step in steps)
    if not (has_vectors() and rows > 0 and length > 0) or operands > MOST_OPERANDS:
        return None
    function, constants = _function(affine, is_outside, steps, operands)
    if function is None:
        return None
    vectors, rest = length // _LANES, length % _LANES
    passed = 4 * begin * length
    numbers = [passed, *[0] * (2 * affine + operands), passed]
    numbers += [rows, vectors // _AT_ONCE, vectors % _AT_ONCE, vectors, (1 << rest) - 1, 4 * rest]
    numbers.append(single_bits(1 / length) + (single_bits(epsilon) << 32))
    pack = struct.Struct(f"<{len(numbers)}q{len(constants)}s").pack
    return function, told(pack, *numbers, constants)


@lru_cache(maxsize=64)
def _function(
    affine: bool, is_outside: bool, steps: tuple[Step, ...], operands: int
) -> tuple[Any | None, bytes]:
    code = _Rows(affine, is_outside, steps, operands)
    return function_of(code.emitted()), code.told()


class _Rows(Chain):
    """Code of a loop over rows with three inside: for the mean, the variance and the results.

    R8 points to a row, R12 to its results, R9 and R10 to scale and shift.
    """

    def __init__(
        self, affine: bool, is_outside: bool, steps: Sequence[Step], operands: int
    ) -> None:
        super().__init__(steps)
        self._is_affine, self._is_outside = affine, is_outside
        self._operands = _OPERANDS_AT[:operands]
        self._addresses = 2 + 2 * affine + operands
        numbers = range(self._addresses, self._addresses + 7)
        self._rows, self._blocks, self._singles, self._vectors = numbers[:4]
        self._mask, self._rest, self._inverse = numbers[4:]

    def emitted(self) -> bytes:
        """Emit all of it, and return it."""
        self.begin(0)
        self.point(self._inverse + 1)
        scale_and_shift = (R9, R10) if self._is_affine else ()
        places = (R8, *scale_and_shift, *self._operands, R12)
        for place, register in enumerate(places):
            self.load(register, R14, place)
        self.load(RAX, R14, self._mask)
        self.set_mask(_SOME, RAX)
        others = self.append_divisors(self._operands)
        self._append_rows()
        if others:
            self.divisors = {}
            for jump in others:
                self.here(jump)
            self._append_rows()
        return self.assembled()

    def _append_rows(self) -> None:
        self.load(RBX, R14, self._rows)
        start = len(self.text)
        self._append_sum(is_centred=False)
        self.vector(MUL, _MEAN, _SUM, R14, behind=2 * self._inverse, is_one=True)
        self._append_sum(is_centred=True)
        self.vector(MUL, _SUM, _SUM, R14, behind=2 * self._inverse, is_one=True)
        if self._is_outside:
            self._append_root()
        self.vector(ADD, _SUM, _SUM, R14, behind=2 * self._inverse + 1, is_one=True)
        if not self._is_outside:
            self._append_root()
        self.spread(_X, RDI)  # 1
        if self.is_halved:
            self.of_vectors(DIVIDE, _SUM, _X, _SUM)
        else:
            self.raw(_INVERSE + _SPREAD)
        self._append_results()
        self.again(RBX, start)
        self.end(0)

    def _append_root(self) -> None:
        """Append the root of a number, which is in all elements where they are in halves."""
        if self.is_halved:
            self.of_vectors(0x51, _SUM, 0, _SUM)
        else:
            self.raw(_ROOT)  # of all elements it takes 20 cycles more

    def _append_sum(self, *, is_centred: bool) -> None:
        """Append the sum of a row's numbers, or of their squares less the mean, to all elements."""
        self.move(R15, R8)
        for sum_ in _SUMS:
            self.clear(sum_)
        for number, count in ((self._blocks, _AT_ONCE), (self._singles, 1)):
            self.load(RCX, R14, number)
            self.compare(RCX, 0)
            none = self.ahead("0f84")
            start = len(self.text)
            for place in range(count):
                self._append_term(place, place, 0, is_centred=is_centred)
            self.step(R15, 4 * _LANES * count)
            self.again(RCX, start)
            self.here(none)
        self.load(RAX, R14, self._rest)
        self.compare(RAX, 0)
        none = self.ahead("0f84")
        self._append_term(1, 0, _SOME, is_centred=is_centred)
        self.here(none)
        first, second, third, fourth = _SUMS
        self.of_vectors(ADD, first, first, second)
        self.of_vectors(ADD, third, third, fourth)
        self.of_vectors(ADD, first, first, third)
        if self.is_halved:
            self.all_across(ADD, _SUM, _X)
        else:
            self.raw(_ADDED_UP + _SPREAD)

    def _append_term(self, number: int, behind: int, mask: int, *, is_centred: bool) -> None:
        """Add a vector to the sum of this number."""
        sum_, read = _SUMS[number], _READ[number]
        self.vector(LOAD, read, 0, R15, behind=behind, mask=mask)
        if is_centred:
            self.vector(SUB, read, read, _MEAN, is_memory=False, mask=mask)
            self.add_product(sum_, read, read)
        else:
            self.of_vectors(ADD, sum_, sum_, read)

    def _append_results(self) -> None:
        """Append what computes a row's results, and go on to the next one."""
        moved = [R8, R12]
        if self._is_affine:
            self.move(R15, R9)
            self.move(RDX, R10)
            moved += R15, RDX
        self.load(RCX, R14, self._vectors)
        self.compare(RCX, 0)
        few = self.ahead("0f84")
        start = len(self.text)
        self._append_vector(0)
        for pointer in moved:
            self.step(pointer, 4 * _LANES)
        self.again(RCX, start)
        self.here(few)
        self.load(RAX, R14, self._rest)
        self.compare(RAX, 0)
        none = self.ahead("0f84")
        self._append_vector(_SOME)
        for pointer in (R8, R12):
            self.add(pointer, RAX)
        self.here(none)

    def _append_vector(self, mask: int) -> None:
        self.vector(LOAD, _X, 0, R8, mask=mask)
        self.of_vectors(SUB, _X, _X, _MEAN)
        self.of_vectors(MUL, _X, _X, _SUM)
        if self._is_affine:
            self.vector(LOAD, _READ[0], 0, R15, mask=mask)
            self.vector(0xA8, _X, _READ[0], RDX, kind=2, prefix=1, mask=mask)
        operands: list[Operand] = [(pointer, False) for pointer in self._operands]
        self.append_steps(_X, operands, R12, mask)
        self.vector(STORE, _X, 0, R12, mask=mask)
