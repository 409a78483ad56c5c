"""The first of rows of f64 or i64 along any axis, with their indices, by AVX-512.

Those found so far are kept in order. Most elements are compared with the last of them alone, eight
at a time; one that is better moves the worse ones, eight at a time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Code, Told, has_avx512, parts_of
from polydevice_cpu.onednn.engine import address_of

KINDS = np.dtype(np.float64), np.dtype(np.int64)
"""Types of elements."""

LANES = 8

SHARED = 1 << 12
"""From so many elements on threads share rows."""

MOST_BEST = 300
"""Of more rows NumPy finds the best: of 1,000 of 91 in 57 us, and this in 92."""

FEWEST_STEPS, SPARE = 1 << 12, 4
"""Of moving what is kept: as many are allowed at least, or so many times what random elements take.
Sorted the wrong way, 300 of 8,400 take 20 times as many, and NumPy less."""

_STEP_NS, _NUMPY_NS, _NUMPY_ELEMENT_NS = 2, 40_000, 10
"""What a step takes, NumPy's calls, and an element that it sorts or partitions."""

# size_t first(numbers* rdi): x, index, values; outer, inner, length, count; bytes between elements
# of a row, its indices, its values; from row to row of each; what is kept: keys, and indices; steps
# that it may take; bits that turn the order; flags: 1 for floats, 2 where others lie between, 4 for
# indices of 8 bytes; where eight elements lie; bytes of an index. r8: x; r9, r11: what is kept;
# r12: how much that is, of r15; r13: an index; r14: elements left; rbp, zmm2: the last key.
_FIRST = bytes.fromhex(
    "f30f1efa5355415441554156"  # endbr64; push rbx; push rbp; push r12; push r13; push r14
    "41574881ec88000000488b4778"  # push r15; sub rsp, 136; mov rax, [rdi+120]
    "4889842480000000488b47184889442440"  # mov [rsp+128], rax; mov rax, [rdi+24]; mov [rsp+64], rax
    "488b074889442450488b4708"  # mov rax, [rdi]; mov [rsp+80], rax; mov rax, [rdi+8]
    "4889442458488b47104889442460"  # mov [rsp+88], rax; mov rax, [rdi+16]; mov [rsp+96], rax
    "4c8b4f684c8b5f704c8b7f30"  # mov r9, [rdi+104]; mov r11, [rdi+112]; mov r15, [rdi+48]
    "62e2fd48594710"  # vpbroadcastq zmm16, [rdi+128]
    "62a3f54025c9ff62b1f54073d101"  # vpternlogq zmm17, zmm17, zmm17, 255; vpsrlq zmm17, zmm17, 1
    "62e1fe486f979000000062f1fd48efc0"  # vmovdqu64 zmm18, [rdi+144]; vpxorq zmm0, zmm0, zmm0
    "62c1fe487f49ff"  # vmovdqu64 [r9-64], zmm17
    "488b47204889442448488b442450"  # outer: mov rax, [rdi+32]; mov [rsp+72], rax; mov rax, [rsp+80]
    "4889442468488b4424584889442470"  # mov [rsp+104], rax; mov rax, [rsp+88]; mov [rsp+112], rax
    "488b4424604889442478"  # mov rax, [rsp+96]; mov [rsp+120], rax
    "4c8b4424684c8b77284531e4"  # row: mov r8, [rsp+104]; mov r14, [rdi+40]; xor r12d, r12d
    "4531ed"  # xor r13d, r13d
    "b8ff0000004983fe087305"  # eight: mov eax, 255; cmp r14, 8; jae whole
    "c4e208f5c0"  # bzhi eax, eax, r14d
    "c5f892c8f6878800000002750c"  # whole: kmovw k1, eax; test byte ptr [rdi+136], 2; jne apart
    "62d1fec96f084983c040eb19"  # vmovdqu64 zmm1{k1}{z}, [r8]; add r8, 64; jmp read
    "c5f890d162f1f548efc9"  # apart: kmovw k2, k1; vpxorq zmm1, zmm1, zmm1
    "62d2fd42910c10488b4738"  # vpgatherqq zmm1{k2}, [r8+zmm18]; mov rax, [rdi+56]
    "4d8d04c0"  # lea r8, [r8+rax*8]
    "f68788000000017426"  # read: test byte ptr [rdi+136], 1; je turn
    "62f1f548c2d10362f1f54858c8"  # vcmpunordpd k2, zmm1, zmm1; vaddpd zmm1, zmm1, zmm0
    "62f1e54872e13f62b1e548dbd9"  # vpsraq zmm3, zmm1, 63; vpandq zmm3, zmm3, zmm17
    "62f1f548efcb62b1fd4a6fc9"  # vpxorq zmm1, zmm1, zmm3; vmovdqa64 zmm1{k2}, zmm17
    "62b1f548efc862f1fe487f0c24"  # turn: vpxorq zmm1, zmm1, zmm16; vmovdqu64 [rsp], zmm1
    "4d39fc750662f2f54937ca"  # cmp r12, r15; jne some; vpcmpgtq k1{k1}, zmm1, zmm2
    "c5f893d985db0f8499000000"  # some: kmovw ebx, k1; test ebx, ebx; je next
    "f30fbccb488b04cc498d540d00"  # each: tzcnt ecx, ebx; mov rax, [rsp+rcx*8]; lea rdx, [r13+rcx]
    "4d89e24d39fc720a4839e87e74"  # mov r10, r12; cmp r12, r15; jb grows; cmp rax, rbp; jle worse
    "49ffcaeb03"  # dec r10; jmp comes
    "49ffc4"  # grows: inc r12
    "62f2fd487ce8"  # comes: vpbroadcastq zmm5, rax
    "6291fe486f74d1ff"  # shift: vmovdqu64 zmm6, [r9+r10*8-64]
    "6291fe486f7cd3ff62f2d54837de"  # vmovdqu64 zmm7, [r11+r10*8-64]; vpcmpgtq k3, zmm5, zmm6
    "6291fe4b7fb4d1c8ffffff"  # vmovdqu64 [r9+r10*8-56]{k3}, zmm6
    "6291fe4b7fbcd3c8ffffffc5f893cb"  # vmovdqu64 [r11+r10*8-56]{k3}, zmm7; kmovw ecx, k3
    "48ff8c24800000000f88d100000081f9ff000000"  # dec qword ptr [rsp+128]; js long; cmp ecx, 255
    "75064983ea08ebb4"  # jne place; sub r10, 8; jmp shift
    "f30fb8c94929ca4b8904d1"  # place: popcnt ecx, ecx; sub r10, rcx; mov [r9+r10*8], rax
    "4b8914d34b8b6cf9f8"  # mov [r11+r10*8], rdx; mov rbp, [r9+r15*8-8]
    "62f2fd487cd5"  # vpbroadcastq zmm2, rbp
    "c4e260f3cb0f8567ffffff"  # worse: blsr ebx, ebx; jne each
    "4983c5084983ee080f8fc4feffff"  # next: add r13, 8; sub r14, 8; jg eight
    "4c8b4424684c8b5424704c8b6c2478"  # mov r8, [rsp+104]; mov r10, [rsp+112]; mov r13, [rsp+120]
    "31c9"  # xor ecx, ecx
    "498b14cbf6878800000004"  # result: mov rdx, [r11+rcx*8]; test byte ptr [rdi+136], 4
    "7405498912eb03"  # je narrow; mov [r10], rdx; jmp value
    "418912"  # narrow: mov [r10], edx
    "480faf5738498b041049894500"  # value: imul rdx, [rdi+56]; mov rax, [r8+rdx]; mov [r13], rax
    "4c0357404c036f4848ffc14c39f9"  # add r10, [rdi+64]; add r13, [rdi+72]; inc rcx; cmp rcx, r15
    "72ce488b87d00000004801442470"  # jb result; mov rax, [rdi+208]; add [rsp+112], rax
    "488344246808488344247808"  # add qword ptr [rsp+104], 8; add qword ptr [rsp+120], 8
    "48ff4c24480f854ffeffff488b4750"  # dec qword ptr [rsp+72]; jne row; mov rax, [rdi+80]
    "4801442450488b47584801442458"  # add [rsp+80], rax; mov rax, [rdi+88]; add [rsp+88], rax
    "488b4760480144246048ff4c2440"  # mov rax, [rdi+96]; add [rsp+96], rax; dec qword ptr [rsp+64]
    "0f8502feffff31c0eb05"  # jne outer; xor eax, eax; jmp end
    "b801000000"  # long: mov eax, 1
    "c5f8774881c488000000415f415e415d"  # end: vzeroupper; add rsp, 136; pop r15; pop r14; pop r13
    "415c5d5bc3"  # pop r12; pop rbp; pop rbx; ret
)


def code_of(
    shape: tuple[int, int, int],
    dtype: np.dtype[Any],
    count: int,
    index_bytes: int,
    *,
    descending: bool,
    threads: int = 1,
) -> Code | None:
    """Return code that is told addresses of x, and of the first elements' indices and values.

    Of equal ones the lower index is first; NaN is largest. It refuses what would take long.

    Args:
        shape: of x, row-major: rows lie along the second axis.
        dtype: of x: f64 or i64.
        count: how many come first, up to a row's length.
        index_bytes: of an index, 4 or 8.
        descending: whether the largest ones are first.
        threads: how many share the work.

    Returns:
        None where there is no such code, or it takes longer than NumPy.
    """
    outer, length, inner = shape
    if dtype not in KINDS or not has_avx512() or not 0 < count <= length or not outer * inner:
        return None
    if (index_bytes == 4 and length >= 1 << 31) or (count == 1 and outer * inner > MOST_BEST):
        return None
    # The k-th element is among the first `count` of random ones with `count` of k.
    steps = outer * inner * count * (1 + math.log(length / count)) * (count / 16 + 1)
    if steps * _STEP_NS > _NUMPY_NS + _NUMPY_ELEMENT_NS * outer * length * inner:
        return None
    flags = (dtype.kind == "f") | (inner > 1) << 1 | (index_bytes == 8) << 2
    told, rooms = list[Told](), list[Array]()
    is_much = outer * length * inner >= SHARED
    for first, behind in parts_of(outer, threads, is_worth_it=is_much):
        share = (behind - first) / outer
        room = np.empty(2 * (count + LANES), np.int64)
        rooms.append(room)
        keys = address_of(room) + 8 * LANES
        before = first * length * inner, first * count * inner
        numbers = (
            *(8 * before[0], index_bytes * before[1], 8 * before[1]),
            *(behind - first, inner, length, count),
            *(8 * inner, index_bytes * inner, 8 * inner),
            *(8 * length * inner, index_bytes * count * inner, 8 * count * inner),
            *(keys, keys + 8 * (count + LANES), FEWEST_STEPS + int(SPARE * share * steps)),
            *(0 if descending else -1, flags, *range(0, 64 * inner, 8 * inner), index_bytes),
        )
        told.append((function_of(_FIRST), numbers))
    return Code.shared(told, threads, rooms)
