"""Rows divided by their norms, by machine code for AVX-512; NumPy takes four calls."""

from __future__ import annotations

import struct
from typing import Any

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import PARTS_AT_ONCE, Code, told
from polydevice_cpu.algorithms.by_machine.rows.shares import TAKEN, placed, shares_work
from polydevice_cpu.onednn.engine import address_of

_ARGUMENTS = struct.Struct("@PPnnnn3fP").pack
"""Source, result, how many rows there are, how many a thread takes at a time and how many are taken
(0 again, once one has taken all), their length; what is added to the sum of squares, what that is
at least, and 1; factors of the elements of a row, or 0."""

# size_t loop(_ARGUMENTS* rdi), by any number of threads at once. r8: source; r9: result; rsi: the
# length of a row; k1: the elements of its last part, if that is not whole; rdx: rows to compute;
# r10: factors.
_NORMS = bytes.fromhex(
    "f30f1efa62e17e0810470c"  # endbr64; vmovss xmm16, [rdi+48]
    "62e17e08104f0d62e17e0810570e"  # vmovss xmm17, [rdi+52]; vmovss xmm18, [rdi+56]
    "488b772889f1b80100000083e10f"  # mov rsi, [rdi+40]; mov ecx, esi; mov eax, 1; and ecx, 15
    "d3e0ffc8c5f892c8"  # shl eax, cl; dec eax; kmovw k1, eax
    "488b47184889c2f0480fc14720"  # claim: mov rax, [rdi+24]; mov rdx, rax; lock xadd [rdi+32], rax
    "4c8b5f104c39d80f83300100004801c2"  # mov r11, [rdi+16]; cmp rax, r11; jae end; add rdx, rax
    "4c39da490f47d34829c2480fafc6"  # cmp rdx, r11; cmova rdx, r11; sub rdx, rax; imul rax, rsi
    "4c8b074c8b4f084d8d0480"  # mov r8, [rdi]; mov r9, [rdi+8]; lea r8, [r8+rax*4]
    "4d8d0c81"  # lea r9, [r9+rax*4]
    "62f16d48efd262f16548efdb"  # row: vpxord zmm2, zmm2, zmm2; vpxord zmm3, zmm3, zmm3
    "4889f04d89c2"  # mov rax, rsi; mov r10, r8
    "4883e820722262d17c481022"  # squares: sub rax, 32; jb rest; vmovups zmm4, [r10]
    "62d17c48106a0162f25d48b8d4"  # vmovups zmm5, [r10+64]; vfmadd231ps zmm2, zmm4, zmm4
    "62f25548b8dd4981c280000000ebd8"  # vfmadd231ps zmm3, zmm5, zmm5; add r10, 128; jmp squares
    "4883c0204883f8107210"  # rest: add rax, 32; cmp rax, 16; jb lastsquares
    "62d17c48102262f25d48b8d4"  # vmovups zmm4, [r10]; vfmadd231ps zmm2, zmm4, zmm4
    "4983c240"  # add r10, 64
    "62d17cc9102a"  # lastsquares: vmovups zmm5{k1}{z}, [r10]
    "62f25548b8dd62f16c4858d3"  # vfmadd231ps zmm3, zmm5, zmm5; vaddps zmm2, zmm2, zmm3
    "62f3fd481bd101c5ec58d1"  # vextractf64x4 ymm1, zmm2, 1; vaddps ymm2, ymm2, ymm1
    "c4e37d19d101c5e858d1"  # vextractf128 xmm1, ymm2, 1; vaddps xmm2, xmm2, xmm1
    "c4e37904ca4ec5e858d1"  # vpermilps xmm1, xmm2, 0x4e; vaddps xmm2, xmm2, xmm1
    "c4e37904cab1c5e858d1"  # vpermilps xmm1, xmm2, 0xb1; vaddps xmm2, xmm2, xmm1
    "62b16e0858d062f176005fd2"  # vaddss xmm2, xmm2, xmm16; vmaxss xmm2, xmm17, xmm2
    "c5ea51d262f16e005ed2"  # vsqrtss xmm2, xmm2, xmm2; vdivss xmm2, xmm18, xmm2
    "62f27d4818d24c8b57404889f0"  # vbroadcastss zmm2, xmm2; mov r10, [rdi+64]; mov rax, rsi
    "4883e810722562d16c485920"  # share: sub rax, 16; jb lastshare; vmulps zmm4, zmm2, [r8]
    "4d85d2740a62d15c485922"  # test r10, r10; jz store; vmulps zmm4, zmm4, [r10]
    "4983c240"  # add r10, 64
    "62d17c4811214983c0404983c140"  # store: vmovups [r9], zmm4; add r8, 64; add r9, 64
    "ebd5"  # jmp share
    "4883c010741f62d16cc95920"  # lastshare: add rax, 16; je done; vmulps zmm4{k1}{z}, zmm2, [r8]
    "4d85d2740662d15cc95922"  # test r10, r10; jz laststore; vmulps zmm4{k1}{z}, zmm4, [r10]
    "62d17c4911214d8d0480"  # laststore: vmovups [r9]{k1}, zmm4; lea r8, [r8+rax*4]
    "4d8d0c81"  # lea r9, [r9+rax*4]
    "48ffca0f85f5feffffe9b6feffff"  # done: dec rdx; jne row; jmp claim
    "488b4718483b47107208"  # end: mov rax, [rdi+24]; cmp rax, [rdi+16]; jb ended
    "48c7472000000000"  # mov qword ptr [rdi+32], 0
    "c5f87731c0c3"  # ended: vzeroupper; xor eax, eax; ret
)


def divide_by_norms(
    x: Array, result: Array, added: float, least: float, factors: Array | None = None
) -> None:
    """Divide rows by the root of the sum of their squares; where there is code for it.

    Args:
        x: [rows, length], row-major f32.
        result: likewise; may be x.
        added: what is added to the sum.
        least: what it is at least.
        factors: [length], of the elements of a row.
    """
    function, numbers = _prepared(x.shape, added, least, 1, factors)
    function(placed(numbers, address_of(x), address_of(result)))


def code(
    shape: tuple[int, ...], added: float, least: float, threads: int, factors: Array | None = None
) -> Code:
    """Return code for a source and a result of this shape, which threads may share."""
    made = _prepared(shape, added, least, threads, factors)
    if shares_work(shape, threads):
        return Code.together(made, TAKEN, threads, factors)
    return Code.of([made], factors)


def _prepared(
    shape: tuple[int, ...], added: float, least: float, threads: int, factors: Array | None
) -> tuple[Any, bytes]:
    """Return the function and what it is told of such a source, but for both addresses."""
    rows, length = shape
    each = -(-rows // (threads * PARTS_AT_ONCE)) if shares_work(shape, threads) else rows
    limits, place = (added, least, 1.0), 0 if factors is None else address_of(factors)
    return function_of(_NORMS), told(_ARGUMENTS, 0, 0, rows, each, 0, length, *limits, place)
