"""Greedy: boxes of which each stays unless a better one that stays overlaps it, by machine code."""

from __future__ import annotations

import ctypes

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of, processor_flags
from polydevice_cpu.onednn.engine import address_of

_AT_ONCE = 8

LIMIT = 1 << 22
"""Pairs of boxes that it looks at, in the worst case, at 0.3 ns each. Where none of many boxes
overlaps another, those that are close are found sooner."""

_ARGUMENTS = np.dtype(
    [
        ("table", np.uint64),
        ("table_row_bytes", np.int64),
        ("ends", np.uint64),
        *((name, np.int64) for name in ("groups", "most")),
        ("judges", np.uint64),
        ("judges_row_bytes", np.int64),
        ("kept", np.uint64),
        ("threshold", np.float32),
    ],
    align=True,
)

# size_t loop(_ARGUMENTS* rdi): how many stay. rsi: number of a box; rcx: where its group ends;
# rdx: how many of the group stay; ymm0 to ymm4: the box's corners and area; r8: judges, which are
# boxes that stay, r9 of them left. Those that are no numbers yet overlap nothing.
_KEEP = bytes.fromhex(
    "f30f1efa5355415441554156"  # endbr64; push rbx; push rbp; push r12; push r13; push r14
    "41574c8b274c8b6f08"  # push r15; mov r12, [rdi]; mov r13, [rdi+8]
    "4c8b77284c8b7f304c8b5f38"  # mov r14, [rdi+40]; mov r15, [rdi+48]; mov r11, [rdi+56]
    "c4627d187740c4410457ff"  # vbroadcastss ymm14, [rdi+64]; vxorps ymm15, ymm15, ymm15
    "c4411576ed4b8d2c7f31c0"  # vpcmpeqd ymm13, ymm13, ymm13; lea rbp, [r15+r15*2]; xor eax, eax
    "31f6"  # xor esi, esi
    "48837f18000f84e9000000"  # group: cmp qword ptr [rdi+24], 0; je end
    "488b4f10488b094883471008"  # mov rcx, [rdi+16]; mov rcx, [rcx]; add qword ptr [rdi+16], 8
    "48ff4f1831d2"  # dec qword ptr [rdi+24]; xor edx, edx
    "4839ce73de483b5720"  # box: cmp rsi, rcx; jae group; cmp rdx, [rdi+32]
    "0f83c00000004d8d04b4c4c27d1800"  # jae skip; lea r8, [r12+rsi*4]; vbroadcastss ymm0, [r8]
    "c4827d180c284f8d0c68"  # vbroadcastss ymm1, [r8+r13]; lea r9, [r8+r13*2]
    "c4c27d1811c4827d181c29"  # vbroadcastss ymm2, [r9]; vbroadcastss ymm3, [r9+r13]
    "c4827d1824a84d89f04989d1"  # vbroadcastss ymm4, [r8+r13*4]; mov r8, r14; mov r9, rdx
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
    "48ffc6e931ffffff"  # next: inc rsi; jmp box
    "4889cee90cffffff"  # skip: mov rsi, rcx; jmp group
    "c5f877415f415e415d415c5d"  # end: vzeroupper; pop r15; pop r14; pop r13; pop r12; pop rbp
    "5bc3"  # pop rbx; ret
)


def keep_greedily(table: Array, ends: Array, most: int, threshold: float) -> Array | None:
    """Return [kept], ascending: numbers of the boxes that no better one of their group removes.

    Args:
        table: [5, n], f32, row-major, finite: corners and areas, the best of each group first.
        ends: [groups], i64: where each group of boxes ends.
        most: how many to keep of each group.
        threshold: of intersection over union, from which on the worse box goes; 0 or more.

    Returns:
        None where the processor cannot, or other ways take less time.
    """
    function = function_of(_KEEP) if "avx2" in processor_flags() else None
    count = table.shape[1]
    sizes = np.diff(ends, prepend=0)
    longest = min(int(sizes.max()), most)
    if function is None or float((sizes * np.minimum(sizes, most)).sum()) > LIMIT:
        return None
    width = longest + _AT_ONCE
    judges, kept = np.empty((5, width), np.float32), np.empty(count, np.int64)
    arguments = np.array(
        (
            *(address_of(table), table.strides[0], address_of(ends), len(ends), most),
            *(address_of(judges), judges.strides[0], address_of(kept), threshold),
        ),
        _ARGUMENTS,
    )
    return kept[: function(ctypes.c_void_p(address_of(arguments)))]
