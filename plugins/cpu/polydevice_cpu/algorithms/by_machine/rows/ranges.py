"""The range of numbers as it is quantised to bytes, and these rounded to it, by machine code."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Told, told
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
    RAX,
    RBX,
    RCX,
    RDI,
    RSI,
    STORE,
    SUB,
    Instructions,
)

_ARGUMENTS = struct.Struct("@4q").pack
"""Numbers, the scale, the zero point, and how many numbers there are."""

# size_t range(_ARGUMENTS* rdi): 0. zmm0, zmm1: the largest and the least numbers, and 0; zmm2: the
# largest sizes, as integers, which tell whether any number is NaN. cvtss2si rounds as NumPy does.
_RANGE = bytes.fromhex(
    "f30f1efa4c8b074c8b4f084c8b5710"  # endbr64; mov r8, [rdi]; mov r9, [rdi+8]; mov r10, [rdi+16]
    "488b4f1862f17d48efc0"  # mov rcx, [rdi+24]; vpxord zmm0, zmm0, zmm0
    "62f17548efc962f16d48efd2"  # vpxord zmm1, zmm1, zmm1; vpxord zmm2, zmm2, zmm2
    "b8ffffff7f62f27d487ce8"  # mov eax, 0x7fffffff; vpbroadcastd zmm5, eax
    "4883e910722462d17c481020"  # all: sub rcx, 16; jb rest; vmovups zmm4, [r8]
    "4983c04062f17c485fc4"  # add r8, 64; vmaxps zmm0, zmm0, zmm4
    "62f174485dcc62f15d48dbe5"  # vminps zmm1, zmm1, zmm4; vpandd zmm4, zmm4, zmm5
    "62f26d483fd4ebd6"  # vpmaxud zmm2, zmm2, zmm4; jmp all
    "4883c110742bb801000000d3e0"  # rest: add rcx, 16; je found; mov eax, 1; shl eax, cl
    "ffc8c5f892c862d17cc91020"  # dec eax; kmovw k1, eax; vmovups zmm4{k1}{z}, [r8]
    "62f17c485fc462f174485dcc"  # vmaxps zmm0, zmm0, zmm4; vminps zmm1, zmm1, zmm4
    "62f15d48dbe562f26d483fd4"  # vpandd zmm4, zmm4, zmm5; vpmaxud zmm2, zmm2, zmm4
    "62f3fd481bc401c5fc5fc4"  # found: vextractf64x4 ymm4, zmm0, 1; vmaxps ymm0, ymm0, ymm4
    "c4e37d19c401c5f85fc4"  # vextractf128 xmm4, ymm0, 1; vmaxps xmm0, xmm0, xmm4
    "c4e37904e04ec5f85fc4"  # vpermilps xmm4, xmm0, 0x4e; vmaxps xmm0, xmm0, xmm4
    "c4e37904e0b1c5f85fc4"  # vpermilps xmm4, xmm0, 0xb1; vmaxps xmm0, xmm0, xmm4
    "62f3fd481bcc01c5f45dcc"  # vextractf64x4 ymm4, zmm1, 1; vminps ymm1, ymm1, ymm4
    "c4e37d19cc01c5f05dcc"  # vextractf128 xmm4, ymm1, 1; vminps xmm1, xmm1, xmm4
    "c4e37904e14ec5f05dcc"  # vpermilps xmm4, xmm1, 0x4e; vminps xmm1, xmm1, xmm4
    "c4e37904e1b1c5f05dcc"  # vpermilps xmm4, xmm1, 0xb1; vminps xmm1, xmm1, xmm4
    "62f3fd481bd401c4e26d3fd4"  # vextractf64x4 ymm4, zmm2, 1; vpmaxud ymm2, ymm2, ymm4
    "c4e37d19d401c4e2693fd4"  # vextractf128 xmm4, ymm2, 1; vpmaxud xmm2, xmm2, xmm4
    "c4e37904e24ec4e2693fd4"  # vpermilps xmm4, xmm2, 0x4e; vpmaxud xmm2, xmm2, xmm4
    "c4e37904e2b1c4e2693fd4"  # vpermilps xmm4, xmm2, 0xb1; vpmaxud xmm2, xmm2, xmm4
    "c5f82ed27a44b800007f43"  # vucomiss xmm2, xmm2; jp none; mov eax, 0x437f0000
    "c5f96ee0c5fa5cd9c5e25edc"  # vmovd xmm4, eax; vsubss xmm3, xmm0, xmm1; vdivss xmm3, xmm3, xmm4
    "c5d057edc5f82edd7509"  # vxorps xmm5, xmm5, xmm5; vucomiss xmm3, xmm5; jne scale
    "b80000803fc5f96ed8"  # mov eax, 0x3f800000; vmovd xmm3, eax
    "c4c17a1119c5d25ce9"  # scale: vmovss [r9], xmm3; vsubss xmm5, xmm5, xmm1
    "c5d25eebc5f82eed7a12"  # vdivss xmm5, xmm5, xmm3; vucomiss xmm5, xmm5; jp zero
    "c5d25decc5fa2dc5418802"  # vminss xmm5, xmm5, xmm4; vcvtss2si eax, xmm5; mov byte ptr [r10], al
    "eb09"  # jmp end
    "c4c17a1111"  # none: vmovss [r9], xmm2
    "41c60200"  # zero: mov byte ptr [r10], 0
    "c5f87731c0c3"  # end: vzeroupper; xor eax, eax; ret
)


def prepared(count: int) -> Told:
    """Return the function and what it is told of so many f32, one behind the other.

    As NumPy has it: the scale is that of 255 steps between the ends, 1 where both are 0; the zero
    point of a scale that is no number is 0.
    """
    return function_of(_RANGE), told(_ARGUMENTS, 0, 0, 0, count)


_ROUND_ARGUMENTS = struct.Struct("@3q2f").pack
"""Numbers, results, how many there are; the steps of a range, and the least scale."""

_SOURCE, _RESULT, _COUNT, _STEPS, _TINY = 0, 1, 2, 6, 7
"""Where they are, in numbers of 8 bytes, and of 4."""

_HIGH, _LOW, _ODD, _X, _SPARE, _NOTHING = range(6)
_SCALE, _LEAST, _MOST = _HIGH, _LOW, _ODD
_SOME = 1


def rounded(count: int) -> Told | None:
    """Return code, likewise, that rounds so many numbers to the 256 of their range.

    7,000 numbers take 6 us (a Zen of the first generation), NumPy's calls 36.
    """
    function = _rounding()
    tiny = float(np.finfo(np.float32).smallest_subnormal)
    return None if function is None else (function, told(_ROUND_ARGUMENTS, 0, 0, count, 255, tiny))


@lru_cache(maxsize=1)
def _rounding() -> Any | None:
    return function_of(_Rounded().emitted())


class _Rounded(Instructions):
    """Two loops: for the range of all numbers, and to round them."""

    def __init__(self) -> None:
        super().__init__(is_short=True)

    def emitted(self) -> bytes:
        """Return the code."""
        self.begin(0)
        self.load(RSI, RDI, _COUNT)
        self.move(RCX, RSI)
        rest = self.lanes - 1
        self.raw(f"83e1{rest:02x}b801000000d3e0ffc8")  # and ecx; mov eax, 1; shl eax, cl; dec eax
        self.set_mask(_SOME, RAX)
        self.load(R8, RDI, _SOURCE)
        self.load(R9, RDI, _RESULT)
        for each in (_HIGH, _LOW, _ODD, _NOTHING):
            self.clear(each)
        self.move(R10, R8)
        self._along((R10,), self._append_limits)
        for kind, register in ((MAX, _HIGH), (MIN, _LOW), (ADD, _ODD)):
            self.all_across(kind, register, _SPARE)
        self._append_parameters()
        self._along((R8, R9), self._append_rounding)
        self.end(0)
        return self.assembled()

    def _along(self, pointers: Sequence[int], append: Callable[[int], None]) -> None:
        """Append what is done to vectors, and with the mask of the last one."""
        self.move(RCX, RSI)
        self.raw(f"48c1e9{self.lanes.bit_length() - 1:02x}")  # shr rcx
        few = self.ahead("0f84")  # jz
        start = len(self.text)
        append(0)
        for pointer in pointers:
            self.step(pointer, 4 * self.lanes)
        self.again(RCX, start)
        self.here(few)
        self.move(RBX, RSI)
        self.raw(f"4883e3{self.lanes - 1:02x}")  # and rbx
        none = self.ahead("0f84")  # jz
        append(_SOME)
        self.here(none)

    def _append_limits(self, mask: int) -> None:
        """Append what finds the largest and the least; 0 times each is 0 unless one is odd."""
        self.vector(LOAD, _X, 0, R10, mask=mask)
        self.of_vectors(MAX, _HIGH, _HIGH, _X)
        self.of_vectors(MIN, _LOW, _LOW, _X)
        self.vector(0xB8, _ODD, _X, _NOTHING, kind=2, prefix=1, is_memory=False)

    def _append_parameters(self) -> None:
        """Append scale, and the ends of integers less the zero point."""
        self.spread(_SPARE, RDI, behind=_STEPS)
        self.of_vectors(SUB, _SCALE, _HIGH, _LOW)
        self.of_vectors(DIVIDE, _SCALE, _SCALE, _SPARE)
        self.of_vectors(ADD, _SCALE, _SCALE, _ODD)
        self.spread(_X, RDI, behind=_TINY)
        self.of_vectors(MAX, _SCALE, _X, _SCALE)  # the second one where that is NaN
        self.of_vectors(DIVIDE, _LEAST, _LOW, _SCALE)
        self.of_vectors(SUB, _X, _NOTHING, _SPARE)
        self.of_vectors(MAX, _LEAST, _LEAST, _X)
        self._round(_LEAST)
        self.of_vectors(ADD, _MOST, _SPARE, _LEAST)

    def _append_rounding(self, mask: int) -> None:
        self.vector(LOAD, _X, 0, R8, mask=mask)
        self.of_vectors(DIVIDE, _X, _X, _SCALE)
        self._round(_X)
        self.of_vectors(MAX, _X, _X, _LEAST)
        self.of_vectors(MIN, _X, _X, _MOST)
        self.of_vectors(MUL, _X, _X, _SCALE)
        self.of_vectors(ADD, _X, _X, _NOTHING)
        self.vector(STORE, _X, 0, R9, mask=mask)

    def _round(self, x: int) -> None:
        """Append what rounds to the nearest integer, halves to even."""
        self.vector(0x08, x, 0, x, kind=3, prefix=1, is_memory=False, last_byte=0)
