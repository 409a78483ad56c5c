"""Which of a few numbers, or rows of numbers, are alike, by machine code for AVX-512.

A table by a hash finds what has been there; then each of those that differ lies behind as many as
are smaller. NumPy takes ten calls for it, of 20 to 40 us.
"""

from __future__ import annotations

import struct
import threading
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.onednn.engine import address_of

KINDS: dict[np.dtype[Any], int] = {
    np.dtype(kind): number for number, kind in enumerate((np.int32, np.int64, np.float32, float))
}
"""Types of numbers, as code knows them."""

MOST = 1 << 12
"""Numbers at most; NumPy sorts more of them as fast."""

COMPARED, ROWS_COMPARED = 256, 64
"""So many that differ are compared with each other at most, and so many rows."""

_ADDRESSES, _BEFORE, _BEHIND = (struct.Struct(each).pack for each in ("@4P", "@2q2P2q", "@2Pq"))
_PLACES = struct.Struct("@2P").pack
_RANKED = 1 << 32

KEPT = 64
"""Sizes of which each thread keeps what code is told."""

# size_t unique(numbers* rdi): x, and first, inverse and counts; rows, and numbers of each; keys,
# and a table of 4 bytes each; its size - 1; the number of a kind; of those that differ, in the
# order in which they come: first, counts, ranks, and keys; how many are compared. Returns how many
# differ, | 1 << 32 if they are in order; 0 where NaN is in a row. r9: keys; rbx: how many differ;
# r12: numbers of a row; r13: a row; r14, r15: first and counts.
_UNIQUE = bytes.fromhex(
    "f30f1efa5355415441554156"  # endbr64; push rbx; push rbp; push r12; push r13; push r14
    "41574c8b074c8b4f304c8b5748"  # push r15; mov r8, [rdi]; mov r9, [rdi+48]; mov r10, [rdi+72]
    "4c8b6728488b4f20490fafcc"  # mov r12, [rdi+40]; mov rcx, [rdi+32]; imul rcx, r12
    "62a3f54025c9ff62b1ed4073d101"  # vpternlogq zmm17, zmm17, zmm17, 255; vpsrlq zmm18, zmm17, 1
    "62f1fd48efc0c5dc47e4"  # vpxorq zmm0, zmm0, zmm0; kxorw k4, k4, k4
    "b8ff0000004883f9087305"  # eight: mov eax, 255; cmp rcx, 8; jae whole
    "c4e270f5c0"  # bzhi eax, eax, ecx
    "c5f892c84983fa01771a740c"  # whole: kmovw k1, eax; cmp r10, 1; ja floats; je wide
    "62d27dc925084983c020eb52"  # vpmovsxdq zmm1{k1}{z}, [r8]; add r8, 32; jmp kept
    "62d1fec96f084983c040eb46"  # wide: vmovdqu64 zmm1{k1}{z}, [r8]; add r8, 64; jmp kept
    "4983fa03740c62d17cc95a08"  # floats: cmp r10, 3; je doubles; vcvtps2pd zmm1{k1}{z}, [r8]
    "4983c020eb0a"  # add r8, 32; jmp turned
    "62d1fec96f084983c040"  # doubles: vmovdqu64 zmm1{k1}{z}, [r8]; add r8, 64
    "62f1f548c2d103c5dc45e2"  # turned: vcmpunordpd k2, zmm1, zmm1; korw k4, k4, k2
    "62f1f54858c862f1ed4872e13f"  # vaddpd zmm1, zmm1, zmm0; vpsraq zmm2, zmm1, 63
    "62b1ed48dbd262f1f548efca"  # vpandq zmm2, zmm2, zmm18; vpxorq zmm1, zmm1, zmm2
    "62b1fd4a6fca"  # vmovdqa64 zmm1{k2}, zmm18
    "62d1fe497f094983c1404883e908"  # kept: vmovdqu64 [r9]{k1}, zmm1; add r9, 64; sub rcx, 8
    "0f8772ffffff4983fc01740c31c0"  # ja eight; cmp r12, 1; je clear; xor eax, eax
    "c5f898e40f85bd010000"  # kortestw k4, k4; jne end
    "4c8b5f38488b47404989c2"  # clear: mov r11, [rdi+56]; mov rax, [rdi+64]; mov r10, rax
    "62c1fe487f8c83c4ffffff4883e810"  # blank: vmovdqu64 [r11+rax*4-60], zmm17; sub rax, 16
    "79ef4c8b47304d89c1488b6f10"  # jns blank; mov r8, [rdi+48]; mov r9, r8; mov rbp, [rdi+16]
    "4c8b77504c8b7f5831db"  # mov r14, [rdi+80]; mov r15, [rdi+88]; xor ebx, ebx
    "4531ed57"  # xor r13d, r13d; push rdi
    "31c031c9"  # row: xor eax, eax; xor ecx, ecx
    "f2490f38f104c848ffc14c39e1"  # hash: crc32 rax, qword ptr [r8+rcx*8]; inc rcx; cmp rcx, r12
    "72f1"  # jb hash
    "4421d04963148385d2"  # probe: and eax, r10d; movsxd rdx, dword ptr [r11+rax*4]; test edx, edx
    "782a498b34d6490faff4"  # js new; mov rsi, [r14+rdx*8]; imul rsi, r12
    "498d34f131c9"  # lea rsi, [r9+rsi*8]; xor ecx, ecx
    "498b3cc8483b3cce750e"  # alike: mov rdi, [r8+rcx*8]; cmp rdi, [rsi+rcx*8]; jne other
    "48ffc14c39e172ee49ff04d7"  # inc rcx; cmp rcx, r12; jb alike; inc qword ptr [r15+rdx*8]
    "eb18"  # jmp known
    "ffc0ebcb"  # other: inc eax; jmp probe
    "41891c834d892cde"  # new: mov [r11+rax*4], ebx; mov [r14+rbx*8], r13
    "49c704df0100000089daffc3"  # mov qword ptr [r15+rbx*8], 1; mov edx, ebx; inc ebx
    "4a8954ed004f8d04e049ffc5"  # known: mov [rbp+r13*8], rdx; lea r8, [r8+r12*8]; inc r13
    "488b3c244c3b6f20728e5f"  # mov rdi, [rsp]; cmp r13, [rdi+32]; jb row; pop rdi
    "4889d8483b5f700f8708010000"  # mov rax, rbx; cmp rbx, [rdi+112]; ja end
    "4c8b47604983fc0175564c8b5768"  # mov r8, [rdi+96]; cmp r12, 1; jne rows; mov r10, [rdi+104]
    "31c9"  # xor ecx, ecx
    "498b34ce498b04f1"  # copy: mov rsi, [r14+rcx*8]; mov rax, [r9+rsi*8]
    "498904ca48ffc14839d972ec"  # mov [r10+rcx*8], rax; inc rcx; cmp rcx, rbx; jb copy
    "62c1fe487f14da31c9"  # vmovdqu64 [r10+rbx*8], zmm18; xor ecx, ecx
    "62d2fd48590cca31d231f6"  # rank: vpbroadcastq zmm1, [r10+rcx*8]; xor edx, edx; xor esi, esi
    "62d2f548370cf2c5f893c1"  # below: vpcmpgtq k1, zmm1, [r10+rsi*8]; kmovw eax, k1
    "f30fb8c001c24883c6084839de"  # popcnt eax, eax; add edx, eax; add rsi, 8; cmp rsi, rbx
    "72e6498914c848ffc14839d972cf"  # jb below; mov [r8+rcx*8], rdx; inc rcx; cmp rcx, rbx; jb rank
    "eb62"  # jmp ranked
    "31c9"  # rows: xor ecx, ecx
    "49c704c80000000048ffc14839d9"  # zero: mov qword ptr [r8+rcx*8], 0; inc rcx; cmp rcx, rbx
    "72f031c9"  # jb zero; xor ecx, ecx
    "488d5101498b34ce490faff4"  # one: lea rdx, [rcx+1]; mov rsi, [r14+rcx*8]; imul rsi, r12
    "498d34f1eb2f"  # lea rsi, [r9+rsi*8]; jmp more
    "4d8b14d64d0fafd44f8d14d1"  # two: mov r10, [r14+rdx*8]; imul r10, r12; lea r10, [r9+r10*8]
    "4531db"  # xor r11d, r11d
    "4a8b04de4b3b04da7508"  # same: mov rax, [rsi+r11*8]; cmp rax, [r10+r11*8]; jne differ
    "49ffc34d39e372ee"  # inc r11; cmp r11, r12; jb same
    "4889c8480f4cc249ff04c0"  # differ: mov rax, rcx; cmovl rax, rdx; inc qword ptr [r8+rax*8]
    "48ffc2"  # inc rdx
    "4839da72cc48ffc14839d972b2"  # more: cmp rdx, rbx; jb two; inc rcx; cmp rcx, rbx; jb one
    "4c8b57084c8b5f1831c9"  # ranked: mov r10, [rdi+8]; mov r11, [rdi+24]; xor ecx, ecx
    "498b14c8498b04ce"  # place: mov rdx, [r8+rcx*8]; mov rax, [r14+rcx*8]
    "498904d2498b04cf498904d3"  # mov [r10+rdx*8], rax; mov rax, [r15+rcx*8]; mov [r11+rdx*8], rax
    "48ffc14839d972e431c9"  # inc rcx; cmp rcx, rbx; jb place; xor ecx, ecx
    "488b54cd00498b04d0"  # number: mov rdx, [rbp+rcx*8]; mov rax, [r8+rdx*8]
    "488944cd0048ffc14c39e972ea"  # mov [rbp+rcx*8], rax; inc rcx; cmp rcx, r13; jb number
    "4889d8480fbae820"  # mov rax, rbx; bts rax, 32
    "c5f877415f415e415d415c5d"  # end: vzeroupper; pop r15; pop r14; pop r13; pop r12; pop rbp
    "5bc3"  # pop rbx; ret
)


_Told = tuple[bytes, bytes, bytes]
"""What code is told behind addresses, of where it puts those that differ, and behind that; nothing
in the middle for where the results are."""


class _Room(threading.local):
    """Memory for keys and what is not asked for, of each thread: to ask for it takes 1 us."""

    def __init__(self) -> None:
        """Take it."""
        each = MOST + 8
        self._rows = np.empty((5, each), np.int64)
        self.keys, *self.found = self._rows
        self._table = np.empty(_slots(MOST), np.int32)
        keys = address_of(self._rows)
        first, counts, *self._others = (keys + 8 * each * number for number in range(1, 5))
        self._places = _PLACES(first, counts)
        self._begin = keys, address_of(self._table)
        self.told: dict[tuple[int, int, np.dtype[Any], bool], _Told] = {}

    def tell(self, rows: int, size: int, dtype: np.dtype[Any], is_sorted: bool) -> _Told | None:
        """Return what code is told of arrays of a form; None where there is none."""
        kind = KINDS.get(dtype)
        if kind is None or not 0 < size <= MOST or not has_avx512():
            return None
        if len(self.told) >= KEPT:
            self.told.clear()
        width = size // rows
        compared = 0 if not is_sorted else COMPARED if width == 1 else ROWS_COMPARED
        made = (
            _BEFORE(rows, width, *self._begin, _slots(rows) - 1, kind),
            self._places if is_sorted else b"",
            _BEHIND(*self._others, compared),
        )
        return self.told.setdefault((rows, size, dtype, is_sorted), made)


def _slots(rows: int) -> int:
    """Return how long a table is for so many rows: half full at most."""
    return max(16, 1 << (2 * rows).bit_length())


_room = _Room()


def unique(x: Array, *, is_sorted: bool) -> tuple[Array, Array, Array] | None:
    """Return what is known of the rows that differ: `first`, `inverse` and `counts`, of i64.

    Zeros are alike, and NaN is, of one number each.

    Args:
        x: [rows, numbers], or [rows], of a type in `KINDS`.
        is_sorted: whether they are in order, NaN last; else in that in which they come.

    Returns:
        None where there is no code, or it takes longer than NumPy; or where NaN is in a row.
    """
    rows, size = len(x), x.size
    room = _room
    told = room.told.get((rows, size, x.dtype, is_sorted)) or room.tell(
        rows, size, x.dtype, is_sorted
    )
    if told is None:
        return None
    if not x.flags.c_contiguous:
        x = x.copy(order="C")
    result = np.empty(3 * rows, np.int64)
    first = address_of(result)
    inverse, counts = first + 8 * rows, first + 16 * rows
    before, places, behind = told
    function = function_of(_UNIQUE)
    assert function is not None  # as there is code
    count = function(
        _ADDRESSES(address_of(x), first, inverse, counts)
        + before
        + (places or _PLACES(first, counts))
        + behind
    )
    differ = count & _RANKED - 1
    if not differ:
        return None
    if not is_sorted or count & _RANKED:
        return result[:differ], result[rows : 2 * rows], result[2 * rows : 2 * rows + differ]
    if size > rows:
        return None
    first_ones, how_many = (each[:differ] for each in room.found[:2])
    return _in_order(room.keys, first_ones, how_many, result[rows : 2 * rows])


def _in_order(
    keys: Array, first: Array, counts: Array, inverse: Array
) -> tuple[Array, Array, Array]:
    """Return the same in the order of keys."""
    order = keys.take(first).argsort()
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return first.take(order), rank.take(inverse), counts.take(order)
