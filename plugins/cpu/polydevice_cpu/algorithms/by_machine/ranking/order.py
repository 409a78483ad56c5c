"""Order: the first of a row's elements found, and sorted, by machine code.

Elements are numbers of 32 bits, of which larger ones come first, and pairs with the opposite bits
of their index, so that of equal ones the lower index does. NumPy sorts as fast, but takes 20 us
around it.
"""

from __future__ import annotations

# void select(numbers* rdi): makes pairs of as many of a row's keys as are asked for. How many have
# each of 2,048 values of their first 11 bits tells what these are of the last one, then the next 11
# of those that have these, and the last 10. r8, r9: keys, and how many; r10: how many of those that
# are alike so far are wanted; r11: how many there are of each value; ebx: the bits that are known.
SELECT = bytes.fromhex(
    "4c8b47684c8b4f284c8b5730"  # mov r8, [rdi+104]; mov r9, [rdi+40]; mov r10, [rdi+48]
    "4c8b9f800000004c8b6778e8fc010000"  # mov r11, [rdi+128]; mov r12, [rdi+120]; call clear
    "31c0"  # xor eax, eax
    "418b1480c1ea1541ff0493"  # first: mov edx, [r8+rax*4]; shr edx, 21; inc dword ptr [r11+rdx*4]
    "48ffc04c39c872ede8fb01000089c3"  # inc rax; cmp rax, r9; jb first; call find; mov ebx, eax
    "62f27d487cc031c931c0"  # vpbroadcastd zmm0, eax; xor ecx, ecx; xor eax, eax
    "e8ad01000062f16d4872d115"  # in_first: call some; vpsrld zmm2, zmm1, 21
    "62f16d4a76c862f27dc98bcb"  # vpcmpeqd k1{k2}, zmm2, zmm0; vpcompressd zmm3{k1}{z}, zmm1
    "62d17e487f1c8cc5f893d1f30fb8d2"  # vmovdqu32 [r12+rcx*4], zmm3; kmovw edx, k1; popcnt edx, edx
    "4801d14883c0104c39c872cd"  # add rcx, rdx; add rax, 16; cmp rax, r9; jb in_first
    "4d89e04989c9e89801000031c0"  # mov r8, r12; mov r9, rcx; call clear; xor eax, eax
    "418b1480c1ea0a81e2ff070000"  # second: mov edx, [r8+rax*4]; shr edx, 10; and edx, 2047
    "41ff049348ffc04c39c872e7"  # inc dword ptr [r11+rdx*4]; inc rax; cmp rax, r9; jb second
    "e891010000c1e30b09c3"  # call find; shl ebx, 11; or ebx, eax
    "62f27d487cc331c931c0"  # vpbroadcastd zmm0, ebx; xor ecx, ecx; xor eax, eax
    "e84001000062f16d4872d10a"  # in_second: call some; vpsrld zmm2, zmm1, 10
    "62f16d4a76c862f27dc98bcb"  # vpcmpeqd k1{k2}, zmm2, zmm0; vpcompressd zmm3{k1}{z}, zmm1
    "62d17e487f1c8cc5f893d1f30fb8d2"  # vmovdqu32 [r12+rcx*4], zmm3; kmovw edx, k1; popcnt edx, edx
    "4801d14883c0104c39c872cd"  # add rcx, rdx; add rax, 16; cmp rax, r9; jb in_second
    "4989c9e82e01000031c0"  # mov r9, rcx; call clear; xor eax, eax
    "418b148081e2ff030000"  # third: mov edx, [r8+rax*4]; and edx, 1023
    "41ff049348ffc04c39c872ea"  # inc dword ptr [r11+rdx*4]; inc rax; cmp rax, r9; jb third
    "e82a010000c1e30a09c3"  # call find; shl ebx, 10; or ebx, eax
    "62f27d487cc34c8b47684c8b4f28"  # vpbroadcastd zmm0, ebx; mov r8, [rdi+104]; mov r9, [rdi+40]
    "488b777031c0"  # mov rsi, [rdi+112]; xor eax, eax
    "62f17e486fa7a8000000ba10000000"  # vmovdqu32 zmm4, [rdi+168]; mov edx, 16
    "62f27d487cea"  # vpbroadcastd zmm5, edx
    "e8ba00000062f3754a1ec806"  # taken: call some; vpcmpud k1{k2}, zmm1, zmm0, 6
    "62f1754a76d8c5f898cb0f848f000000"  # vpcmpeqd k3{k2}, zmm1, zmm0; kortestw k1, k3; je none
    "c5f893d3f30fb8ca4c39d17612"  # kmovw edx, k3; popcnt ecx, edx; cmp rcx, r10; jbe fits
    "b9ffffffffc4e228f5c9c4e273f5d2"  # mov ecx, -1; bzhi ecx, ecx, r10d; pdep edx, ecx, edx
    "4c89d1"  # mov rcx, r10
    "4929cac5f892dac5f445cb"  # fits: sub r10, rcx; kmovw k3, edx; korw k1, k1, k3
    "62f27dc98bca62f27dc98be3"  # vpcompressd zmm2{k1}{z}, zmm1; vpcompressd zmm3{k1}{z}, zmm4
    "62f27d4835f262f27d4835fb"  # vpmovzxdq zmm6, ymm2; vpmovzxdq zmm7, ymm3
    "62f1cd4873f62062f1cd48ebf7"  # vpsllq zmm6, zmm6, 32; vporq zmm6, zmm6, zmm7
    "62f1fe487f3662f3fd483bd201"  # vmovdqu64 [rsi], zmm6; vextracti64x4 ymm2, zmm2, 1
    "62f3fd483bdb0162f27d4835f2"  # vextracti64x4 ymm3, zmm3, 1; vpmovzxdq zmm6, ymm2
    "62f27d4835fb62f1cd4873f620"  # vpmovzxdq zmm7, ymm3; vpsllq zmm6, zmm6, 32
    "62f1cd48ebf762f1fe487f7601"  # vporq zmm6, zmm6, zmm7; vmovdqu64 [rsi+64], zmm6
    "c5f893d1f30fb8d2488d34d6"  # kmovw edx, k1; popcnt edx, edx; lea rsi, [rsi+rdx*8]
    "62f15d48fae54883c0104c39c8"  # none: vpsubd zmm4, zmm4, zmm5; add rax, 16; cmp rax, r9
    "0f8242ffffffc3"  # jb taken; ret
    "baffffffff514c89c94829c1"  # some: mov edx, -1; push rcx; mov rcx, r9; sub rcx, rax
    "4883f9107305c4e270f5d2"  # cmp rcx, 16; jae whole; bzhi edx, edx, ecx
    "59c5f892d262d17e486f0c80c3"  # whole: pop rcx; kmovw k2, edx; vmovdqu32 zmm1, [r8+rax*4]; ret
    "62f17548efc9b800200000"  # clear: vpxord zmm1, zmm1, zmm1; mov eax, 8192
    "62d1fe487f4c03ff83e84075f3c3"  # zero: vmovdqu64 [r11+rax-64], zmm1; sub eax, 64; jne zero; ret
    "ba00080000"  # find: mov edx, 2048
    "83ea1062d17e486f0c93"  # block: sub edx, 16; vmovdqu32 zmm1, [r11+rdx*4]
    "62f2754827c9c5f898c974ea"  # vptestmd k1, zmm1, zmm1; kortestw k1, k1; je block
    "8d420fb910000000"  # lea eax, [rdx+15]; mov ecx, 16
    "418b34834c39d6730b4929f2"  # bin: mov esi, [r11+rax*4]; cmp rsi, r10; jae found; sub r10, rsi
    "ffc8ffc975eeebce"  # dec eax; dec ecx; jne bin; jmp block
    "c3"  # found: ret
)

# pair* count(numbers* rdi): sorts few pairs. Each lies behind as many as are larger: zmm0 has
# eight, zmm1 how many that is.
COUNT = bytes.fromhex(
    "4c8b47704c8b8f88000000488b4778"  # mov r8, [rdi+112]; mov r9, [rdi+136]; mov rax, [rdi+120]
    "62f17548efc96291fe487f0cc8"  # vpxord zmm1, zmm1, zmm1; vmovdqu64 [r8+r9*8], zmm1
    "ba0100000062f2fd487cd2"  # mov edx, 1; vpbroadcastq zmm2, rdx
    "62f2fd48595f064d89c2"  # vpbroadcastq zmm3, [rdi+48]; mov r10, r8
    "62d1fe486f0262f17548efc9"  # eight: vmovdqu64 zmm0, [r10]; vpxord zmm1, zmm1, zmm1
    "31c9"  # xor ecx, ecx
    "62d3fd581e0cc801"  # other: vpcmpuq k1, zmm0, [r8+rcx*8]{1to8}, 1
    "62f1f549d4ca48ffc14c39c972ea"  # vpaddq zmm1{k1}, zmm1, zmm2; inc rcx; cmp rcx, r9; jb other
    "62f3f5481ed30162f2fd4aa104c8"  # vpcmpuq k2, zmm1, zmm3, 1; vpscatterqq [rax+zmm1*8]{k2}, zmm0
    "4983c2404b8d14c84939d272c1c3"  # add r10, 64; lea rdx, [r8+r9*8]; cmp r10, rdx; jb eight; ret
)

# pair* radix(numbers* rdi): sorts pairs by their keys, by 8 bits after the other, each time from
# one place to another: r8, and r10. r9: how many; r11: how many there are of each value, then where
# the next one goes. Bits that all have in common are left out.
RADIX = bytes.fromhex(
    "4c8b47704c8b8f880000004c8b5778"  # mov r8, [rdi+112]; mov r9, [rdi+136]; mov r10, [rdi+120]
    "4c8b9f8000000062f17548efc9"  # mov r11, [rdi+128]; vpxord zmm1, zmm1, zmm1
    "b800100000"  # mov eax, 4096
    "62d1fe487f4c03ff83e84075f3"  # zero: vmovdqu64 [r11+rax-64], zmm1; sub eax, 64; jne zero
    "31c9"  # xor ecx, ecx
    "498b04c848c1e8200fb6d0"  # each: mov rax, [r8+rcx*8]; shr rax, 32; movzx edx, al
    "41ff04930fb6d4"  # inc dword ptr [r11+rdx*4]; movzx edx, ah
    "41ff849300040000c1e8100fb6d0"  # inc dword ptr [r11+rdx*4+1024]; shr eax, 16; movzx edx, al
    "41ff8493000800000fb6d4"  # inc dword ptr [r11+rdx*4+2048]; movzx edx, ah
    "41ff8493000c000048ffc14c39c9"  # inc dword ptr [r11+rdx*4+3072]; inc rcx; cmp rcx, r9
    "72c5b920000000"  # jb each; mov ecx, 32
    "c4c2f3f7000fb6c0418b0483"  # digit: shrx rax, [r8], rcx; movzx eax, al; mov eax, [r11+rax*4]
    "4c39c8743c31c0baff000000"  # cmp rax, r9; je same; xor eax, eax; mov edx, 255
    "418b1c934189049301d8"  # place: mov ebx, [r11+rdx*4]; mov [r11+rdx*4], eax; add eax, ebx
    "ffca79f231f6"  # dec edx; jns place; xor esi, esi
    "498b04f0c4e2f3f7d00fb6d2"  # move: mov rax, [r8+rsi*8]; shrx rdx, rax, rcx; movzx edx, dl
    "418b1c93498904daffc3"  # mov ebx, [r11+rdx*4]; mov [r10+rbx*8], rax; inc ebx
    "41891c9348ffc64c39ce72de"  # mov [r11+rdx*4], ebx; inc rsi; cmp rsi, r9; jb move
    "4d87d0"  # xchg r8, r10
    "4981c30004000083c10883f94072a4"  # same: add r11, 1024; add ecx, 8; cmp ecx, 64; jb digit
    "4c89c0c3"  # mov rax, r8; ret
)
