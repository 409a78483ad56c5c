"""The best: indices of the first few elements of rows, in order, by machine code for AVX-512.

Most elements are compared with the last of the best ones alone, 16 at a time.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.onednn.engine import address_of

NONE = 0xFFFFFFFF
"""The index of what is not there, as no more elements are above the limit."""

SQUARE = 8
"""The square of how many are kept is so many times a row's length at most: each that comes in moves
those behind it, and 300 of 8,400 take 47 us, where sorting the best of groups takes 26."""

SPARED = 1 << 14
"""And rows may be shorter where the squares of what is kept of all rows together are no more, which
takes less than NumPy's calls for it: 60 of each of 4 rows of 300 take 13 us, and 34."""

FEWEST_STEPS = 1 << 13
"""Of moving kept ones; so many take 5 us at most, however the elements lie."""

_LOWEST, _HIGHEST = -(1 << 31), (1 << 31) - 1

ROOM = 8
"""Kept ones that are moved at once; so many that are better than all lie before them."""

_ARGUMENTS = struct.Struct("@PPPPnn ii n ii nn").pack
"""Rows, the result, an address that is for others, what is kept, how much that is, and how many
rows there are; bits that turn the order, a number that those kept are above; steps that it may
take, `_HIGHEST`, what stands for NaN, the rows' length, and room for the steps that are left."""

TOLD_BYTES = 88

# size_t loop(_ARGUMENTS* rdi): 0, or another number if it took too long. A float becomes a number
# in the same order, shifted behind which lie the opposite bits of its index. r11: the first of
# those kept; r12: the last; ebp, zmm2: its number; rsi: an index; zmm3: 16 numbers, of which ebx
# has those that are above.
_BEST = bytes.fromhex(
    "f30f1efa535541544155"  # endbr64; push rbx; push rbp; push r12; push r13
    "4c8b074c8b4f284c8b5748"  # mov r8, [rdi]; mov r9, [rdi+40]; mov r10, [rdi+72]
    "488b473848894750"  # mov rax, [rdi+56]; mov [rdi+80], rax
    "4c8b5f184983c340488b4720"  # mov r11, [rdi+24]; add r11, 64; mov rax, [rdi+32]
    "4d8d64c3f84c8b6f08"  # lea r12, [r11+rax*8-8]; mov r13, [rdi+8]
    "62e27d48584f0c62e27d48584710"  # vpbroadcastd zmm17, [rdi+48]; vpbroadcastd zmm16, [rdi+64]
    "62e27d4858571162f17d48efc0"  # vpbroadcastd zmm18, [rdi+68]; vpxord zmm0, zmm0, zmm0
    "8b6f344889e848c1e020"  # row: mov ebp, [rdi+52]; mov rax, rbp; shl rax, 32
    "488b4f204c89da"  # mov rcx, [rdi+32]; mov rdx, r11
    "4889024883c20848ffc975f4"  # clear: mov [rdx], rax; add rdx, 8; dec rcx; jne clear
    "62f27d487cd531f6"  # vpbroadcastd zmm2, ebp; xor esi, esi
    "4c89d04829f00f8ed7000000"  # scan: mov rax, r10; sub rax, rsi; jle last
    "b9ffffffff4883f8107305"  # mov ecx, -1; cmp rax, 16; jae whole
    "c4e278f5c9"  # bzhi ecx, ecx, eax
    "c5f892c962d17cc9101cb0"  # whole: kmovw k1, ecx; vmovups zmm3{k1}{z}, [r8+rsi*4]
    "62f16448c2d30362f1644858d8"  # vcmpunordps k2, zmm3, zmm3; vaddps zmm3, zmm3, zmm0
    "62f15d4872e31f62b15d48dbe0"  # vpsrad zmm4, zmm3, 31; vpandd zmm4, zmm4, zmm16
    "62f16548efdc62b17d4a6fda"  # vpxord zmm3, zmm3, zmm4; vmovdqa32 zmm3{k2}, zmm18
    "62b16548efd962f1654966ca"  # vpxord zmm3, zmm3, zmm17; vpcmpgtd k1{k1}, zmm3, zmm2
    "c5f893d985db7479"  # kmovw ebx, k1; test ebx, ebx; je next
    "62f17e487f5c24ff"  # vmovdqu32 [rsp-64], zmm3
    "f30fbccb4863448cc0"  # each: tzcnt ecx, ebx; movsxd rax, dword ptr [rsp+rcx*4-64]
    "39e87e5d48c1e0208d140e"  # cmp eax, ebp; jle worse; shl rax, 32; lea edx, [rsi+rcx]
    "f7d24809d062f2fd487ce84c89e2"  # not edx; or rax, rdx; vpbroadcastq zmm5, rax; mov rdx, r12
    "62f1fe486f72ff62f3cd481fdd01"  # shift: vmovdqu64 zmm6, [rdx-64]; vpcmpq k3, zmm6, zmm5, 1
    "62f1fe4b7fb2c8ffffffc5f893cb"  # vmovdqu64 [rdx-56]{k3}, zmm6; kmovw ecx, k3
    "48ff4f50786381f9ff0000007506"  # dec qword ptr [rdi+80]; js long; cmp ecx, 255; jne place
    "4883ea40ebd0"  # sub rdx, 64; jmp shift
    "f30fb8c9c1e1034829ca"  # place: popcnt ecx, ecx; shl ecx, 3; sub rdx, rcx
    "488902418b6c240462f27d487cd5"  # mov [rdx], rax; mov ebp, [r12+4]; vpbroadcastd zmm2, ebp
    "c4e260f3cb758f"  # worse: blsr ebx, ebx; jne each
    "4883c610e91dffffff"  # next: add rsi, 16; jmp scan
    "488b4f204c89da"  # last: mov rcx, [rdi+32]; mov rdx, r11
    "8b02f7d0498945004883c208"  # index: mov eax, [rdx]; not eax; mov [r13], rax; add rdx, 8
    "4983c50848ffc975eb4f8d0490"  # add r13, 8; dec rcx; jne index; lea r8, [r8+r10*4]
    "49ffc90f85cffeffff31c0eb05"  # dec r9; jne row; xor eax, eax; jmp end
    "b801000000"  # long: mov eax, 1
    "c5f877415d415c5d5bc3"  # end: vzeroupper; pop r13; pop r12; pop rbp; pop rbx; ret
)


_FIRST_ARGUMENTS = struct.Struct("@PPnnniiii16i").pack
"""Rows, result, how many rows there are, their length, and whether results have 8 bytes;
`_HIGHEST`, bits that turn the order, `_LOWEST`, 16, and the numbers below it."""

# size_t loop(_FIRST_ARGUMENTS* rdi): 0. zmm2, zmm3: the best number of every 16th element, and the
# first index that has it; zmm5: the next indices.
_FIRST = bytes.fromhex(
    "f30f1efa4c8b074c8b4f08"  # endbr64; mov r8, [rdi]; mov r9, [rdi+8]
    "4c8b57184c8b5f10"  # mov r10, [rdi+24]; mov r11, [rdi+16]
    "62e27d4858470a62e27d48584f0b"  # vpbroadcastd zmm16, [rdi+40]; vpbroadcastd zmm17, [rdi+44]
    "62e27d4858570c62e27d48585f0d"  # vpbroadcastd zmm18, [rdi+48]; vpbroadcastd zmm19, [rdi+52]
    "62e17e486fa73800000062f17d48efc0"  # vmovdqu32 zmm20, [rdi+56]; vpxord zmm0, zmm0, zmm0
    "49ffcb0f881801000062b17d486fd2"  # row: dec r11; js end; vmovdqa32 zmm2, zmm18
    "62b17d486fdc62b17d486fec"  # vmovdqa32 zmm3, zmm20; vmovdqa32 zmm5, zmm20
    "4c89d1b8ffffffff"  # mov rcx, r10; mov eax, -1
    "4883f9107305c4e270f5c0"  # some: cmp rcx, 16; jae whole; bzhi eax, eax, ecx
    "c5f892c862d17cc91008"  # whole: kmovw k1, eax; vmovups zmm1{k1}{z}, [r8]
    "62f17448c2d10362f1744858c8"  # vcmpunordps k2, zmm1, zmm1; vaddps zmm1, zmm1, zmm0
    "62f15d4872e11f62b15d48dbe0"  # vpsrad zmm4, zmm1, 31; vpandd zmm4, zmm4, zmm16
    "62f17548efcc62b17d4a6fc8"  # vpxord zmm1, zmm1, zmm4; vmovdqa32 zmm1{k2}, zmm16
    "62b17548efc962f1754966ca"  # vpxord zmm1, zmm1, zmm17; vpcmpgtd k1{k1}, zmm1, zmm2
    "62f17d496fd162f17d496fdd"  # vmovdqa32 zmm2{k1}, zmm1; vmovdqa32 zmm3{k1}, zmm5
    "62b15548feeb4883f910760a"  # vpaddd zmm5, zmm5, zmm19; cmp rcx, 16; jbe found
    "4983c0404883e910eb97"  # add r8, 64; sub rcx, 16; jmp some
    "4d8d048862f3fd483bd101"  # found: lea r8, [r8+rcx*4]; vextracti64x4 ymm1, zmm2, 1
    "c4e2753dcac4e37d39cc01"  # vpmaxsd ymm1, ymm1, ymm2; vextracti128 xmm4, ymm1, 1
    "c4e2713dccc5f970e14e"  # vpmaxsd xmm1, xmm1, xmm4; vpshufd xmm4, xmm1, 0x4e
    "c4e2713dccc5f970e1b1"  # vpmaxsd xmm1, xmm1, xmm4; vpshufd xmm4, xmm1, 0xb1
    "c4e2713dcc62f27d4858c9"  # vpmaxsd xmm1, xmm1, xmm4; vpbroadcastd zmm1, xmm1
    "62f1754876d262b17d486fe0"  # vpcmpeqd k2, zmm1, zmm2; vmovdqa32 zmm4, zmm16
    "62f17d4a6fe362f3fd483be101"  # vmovdqa32 zmm4{k2}, zmm3; vextracti64x4 ymm1, zmm4, 1
    "c4e27539ccc4e37d39cc01"  # vpminsd ymm1, ymm1, ymm4; vextracti128 xmm4, ymm1, 1
    "c4e27139ccc5f970e14e"  # vpminsd xmm1, xmm1, xmm4; vpshufd xmm4, xmm1, 0x4e
    "c4e27139ccc5f970e1b1"  # vpminsd xmm1, xmm1, xmm4; vpshufd xmm4, xmm1, 0xb1
    "c4e27139ccc5f97ec8"  # vpminsd xmm1, xmm1, xmm4; vmovd eax, xmm1
    "48837f2000750c418901"  # cmp qword ptr [rdi+32], 0; jne wide; mov [r9], eax
    "4983c104e9ebfeffff"  # add r9, 4; jmp row
    "4989014983c108e9dffeffff"  # wide: mov [r9], rax; add r9, 8; jmp row
    "c5f87731c0c3"  # end: vzeroupper; xor eax, eax; ret
)


def prepared_first(rows: int, length: int, *, descending: bool, is_wide: bool) -> tuple[Any, bytes]:
    """Return the function of the first element's index in each row, and what it is told.

    The addresses of rows and indices are left out. Of equal elements it is the first; NaN is
    largest.

    Args:
        rows: how many there are, f32, one behind the other.
        length: of each, below 2^31.
        descending: whether the largest element is wanted.
        is_wide: whether indices have 8 bytes, instead of 4.
    """
    turned = 0 if descending else -1
    numbers = _HIGHEST, turned, _LOWEST, 16, *range(16)
    return function_of(_FIRST), _FIRST_ARGUMENTS(0, 0, rows, length, is_wide, *numbers)


def ranked(x: Array, count: int, *, descending: bool, above: float | None = None) -> Array | None:
    """Return [rows, count], i64: indices of the first elements of each row, the first one first.

    Of equal ones the lower index is first; NaN is largest, but not `above` anything.

    Args:
        x: [rows, length], row-major f32.
        count: 1 or more.
        descending: whether the largest ones are first.
        above: only elements above this number, which is not NaN, count, if they are `descending`;
            where there are fewer of them, `NONE` follows.

    Returns:
        None where the processor or the system has no such code, where it would take longer than
        sorting does, and where some are missing without `above`.
    """
    rows, length = x.shape
    if not ranks(rows, length, count, SPARED):
        return None
    kept = _room(count)
    index = np.empty((rows, count), np.int64)
    places = address_of(x), address_of(index), address_of(kept)
    function, told = ranking(places, x.shape, count, descending=descending, above=above)
    if function(told):
        return None
    if above is None and bool((index[:, -1] == NONE).any()):
        return None  # what is first is last of all numbers, as NaN is of the smallest
    return index


def ranks(rows: int, length: int, count: int, spared: int = 0) -> bool:
    """Whether there is code that ranks so many of rows, and takes less time than others.

    Args:
        rows: how many there are.
        length: of each.
        count: how many are ranked of each.
        spared: squares of these, of all rows together, which it may have where its time is spent
            otherwise; 2^16 take 30 us.
    """
    square = count * count
    is_short = count > 0 and (square <= SQUARE * length or rows * square <= spared)
    return is_short and length < NONE and rows > 0 and has_avx512()


def ranking(
    places: tuple[int, int, int],
    shape: tuple[int, ...],
    count: int,
    *,
    descending: bool,
    above: float | None = None,
) -> tuple[Any, bytes]:
    """Return what finds what `ranked` returns, and what it is told; it returns 0 if it has.

    Args:
        places: addresses of rows, result, and `ROOM` numbers of 8 bytes more than are ranked, of
            which the first ones are the largest there are.
        shape: of the rows.
        count: as `ranked` has it, as are the others.
        descending: the same.
        above: the same.
    """
    rows, length = shape
    x, index, kept = places
    turned, limit = 0 if descending else -1, _LOWEST if above is None else _number(above)
    steps = _steps(rows, length, count)
    nan = _HIGHEST if above is None else _LOWEST
    given = x, index, 0, kept, count, rows, turned, limit, steps, _HIGHEST, nan, length, 0
    return function_of(_BEST), _ARGUMENTS(*given)


FEW = 16
"""So many are kept without a bound: each that comes in moves two times eight of them at most."""


def prepared_few(
    rows: int, length: int, count: int, *, descending: bool
) -> tuple[tuple[Any, bytes], object]:
    """Return the function of what `ranked` returns, what it is told, and what is to be kept.

    The addresses of rows and result are left out, and one behind them is for others. Where some
    are missing, as NaN is the smallest, `NONE` is their index. It returns 1 if it took too long,
    which it does not for `FEW`.
    """
    kept = _room(count)
    turned, steps = 0 if descending else -1, 1 << 62
    if count > FEW:
        steps = _steps(rows, length, count)
    given = 0, 0, 0, address_of(kept), count, rows, turned, _LOWEST, steps, _HIGHEST, _HIGHEST
    return (function_of(_BEST), _ARGUMENTS(*given, length, 0)), kept


def _room(count: int) -> Array:
    """Room for so many that are kept, behind some that are better than all."""
    kept = np.empty(ROOM + count, np.int64)
    kept[:ROOM] = np.iinfo(np.int64).max
    return kept


def _steps(rows: int, length: int, count: int) -> int:
    """Twice the steps that random elements take, and some for each element."""
    found = 2 * count * (1 + math.log(max(length / count, 1))) * (count / 2 / ROOM + 1)
    return max(rows * (int(found) + length // 8), FEWEST_STEPS)


def _number(x: float) -> int:
    """What a float becomes."""
    (bits,) = struct.unpack("<i", struct.pack("<f", x + 0.0))
    return bits ^ _HIGHEST if bits < 0 else int(bits)
