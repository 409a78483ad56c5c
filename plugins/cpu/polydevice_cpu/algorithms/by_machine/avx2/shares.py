"""SoftMax of rows or columns of any length, emitted for vectors of 8 numbers.

`shares.py` has what processors with AVX-512 run. Both are told the same; see there. A row of 40
numbers takes 45 ns (a Zen of the first generation), oneDNN's code 70, and 0.2 ms to be made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    DIVIDE,
    LOAD,
    MAX,
    MUL,
    R8,
    R9,
    R10,
    R11,
    R12,
    R14,
    R15,
    RAX,
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

_SOURCE, _RESULT, _ITEMS, _EACH, _TAKEN, _LENGTH, _BEHIND, _BLOCKS = range(8)
"""Numbers of 8 bytes that code is told."""

_FLOATS = 16
"""Where floats begin behind them, in numbers of 4 bytes."""

_LEAST, _LOG2E, _MAGIC, _LOG2, _TERMS, _ONE, _NOTHING, _ODD = 0, 1, 2, 3, 4, 9, 10, 11
"""Which of them is what."""

_LARGEST, _SUM, _X, _POWER, _RESULTS, _SPARE = range(6)
_SOME, _COUNTS = 1, 2
"""Masks: which numbers of a last vector there are, and of which exp is not 0."""

_LANE_BYTES, _LANES = 32, 8


@lru_cache(maxsize=4)
def function(*, of_columns: bool, logarithm: bool) -> Any | None:
    """Return machine code, which threads may call at once; None where it cannot run."""
    code = _Shares()
    return function_of(code.columns(logarithm) if of_columns else code.rows(logarithm))


class _Shares(Instructions):
    """RDX counts rows or blocks of columns that are left; RSI is the length of one."""

    def __init__(self) -> None:
        super().__init__(is_short=True)

    def rows(self, logarithm: bool) -> bytes:
        """Return code for rows; R8 and R9 point to them."""
        self.begin(0)
        self.load(RSI, RDI, _LENGTH)
        self.move(RCX, RSI)
        self.raw("83e107")  # and ecx, 7
        self._set_mask_of()
        claim, done = self._claim()
        self.times(RAX, RSI)
        self._point(RAX)
        row = len(self.text)
        self.spread(_LARGEST, RDI, behind=_FLOATS + _NOTHING)
        self.move(R10, R8)
        self._along(R10, None, lambda mask: self._larger(R10, mask))
        self.all_across(MAX, _LARGEST, _SPARE)
        self.clear(_SUM)
        self.move(R10, R8)
        self.move(R12, R9)
        stored = None if logarithm else R12
        self._along(R10, stored, lambda mask: self._term(R10, stored, mask))
        self.all_across(ADD, _SUM, _SPARE)
        self._made(logarithm)
        self._along(R8, R9, lambda mask: self._share(logarithm, mask))
        self.again(RDX, row)
        self.jump(claim)
        return self._ended(done)

    def columns(self, logarithm: bool) -> bytes:
        """Return code for blocks of columns; R14 is how far elements of one are apart."""
        self.begin(1)
        self.load(R14, RDI, _BEHIND)
        self.raw("49c1e602")  # shl r14, 2
        self.load(RSI, RDI, _LENGTH)
        claim, done = self._claim()
        self.move(R15, RAX)
        item = len(self.text)
        self.store(RDX, RSP, 0)
        self.move(RAX, R15)
        self.raw("31d248f77738")  # xor edx, edx; div qword ptr [rdi+56]
        self.load(RCX, RDI, _BEHIND)
        self.times(RAX, RCX)
        self.times(RAX, RSI)
        self.raw("48c1e203")  # shl rdx, 3
        self.add(RAX, RDX)
        self.raw("4829d1")  # sub rcx, rdx
        self._point(RAX)
        self.compare(RCX, _LANES)
        whole = self.ahead("0f8d")  # jge
        self._set_mask_of()
        self._block(logarithm, _SOME)
        next_ = self.ahead()
        self.here(whole)
        self._block(logarithm, 0)
        self.here(next_)
        self.step(R15, 1)
        self.load(RDX, RSP, 0)
        self.again(RDX, item)
        self.jump(claim)
        return self._ended(done, 1)

    def _block(self, logarithm: bool, mask: int) -> None:
        """Append what computes a block of columns, of which a mask says which there are."""

        def repeated(append: Callable[[], None], *pointers: int) -> None:
            self.move(RCX, RSI)
            start = len(self.text)
            append()
            for pointer in pointers:
                self.add(pointer, R14)
            self.again(RCX, start)

        self.spread(_LARGEST, RDI, behind=_FLOATS + _NOTHING)
        self.move(R10, R8)
        repeated(lambda: self._larger(R10, mask), R10)
        self.clear(_SUM)
        self.move(R10, R8)
        self.move(R12, R9)
        stored = None if logarithm else R12
        repeated(lambda: self._term(R10, stored, mask), R10, R12)
        self._made(logarithm)
        repeated(lambda: self._share(logarithm, mask), R8, R9)

    def _set_mask_of(self) -> None:
        """Append a mask of as many numbers as RCX says."""
        self.raw("b801000000d3e0ffc8")  # mov eax, 1; shl eax, cl; dec eax
        self.set_mask(_SOME, RAX)

    def _claim(self) -> tuple[int, int]:
        """Append what takes the next ones, RDX, from RAX on; return where, and a jump if none."""
        claim = len(self.text)
        self.load(RAX, RDI, _EACH)
        self.move(RDX, RAX)
        self.raw("f0480fc14720")  # lock xadd [rdi+32], rax
        self.load(R11, RDI, _ITEMS)
        self.raw("4c39d8")  # cmp rax, r11
        done = self.ahead("0f83")  # jae
        self.add(RDX, RAX)
        self.raw("4c39da490f47d34829c2")  # cmp rdx, r11; cmova rdx, r11; sub rdx, rax
        return claim, done

    def _ended(self, done: int, numbers: int = 0) -> bytes:
        """Append the end: where one call takes all, the next one begins anew."""
        self.here(done)
        self.raw("488b4718483b47107208")  # mov rax, [rdi+24]; cmp rax, [rdi+16]; jb over the next
        self.raw("48c7472000000000")  # mov qword ptr [rdi+32], 0
        self.end(numbers)
        return self.assembled()

    def _point(self, elements: int) -> None:
        """Append what points R8 and R9 to so many elements behind the source and the result."""
        for pointer, number in ((R8, _SOURCE), (R9, _RESULT)):
            self.load(pointer, RDI, number)
            self.scaled(pointer, pointer, elements, 4)

    def _along(self, first: int, second: int | None, append: Callable[[int], None]) -> None:
        """Append what is done to vectors of a row, and the mask of the last one, and goes on."""
        pointers = [pointer for pointer in (first, second) if pointer is not None]
        self.move(RCX, RSI)
        self.raw("48c1e903")  # shr rcx, 3
        few = self.ahead("0f84")  # jz
        start = len(self.text)
        append(0)
        for pointer in pointers:
            self.step(pointer, _LANE_BYTES)
        self.again(RCX, start)
        self.here(few)
        self.move(RBX, RSI)
        self.raw("4883e307")  # and rbx, 7
        none = self.ahead("0f84")  # jz
        append(_SOME)
        for pointer in pointers:
            self.scaled(pointer, pointer, RBX, 4)
        self.here(none)

    def _larger(self, source: int, mask: int) -> None:
        self.vector(MAX, _LARGEST, _LARGEST, source, mask=mask)

    def _number(self, opcode: int, register: int, first: int, number: int, **given: Any) -> None:
        behind = _FLOATS + number
        self.vector(opcode, register, first, RDI, behind=behind, is_one=True, **given)

    def _term(self, source: int, result: int | None, mask: int) -> None:
        """Append exp(x - largest), added to the sum, and stored where it is wanted.

        A power of 2 is added to the exponent's bits: where exp(x) is no normal number, it is 0.
        """
        self.vector(LOAD, _X, 0, source, mask=mask)
        self.of_vectors(SUB, _X, _X, _LARGEST)
        self.spread(_SPARE, RDI, behind=_FLOATS + _LEAST)
        self.vector(0xC2, _COUNTS, _X, _SPARE, is_memory=False, last_byte=5)  # not below, or NaN
        self.spread(_POWER, RDI, behind=_FLOATS + _MAGIC)
        self._number(0xB8, _POWER, _X, _LOG2E, kind=2, prefix=1)
        self._number(SUB, _SPARE, _POWER, _MAGIC)
        self._number(0xBC, _X, _SPARE, _LOG2, kind=2, prefix=1)
        self.spread(_RESULTS, RDI, behind=_FLOATS + _TERMS)
        for term in range(_TERMS + 1, _ONE + 1):
            self._number(0xA8, _RESULTS, _X, term, kind=2, prefix=1)
        self.vector(0x72, 6, _POWER, _POWER, prefix=1, is_memory=False, last_byte=23)  # vpslld
        self.vector(0xFE, _RESULTS, _RESULTS, _POWER, prefix=1, is_memory=False)  # vpaddd
        self.vector(LOAD, _RESULTS, 0, _RESULTS, is_memory=False, mask=_COUNTS)
        if mask:
            self.vector(ADD, _SUM, _SUM, _RESULTS, is_memory=False, mask=mask)
        else:
            self.of_vectors(ADD, _SUM, _SUM, _RESULTS)
        if result is not None:
            self.vector(STORE, _RESULTS, 0, result, mask=mask)

    def _made(self, logarithm: bool) -> None:
        """Append what the sum is for: its inverse, or its logarithm."""
        if not logarithm:
            self.spread(_SPARE, RDI, behind=_FLOATS + _ONE)
            self.of_vectors(DIVIDE, _SUM, _SPARE, _SUM)
            return
        # The sum as a power of 2 times a number from 3/4 to 3/2.
        bits = partial(self.vector, prefix=1, is_memory=False)
        self.fill_bits(_SPARE, 0x3F400000)
        bits(0xFA, _POWER, _SUM, _SPARE)  # vpsubd
        bits(0x72, 4, _POWER, _POWER, last_byte=23)  # vpsrad
        bits(0x72, 6, _X, _POWER, last_byte=23)  # vpslld
        bits(0xFA, _X, _SUM, _X)
        self.vector(0x5B, _POWER, 0, _POWER, is_memory=False)  # vcvtdq2ps
        self._number(ADD, _SPARE, _X, _ONE)
        self._number(SUB, _X, _X, _ONE)
        self.of_vectors(DIVIDE, _X, _X, _SPARE)
        self.of_vectors(MUL, _SPARE, _X, _X)
        self.spread(_RESULTS, RDI, behind=_FLOATS + _ODD)
        for term in range(_ODD + 1, _ODD + 4):
            self._number(0xA8, _RESULTS, _SPARE, term, kind=2, prefix=1)
        self._number(0xA8, _RESULTS, _SPARE, _ONE, kind=2, prefix=1)
        self.of_vectors(ADD, _X, _X, _X)
        self.clear(_SPARE)
        self.of_vectors(MUL, _SUM, _SUM, _SPARE)  # 0, or NaN of what is no number
        self.vector(0xB8, _SUM, _X, _RESULTS, kind=2, prefix=1, is_memory=False)
        self._number(0xB8, _SUM, _POWER, _LOG2, kind=2, prefix=1)

    def _share(self, logarithm: bool, mask: int) -> None:
        """Append a vector of results."""
        self.vector(LOAD, _X, 0, R8 if logarithm else R9, mask=mask)
        if logarithm:
            self.of_vectors(SUB, _X, _X, _LARGEST)
            self.of_vectors(SUB, _X, _X, _SUM)
        else:
            self.of_vectors(MUL, _X, _X, _SUM)
        self.vector(STORE, _X, 0, R9, mask=mask)
