"""Regions: sums of elements of pictures with a weight for each row and column, by machine code.

A product with a matrix for each axis takes NumPy 10 us to begin, and reads zeros, too.
"""

from __future__ import annotations

import struct

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.onednn.engine import address_of

_ARGUMENTS = struct.Struct("@PP nnnn PPPP nn P n 16i").pack
"""Where each region's picture lies, by region; the result; how many regions, channels, rows and
columns of the result there are; for each row of a region, then for each column, which elements it
sums up, in bytes, and their weights; bytes from one row to the next there, and of columns; how many
of them there are, by region; bytes between channels of the result, and how far 16 of them lie."""

_BYTES = 1 << 31
"""Elements lie less than so many bytes behind the picture's beginning."""

# size_t loop(_ARGUMENTS* rdi). r8: a region's first channels; r15: channels left, k1 and k2: which
# of the next 32 there are; r14, rsi, rdx: rows left, their elements and weights; r13, rbx, rbp: of
# columns; zmm0, zmm1: sums; zmm2, zmm3: sums of a row.
_SUMS = bytes.fromhex(
    "f30f1efa5355415441554156"  # endbr64; push rbx; push rbp; push r12; push r13; push r14
    "415762f17e486faf70000000"  # push r15; vmovdqu32 zmm5, [rdi+112]
    "48ff4f100f883e010000488b07"  # region: dec qword ptr [rdi+16]; js end; mov rax, [rdi]
    "4c8b00488307084c8b7f18"  # mov r8, [rax]; add qword ptr [rdi], 8; mov r15, [rdi+24]
    "b8ffffffff4983ff207305"  # block: mov eax, -1; cmp r15, 32; jae full
    "c4e200f5c0"  # bzhi eax, eax, r15d
    "c5f892c8c1e810c5f892d0"  # full: kmovw k1, eax; shr eax, 16; kmovw k2, eax
    "488b7730488b57384c8b7720"  # mov rsi, [rdi+48]; mov rdx, [rdi+56]; mov r14, [rdi+32]
    "488b5f40488b6f484c8b6f28"  # row: mov rbx, [rdi+64]; mov rbp, [rdi+72]; mov r13, [rdi+40]
    "62f17d48efc062f17548efc9"  # bin: vpxord zmm0, zmm0, zmm0; vpxord zmm1, zmm1, zmm1
    "488b47604c8b104c8b6008"  # mov rax, [rdi+96]; mov r10, [rax]; mov r12, [rax+8]
    "4531db"  # xor r11d, r11d
    "4a630c9e4c01c1"  # down: movsxd rcx, dword ptr [rsi+r11*4]; add rcx, r8
    "62f16d48efd262f16548efdb"  # vpxord zmm2, zmm2, zmm2; vpxord zmm3, zmm3, zmm3
    "4531c9"  # xor r9d, r9d
    "4a63048b"  # across: movsxd rax, dword ptr [rbx+r9*4]
    "62b27d4818648d00"  # vbroadcastss zmm4, [rbp+r9*4]
    "62f25d49b81401"  # vfmadd231ps zmm2{k1}, zmm4, [rcx+rax]
    "62f25d4ab85c010149ffc1"  # vfmadd231ps zmm3{k2}, zmm4, [rcx+rax+64]; inc r9
    "4d39e172dd62b27d4818249a"  # cmp r9, r12; jb across; vbroadcastss zmm4, [rdx+r11*4]
    "62f25d48b8c262f25d48b8cb"  # vfmadd231ps zmm0, zmm4, zmm2; vfmadd231ps zmm1, zmm4, zmm3
    "49ffc34d39d372ac488b4f08"  # inc r11; cmp r11, r10; jb down; mov rcx, [rdi+8]
    "c5f890d962f27d4ba20429"  # kmovw k3, k1; vscatterdps [rcx+zmm5]{k3}, zmm0
    "488b476848c1e004c5f890da"  # mov rax, [rdi+104]; shl rax, 4; kmovw k3, k2
    "4801c162f27d4ba20c29"  # add rcx, rax; vscatterdps [rcx+zmm5]{k3}, zmm1
    "488347080448035f58"  # add qword ptr [rdi+8], 4; add rbx, [rdi+88]
    "48036f5849ffcd0f8557ffffff"  # add rbp, [rdi+88]; dec r13; jne bin
    "480377504803575049ffce"  # add rsi, [rdi+80]; add rdx, [rdi+80]; dec r14
    "0f853affffffb8200000004939c7490f42c7"  # jne row; mov eax, 32; cmp r15, rax; cmovb rax, r15
    "48ffc8480faf476848014708"  # dec rax; imul rax, [rdi+104]; add [rdi+8], rax
    "4981c0800000004983ef200f8feafeffff"  # add r8, 128; sub r15, 32; jg block
    "488977304889573848895f40"  # mov [rdi+48], rsi; mov [rdi+56], rdx; mov [rdi+64], rbx
    "48896f484883476010e9b8feffff"  # mov [rdi+72], rbp; add qword ptr [rdi+96], 16; jmp region
    "c5f877415f415e415d415c5d"  # end: vzeroupper; pop r15; pop r14; pop r13; pop r12; pop rbp
    "5b31c0c3"  # pop rbx; xor eax, eax; ret
)


def sums(
    maps: Array,
    images: Array,
    rows: tuple[Array, Array],
    columns: tuple[Array, Array],
    counts: Array,
    result: Array,
) -> bool:
    """Write sums of weighted elements to the result [R, C, P, Q].

    Args:
        maps: [N, H, W, C], row-major f32.
        images: [R], integers: the picture of each region.
        rows: [R, P, taps], i32: which rows of the picture; and their weights, f32.
        columns: [R, Q, taps]: likewise.
        counts: [R, 2], i64: how many of these taps count, 1 at least, of rows and columns.
        result: row-major f32.

    Returns:
        Whether that was done; not where the processor or the system has no such code.
    """
    function = function_of(_SUMS) if has_avx512() else None
    size = maps[:1].nbytes
    if function is None or size >= _BYTES:
        return False
    if not result.size:
        return True
    channels = maps.shape[-1]
    bases = address_of(maps) + images.astype(np.int64) * size
    places, weights = zip(rows, columns, strict=True)
    steps = maps.strides[1] if maps.shape[2] else 0, 4 * channels
    parts = [np.ascontiguousarray(each, np.int32) * step for each, step in zip(places, steps)]
    shares = [np.ascontiguousarray(each, np.float32) for each in weights]
    counts = np.ascontiguousarray(counts, np.int64)
    apart = 4 * result.shape[2] * result.shape[3]
    told = _ARGUMENTS(
        *(address_of(bases), address_of(result), *result.shape[:2], *result.shape[2:]),
        *[address_of(each) for pair in zip(parts, shares) for each in pair],
        *[4 * each.shape[2] for each in parts],
        *(address_of(counts), apart, *range(0, 16 * apart, apart)),
    )
    function(told)
    return True
