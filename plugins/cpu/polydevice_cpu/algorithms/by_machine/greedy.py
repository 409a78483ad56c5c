"""Greedy: boxes of which each stays unless a better one that stays overlaps it, by machine code."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of, processor_flags
from polydevice_cpu.onednn.engine import address_of

_AT_ONCE = 8

LIMIT, ALL = 1 << 25, 1 << 27
"""Pairs of boxes of a group, and of all groups, that it looks at in the worst case: 10 take 1 ns.
In crowds that is a tenth of NumPy's time. Where none of many boxes overlaps another, those that are
close are found sooner: 5,000 take this 2.5 ms, and NumPy 0.5; but close to others 0.9, and 11."""

_ARGUMENTS = struct.Struct("@PPP nn P n P f").pack
"""Boxes, indices, groups and how many there are, how many stay of each at most, judges and bytes
between their rows, those that stay, and the threshold."""

# size_t loop(_ARGUMENTS* rdi): how many stay; -1 where one has no finite area. rsi: the number of
# an index; rcx: where its group ends; r12: the group's first box; rdx: how many of the group stay;
# ymm0 to ymm4: the box's corners and area; r8: judges, which are boxes that stay, r9 of them left.
# Those that are no numbers yet overlap nothing.
_KEEP = bytes.fromhex(
    "f30f1efa5355415441554156"  # endbr64; push rbx; push rbp; push r12; push r13; push r14
    "41574c8b6f084c8b7728"  # push r15; mov r13, [rdi+8]; mov r14, [rdi+40]
    "4c8b7f304c8b5f38"  # mov r15, [rdi+48]; mov r11, [rdi+56]
    "c4627d187740c4410457ff"  # vbroadcastss ymm14, [rdi+64]; vxorps ymm15, ymm15, ymm15
    "c4411576ed4b8d2c7f31c0"  # vpcmpeqd ymm13, ymm13, ymm13; lea rbp, [r15+r15*2]; xor eax, eax
    "48ff4f180f8823010000488b4f10"  # group: dec qword ptr [rdi+24]; js end; mov rcx, [rdi+16]
    "4883471018488b314c8b6110"  # add qword ptr [rdi+16], 24; mov rsi, [rcx]; mov r12, [rcx+16]
    "488b490849c1e4044c032731d2"  # mov rcx, [rcx+8]; shl r12, 4; add r12, [rdi]; xor edx, edx
    "4839ce73d4483b572073ce"  # box: cmp rsi, rcx; jae group; cmp rdx, [rdi+32]; jae group
    "4d8b44f50041b9ffffffff4d39c874be"  # mov r8, [r13+rsi*8]; mov r9d, -1; cmp r8, r9; je group
    "49c1e0044d01e0c4c1781028"  # shl r8, 4; add r8, r12; vmovups xmm5, [r8]
    "c4e37904f54ec5c85cf5"  # vpermilps xmm6, xmm5, 0x4e; vsubps xmm6, xmm6, xmm5
    "c5fa16fec5ca59f7"  # vmovshdup xmm7, xmm6; vmulss xmm6, xmm6, xmm7
    "c5ca5cfec5f82eff0f8ab8000000"  # vsubss xmm7, xmm6, xmm6; vucomiss xmm7, xmm7; jp odd
    "c4c27d1800c4c27d184804"  # vbroadcastss ymm0, [r8]; vbroadcastss ymm1, [r8+4]
    "c4c27d185008c4c27d18580c"  # vbroadcastss ymm2, [r8+8]; vbroadcastss ymm3, [r8+12]
    "c4e27d18e64d89f04989d1"  # vbroadcastss ymm4, xmm6; mov r8, r14; mov r9, rdx
    "4d85c97e53c4816c5d2c78"  # judge: test r9, r9; jle keep; vminps ymm5, ymm2, [r8+r15*2]
    "c4c17c5f30c5d45cee"  # vmaxps ymm6, ymm0, [r8]; vsubps ymm5, ymm5, ymm6
    "c4c1545fefc4c1645d3428"  # vmaxps ymm5, ymm5, ymm15; vminps ymm6, ymm3, [r8+rbp]
    "c481745f3c38c5cc5cf7"  # vmaxps ymm7, ymm1, [r8+r15]; vsubps ymm6, ymm6, ymm7
    "c4c14c5ff7c5d459ee"  # vmaxps ymm6, ymm6, ymm15; vmulps ymm5, ymm5, ymm6
    "c4815c583cb8c5c45cfd"  # vaddps ymm7, ymm4, [r8+r15*4]; vsubps ymm7, ymm7, ymm5
    "c5d45eefc4c154c2ee1e"  # vdivps ymm5, ymm5, ymm7; vcmpgt_oqps ymm5, ymm5, ymm14
    "c5fc50dd85db75404983c020"  # vmovmskps ebx, ymm5; test ebx, ebx; jnz next; add r8, 32
    "4983e908eba8"  # sub r9, 8; jmp judge
    "4d8d0496f6c2077506"  # keep: lea r8, [r14+rdx*4]; test dl, 7; jnz place
    "c4017c112cb8"  # vmovups [r8+r15*4], ymm13
    "c4c17a1100c4817a110c38"  # place: vmovss [r8], xmm0; vmovss [r8+r15], xmm1
    "c4817a111478c4c17a111c28"  # vmovss [r8+r15*2], xmm2; vmovss [r8+rbp], xmm3
    "c4817a1124b8498934c348ffc0"  # vmovss [r8+r15*4], xmm4; mov [r11+rax*8], rsi; inc rax
    "48ffc2"  # inc rdx
    "48ffc6e901ffffff"  # next: inc rsi; jmp box
    "48c7c0ffffffff"  # odd: mov rax, -1
    "c5f877415f415e415d415c5d"  # end: vzeroupper; pop r15; pop r14; pop r13; pop r12; pop rbp
    "5bc3"  # pop rbx; ret
)


def keep_greedily(
    boxes: Array, index: Array, groups: Array, most: int, threshold: float
) -> Array | None:
    """Return [kept], ascending: numbers of the indices whose box no better one of a group removes.

    Args:
        boxes: [n, 4], f32, row-major: corners.
        index: [m], i64: boxes, the best of each group first; behind 2^32 - 1 are none.
        groups: [groups, 3], i64: numbers of the first index and of the one behind the last, and a
            box that indices count from.
        most: how many to keep of each group.
        threshold: of intersection over union, above which the worse box goes; 0 or more.

    Returns:
        None where the processor cannot, a box has no finite area, or other ways take less time.
    """
    sizes = groups[:, 1] - groups[:, 0]
    longest = int(sizes.max(initial=0))
    largest = float(longest * min(longest, most))
    pairs = largest * len(groups)
    if pairs > ALL:  # which it is mostly not, and this takes 8 us
        pairs = float((sizes * np.minimum(sizes, most)).sum(dtype=np.float64))
    if not keeps(largest, pairs):
        return None
    judges, kept = np.empty(judging(longest, most), np.float32), np.empty(len(index), np.int64)
    places = tuple(map(address_of, (boxes, index, groups, judges, kept)))
    function, told = keeping(places, len(groups), longest, most, threshold)
    count = ctypes.c_ssize_t(function(told)).value
    return None if count < 0 else kept[:count]


def keeps(most: float, pairs: float) -> bool:
    """Whether there is code that keeps boxes, and it looks at few pairs of them.

    Args:
        most: pairs of a group.
        pairs: of all groups.
    """
    is_short = most <= LIMIT and pairs <= ALL
    return is_short and "avx2" in processor_flags() and function_of(_KEEP) is not None


def judging(longest: int, most: int) -> int:
    """How many numbers it needs to keep boxes of groups that are so long at most."""
    return 5 * (min(longest, most) + _AT_ONCE)


def keeping(
    places: tuple[int, ...], groups: int, longest: int, most: int, threshold: float
) -> tuple[Any, bytes]:
    """Return what keeps boxes, and what it is told; it returns how many, or -1.

    Args:
        places: addresses of boxes, index, groups, of room for `judging` and for what is kept.
        groups: how many there are.
        longest: how long they are at most.
        most: how many to keep of each.
        threshold: as `keep_greedily` has it.
    """
    boxes, index, all_groups, judges, kept = places
    row_bytes = judging(longest, most) // 5 * 4
    given = boxes, index, all_groups, groups, most, judges, row_bytes, kept, threshold
    return function_of(_KEEP), _ARGUMENTS(*given)
