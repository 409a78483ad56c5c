"""Machine code for Fourier transforms of few points, for processors with AVX-512.

N points are as many as the product of N1 and N2. With n = N2 n1 + n2 and k = N1 k2 + k1, and
w(p, q) = exp(-2 pi i p / q), what is computed is

    B[n2, k1] = sum over n1 of x[n] w(n k1, N)
    X[k2, k1] = sum over n2 of B[n2, k1] w(n2 k2, N2)

Vectors are of k1 in both, as numbers are in memory then. Of N2 = 1 there is the first sum alone,
with k1 in blocks instead of n2. All sums are of f64: what should be 0 is so within 1e-15 of what is
added up, and in f32 within 1e-6, which ONNX's cases do not take for 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    RAX,
    RBP,
    RBX,
    RCX,
    RDI,
    RDX,
    RSP,
    STORE,
    Instructions,
)

LANES = 4
"""Complex numbers of a vector."""

MOST_VECTORS = 8
"""Vectors of k1 at once, of which each has two sums."""

(SOURCE, RESULT, FIRST, SECOND, COUNTS) = range(5)
"""Addresses: of tables [n2, n1, k1] and [k2, n2], and of how many n1 there are for each n2."""

(OUTER, INNER, SOURCE_OUTER, SOURCE_INNER, RESULT_OUTER, RESULT_INNER) = range(5, 11)
"""How many rows of rows there are, and the bytes from one to the next."""

(SUMS, NEXT_SUM, NEXT_POINT, ROWS, TERMS, ROW_BYTES) = range(11, 17)
"""How many n2 there are, the bytes to where the next begins, and from n1 to n1; how many k2 there
are, sums of so many n2, and the bytes of a row of k1."""

(VECTORS, LAST, RESULTS, STEP, STORED, ONE, STACK, SPECTRUM) = range(17, 25)
"""Whole vectors of results and the mask of what is left; or how many results there are, the bytes
from one to the next, and the mask of 4 bytes each that one has; 1.0; bytes of the stack, and where
results begin there."""

BEGINNING = 64
"""Bytes of the stack before B."""

_OUTER_LEFT, _INNER_LEFT, _SOURCE_ROW, _RESULT_ROW = range(4)
"""Numbers on the stack."""

_SINGLE, _DOUBLE, _PERMUTE, _ALTERNATE, _FMA, _CONVERT = 0x5A, 0x19, 0x05, 0xA6, 0xB8, 0x5A
_REAL, _IMAGINARY, _READ, _UNIT = 28, 29, 30, 31
_LAST_MASK, _ONE_MASK, _HALF_MASK = 1, 2, 3


class Kind(NamedTuple):
    """What code is for.

    Attributes:
        vectors: of k1, up to `MOST_VECTORS`.
        complex_source: whether points are of two numbers.
        wide_source: whether these are f64; else f32.
        wide_result: likewise.
        in_two: whether there is a second sum.
        side_by_side: whether results are of two numbers each and lie next to each other.
    """

    vectors: int
    complex_source: bool
    wide_source: bool
    wide_result: bool
    in_two: bool
    side_by_side: bool


class _Transform(Instructions):
    """Code of a kind: RDI has the arguments, R12 and R13 the row's source and result."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind = kind
        self.first = range(kind.vectors)
        self.second = range(MOST_VECTORS, MOST_VECTORS + kind.vectors)

    def code(self) -> bytes:
        """All of it."""
        self.begin(0)
        self.move(RBP, RSP)
        self.subtract(RSP, RDI, STACK)
        self.raw("4883e4c0")  # and rsp, -64
        for mask, number in ((_LAST_MASK, LAST), (_ONE_MASK, STORED)):
            self.load(RAX, RDI, number)
            self.set_mask(mask, RAX)
        self.raw("b8ff000000")  # mov eax, 0xff
        self.set_mask(_HALF_MASK, RAX)
        self.double(_UNIT, RDI, ONE)
        self.load(R12, RDI, SOURCE)
        self.load(R13, RDI, RESULT)
        self.copy(_OUTER_LEFT, RDI, OUTER)
        outer = len(self.text)
        self.store(R12, RSP, _SOURCE_ROW)
        self.store(R13, RSP, _RESULT_ROW)
        self.copy(_INNER_LEFT, RDI, INNER)
        inner = len(self.text)
        self.row()
        self.add(R12, RDI, SOURCE_INNER)
        self.add(R13, RDI, RESULT_INNER)
        self.again(RSP, inner, _INNER_LEFT)
        self.load(R12, RSP, _SOURCE_ROW)
        self.load(R13, RSP, _RESULT_ROW)
        self.add(R12, RDI, SOURCE_OUTER)
        self.add(R13, RDI, RESULT_OUTER)
        self.again(RSP, outer, _OUTER_LEFT)
        self.move(RSP, RBP)
        self.end(0)
        return self.assembled()

    def double(self, register: int, base: int, number: int) -> None:
        """Fill a vector with a number of 8 bytes."""
        self.vector(_DOUBLE, register, 0, base, behind=number, kind=2, prefix=1, wide=True)

    def row(self) -> None:
        """Append one transform."""
        self.sums_of_points()
        if self.kind.in_two:
            self.sums_of_sums()
            self.here_begins(R9, SPECTRUM)
        else:
            self.place(R9, BEGINNING)
        if self.kind.side_by_side:
            self.store_vectors()
        else:
            self.store_each()

    def place(self, register: int, offset_bytes: int) -> None:
        """Append register = rsp + a constant."""
        self.move(register, RSP)
        self.step(register, offset_bytes)

    def here_begins(self, register: int, number: int) -> None:
        """Append register = rsp + a number that is told."""
        self.move(register, RSP)
        self.add(register, RDI, number)

    def sums_of_points(self) -> None:
        """Append B: R8 is at the first point of a sum, R9 at factors, R10 at counts, R11 at B."""
        size_bytes = 64 * self.kind.vectors
        sums = [*self.first, *self.second] if self.kind.complex_source else [*self.first]
        self.move(R8, R12)
        for register, number in ((R9, FIRST), (R10, COUNTS), (R14, SUMS)):
            self.load(register, RDI, number)
        self.load(RDX, RDI, NEXT_POINT)
        self.load(RBX, RDI, NEXT_SUM)
        self.place(R11, BEGINNING)
        begin = len(self.text)
        for each in sums:
            self.clear(each)
        self.move(RAX, R8)
        self.load(RCX, R10)
        self.compare(RCX, 0)
        none = self.ahead("0f84")
        point = len(self.text)
        self.point(_REAL, 0)
        if self.kind.complex_source:
            self.point(_IMAGINARY, 1)
        self.multiply(R9)
        self.step(R9, size_bytes)
        self.add(RAX, RDX)
        self.again(RCX, point)
        self.here(none)
        self.finish(R11, is_one=not self.kind.complex_source)
        self.step(R11, size_bytes)
        self.step(R10, 8)
        self.add(R8, RBX)
        self.again(R14, begin)

    def point(self, register: int, number: int) -> None:
        """Append what fills a vector with the first or second number at RAX."""
        if self.kind.wide_source:
            self.double(register, RAX, number)
        else:
            self.vector(_SINGLE, register, 0, RAX, behind=number, is_one=True)

    def sums_of_sums(self) -> None:
        """Append X: R8 is at factors, R9 at X, R11 at B."""
        self.load(R8, RDI, SECOND)
        self.here_begins(R9, SPECTRUM)
        self.load(R14, RDI, ROWS)
        row = len(self.text)
        for each in (*self.first, *self.second):
            self.clear(each)
        self.place(R11, BEGINNING)
        self.load(RCX, RDI, TERMS)
        term = len(self.text)
        self.double(_REAL, R8, 0)
        self.double(_IMAGINARY, R8, 1)
        self.multiply(R11, is_complex=True)
        self.step(R8, 16)
        self.step(R11, 64 * self.kind.vectors)
        self.again(RCX, term)
        self.finish(R9)
        self.add(R9, RDI, ROW_BYTES)
        self.again(R14, row)

    def multiply(self, base: int, *, is_complex: bool | None = None) -> None:
        """Append what adds products of vectors in memory and both parts of a number."""
        of_both = self.kind.complex_source if is_complex is None else is_complex
        for vector in range(self.kind.vectors):
            self.vector(LOAD, _READ, 0, base, behind=vector)
            self.fma(self.first[vector], _REAL)
            if of_both:
                self.fma(self.second[vector], _IMAGINARY)

    def fma(self, sum_: int, factor: int) -> None:
        """Append sum += factor * what was read."""
        self.wide(_FMA, sum_, factor, _READ, 2)

    def wide(self, opcode: int, register: int, first: int, second: int, kind: int) -> None:
        """Append an instruction on vectors of f64."""
        how = opcode, register, first, second
        self.vector(*how, kind=kind, prefix=1, is_memory=False, wide=True)

    def finish(self, base: int, *, is_one: bool = False) -> None:
        """Append what stores the first sums and i times the second ones, if there are two."""
        for vector in range(self.kind.vectors):
            sum_, other = self.first[vector], self.second[vector]
            if not is_one:
                self.wide(_PERMUTE, other, 0, other, 3)
                self.text.append(0x55)
                self.wide(_ALTERNATE, sum_, _UNIT, other, 2)
            self.vector(STORE, sum_, 0, base, behind=vector)

    def store_vectors(self) -> None:
        """Append what stores results at R9 that lie next to each other."""
        self.move(RAX, R13)
        self.load(RCX, RDI, VECTORS)
        self.compare(RCX, 0)
        none = self.ahead("0f84")
        again = len(self.text)
        self.store_one(0 if self.kind.wide_result else _HALF_MASK)
        self.step(RAX, 64 if self.kind.wide_result else 32)
        self.step(R9, 64)
        self.again(RCX, again)
        self.here(none)
        self.store_one(_LAST_MASK)

    def store_each(self) -> None:
        """Append what stores results at R9 one by one."""
        self.move(RAX, R13)
        self.load(RCX, RDI, RESULTS)
        self.load(RDX, RDI, STEP)
        again = len(self.text)
        self.store_one(_ONE_MASK)
        self.step(R9, 16)
        self.add(RAX, RDX)
        self.again(RCX, again)

    def store_one(self, mask: int) -> None:
        """Append what converts a vector at R9, and stores at RAX what a mask of 4 bytes says."""
        self.vector(LOAD, 0, 0, R9)
        if not self.kind.wide_result:
            self.wide(_CONVERT, 0, 0, 0, 1)
        self.vector(STORE, 0, 0, RAX, mask=mask)


@lru_cache(maxsize=64)
def transform(kind: Kind) -> bytes:
    """Return code for transforms of a kind; it is told what the numbers above say."""
    return _Transform(kind).code()
