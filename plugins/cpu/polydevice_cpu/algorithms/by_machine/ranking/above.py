"""Above: indices of all elements of rows that are above a number, in order, by machine code.

Those found are compared with one another, eight at a time and without a branch: 20 rows of 525 of
which 100 each are above take 25 us, where keeping the best of those seen so far takes 85.
"""

from __future__ import annotations

import struct
from typing import Any

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.algorithms.by_machine.ranking.best import NONE

_HIGHEST = (1 << 31) - 1

MOST = 480
"""So many of a row at most: time grows with their square. 480 take 11 us."""

_ARGUMENTS = struct.Struct("@PPPPnn if n ii nn").pack
"""Where `best` has them: rows, the result, room, how many there may be of a row, and how many rows
there are; the number that elements are above, `_HIGHEST`, and the rows' length."""

# size_t loop(_ARGUMENTS* rdi): 0, or another number if there are too many. An element becomes a
# pair as in `best`. r11: pairs of a row, rbx of them; zmm2, zmm6: opposite bits of the next
# indices; then zmm3: eight pairs, zmm4: how many are larger.
_ABOVE = bytes.fromhex(
    "f30f1efa53415441554c8b07"  # endbr64; push rbx; push r12; push r13; mov r8, [rdi]
    "4c8b4f284c8b57484c8b5f18"  # mov r9, [rdi+40]; mov r10, [rdi+72]; mov r11, [rdi+24]
    "4c8b67204c8b6f08"  # mov r12, [rdi+32]; mov r13, [rdi+8]
    "62e27d4818470d62e27d48584f10"  # vbroadcastss zmm16, [rdi+52]; vpbroadcastd zmm17, [rdi+64]
    "62f17d48efc048b80001020304050607"  # vpxord zmm0, zmm0, zmm0; movabs rax, 0x0706050403020100
    "c4e1f96ec862f27d4832c9b8ffffffff"  # vmovq xmm1, rax; vpmovzxbq zmm1, xmm1; mov eax, -1
    "62e2fd487cd062b1f548efca"  # vpbroadcastq zmm18, rax; vpxorq zmm1, zmm1, zmm18
    "b80800000062e2fd487cd8b801000000"  # mov eax, 8; vpbroadcastq zmm19, rax; mov eax, 1
    "62e2fd487ce062f1fd486fd1"  # vpbroadcastq zmm20, rax; row: vmovdqa64 zmm2, zmm1
    "31f631db4c89d04829f0"  # xor esi, esi; xor ebx, ebx; scan: mov rax, r10; sub rax, rsi
    "0f8ec6000000b9ffffffff4883f8107305"  # jle found; mov ecx, -1; cmp rax, 16; jae whole
    "c4e278f5c9c5f892c9"  # bzhi ecx, ecx, eax; whole: kmovw k1, ecx
    "62d17cc9101cb0"  # vmovups zmm3{k1}{z}, [r8+rsi*4]
    "62b16449c2c81e62b1ed48fbf3"  # vcmpps k1{k1}, zmm3, zmm16, 0x1e; vpsubq zmm6, zmm2, zmm19
    "c5f893d185d20f8483000000f30fb8ca"  # kmovw edx, k1; test edx, edx; je next; popcnt ecx, edx
    "4801d94c39e10f87fe000000"  # add rcx, rbx; cmp rcx, r12; ja many
    "62f1644858d862f15d4872e31f"  # vaddps zmm3, zmm3, zmm0; vpsrad zmm4, zmm3, 31
    "62b15d48dbe162f16548efdc"  # vpandd zmm4, zmm4, zmm17; vpxord zmm3, zmm3, zmm4
    "62f27d4835eb62f1d54873f520"  # vpmovzxdq zmm5, ymm3; vpsllq zmm5, zmm5, 32
    "62f1d548ebea62f2fdc98bed"  # vporq zmm5, zmm5, zmm2; vpcompressq zmm5{k1}{z}, zmm5
    "62d1fe487f2cdb0fb6c2f30fb8c0"  # vmovdqu64 [r11+rbx*8], zmm5; movzx eax, dl; popcnt eax, eax
    "4801c362f3fd483bdb01"  # add rbx, rax; vextracti64x4 ymm3, zmm3, 1
    "62f27d4835eb62f1d54873f520"  # vpmovzxdq zmm5, ymm3; vpsllq zmm5, zmm5, 32
    "62f1d548ebeec4e3f930c908"  # vporq zmm5, zmm5, zmm6; kshiftrw k1, k1, 8
    "62f2fdc98bed62d1fe487f2cdb"  # vpcompressq zmm5{k1}{z}, zmm5; vmovdqu64 [r11+rbx*8], zmm5
    "4889cb62b1cd48fbd34883c610"  # mov rbx, rcx; next: vpsubq zmm2, zmm6, zmm19; add rsi, 16
    "e92effffff4c39e3730ab8ffffffff"  # jmp scan; found: cmp rbx, r12; jae full; mov eax, -1
    "498944dd0031d24889d8"  # mov [r13+rbx*8], rax; full: xor edx, edx; eight: mov rax, rbx
    "4829d07e4d62d1fe486f1cd3"  # sub rax, rdx; jle sorted; vmovdqu64 zmm3, [r11+rdx*8]
    "62f1dd48efe431c9"  # vpxorq zmm4, zmm4, zmm4; xor ecx, ecx
    "62d3e5581f0ccb01"  # other: vpcmpq k1, zmm3, [r11+rcx*8]{1to8}, 1
    "62b1dd49d4e448ffc14839d972ea"  # vpaddq zmm4{k1}, zmm4, zmm20; inc rcx; cmp rcx, rbx; jb other
    "b9ffffffff4883f8087305c4e278f5c9"  # mov ecx, -1; cmp rax, 8; jae all; bzhi ecx, ecx, eax
    "c5f892c962b1e548dfda"  # all: kmovw k1, ecx; vpandnq zmm3, zmm3, zmm18
    "62d2fd49a15ce5004883c208ebab"  # vpscatterqq [r13+zmm4*8]{k1}, zmm3; add rdx, 8; jmp eight
    "4f8d04904f8d6ce50049ffc9"  # sorted: lea r8, [r8+r10*4]; lea r13, [r13+r12*8]; dec r9
    "0f85acfeffff31c0eb05b801000000"  # jne row; xor eax, eax; jmp end; many: mov eax, 1
    "c5f877415d415c5bc3"  # end: vzeroupper; pop r13; pop r12; pop rbx; ret
)


def finds(rows: int, length: int) -> bool:
    """Whether there is code that finds what is above a number in so many rows of this length."""
    return rows > 0 and 0 < length < NONE and has_avx512()


def finding(
    places: tuple[int, int, int], shape: tuple[int, ...], count: int, above: float
) -> tuple[Any, bytes]:
    """Return what finds elements, and what it is told, as `best.ranking` does.

    Of equal elements the lower index is first; NaN is above nothing. Behind the last index of a row
    is `NONE`, and then anything.

    Args:
        places: addresses of rows, f32, of the result, [rows, count], i64, and of `best.ROOM` more
            numbers of 8 bytes than `count`.
        shape: of the rows.
        count: how many of a row may be above; where more are, it does not return 0.
        above: the number, in f32.
    """
    x, index, room = places
    rows, length = shape
    given = x, index, 0, room, count, rows, 0, above, 0, _HIGHEST, 0, length, 0
    return function_of(_ABOVE), _ARGUMENTS(*given)
