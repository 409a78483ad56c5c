"""Short rows: the largest or smallest of each, by machine code.

NumPy's `maximum.reduce` takes 80 ns for a row of 64 or 80, the processor's instructions 10.
"""

from __future__ import annotations

import math
import struct

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of, processor_flags
from polydevice_cpu.onednn.engine import address_of

LEAST, MOST = 8, 512
"""Lengths of rows that are short; of longer ones NumPy takes less time."""

_SIGN = 1 << 31

_ARGUMENTS = struct.Struct("@PPnnIf").pack
"""Rows, result, their number, their length, what turns signs, and what is least."""

# size_t loop(const _ARGUMENTS* rdi): 0, or another number if some element is no number. r8: rows;
# r9: result; ymm7: what turns signs, so that the largest is the smallest; ymm3: what is no number.
_EXTREMES = bytes.fromhex(
    "f30f1efa4c8b074c8b4f08"  # endbr64; mov r8, [rdi]; mov r9, [rdi+8]
    "4c8b5f10488b7718"  # mov r11, [rdi+16]; mov rsi, [rdi+24]
    "c4e27d187f20c4e27d187724"  # vbroadcastss ymm7, [rdi+32]; vbroadcastss ymm6, [rdi+36]
    "c5e457db"  # vxorps ymm3, ymm3, ymm3
    "4d85db7472c5fc28c64889f1"  # row: test r11, r11; je end; vmovaps ymm0, ymm6; mov rcx, rsi
    "4883e9087218c4c1445708"  # eight: sub rcx, 8; jb rest; vxorps ymm1, ymm7, [r8]
    "c5f4c2d103c5e456da"  # vcmpunordps ymm2, ymm1, ymm1; vorps ymm3, ymm3, ymm2
    "c5fc5fc14983c020ebe2"  # vmaxps ymm0, ymm0, ymm1; add r8, 32; jmp eight
    "4883c10874174d8d0488"  # rest: add rcx, 8; je joined; lea r8, [r8+rcx*4]
    "c4c1445748e0c5f4c2d103"  # vxorps ymm1, ymm7, [r8-32]; vcmpunordps ymm2, ymm1, ymm1
    "c5e456dac5fc5fc1"  # vorps ymm3, ymm3, ymm2; vmaxps ymm0, ymm0, ymm1
    "c4e37d19c101c5f85fc1"  # joined: vextractf128 xmm1, ymm0, 1; vmaxps xmm0, xmm0, xmm1
    "c4e37904c84ec5f85fc1"  # vpermilps xmm1, xmm0, 0x4e; vmaxps xmm0, xmm0, xmm1
    "c4e37904c8b1c5f85fc1"  # vpermilps xmm1, xmm0, 0xb1; vmaxps xmm0, xmm0, xmm1
    "c5f857cfc4c17a11094983c104"  # vxorps xmm1, xmm0, xmm7; vmovss [r9], xmm1; add r9, 4
    "49ffcbeb89"  # dec r11; jmp row
    "c5fc50c3c5f877c3"  # end: vmovmskps eax, ymm3; vzeroupper; ret
)


def extremes(x: Array, result: Array, *, largest: bool) -> bool:
    """Write the largest or smallest of each row of x [n, length] to result [n]; both row-major f32.

    Returns:
        Whether that was done; not where some element is no number, and for other lengths.
    """
    count, length = x.shape
    function = function_of(_EXTREMES) if "avx" in processor_flags() else None
    if function is None or not LEAST <= length <= MOST:
        return False
    turned = 0 if largest else _SIGN
    places = address_of(x), address_of(result)
    return not function(_ARGUMENTS(*places, count, length, turned, -math.inf))
