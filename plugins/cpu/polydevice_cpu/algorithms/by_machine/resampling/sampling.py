"""Sampling: planes read between their elements, eight points at a time by machine code.

NumPy takes 24 ns for a point of one plane, half of them for weights and for what lies outside; the
processor's instructions 2, and 1.3 for a further plane at the same point.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of, processor_flags
from polydevice_cpu.onednn.engine import address_of

FAR = 1e9
"""Positions beyond this are cut, so that they fit an integer."""

_AT_ONCE = 8


class Along(NamedTuple):
    """How positions along an axis, in elements, follow from numbers.

    Attributes:
        times: what they are multiplied by.
        moved: what is added.
        least: what they are cut to; a number that is none becomes `most`.
        most: likewise.
    """

    times: float = 1.0
    moved: float = 0.0
    least: float = -FAR
    most: float = FAR


AS_IT_IS = Along()

_ARGUMENTS = struct.Struct("@PPPPnnnnnn8fn").pack
"""Numbers across, and down, planes, result; how many images, points and channels there are, bytes
of a plane, its width and height; `Along`, across and down; whether numbers come in pairs."""

# size_t loop(_ARGUMENTS* rdi): 0. r8, r9: positions across and down; r10: planes; r11: result;
# ymm0, ymm1: how far behind the element before, and ymm11, ymm14 before the next one; ymm2: where
# the former lies; ymm4, 8, 9, 10: which of the four elements around a point are inside. Each is
# multiplied by its share: to add a part of a difference gives no number between infinities.
_SAMPLE = bytes.fromhex(
    "f30f1efa5355415441554156"  # endbr64; push rbx; push rbp; push r12; push r13; push r14
    "41574c8b074c8b4f084c8b5710"  # push r15; mov r8, [rdi]; mov r9, [rdi+8]; mov r10, [rdi+16]
    "4c8b5f184c8b67284c8b6f38"  # mov r11, [rdi+24]; mov r12, [rdi+40]; mov r13, [rdi+56]
    "c4627d587f40"  # vpbroadcastd ymm15, [rdi+64]
    "48837f20000f84d7010000"  # image: cmp qword ptr [rdi+32], 0; je end
    "48ff4f2031c9"  # dec qword ptr [rdi+32]; xor ecx, ecx
    "498d4424f84839c1480f47c8"  # points: lea rax, [r12-8]; cmp rcx, rax; cmova rcx, rax
    "c4627d58774848837f7000"  # vpbroadcastd ymm14, [rdi+72]; cmp qword ptr [rdi+112], 0
    "750ec4c17c100488"  # jne pairs; vmovups ymm0, [r8+rcx*4]
    "c4c17c100c89eb23"  # vmovups ymm1, [r9+rcx*4]; jmp placed
    "c4c17c1014c8c4c17c105cc820"  # pairs: vmovups ymm2, [r8+rcx*8]; vmovups ymm3, [r8+rcx*8+32]
    "c5ecc6c388c5ecc6cbdd"  # vshufps ymm0, ymm2, ymm3, 0x88; vshufps ymm1, ymm2, ymm3, 0xdd
    "c4e3fd01c0d8c4e3fd01c9d8"  # vpermpd ymm0, ymm0, 0xd8; vpermpd ymm1, ymm1, 0xd8
    "c4e27d185750"  # placed: vbroadcastss ymm2, [rdi+80]
    "c4e27d185f54c4e26da8c3"  # vbroadcastss ymm3, [rdi+84]; vfmadd213ps ymm0, ymm2, ymm3
    "c4e27d185758c4e27d185f5c"  # vbroadcastss ymm2, [rdi+88]; vbroadcastss ymm3, [rdi+92]
    "c5fc5dc3c5fc5fc2"  # vminps ymm0, ymm0, ymm3; vmaxps ymm0, ymm0, ymm2
    "c4e27d185760c4e27d185f64"  # vbroadcastss ymm2, [rdi+96]; vbroadcastss ymm3, [rdi+100]
    "c4e26da8cbc4e27d185768"  # vfmadd213ps ymm1, ymm2, ymm3; vbroadcastss ymm2, [rdi+104]
    "c4e27d185f6cc5f45dcb"  # vbroadcastss ymm3, [rdi+108]; vminps ymm1, ymm1, ymm3
    "c5f45fcac4e37d08d001"  # vmaxps ymm1, ymm1, ymm2; vroundps ymm2, ymm0, 1
    "c4e37d08d901c5fc5cc2"  # vroundps ymm3, ymm1, 1; vsubps ymm0, ymm0, ymm2
    "c5f45ccbc5fe5bd2"  # vsubps ymm1, ymm1, ymm3; vcvttps2dq ymm2, ymm2
    "c5fe5bdbc4412576db"  # vcvttps2dq ymm3, ymm3; vpcmpeqd ymm11, ymm11, ymm11
    "c4c16d66e3c58566ea"  # vpcmpgtd ymm4, ymm2, ymm11; vpcmpgtd ymm5, ymm15, ymm2
    "c5dddbe5c4c16566eb"  # vpand ymm4, ymm4, ymm5; vpcmpgtd ymm5, ymm3, ymm11
    "c58d66f3c5d5dbee"  # vpcmpgtd ymm6, ymm14, ymm3; vpand ymm5, ymm5, ymm6
    "c4c16dfaf3c4c165fafb"  # vpsubd ymm6, ymm2, ymm11; vpsubd ymm7, ymm3, ymm11
    "c50566c6c4c14d66f3"  # vpcmpgtd ymm8, ymm15, ymm6; vpcmpgtd ymm6, ymm6, ymm11
    "c4c14ddbf0c50d66c7"  # vpand ymm6, ymm6, ymm8; vpcmpgtd ymm8, ymm14, ymm7
    "c4c14566fbc4c145dbf8"  # vpcmpgtd ymm7, ymm7, ymm11; vpand ymm7, ymm7, ymm8
    "c4c26540dfc5edfed3"  # vpmulld ymm3, ymm3, ymm15; vpaddd ymm2, ymm2, ymm3
    "c54ddbc5c55ddbcf"  # vpand ymm8, ymm6, ymm5; vpand ymm9, ymm4, ymm7
    "c54ddbd7c5dddbe54c89d0"  # vpand ymm10, ymm6, ymm7; vpand ymm4, ymm4, ymm5; mov rax, r10
    "498d1c8bc4c12572d319"  # lea rbx, [r11+rcx*4]; vpsrld ymm11, ymm11, 25
    "c4c12572f317c5245cf1"  # vpslld ymm11, ymm11, 23; vsubps ymm14, ymm11, ymm1
    "c5245cd8488b5730"  # vsubps ymm11, ymm11, ymm0; mov rdx, [rdi+48]
    "4c637740"  # movsxd r14, dword ptr [rdi+64]
    "c5e457dbc5d457ed"  # channel: vxorps ymm3, ymm3, ymm3; vxorps ymm5, ymm5, ymm5
    "c5fc28f4c4e24d921c90"  # vmovaps ymm6, ymm4; vgatherdps ymm3, [rax+ymm2*4], ymm6
    "c57c29c6c4e24d926c9004"  # vmovaps ymm6, ymm8; vgatherdps ymm5, [rax+ymm2*4+4], ymm6
    "c4c16459dbc4e255b8d8"  # vmulps ymm3, ymm3, ymm11; vfmadd231ps ymm3, ymm5, ymm0
    "4a8d2cb0c5d457ed"  # lea rbp, [rax+r14*4]; vxorps ymm5, ymm5, ymm5
    "c5c457ffc57c29ce"  # vxorps ymm7, ymm7, ymm7; vmovaps ymm6, ymm9
    "c4e24d926c9500c57c29d6"  # vgatherdps ymm5, [rbp+ymm2*4], ymm6; vmovaps ymm6, ymm10
    "c4e24d927c9504"  # vgatherdps ymm7, [rbp+ymm2*4+4], ymm6
    "c4c15459ebc4e245b8e8"  # vmulps ymm5, ymm5, ymm11; vfmadd231ps ymm5, ymm7, ymm0
    "c4c16459dec4e255b8d9"  # vmulps ymm3, ymm3, ymm14; vfmadd231ps ymm3, ymm5, ymm1
    "c5fc111b4c01e84a8d1ca3"  # vmovups [rbx], ymm3; add rax, r13; lea rbx, [rbx+r12*4]
    "48ffca75934883c1084c39e1"  # dec rdx; jnz channel; add rcx, 8; cmp rcx, r12
    "0f8255feffff4989c2488b4730"  # jb points; mov r10, rax; mov rax, [rdi+48]
    "490fafc44d8d1c834f8d0ca1"  # imul rax, r12; lea r11, [r11+rax*4]; lea r9, [r9+r12*4]
    "4c89e0488b4f7048d3e0"  # mov rax, r12; mov rcx, [rdi+112]; shl rax, cl
    "4d8d0480e91efeffff"  # lea r8, [r8+rax*4]; jmp image
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
    points = across.shape[1]
    if points < _AT_ONCE:
        made = sample(planes, *(_filled(each, FAR) for each in (across, down)))
        return None if made is None else made[:, :, :points]
    across, down = map(np.ascontiguousarray, (across, down))
    return _sampled(planes, (across, down), points, (AS_IT_IS, AS_IT_IS))


def sample_pairs(planes: Array, pairs: Array, across: Along, down: Along) -> Array | None:
    """Read planes at points as `sample` does.

    Args:
        planes: [n, channels, height, width], f32.
        pairs: [n, points, 2], f32: numbers that positions across and down follow from.
        across: how.
        down: how.
    """
    points = pairs.shape[1]
    if points < _AT_ONCE:
        pairs = _filled(pairs, 0.0)
        made = _sampled(planes, (pairs, pairs), _AT_ONCE, (across, down))
        return None if made is None else made[:, :, :points]
    pairs = np.ascontiguousarray(pairs)
    return _sampled(planes, (pairs, pairs), points, (across, down))


def _filled(numbers: Array, filling: float) -> Array:
    """As many along the second axis as are computed at once."""
    wide = np.full((len(numbers), _AT_ONCE, *numbers.shape[2:]), filling, np.float32)
    wide[:, : numbers.shape[1]] = numbers
    return wide


def _sampled(
    planes: Array, numbers: tuple[Array, Array], points: int, along: tuple[Along, Along]
) -> Array | None:
    function = function_of(_SAMPLE) if {"avx2", "fma"} <= processor_flags() else None
    images, channels, height, width = planes.shape
    if function is None or 2 * height * width >= 1 << 31 or max(height, width) >= 1 << 24:
        return None
    planes = np.ascontiguousarray(planes)  # what a part behind late sizes reads may be a view
    result = np.empty((images, channels, points), np.float32)
    if result.size and planes.size:
        places = (address_of(array) for array in (*numbers, planes, result))
        sizes = images, points, channels, 4 * height * width, width, height
        in_pairs = numbers[0] is numbers[1]
        function(_ARGUMENTS(*places, *sizes, *along[0], *along[1], in_pairs))
    return result
