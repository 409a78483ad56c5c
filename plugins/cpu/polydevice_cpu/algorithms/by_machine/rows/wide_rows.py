"""Rows of f64 normalised, to a mean of 0 and a variance of 1 or as SoftMax does, by AVX-512.

oneDNN has no code for them; NumPy takes up to eight calls, 20 us for 70 rows of 24 numbers.
"""

from __future__ import annotations

import math
import struct

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Code, told

_ARGUMENTS = struct.Struct("@4q2d").pack

# size_t rows(_ARGUMENTS* rdi): source, result, rows, length; what is added to the variance, and the
# length. r8, r9: source and result; r10: rows left; rsi: the length; k1: numbers of a row's last
# vector; zmm3: the mean; zmm4: the deviation.
_ROWS = bytes.fromhex(
    "f30f1efa4c8b074c8b4f084c8b5710"  # endbr64; mov r8, [rdi]; mov r9, [rdi+8]; mov r10, [rdi+16]
    "488b771889f183e107b801000000"  # mov rsi, [rdi+24]; mov ecx, esi; and ecx, 7; mov eax, 1
    "d3e0ffc8c5f892c8"  # shl eax, cl; dec eax; kmovw k1, eax
    "62e2fd4819470462e2fd48194f05"  # vbroadcastsd zmm16, [rdi+32]; vbroadcastsd zmm17, [rdi+40]
    "4889f04c89c262f1fd48efc0"  # row: mov rax, rsi; mov rdx, r8; vpxorq zmm0, zmm0, zmm0
    "4883e808720c62f1fd485802"  # sum: sub rax, 8; jb lastsum; vaddpd zmm0, zmm0, [rdx]
    "4883c240ebee"  # add rdx, 64; jmp sum
    "62f1fdc9101262f1fd4858c2"  # lastsum: vmovupd zmm2{k1}{z}, [rdx]; vaddpd zmm0, zmm0, zmm2
    "e8b100000062f1fd4828d84889f04c89c2"  # call all; vmovapd zmm3, zmm0; mov rax, rsi; mov rdx, r8
    "62f1fd48efc0"  # vpxorq zmm0, zmm0, zmm0
    "4883e808721862f1fd481012"  # squares: sub rax, 8; jb lastsquares; vmovupd zmm2, [rdx]
    "62f1ed485cd362f2ed48b8c2"  # vsubpd zmm2, zmm2, zmm3; vfmadd231pd zmm0, zmm2, zmm2
    "4883c240ebe2"  # add rdx, 64; jmp squares
    "62f1fdc91012"  # lastsquares: vmovupd zmm2{k1}{z}, [rdx]
    "62f1edc95cd362f2ed48b8c2"  # vsubpd zmm2{k1}{z}, zmm2, zmm3; vfmadd231pd zmm0, zmm2, zmm2
    "e86a00000062b1fd4858c062f1fd4851e0"  # call all; vaddpd zmm0, zmm0, zmm16; vsqrtpd zmm4, zmm0
    "4889f0"  # mov rax, rsi
    "4883e808722262d1fd481010"  # share: sub rax, 8; jb lastshare; vmovupd zmm2, [r8]
    "62f1ed485cd362f1ed485ed4"  # vsubpd zmm2, zmm2, zmm3; vdivpd zmm2, zmm2, zmm4
    "62d1fd4811114983c0404983c140ebd8"  # vmovupd [r9], zmm2; add r8, 64; add r9, 64; jmp share
    "4883c00862d1fdc91010"  # lastshare: add rax, 8; vmovupd zmm2{k1}{z}, [r8]
    "62f1ed485cd362f1ed485ed4"  # vsubpd zmm2, zmm2, zmm3; vdivpd zmm2, zmm2, zmm4
    "62d1fd4911114d8d04c04d8d0cc1"  # vmovupd [r9]{k1}, zmm2; lea r8, [r8+rax*8]; lea r9, [r9+rax*8]
    "49ffca0f8526ffffffc5f87731c0c3"  # dec r10; jne row; vzeroupper; xor eax, eax; ret
    "62f3fd481bc101c5fd58c1"  # all: vextractf64x4 ymm1, zmm0, 1; vaddpd ymm0, ymm0, ymm1
    "c4e37d19c101c5f958c1"  # vextractf128 xmm1, ymm0, 1; vaddpd xmm0, xmm0, xmm1
    "c4e37905c801c5fb58c1"  # vpermilpd xmm1, xmm0, 1; vaddsd xmm0, xmm0, xmm1
    "62f2fd4819c062b1fd485ec1c3"  # vbroadcastsd zmm0, xmm0; vdivpd zmm0, zmm0, zmm17; ret
)

_SHARES_TOLD = struct.Struct("@5q33d").pack

_LOG2 = 0.6931471803691238, 1.9082149292705877e-10
"""The logarithm of 2 in two parts, of which the first times a power's exponent is exact."""

_CONSTANTS = (
    *(-746.0, 1 / math.log(2), *_LOG2),
    *(1 / math.factorial(number) for number in range(12, -1, -1)),
    *(1 / number for number in range(23, 0, -2)),
    *(math.sqrt(2), 0.5, math.log(2), -math.inf),
)
"""Below the first exp(x) is 0. Terms of exp(x), |x| < log(2) / 2, right to 2e-16; the last is 1.
Those of log(x) = 2 s (1 + s^2 / 3 + ...), s = (x - 1) / (x + 1), x from 0.7 to 1.4."""

# size_t shares(numbers* rdi): source, result, rows, length; 1 for logarithms; constants. r8, r9:
# source and result; r10: rows left; rsi: the length; k1: numbers of a row's last vector; zmm3: the
# largest; zmm4: the sum.
_SHARES = bytes.fromhex(
    "f30f1efa4c8b074c8b4f084c8b5710"  # endbr64; mov r8, [rdi]; mov r9, [rdi+8]; mov r10, [rdi+16]
    "488b771889f183e107b801000000"  # mov rsi, [rdi+24]; mov ecx, esi; and ecx, 7; mov eax, 1
    "d3e0ffc8c5f892c8"  # shl eax, cl; dec eax; kmovw k1, eax
    "62e2fd4819670562e2fd48196f06"  # vbroadcastsd zmm20, [rdi+40]; vbroadcastsd zmm21, [rdi+48]
    "62e2fd4819770762e2fd48197f08"  # vbroadcastsd zmm22, [rdi+56]; vbroadcastsd zmm23, [rdi+64]
    "6262fd48194715"  # vbroadcastsd zmm24, [rdi+168]
    "62f2fd481947254889f04c89c2"  # row: vbroadcastsd zmm0, [rdi+296]; mov rax, rsi; mov rdx, r8
    "4883e808720c62f1fd485f02"  # most: sub rax, 8; jb lastmost; vmaxpd zmm0, zmm0, [rdx]
    "4883c240ebee"  # add rdx, 64; jmp most
    "62f1fd495f02"  # lastmost: vmaxpd zmm0{k1}, zmm0, [rdx]
    "62f3fd481bc101c5fd5fc1"  # vextractf64x4 ymm1, zmm0, 1; vmaxpd ymm0, ymm0, ymm1
    "c4e37d19c101c5f95fc1"  # vextractf128 xmm1, ymm0, 1; vmaxpd xmm0, xmm0, xmm1
    "c4e37905c801c5fb5fc1"  # vpermilpd xmm1, xmm0, 1; vmaxsd xmm0, xmm0, xmm1
    "62f2fd4819d862f1dd48efe4"  # vbroadcastsd zmm3, xmm0; vpxorq zmm4, zmm4, zmm4
    "4889f04c89c24c89c9"  # mov rax, rsi; mov rdx, r8; mov rcx, r9
    "4883e808723a62f1fd481002"  # term: sub rax, 8; jb lastterm; vmovupd zmm0, [rdx]
    "62f1fd485cc362f1fd4828e8e8a9010000"  # vsubpd zmm0, zmm0, zmm3; vmovapd zmm5, zmm0; call exp
    "62f1dd4858e048837f20007406"  # vaddpd zmm4, zmm4, zmm0; cmp qword ptr [rdi+32], 0; je kept
    "62f1fd4828c5"  # vmovapd zmm0, zmm5
    "62f1fd4811014883c2404883c140"  # kept: vmovupd [rcx], zmm0; add rdx, 64; add rcx, 64
    "ebc0"  # jmp term
    "62f1fdc91002"  # lastterm: vmovupd zmm0{k1}{z}, [rdx]
    "62f1fdc95cc362f1fd4828e8"  # vsubpd zmm0{k1}{z}, zmm0, zmm3; vmovapd zmm5, zmm0
    "e86f01000062f1dd4958e0"  # call exp; vaddpd zmm4{k1}, zmm4, zmm0
    "48837f2000740662f1fd4828c5"  # cmp qword ptr [rdi+32], 0; je lastkept; vmovapd zmm0, zmm5
    "62f1fd49110162f3fd481be101"  # lastkept: vmovupd [rcx]{k1}, zmm0; vextractf64x4 ymm1, zmm4, 1
    "c5dd58e1c4e37d19e101"  # vaddpd ymm4, ymm4, ymm1; vextractf128 xmm1, ymm4, 1
    "c5d958e1c4e37905cc01"  # vaddpd xmm4, xmm4, xmm1; vpermilpd xmm1, xmm4, 1
    "c5db58e162f2fd4819e44889f0"  # vaddsd xmm4, xmm4, xmm1; vbroadcastsd zmm4, xmm4; mov rax, rsi
    "48837f20007535"  # cmp qword ptr [rdi+32], 0; jne logarithm
    "4883e808721862d1fd481001"  # share: sub rax, 8; jb lastshare; vmovupd zmm0, [r9]
    "62f1fd485ec462d1fd4811014983c140"  # vdivpd zmm0, zmm0, zmm4; vmovupd [r9], zmm0; add r9, 64
    "ebe2"  # jmp share
    "62d1fdc9100162f1fd485ec4"  # lastshare: vmovupd zmm0{k1}{z}, [r9]; vdivpd zmm0, zmm0, zmm4
    "62d1fd491101e9d7000000"  # vmovupd [r9]{k1}, zmm0; jmp next
    "62f2fd4842f462f3fd4826fc00"  # logarithm: vgetexppd zmm6, zmm4; vgetmantpd zmm7, zmm4, 0
    "62f1c558c257220e"  # vcmppd k2, zmm7, [rdi+272]{1to8}, 14
    "6291cd4a58f0"  # vaddpd zmm6{k2}, zmm6, zmm24
    "62f1c55a597f236291c5485cc0"  # vmulpd zmm7{k2}, zmm7, [rdi+280]{1to8}; vsubpd zmm0, zmm7, zmm24
    "6291c54858f862f1fd485ec7"  # vaddpd zmm7, zmm7, zmm24; vdivpd zmm0, zmm0, zmm7
    "62f1fd4859c862f2fd48197f16"  # vmulpd zmm1, zmm0, zmm0; vbroadcastsd zmm7, [rdi+176]
    "62f2f558a87f17"  # vfmadd213pd zmm7, zmm1, [rdi+184]{1to8}
    "62f2f558a87f18"  # vfmadd213pd zmm7, zmm1, [rdi+192]{1to8}
    "62f2f558a87f19"  # vfmadd213pd zmm7, zmm1, [rdi+200]{1to8}
    "62f2f558a87f1a"  # vfmadd213pd zmm7, zmm1, [rdi+208]{1to8}
    "62f2f558a87f1b"  # vfmadd213pd zmm7, zmm1, [rdi+216]{1to8}
    "62f2f558a87f1c"  # vfmadd213pd zmm7, zmm1, [rdi+224]{1to8}
    "62f2f558a87f1d"  # vfmadd213pd zmm7, zmm1, [rdi+232]{1to8}
    "62f2f558a87f1e"  # vfmadd213pd zmm7, zmm1, [rdi+240]{1to8}
    "62f2f558a87f1f"  # vfmadd213pd zmm7, zmm1, [rdi+248]{1to8}
    "62f2f558a87f20"  # vfmadd213pd zmm7, zmm1, [rdi+256]{1to8}
    "62f2f558a87f2162f1fd4858c0"  # vfmadd213pd zmm7, zmm1, [rdi+264]{1to8}; vaddpd zmm0, zmm0, zmm0
    "62f1fd4859c762f2cd58b84724"  # vmulpd zmm0, zmm0, zmm7; vfmadd231pd zmm0, zmm6, [rdi+288]{1to8}
    "62f1fd4828e0"  # vmovapd zmm4, zmm0
    "4883e808721862d1fd481001"  # less: sub rax, 8; jb lastless; vmovupd zmm0, [r9]
    "62f1fd485cc462d1fd4811014983c140"  # vsubpd zmm0, zmm0, zmm4; vmovupd [r9], zmm0; add r9, 64
    "ebe2"  # jmp less
    "62d1fdc9100162f1fd485cc4"  # lastless: vmovupd zmm0{k1}{z}, [r9]; vsubpd zmm0, zmm0, zmm4
    "62d1fd491101"  # vmovupd [r9]{k1}, zmm0
    "4883c0084d8d0cc14d8d04f0"  # next: add rax, 8; lea r9, [r9+rax*8]; lea r8, [r8+rsi*8]
    "49ffca0f85e7fdffffc5f87731c0c3"  # dec r10; jne row; vzeroupper; xor eax, eax; ret
    "62f1dd405fc062b1fd4859f5"  # exp: vmaxpd zmm0, zmm20, zmm0; vmulpd zmm6, zmm0, zmm21
    "62f3fd4809f60862b2cd48bcc6"  # vrndscalepd zmm6, zmm6, 8; vfnmadd231pd zmm0, zmm6, zmm22
    "62b2cd48bcc762f2fd48197f09"  # vfnmadd231pd zmm0, zmm6, zmm23; vbroadcastsd zmm7, [rdi+72]
    "62f2fd58a87f0a"  # vfmadd213pd zmm7, zmm0, [rdi+80]{1to8}
    "62f2fd58a87f0b"  # vfmadd213pd zmm7, zmm0, [rdi+88]{1to8}
    "62f2fd58a87f0c"  # vfmadd213pd zmm7, zmm0, [rdi+96]{1to8}
    "62f2fd58a87f0d"  # vfmadd213pd zmm7, zmm0, [rdi+104]{1to8}
    "62f2fd58a87f0e"  # vfmadd213pd zmm7, zmm0, [rdi+112]{1to8}
    "62f2fd58a87f0f"  # vfmadd213pd zmm7, zmm0, [rdi+120]{1to8}
    "62f2fd58a87f10"  # vfmadd213pd zmm7, zmm0, [rdi+128]{1to8}
    "62f2fd58a87f11"  # vfmadd213pd zmm7, zmm0, [rdi+136]{1to8}
    "62f2fd58a87f12"  # vfmadd213pd zmm7, zmm0, [rdi+144]{1to8}
    "62f2fd58a87f13"  # vfmadd213pd zmm7, zmm0, [rdi+152]{1to8}
    "62f2fd58a87f14"  # vfmadd213pd zmm7, zmm0, [rdi+160]{1to8}
    "62f2fd58a87f15"  # vfmadd213pd zmm7, zmm0, [rdi+168]{1to8}
    "62f2c5482cc6c3"  # vscalefpd zmm0, zmm7, zmm6; ret
)


def centred(rows: int, length: int, added: float) -> Code:
    """Return code that is told where a source and the result are: one behind the other, or one.

    Args:
        rows: how many there are, one at least.
        length: of each, one at least.
        added: to the variance, before its root is taken.
    """
    numbers = told(_ARGUMENTS, 0, 0, rows, length, added, float(length))
    return Code.of([(function_of(_ROWS), numbers)])


def shares(rows: int, length: int, *, logarithm: bool) -> Code:
    """Return code for SoftMax, or its logarithm, that is told where source and result are.

    Args:
        rows: how many there are, one at least.
        length: of each, one at least.
        logarithm: whether logarithms of shares are wanted.
    """
    numbers = told(_SHARES_TOLD, 0, 0, rows, length, int(logarithm), *_CONSTANTS)
    return Code.of([(function_of(_SHARES), numbers)])
