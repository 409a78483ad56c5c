"""Sampling: planes read between their elements, eight points at a time by machine code.

NumPy takes 24 ns for a point of one plane, half of them for weights and for what lies outside; the
processor's instructions 2, and 1.3 for a further plane at the same point.
"""

from __future__ import annotations

import ctypes

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of, processor_flags
from polydevice_cpu.onednn.engine import address_of

FAR = 1e9
"""Positions beyond this are cut, so that they fit an integer."""

_AT_ONCE = 8

_ARGUMENTS = np.dtype(
    [
        *((name, np.uint64) for name in ("across", "down", "planes", "result")),
        *((name, np.int64) for name in ("images", "points", "channels", "plane_bytes")),
        *((name, np.int64) for name in ("width", "height")),
        ("far", np.float32),
        ("near", np.float32),
    ]
)

# size_t loop(_ARGUMENTS* rdi): 0. r8, r9: positions across and down; r10: planes; r11: result;
# ymm0, ymm1: how far behind the element before, and ymm11, ymm14 before the next one; ymm2: where
# the former lies; ymm4, 8, 9, 10: which of the four elements around a point are inside. Each is
# multiplied by its share: to add a part of a difference gives no number between infinities.
_SAMPLE = bytes.fromhex(
    "f30f1efa5355415441554156"  # endbr64; push rbx; push rbp; push r12; push r13; push r14
    "41574c8b074c8b4f084c8b5710"  # push r15; mov r8, [rdi]; mov r9, [rdi+8]; mov r10, [rdi+16]
    "4c8b5f184c8b67284c8b6f38"  # mov r11, [rdi+24]; mov r12, [rdi+40]; mov r13, [rdi+56]
    "c4627d587f40"  # vpbroadcastd ymm15, [rdi+64]
    "c4627d186f50c4627d186754"  # vbroadcastss ymm13, [rdi+80]; vbroadcastss ymm12, [rdi+84]
    "48837f20000f846b010000"  # image: cmp qword ptr [rdi+32], 0; je end
    "48ff4f2031c9"  # dec qword ptr [rdi+32]; xor ecx, ecx
    "498d4424f84839c1480f47c8"  # points: lea rax, [r12-8]; cmp rcx, rax; cmova rcx, rax
    "c4627d587748"  # vpbroadcastd ymm14, [rdi+72]
    "c4c17c100488c4c17c100c89"  # vmovups ymm0, [r8+rcx*4]; vmovups ymm1, [r9+rcx*4]
    "c4c17c5dc5c4c1745dcd"  # vminps ymm0, ymm0, ymm13; vminps ymm1, ymm1, ymm13
    "c4c17c5fc4c4c1745fcc"  # vmaxps ymm0, ymm0, ymm12; vmaxps ymm1, ymm1, ymm12
    "c4e37d08d001c4e37d08d901"  # vroundps ymm2, ymm0, 1; vroundps ymm3, ymm1, 1
    "c5fc5cc2c5f45ccb"  # vsubps ymm0, ymm0, ymm2; vsubps ymm1, ymm1, ymm3
    "c5fe5bd2c5fe5bdb"  # vcvttps2dq ymm2, ymm2; vcvttps2dq ymm3, ymm3
    "c4412576dbc4c16d66e3"  # vpcmpeqd ymm11, ymm11, ymm11; vpcmpgtd ymm4, ymm2, ymm11
    "c58566eac5dddbe5"  # vpcmpgtd ymm5, ymm15, ymm2; vpand ymm4, ymm4, ymm5
    "c4c16566ebc58d66f3"  # vpcmpgtd ymm5, ymm3, ymm11; vpcmpgtd ymm6, ymm14, ymm3
    "c5d5dbeec4c16dfaf3"  # vpand ymm5, ymm5, ymm6; vpsubd ymm6, ymm2, ymm11
    "c4c165fafbc50566c6"  # vpsubd ymm7, ymm3, ymm11; vpcmpgtd ymm8, ymm15, ymm6
    "c4c14d66f3c4c14ddbf0"  # vpcmpgtd ymm6, ymm6, ymm11; vpand ymm6, ymm6, ymm8
    "c50d66c7c4c14566fb"  # vpcmpgtd ymm8, ymm14, ymm7; vpcmpgtd ymm7, ymm7, ymm11
    "c4c145dbf8c4c26540df"  # vpand ymm7, ymm7, ymm8; vpmulld ymm3, ymm3, ymm15
    "c5edfed3c54ddbc5"  # vpaddd ymm2, ymm2, ymm3; vpand ymm8, ymm6, ymm5
    "c55ddbcfc54ddbd7"  # vpand ymm9, ymm4, ymm7; vpand ymm10, ymm6, ymm7
    "c5dddbe54c89d0498d1c8b"  # vpand ymm4, ymm4, ymm5; mov rax, r10; lea rbx, [r11+rcx*4]
    "c4c12572d319c4c12572f317"  # vpsrld ymm11, ymm11, 25; vpslld ymm11, ymm11, 23
    "c5245cf1c5245cd8"  # vsubps ymm14, ymm11, ymm1; vsubps ymm11, ymm11, ymm0
    "488b57304c637740"  # mov rdx, [rdi+48]; movsxd r14, dword ptr [rdi+64]
    "c5e457dbc5d457ed"  # channel: vxorps ymm3, ymm3, ymm3; vxorps ymm5, ymm5, ymm5
    "c5fc28f4c4e24d921c90"  # vmovaps ymm6, ymm4; vgatherdps ymm3, [rax+ymm2*4], ymm6
    "c57c29c6c4e24d926c9004"  # vmovaps ymm6, ymm8; vgatherdps ymm5, [rax+ymm2*4+4], ymm6
    "c4c16459dbc4e255b8d8"  # vmulps ymm3, ymm3, ymm11; vfmadd231ps ymm3, ymm5, ymm0
    "4a8d2cb0c5d457ed"  # lea rbp, [rax+r14*4]; vxorps ymm5, ymm5, ymm5
    "c5c457ffc57c29ce"  # vxorps ymm7, ymm7, ymm7; vmovaps ymm6, ymm9
    "c4e24d926c9500c57c29d6"  # vgatherdps ymm5, [rbp+ymm2*4], ymm6; vmovaps ymm6, ymm10
    "c4e24d927c9504c4c15459eb"  # vgatherdps ymm7, [rbp+ymm2*4+4], ymm6; vmulps ymm5, ymm5, ymm11
    "c4e245b8e8c4c16459de"  # vfmadd231ps ymm5, ymm7, ymm0; vmulps ymm3, ymm3, ymm14
    "c4e255b8d9c5fc111b"  # vfmadd231ps ymm3, ymm5, ymm1; vmovups [rbx], ymm3
    "4c01e84a8d1ca348ffca7593"  # add rax, r13; lea rbx, [rbx+r12*4]; dec rdx; jnz channel
    "4883c1084c39e10f82b7feffff4989c2"  # add rcx, 8; cmp rcx, r12; jb points; mov r10, rax
    "488b4730490fafc44d8d1c83"  # mov rax, [rdi+48]; imul rax, r12; lea r11, [r11+rax*4]
    "4f8d04a04f8d0ca1e98afeffff"  # lea r8, [r8+r12*4]; lea r9, [r9+r12*4]; jmp image
    "31c0c5f877415f415e415d"  # end: xor eax, eax; vzeroupper; pop r15; pop r14; pop r13
    "415c5d5bc3"  # pop r12; pop rbp; pop rbx; ret
)


def sample(planes: Array, across: Array, down: Array) -> Array | None:
    """Read planes at points between their elements, in proportion; what lies outside is 0.

    Args:
        planes: [n, channels, height, width], f32.
        across: [n, points], f32: positions in elements; what is no number lies outside.
        down: the same, from the top.

    Returns:
        [n, channels, points]; None where the processor, or numbers of 32 bits, cannot.
    """
    function = function_of(_SAMPLE) if {"avx2", "fma"} <= processor_flags() else None
    images, channels, height, width = planes.shape
    if function is None or 2 * height * width >= 1 << 31 or max(height, width) >= 1 << 24:
        return None
    points = across.shape[1]
    if points < _AT_ONCE:
        wide = np.full((2, images, _AT_ONCE), FAR, np.float32)
        wide[0, :, :points], wide[1, :, :points] = across, down
        made = sample(planes, wide[0], wide[1])
        return None if made is None else made[:, :, :points]
    # Views have other strides, as what a part behind late sizes reads may be.
    planes, across, down = map(np.ascontiguousarray, (planes, across, down))
    result = np.empty((images, channels, points), np.float32)
    if result.size and planes.size:
        places = (address_of(array) for array in (across, down, planes, result))
        sizes = images, points, channels, 4 * height * width, width, height
        arguments = np.array((*places, *sizes, FAR, -FAR), _ARGUMENTS)
        function(ctypes.c_void_p(address_of(arguments)))
    return result
