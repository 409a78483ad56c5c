"""Rows taken by indices, by machine code for AVX-512.

NumPy takes 0.6 us for a row, and several where others' code ran before.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import told

_ARGUMENTS = struct.Struct("@PPPnnnnnn").pack
"""Rows, indices, result; how many indices there are, how many parts of so many rows, bytes of a
row, the least index, and whether indices have 8 bytes."""

# size_t loop(_ARGUMENTS* rdi): 0. r8: rows of a part; r9: result; r10, rdx: indices and the number
# of the next one; r11: bytes of a row, of which k1 has those behind whole lines; r12: rows of a
# part; rbp: parts left. What lies outside is 0.
_TAKE = bytes.fromhex(
    "f30f1efa535541544c8b07"  # endbr64; push rbx; push rbp; push r12; mov r8, [rdi]
    "4c8b4f104c8b67284c8b5f30"  # mov r9, [rdi+16]; mov r12, [rdi+40]; mov r11, [rdi+48]
    "4c89d983e13f49c7c2ffffffff"  # mov rcx, r11; and ecx, 63; mov r10, -1
    "c442f0f5d2c4c1fb92ca488b6f20"  # bzhi r10, r10, rcx; kmovq k1, r10; mov rbp, [rdi+32]
    "62f17548efc9"  # vpxord zmm1, zmm1, zmm1
    "48ffcd0f88af0000004c8b570831d2"  # part: dec rbp; js end; mov r10, [rdi+8]; xor edx, edx
    "483b57180f8490000000"  # index: cmp rdx, [rdi+24]; je next
    "48837f40007506"  # cmp qword ptr [rdi+64], 0; jne wide
    "49630492eb04"  # movsxd rax, dword ptr [r10+rdx*4]; jmp read
    "498b04d2"  # wide: mov rax, [r10+rdx*8]
    "48ffc2483b47387c4f4c39e0"  # read: inc rdx; cmp rax, [rdi+56]; jl none; cmp rax, r12
    "7d4a4889c348c1fb3f4c21e3"  # jge none; mov rbx, rax; sar rbx, 63; and rbx, r12
    "4801d8490fafc34c01c04c89d9"  # add rax, rbx; imul rax, r11; add rax, r8; mov rcx, r11
    "4883e940721662f17f486f00"  # copy: sub rcx, 64; jb last; vmovdqu8 zmm0, [rax]
    "62d17f487f014883c0404983c140ebe4"  # vmovdqu8 [r9], zmm0; add rax, 64; add r9, 64; jmp copy
    "4883c140749e62f17fc96f00"  # last: add rcx, 64; je index; vmovdqu8 zmm0{k1}{z}, [rax]
    "62d17f497f014901c9eb8d"  # vmovdqu8 [r9]{k1}, zmm0; add r9, rcx; jmp index
    "4c89d9"  # none: mov rcx, r11
    "4883e940720c62d17f487f09"  # zeros: sub rcx, 64; jb lastzeros; vmovdqu8 [r9], zmm1
    "4983c140ebee"  # add r9, 64; jmp zeros
    "62d17f497f094883c1404901c9"  # lastzeros: vmovdqu8 [r9]{k1}, zmm1; add rcx, 64; add r9, rcx
    "e966ffffff"  # jmp index
    "4c89e0490fafc34901c0e948ffffff"  # next: mov rax, r12; imul rax, r11; add r8, rax; jmp part
    "c5f877415c5d5b31c0c3"  # end: vzeroupper; pop r12; pop rbp; pop rbx; xor eax, eax; ret
)

INDEX_BYTES = (4, 8)
"""What indices with a sign may have."""


def prepared(
    shape: tuple[int, ...], axis: int, count: int, sizes: tuple[int, int], least: int
) -> tuple[Any, bytes]:
    """Return the function and what it is told, but for the addresses of what it reads and writes.

    Args:
        shape: of what rows are taken of, along an axis; row-major.
        axis: that axis.
        count: how many indices there are.
        sizes: bytes of an element, and of an index.
        least: the least index; negative ones count from the end.
    """
    before, size, behind = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    row_bytes, is_wide = behind * sizes[0], sizes[1] > INDEX_BYTES[0]
    sizes_of = 0, 0, 0, count, before, size, row_bytes, least, is_wide
    return function_of(_TAKE), told(_ARGUMENTS, *sizes_of)
