"""SoftMax of rows or columns of any length, by machine code: here what there is for AVX-512.

oneDNN takes 2 ns for an element of a row, and generates code for each size; this takes 0.3.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.avx2 import shares as short_shares
from polydevice_cpu.algorithms.by_machine.code import (
    PARTS_AT_ONCE,
    Code,
    Told,
    has_avx512,
    has_vectors,
    may_share,
    told,
)
from polydevice_cpu.onednn.engine import address_of

SHARED = 1 << 13
"""From so many elements on threads share the work, which takes one 3 us."""

KEPT = 768
"""Elements of a column up to which blocks of columns are kept on the stack: 48 KiB."""

TAKEN = 4
"""Number of what is taken, among the numbers of 8 bytes that code is told."""

_ARGUMENTS = struct.Struct("@PPnnnnnn15f").pack
"""Source, result, how many rows or blocks of columns there are, how many a thread takes at a time
and how many are taken (0 again, once one has taken all), the length of one, how many columns lie
side by side and their blocks; `_NUMBERS`."""

_POLYNOMIAL = 8.2903085e-3, 4.1897964e-2, 0.16667637, 0.4999915, 0.9999997, 1.0
"""exp(x) for |x| < log(2) / 2, right to 1e-7 of it."""

_ODD = 1 / 9, 1 / 7, 1 / 5, 1 / 3
"""log(m) = 2 t (1 + t^2 / 3 + ...), t = (m - 1) / (m + 1), right to 1e-8 for 3/4 < m < 3/2."""

_NUMBERS = -87.33654475, 1 / math.log(2), 1.5 * 2**23, math.log(2), *_POLYNOMIAL, -math.inf, *_ODD
"""Below the first, exp(x) is no normal number, and is 0. The third added to a number below 2^22
rounds it to a whole one. Minus infinity is what a maximum begins with."""

# What they have in common, in hexadecimal digits.
_LOADED = (
    "f30f1efa62e27d48184f10"  # endbr64; vbroadcastss zmm17, [rdi+64]
    "62e27d4818571162e27d48185f12"  # vbroadcastss zmm18, [rdi+68]; vbroadcastss zmm19, [rdi+72]
    "62e27d4818671362e27d48186f14"  # vbroadcastss zmm20, [rdi+76]; vbroadcastss zmm21, [rdi+80]
    "62e27d4818771562e27d48187f16"  # vbroadcastss zmm22, [rdi+84]; vbroadcastss zmm23, [rdi+88]
    "62627d4818471762627d48184f18"  # vbroadcastss zmm24, [rdi+92]; vbroadcastss zmm25, [rdi+96]
    "62627d48185719"  # vbroadcastss zmm26, [rdi+100]
)
"""Begin: the numbers, in zmm17 to zmm26."""

_CLAIMED = (
    "62627d48185f1a488b7728"  # vbroadcastss zmm27, [rdi+104]; mov rsi, [rdi+40]
    "89f1b80100000083e10fd3e0"  # mov ecx, esi; mov eax, 1; and ecx, 15; shl eax, cl
    "ffc8c5f892c8"  # dec eax; kmovw k1, eax
    "488b47184889c2"  # claim: mov rax, [rdi+24]; mov rdx, rax
    "f0480fc147204c8b5f104c39d8"  # lock xadd [rdi+32], rax; mov r11, [rdi+16]; cmp rax, r11
)
"""The last part of a row; then, time and again, as many rows as a thread takes."""

_LARGEST = (
    "4829c2480fafc64c8b07"  # sub rdx, rax; imul rax, rsi; mov r8, [rdi]
    "4c8b4f084d8d04804d8d0c81"  # mov r9, [rdi+8]; lea r8, [r8+rax*4]; lea r9, [r9+rax*4]
    "62917c4828c362917c4828cb"  # row: vmovaps zmm0, zmm27; vmovaps zmm1, zmm27
    "62917c4828d362917c4828db4889f0"  # vmovaps zmm2, zmm27; vmovaps zmm3, zmm27; mov rax, rsi
    "4d89c24883e840723a"  # mov r10, r8; sub rax, 64; jb few
    "62d17c485f0262d174485f4a01"  # four: vmaxps zmm0, zmm0, [r10]; vmaxps zmm1, zmm1, [r10+64]
    "62d16c485f520262d164485f5a03"  # vmaxps zmm2, zmm2, [r10+128]; vmaxps zmm3, zmm3, [r10+192]
    "4981c2000100004883e84073d8"  # add r10, 256; sub rax, 64; jae four
    "62f17c485fc162f16c485fd3"  # vmaxps zmm0, zmm0, zmm1; vmaxps zmm2, zmm2, zmm3
    "62f17c485fc2"  # vmaxps zmm0, zmm0, zmm2
    "4883c040"  # few: add rax, 64
    "4883e810720c62d17c485f02"  # most: sub rax, 16; jb mosttail; vmaxps zmm0, zmm0, [r10]
    "4983c240ebee"  # add r10, 64; jmp most
    "62d17c495f02"  # mosttail: vmaxps zmm0{k1}, zmm0, [r10]
    "62f3fd481bc101c5fc5fc1"  # vextractf64x4 ymm1, zmm0, 1; vmaxps ymm0, ymm0, ymm1
    "c4e37d19c101c5f85fc1"  # vextractf128 xmm1, ymm0, 1; vmaxps xmm0, xmm0, xmm1
    "c4e37904c84ec5f85fc1"  # vpermilps xmm1, xmm0, 0x4e; vmaxps xmm0, xmm0, xmm1
    "c4e37904c8b1c5f85fc1"  # vpermilps xmm1, xmm0, 0xb1; vmaxps xmm0, xmm0, xmm1
    "62f27d4818c062f16d48efd2"  # vbroadcastss zmm0, xmm0; vpxord zmm2, zmm2, zmm2
)
"""The largest element of a row, in all of zmm0."""

_EXPONENTIALS = (
    "62f15c485ce062b15c48c2d105"  # vsubps zmm4, zmm4, zmm0; vcmpps k2, zmm4, zmm17, 5
    "62b17c4828eb62b25d48b8ea"  # vmovaps zmm5, zmm19; vfmadd231ps zmm5, zmm4, zmm18
    "62b154485ceb62b25548bce4"  # vsubps zmm5, zmm5, zmm19; vfnmadd231ps zmm4, zmm5, zmm20
    "62b17c4828f562b25d48a8f6"  # vmovaps zmm6, zmm21; vfmadd213ps zmm6, zmm4, zmm22
    "62b25d48a8f762925d48a8f0"  # vfmadd213ps zmm6, zmm4, zmm23; vfmadd213ps zmm6, zmm4, zmm24
    "62925d48a8f162925d48a8f2"  # vfmadd213ps zmm6, zmm4, zmm25; vfmadd213ps zmm6, zmm4, zmm26
)
"""exp(zmm4 - zmm0) as zmm6 times 2^zmm5, where k2 says."""

_SUMMED = (
    "62f3fd481bd101c5ec58d1"  # total: vextractf64x4 ymm1, zmm2, 1; vaddps ymm2, ymm2, ymm1
    "c4e37d19d101c5e858d1"  # vextractf128 xmm1, ymm2, 1; vaddps xmm2, xmm2, xmm1
    "c4e37904ca4ec5e858d1"  # vpermilps xmm1, xmm2, 0x4e; vaddps xmm2, xmm2, xmm1
    "c4e37904cab1c5e858d1"  # vpermilps xmm1, xmm2, 0xb1; vaddps xmm2, xmm2, xmm1
)
"""The sum of zmm2's elements, in xmm2."""

_END = (
    "488b4718483b47107208"  # end: mov rax, [rdi+24]; cmp rax, [rdi+16]; jb ended
    "48c7472000000000"  # mov qword ptr [rdi+32], 0
)
"""All is taken; the next call begins anew."""

# size_t loop(_ARGUMENTS* rdi), by any number of threads at once. r8: source; r9: result; rsi: the
# length of a row; k1: the elements of its last part, if that is not whole; rdx: rows to compute;
# zmm0: the largest element; zmm2: the sum of exp(x - largest), which is made in zmm4 to zmm6.
_ROWS = bytes.fromhex(
    _LOADED
    + _CLAIMED
    + "0f83250200004801c24c39da490f47d3"  # jae end; add rdx, rax; cmp rdx, r11; cmova rdx, r11
    + _LARGEST
    + "4889f04d89ca"  # mov rax, rsi; mov r10, r9
    "4883e810726b62d17c481020"  # terms: sub rax, 16; jb last; vmovups zmm4, [r8]
    + _EXPONENTIALS
    + "62f24dca2cf562f16c4858d6"  # vscalefps zmm6{k2}{z}, zmm6, zmm5; vaddps zmm2, zmm2, zmm6
    "62d17c4811324983c0404983c240"  # vmovups [r10], zmm6; add r8, 64; add r10, 64
    "eb8f"  # jmp terms
    "4883c010746562d17cc91020"  # last: add rax, 16; je total; vmovups zmm4{k1}{z}, [r8]
    + _EXPONENTIALS
    + "62f24dca2cf562f16c4958d6"  # vscalefps zmm6{k2}{z}, zmm6, zmm5; vaddps zmm2{k1}, zmm2, zmm6
    "62d17c4911324d8d0480"  # vmovups [r10]{k1}, zmm6; lea r8, [r8+rax*4]
    + _SUMMED
    + "62f12e005ed262f27d4818d2"  # vdivss xmm2, xmm26, xmm2; vbroadcastss zmm2, xmm2
    "4889f0"  # mov rax, rsi
    "4883e810721262d16c485921"  # share: sub rax, 16; jb lastshare; vmulps zmm4, zmm2, [r9]
    "62d17c4811214983c140ebe8"  # vmovups [r9], zmm4; add r9, 64; jmp share
    "4883c0107410"  # lastshare: add rax, 16; je done
    "62d16cc9592162d17c491121"  # vmulps zmm4{k1}{z}, zmm2, [r9]; vmovups [r9]{k1}, zmm4
    "4d8d0c81"  # lea r9, [r9+rax*4]
    "48ffca0f8500feffffe9c1fdffff"  # done: dec rdx; jne row; jmp claim
    + _END
    + "c5f87731c0c3"  # ended: vzeroupper; xor eax, eax; ret
)  # fmt: skip

# The logarithms of the same. xmm3, xmm4: the sum as a power of 2 times a number near 1.
_LOGARITHMS = bytes.fromhex(
    _LOADED
    + _CLAIMED
    + "0f837b0200004801c24c39da490f47d3"  # jae end; add rdx, rax; cmp rdx, r11; cmova rdx, r11
    + _LARGEST
    + "4d89c24889f0"  # mov r10, r8; mov rax, rsi
    "4883e810726162d17c481022"  # terms: sub rax, 16; jb last; vmovups zmm4, [r10]
    + _EXPONENTIALS
    + "62f24dca2cf562f16c4858d6"  # vscalefps zmm6{k2}{z}, zmm6, zmm5; vaddps zmm2, zmm2, zmm6
    "4983c240eb99"  # add r10, 64; jmp terms
    "4883c010745b62d17cc91022"  # last: add rax, 16; je total; vmovups zmm4{k1}{z}, [r10]
    + _EXPONENTIALS
    + "62f24dca2cf562f16c4958d6"  # vscalefps zmm6{k2}{z}, zmm6, zmm5; vaddps zmm2{k1}, zmm2, zmm6
    + _SUMMED
    + "62f36d0827e203c5ea5edc"  # vgetmantss xmm4, xmm2, xmm2, 3; vdivss xmm3, xmm2, xmm4
    "62f2650843db62915e0858ea"  # vgetexpss xmm3, xmm3, xmm3; vaddss xmm5, xmm4, xmm26
    "62915e085ce2c5da5ee5"  # vsubss xmm4, xmm4, xmm26; vdivss xmm4, xmm4, xmm5
    "c5da59ecc5fa10776c"  # vmulss xmm5, xmm4, xmm4; vmovss xmm6, [rdi+108]
    "c4e251a97770"  # vfmadd213ss xmm6, xmm5, [rdi+112]
    "c4e251a97774"  # vfmadd213ss xmm6, xmm5, [rdi+116]
    "c4e251a97778"  # vfmadd213ss xmm6, xmm5, [rdi+120]
    "62925508a9f2c5da58e4"  # vfmadd213ss xmm6, xmm5, xmm26; vaddss xmm4, xmm4, xmm4
    "c5da59e662b26508b9e4"  # vmulss xmm4, xmm4, xmm6; vfmadd231ss xmm4, xmm3, xmm20
    "62f27d4818d44889f0"  # vbroadcastss zmm2, xmm4; mov rax, rsi
    "4883e810722262d17c481020"  # share: sub rax, 16; jb lastshare; vmovups zmm4, [r8]
    "62f15c485ce062f15c485ce2"  # vsubps zmm4, zmm4, zmm0; vsubps zmm4, zmm4, zmm2
    "62d17c4811214983c0404983c140ebd8"  # vmovups [r9], zmm4; add r8, 64; add r9, 64; jmp share
    "4883c010742062d17cc91020"  # lastshare: add rax, 16; je done; vmovups zmm4{k1}{z}, [r8]
    "62f15c485ce062f15c485ce2"  # vsubps zmm4, zmm4, zmm0; vsubps zmm4, zmm4, zmm2
    "62d17c4911214d8d0480"  # vmovups [r9]{k1}, zmm4; lea r8, [r8+rax*4]
    "4d8d0c81"  # lea r9, [r9+rax*4]
    "48ffca0f85aafdffffe96bfdffff"  # done: dec rdx; jne row; jmp claim
    + _END
    + "c5f87731c0c3"  # ended: vzeroupper; xor eax, eax; ret
)  # fmt: skip

# The same of columns. r8: source; r9: result; rcx: bytes between two elements of a column; k1:
# which columns of a block there are; r10: the block; r11: how many are to compute; zmm0: their
# largest elements; zmm2: the sums.
_COLUMNS = bytes.fromhex(
    _LOADED
    + "62627d48185f1a53"  # vbroadcastss zmm27, [rdi+104]; push rbx
    "488b47184889c2"  # claim: mov rax, [rdi+24]; mov rdx, rax
    "f0480fc147204c8b5f104c39d8"  # lock xadd [rdi+32], rax; mov r11, [rdi+16]; cmp rax, r11
    "0f83300100004801c24c39da490f47d3"  # jae end; add rdx, rax; cmp rdx, r11; cmova rdx, r11
    "4829c24989d34989c2"  # sub rdx, rax; mov r11, rdx; mov r10, rax
    "4c89d031d248f77738"  # item: mov rax, r10; xor edx, edx; div qword ptr [rdi+56]
    "488b4f304989c8480fafc1"  # mov rcx, [rdi+48]; mov r8, rcx; imul rax, rcx
    "480faf472848c1e2044929d0"  # imul rax, [rdi+40]; shl rdx, 4; sub r8, rdx
    "4801d048c7c6ffffffffba01000000"  # add rax, rdx; mov rsi, -1; mov edx, 1
    "4c87c148d3e248ffca4883f910"  # xchg rcx, r8; shl rdx, cl; dec rdx; cmp rcx, 16
    "480f47d6c5f892ca4c89c148c1e102"  # cmova rdx, rsi; kmovw k1, edx; mov rcx, r8; shl rcx, 2
    "4c8b074c8b4f084d8d0480"  # mov r8, [rdi]; mov r9, [rdi+8]; lea r8, [r8+rax*4]
    "4d8d0c8162917c4828c3488b5728"  # lea r9, [r9+rax*4]; vmovaps zmm0, zmm27; mov rdx, [rdi+40]
    "4c89c3"  # mov rbx, r8
    "62f17c495f034801cb48ffca"  # most: vmaxps zmm0{k1}, zmm0, [rbx]; add rbx, rcx; dec rdx
    "75f262f16d48efd2488b5728"  # jne most; vpxord zmm2, zmm2, zmm2; mov rdx, [rdi+40]
    "4c89cb"  # mov rbx, r9
    "62d17cc9102062f15c485ce0"  # terms: vmovups zmm4{k1}{z}, [r8]; vsubps zmm4, zmm4, zmm0
    "62b15c48c2d10562b17c4828eb"  # vcmpps k2, zmm4, zmm17, 5; vmovaps zmm5, zmm19
    "62b25d48b8ea62b154485ceb"  # vfmadd231ps zmm5, zmm4, zmm18; vsubps zmm5, zmm5, zmm19
    "62b25548bce462b17c4828f5"  # vfnmadd231ps zmm4, zmm5, zmm20; vmovaps zmm6, zmm21
    "62b25d48a8f662b25d48a8f7"  # vfmadd213ps zmm6, zmm4, zmm22; vfmadd213ps zmm6, zmm4, zmm23
    "62925d48a8f062925d48a8f1"  # vfmadd213ps zmm6, zmm4, zmm24; vfmadd213ps zmm6, zmm4, zmm25
    "62925d48a8f2"  # vfmadd213ps zmm6, zmm4, zmm26
    "62f24dca2cf562f16c4858d6"  # vscalefps zmm6{k2}{z}, zmm6, zmm5; vaddps zmm2, zmm2, zmm6
    "62f17c4911334901c84801cb"  # vmovups [rbx]{k1}, zmm6; add r8, rcx; add rbx, rcx
    "48ffca759462f12c405ed2"  # dec rdx; jne terms; vdivps zmm2, zmm26, zmm2
    "488b5728"  # mov rdx, [rdi+40]
    "62d16cc9592162d17c491121"  # share: vmulps zmm4{k1}{z}, zmm2, [r9]; vmovups [r9]{k1}, zmm4
    "4901c948ffca75ec49ffc249ffcb"  # add r9, rcx; dec rdx; jne share; inc r10; dec r11
    "0f85e8feffffe9b6feffff"  # jne item; jmp claim
    + _END
    + "5bc5f87731c0c3"  # ended: pop rbx; vzeroupper; xor eax, eax; ret
)  # fmt: skip

# The same of columns that are kept on the stack, where rbx points to, one block or four side by
# side: of thousands of columns, what is read again would have left the caches. r12: bytes between
# two elements there; rsi: the block that is computed; r13: where the last one ends.
_KEPT_COLUMNS = bytes.fromhex(
    _LOADED
    + "62627d48185f1a5355"  # vbroadcastss zmm27, [rdi+104]; push rbx; push rbp
    "415441554889e5"  # push r12; push r13; mov rbp, rsp
    "4881ec00c000004883e4c0"  # sub rsp, 49152; and rsp, -64
    "488b47184889c2"  # claim: mov rax, [rdi+24]; mov rdx, rax
    "f0480fc147204c8b5f104c39d8"  # lock xadd [rdi+32], rax; mov r11, [rdi+16]; cmp rax, r11
    "0f83370200004801c24c39da490f47d3"  # jae end; add rdx, rax; cmp rdx, r11; cmova rdx, r11
    "4829c24989d34989c2"  # sub rdx, rax; mov r11, rdx; mov r10, rax
    "4c89d031d248f77738"  # item: mov rax, r10; xor edx, edx; div qword ptr [rdi+56]
    "488b4f304989c8480fafc1"  # mov rcx, [rdi+48]; mov r8, rcx; imul rax, rcx
    "480faf472848c1e2044929d0"  # imul rax, [rdi+40]; shl rdx, 4; sub r8, rdx
    "4801d041bc400000004d39e0"  # add rax, rdx; mov r12d, 64; cmp r8, r12
    "72164983fb04"  # jb one; cmp r11, 4
    "721048817f28c0000000"  # jb one; cmp qword ptr [rdi+40], 192
    "770641bc00010000"  # ja one; mov r12d, 256
    "48c7c6ffffffffba01000000"  # one: mov rsi, -1; mov edx, 1
    "4c87c148d3e248ffca4883f910"  # xchg rcx, r8; shl rdx, cl; dec rdx; cmp rcx, 16
    "480f47d6c5f892ca4c89c148c1e102"  # cmova rdx, rsi; kmovw k1, edx; mov rcx, r8; shl rcx, 2
    "4c8b074c8b4f084d8d0480"  # mov r8, [rdi]; mov r9, [rdi+8]; lea r8, [r8+rax*4]
    "4d8d0c81488b57284889e3"  # lea r9, [r9+rax*4]; mov rdx, [rdi+40]; mov rbx, rsp
    "4983fc407443"  # cmp r12, 64; je takeone
    "62d17c48102062d17c48106801"  # take: vmovups zmm4, [r8]; vmovups zmm5, [r8+64]
    "62d17c4810700262d17c48107803"  # vmovups zmm6, [r8+128]; vmovups zmm7, [r8+192]
    "62f17c48292362f17c48296b01"  # vmovaps [rbx], zmm4; vmovaps [rbx+64], zmm5
    "62f17c4829730262f17c48297b03"  # vmovaps [rbx+128], zmm6; vmovaps [rbx+192], zmm7
    "4901c84c01e348ffca75bfeb17"  # add r8, rcx; add rbx, r12; dec rdx; jne take; jmp taken
    "62d17cc9102062f17c482923"  # takeone: vmovups zmm4{k1}{z}, [r8]; vmovaps [rbx], zmm4
    "4901c84c01e348ffca75e9"  # add r8, rcx; add rbx, r12; dec rdx; jne takeone
    "4889e64e8d2c24"  # taken: mov rsi, rsp; lea r13, [rsp+r12]
    "62917c4828c3488b57284889f3"  # column: vmovaps zmm0, zmm27; mov rdx, [rdi+40]; mov rbx, rsi
    "62f17c485f034c01e3"  # most: vmaxps zmm0, zmm0, [rbx]; add rbx, r12
    "48ffca75f2"  # dec rdx; jne most
    "62f16d48efd2488b57284889f3"  # vpxord zmm2, zmm2, zmm2; mov rdx, [rdi+40]; mov rbx, rsi
    "62f17c48282362f15c485ce0"  # terms: vmovaps zmm4, [rbx]; vsubps zmm4, zmm4, zmm0
    "62b15c48c2d10562b17c4828eb"  # vcmpps k2, zmm4, zmm17, 5; vmovaps zmm5, zmm19
    "62b25d48b8ea62b154485ceb"  # vfmadd231ps zmm5, zmm4, zmm18; vsubps zmm5, zmm5, zmm19
    "62b25548bce462b17c4828f5"  # vfnmadd231ps zmm4, zmm5, zmm20; vmovaps zmm6, zmm21
    "62b25d48a8f662b25d48a8f7"  # vfmadd213ps zmm6, zmm4, zmm22; vfmadd213ps zmm6, zmm4, zmm23
    "62925d48a8f062925d48a8f1"  # vfmadd213ps zmm6, zmm4, zmm24; vfmadd213ps zmm6, zmm4, zmm25
    "62925d48a8f2"  # vfmadd213ps zmm6, zmm4, zmm26
    "62f24dca2cf562f16c4858d6"  # vscalefps zmm6{k2}{z}, zmm6, zmm5; vaddps zmm2, zmm2, zmm6
    "62f17c4829334c01e348ffca7597"  # vmovaps [rbx], zmm6; add rbx, r12; dec rdx; jne terms
    "62f12c405ed2488b57284889f3"  # vdivps zmm2, zmm26, zmm2; mov rdx, [rdi+40]; mov rbx, rsi
    "62f16c48592362f17c482923"  # share: vmulps zmm4, zmm2, [rbx]; vmovaps [rbx], zmm4
    "4c01e348ffca75ec"  # add rbx, r12; dec rdx; jne share
    "4883c6404c39ee0f8541ffffff"  # add rsi, 64; cmp rsi, r13; jne column
    "488b57284889e34983fc407443"  # mov rdx, [rdi+40]; mov rbx, rsp; cmp r12, 64; je giveone
    "62f17c48282362f17c48286b01"  # give: vmovaps zmm4, [rbx]; vmovaps zmm5, [rbx+64]
    "62f17c4828730262f17c48287b03"  # vmovaps zmm6, [rbx+128]; vmovaps zmm7, [rbx+192]
    "62d17c48112162d17c48116901"  # vmovups [r9], zmm4; vmovups [r9+64], zmm5
    "62d17c4811710262d17c48117903"  # vmovups [r9+128], zmm6; vmovups [r9+192], zmm7
    "4901c94c01e348ffca75bfeb17"  # add r9, rcx; add rbx, r12; dec rdx; jne give; jmp given
    "62f17c48282362d17c491121"  # giveone: vmovaps zmm4, [rbx]; vmovups [r9]{k1}, zmm4
    "4901c94c01e348ffca75e9"  # add r9, rcx; add rbx, r12; dec rdx; jne giveone
    "49c1ec064d01e24d29e3"  # given: shr r12, 6; add r10, r12; sub r11, r12
    "0f85e1fdffffe9affdffff"  # jne item; jmp claim
    + _END
    + "4889ec415d415c5d5b"  # ended: mov rsp, rbp; pop r13; pop r12; pop rbp; pop rbx
    "c5f87731c0c3"  # vzeroupper; xor eax, eax; ret
)  # fmt: skip


# The same of columns, which are read once more, less the logarithm of their sum as of rows.
_COLUMN_LOGARITHMS = bytes.fromhex(
    _LOADED
    + "62627d48185f1a53"  # vbroadcastss zmm27, [rdi+104]; push rbx
    "488b47184889c2f0480fc14720"  # claim: mov rax, [rdi+24]; mov rdx, rax; lock xadd [rdi+32], rax
    "4c8b5f104c39d80f838f0100004801c2"  # mov r11, [rdi+16]; cmp rax, r11; jae end; add rdx, rax
    "4c39da490f47d34829c24989d3"  # cmp rdx, r11; cmova rdx, r11; sub rdx, rax; mov r11, rdx
    "4989c2"  # mov r10, rax
    "4c89d031d248f77738"  # item: mov rax, r10; xor edx, edx; div qword ptr [rdi+56]
    "488b4f304989c8480fafc1"  # mov rcx, [rdi+48]; mov r8, rcx; imul rax, rcx
    "480faf472848c1e2044929d04801d0"  # imul rax, [rdi+40]; shl rdx, 4; sub r8, rdx; add rax, rdx
    "48c7c6ffffffffba010000004c87c148d3e2"  # mov rsi, -1; mov edx, 1; xchg rcx, r8; shl rdx, cl
    "48ffca4883f910480f47d6c5f892ca"  # dec rdx; cmp rcx, 16; cmova rdx, rsi; kmovw k1, edx
    "4c89c148c1e1024c8b074c8b4f08"  # mov rcx, r8; shl rcx, 2; mov r8, [rdi]; mov r9, [rdi+8]
    "4d8d04804d8d0c8162917c4828c3"  # lea r8, [r8+rax*4]; lea r9, [r9+rax*4]; vmovaps zmm0, zmm27
    "488b57284c89c3"  # mov rdx, [rdi+40]; mov rbx, r8
    "62f17c495f034801cb48ffca"  # most: vmaxps zmm0{k1}, zmm0, [rbx]; add rbx, rcx; dec rdx
    "75f262f16d48efd2488b5728"  # jne most; vpxord zmm2, zmm2, zmm2; mov rdx, [rdi+40]
    "4c89c3"  # mov rbx, r8
    "62f17cc9102362f15c485ce0"  # terms: vmovups zmm4{k1}{z}, [rbx]; vsubps zmm4, zmm4, zmm0
    "62b15c48c2d10562b17c4828eb"  # vcmpps k2, zmm4, zmm17, 5; vmovaps zmm5, zmm19
    "62b25d48b8ea62b154485ceb"  # vfmadd231ps zmm5, zmm4, zmm18; vsubps zmm5, zmm5, zmm19
    "62b25548bce462b17c4828f5"  # vfnmadd231ps zmm4, zmm5, zmm20; vmovaps zmm6, zmm21
    "62b25d48a8f662b25d48a8f7"  # vfmadd213ps zmm6, zmm4, zmm22; vfmadd213ps zmm6, zmm4, zmm23
    "62925d48a8f062925d48a8f1"  # vfmadd213ps zmm6, zmm4, zmm24; vfmadd213ps zmm6, zmm4, zmm25
    "62925d48a8f262f24dca2cf5"  # vfmadd213ps zmm6, zmm4, zmm26; vscalefps zmm6{k2}{z}, zmm6, zmm5
    "62f16c4858d64801cb48ffca759d"  # vaddps zmm2, zmm2, zmm6; add rbx, rcx; dec rdx; jne terms
    "62f37d4826e20362f16c485edc"  # vgetmantps zmm4, zmm2, 3; vdivps zmm3, zmm2, zmm4
    "62f27d4842db62915c4858ea"  # vgetexpps zmm3, zmm3; vaddps zmm5, zmm4, zmm26
    "62915c485ce262f15c485ee5"  # vsubps zmm4, zmm4, zmm26; vdivps zmm4, zmm4, zmm5
    "62f15c4859ec62f27d4818771b"  # vmulps zmm5, zmm4, zmm4; vbroadcastss zmm6, [rdi+108]
    "62f25558a8771c"  # vfmadd213ps zmm6, zmm5, [rdi+112]{1to16}
    "62f25558a8771d"  # vfmadd213ps zmm6, zmm5, [rdi+116]{1to16}
    "62f25558a8771e"  # vfmadd213ps zmm6, zmm5, [rdi+120]{1to16}
    "62925548a8f262f15c4858e4"  # vfmadd213ps zmm6, zmm5, zmm26; vaddps zmm4, zmm4, zmm4
    "62f15c4859d662b26548b8d4"  # vmulps zmm2, zmm4, zmm6; vfmadd231ps zmm2, zmm3, zmm20
    "488b5728"  # mov rdx, [rdi+40]
    "62d17cc9102062f15c485ce0"  # share: vmovups zmm4{k1}{z}, [r8]; vsubps zmm4, zmm4, zmm0
    "62f15c485ce262d17c4911214901c8"  # vsubps zmm4, zmm4, zmm2; vmovups [r9]{k1}, zmm4; add r8, rcx
    "4901c948ffca75dd49ffc249ffcb"  # add r9, rcx; dec rdx; jne share; inc r10; dec r11
    "0f8589feffffe957feffff"  # jne item; jmp claim
    + _END
    + "5bc5f87731c0c3"  # ended: pop rbx; vzeroupper; xor eax, eax; ret
)  # fmt: skip


def softmax(x: Array, result: Array, *, logarithm: bool = False) -> bool:
    """Write exp(x) along the middle axis, divided by its sum, to the result.

    Args:
        x: [before, length, behind], row-major f32.
        result: likewise; may be x.
        logarithm: whether the logarithms are wanted.

    Returns:
        Whether that was done; not where the processor or the system has no such code.
    """
    if not has_vectors():
        return False
    if x.size:
        function, told = _prepared(x.shape, 1, logarithm=logarithm)
        function(placed(told, address_of(x), address_of(result)))
    return True


def code(shape: tuple[int, ...], threads: int, *, logarithm: bool = False) -> Code:
    """Return code for such a source and result, none of them without elements.

    Args:
        shape: [before, length, behind].
        threads: how many may share the work.
        logarithm: whether the logarithms are wanted.
    """
    made = _prepared(shape, threads, logarithm=logarithm)
    return Code.together(made, TAKEN, threads) if shares_work(shape, threads) else Code.of([made])


def told_of(shape: tuple[int, ...]) -> Told:
    """Return one call of one thread for such a source and result, see `code`."""
    return _prepared(shape, 1, logarithm=False)


def shares_work(shape: tuple[int, ...], threads: int) -> bool:
    """Whether several threads compute these rows, or blocks of columns.

    One alone is nobody else's: whoever finds it taken would let the next one begin anew.
    """
    is_worth_it = threads > 1 and _items(shape) > 1 and math.prod(shape) >= SHARED
    return is_worth_it and may_share()


def lanes() -> int:
    """Return how many columns are computed side by side."""
    return 16 if has_avx512() else 8


def _items(shape: tuple[int, ...]) -> int:
    """How many rows there are, or blocks of columns."""
    before, _, behind = shape if len(shape) == 3 else (*shape, 1)
    return before * -(-behind // lanes())


def _prepared(shape: tuple[int, ...], threads: int, *, logarithm: bool) -> tuple[Any, bytes]:
    """Return the function and what it is told of such a source, but for both addresses."""
    _, length, behind = shape
    blocks, items = -(-behind // lanes()), _items(shape)
    each = -(-items // (threads * PARTS_AT_ONCE)) if shares_work(shape, threads) else items
    numbers = told(_ARGUMENTS, 0, 0, items, each, 0, length, behind, blocks, *_NUMBERS)
    if not has_avx512():
        return short_shares.function(of_columns=behind != 1, logarithm=logarithm), numbers
    if behind == 1:
        return function_of(_LOGARITHMS if logarithm else _ROWS), numbers
    if logarithm:
        return function_of(_COLUMN_LOGARITHMS), numbers
    return function_of(_KEPT_COLUMNS if length <= KEPT else _COLUMNS), numbers


def placed(told: bytes | tuple[int, ...], *places: int) -> bytes:
    """Return the same as bytes with addresses, which come first."""
    if isinstance(told, tuple):
        told = struct.pack(f"@{len(told)}q", *told)
    return struct.pack(f"@{len(places)}P", *places) + told[len(places) * struct.calcsize("@P") :]
