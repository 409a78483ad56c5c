"""Sums and means of rows of any length, by machine code for AVX-512."""

from __future__ import annotations

import struct
from typing import Any

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import told

_ARGUMENTS = struct.Struct("@PPnnf").pack
"""Rows, sums, how many there are, their length, and what sums are multiplied by."""

# size_t loop(_ARGUMENTS* rdi): 0. r8: rows; r9: sums; rsi: the length; k1: the elements of the last
# part of a row, if that is not whole.
_SUM = bytes.fromhex(
    "f30f1efa4c8b074c8b4f08"  # endbr64; mov r8, [rdi]; mov r9, [rdi+8]
    "4c8b5f10488b7718"  # mov r11, [rdi+16]; mov rsi, [rdi+24]
    "62e17e0810470889f1b801000000"  # vmovss xmm16, [rdi+32]; mov ecx, esi; mov eax, 1
    "83e10fd3e0ffc8c5f892c8"  # and ecx, 15; shl eax, cl; dec eax; kmovw k1, eax
    "49ffcb786562f16d48efd2"  # row: dec r11; js end; vpxord zmm2, zmm2, zmm2
    "4889f0"  # mov rax, rsi
    "4883e810720c62d16c485810"  # add_up: sub rax, 16; jb rest; vaddps zmm2, zmm2, [r8]
    "4983c040ebee"  # add r8, 64; jmp add_up
    "4883c010740a62d16c495810"  # rest: add rax, 16; je total; vaddps zmm2{k1}, zmm2, [r8]
    "4d8d0480"  # lea r8, [r8+rax*4]
    "62f3fd481bd101c5ec58d1"  # total: vextractf64x4 ymm1, zmm2, 1; vaddps ymm2, ymm2, ymm1
    "c4e37d19d101c5e858d1"  # vextractf128 xmm1, ymm2, 1; vaddps xmm2, xmm2, xmm1
    "c4e37904ca4ec5e858d1"  # vpermilps xmm1, xmm2, 0x4e; vaddps xmm2, xmm2, xmm1
    "c4e37904cab1c5e858d1"  # vpermilps xmm1, xmm2, 0xb1; vaddps xmm2, xmm2, xmm1
    "62b16e0859d0c4c17a11114983c104"  # vmulss xmm2, xmm2, xmm16; vmovss [r9], xmm2; add r9, 4
    "eb96"  # jmp row
    "c5f87731c0c3"  # end: vzeroupper; xor eax, eax; ret
)


def prepared(rows: int, length: int, factor: float = 1.0) -> tuple[Any, bytes]:
    """Return the function and what it is told, but for the addresses of rows and sums.

    Args:
        rows: how many there are, f32, one behind the other.
        length: of each.
        factor: what sums are multiplied by.
    """
    return function_of(_SUM), told(_ARGUMENTS, 0, 0, rows, length, factor)
