"""Geometry of regions: which elements of a picture each bin of a region reads, by machine code.

NumPy takes 60 us for the bins of a few regions, as there are some 30 steps.
"""

from __future__ import annotations

ENTRY, RECORD, BEHIND = 16, 16, 2
"""Bytes of an entry, as code writes them, and of a record; and entries that no bin has before those
of each bin."""

# size_t aligned(numbers* rdi, axis* rsi, float* r8): 0; 1 where it refuses. Writes records of the
# bins along an axis, and behind these their entries: where an element lies, in bytes, and its
# share. Both are called from code that is emitted, and keep rdi, rsi, r8 and the stack alone.
# Where `merges`, a bin has one entry for elements that two of its samples lie beside. xmm0: where
# the region begins; xmm1: from one sample to the next; xmm5: what a sample counts; r9: samples of
# a bin; r10: the record; r11: the next entry; ecx: the sample; r13d: whether one lies outside.
ALIGNED = bytes.fromhex(
    "488b06c4c17a100400"  # mov rax, [rsi]; vmovss xmm0, [r8+rax]
    "c4c17a104c0008c5fa1097f0000000"  # vmovss xmm1, [r8+rax+8]; vmovss xmm2, [rdi+240]
    "c5fa109ff4000000c5f82ed0"  # vmovss xmm3, [rdi+244]; vucomiss xmm2, xmm0
    "0f86b5010000c5f82ed10f86ab010000"  # jbe refused; vucomiss xmm2, xmm1; jbe refused
    "c5f82ec30f86a1010000c5f82ecb"  # vucomiss xmm0, xmm3; jbe refused; vucomiss xmm1, xmm3
    "0f8697010000c5fa1097e0000000"  # jbe refused; vmovss xmm2, [rdi+224]
    "c5fa109fe4000000c5fa10a7e8000000"  # vmovss xmm3, [rdi+228]; vmovss xmm4, [rdi+232]
    "c5fa58c2c5fa59c3"  # vaddss xmm0, xmm0, xmm2; vmulss xmm0, xmm0, xmm3
    "c5fa5cc4c5f258ca"  # vsubss xmm0, xmm0, xmm4; vaddss xmm1, xmm1, xmm2
    "c5f259cbc5f25ccc"  # vmulss xmm1, xmm1, xmm3; vsubss xmm1, xmm1, xmm4
    "c5f25cc8c5f25f8fec000000"  # vsubss xmm1, xmm1, xmm0; vmaxss xmm1, xmm1, [rdi+236]
    "c5fa5ac0c5f25ac9"  # vcvtss2sd xmm0, xmm0, xmm0; vcvtss2sd xmm1, xmm1, xmm1
    "488b5e08c4e1eb2ad3"  # mov rbx, [rsi+8]; vcvtsi2sd xmm2, xmm2, rbx
    "c5f35eca4c8b8fc00000004d85c9"  # vdivsd xmm1, xmm1, xmm2; mov r9, [rdi+192]; test r9, r9
    "750bc4e3710bd102c461fb2cca"  # jne known; vroundsd xmm2, xmm1, xmm1, 2; vcvttsd2si r9, xmm2
    "4c3b8fc80000000f8f22010000"  # known: cmp r9, [rdi+200]; jg refused
    "c4c1eb2ad1c5f35eca"  # vcvtsi2sd xmm2, xmm2, r9; vdivsd xmm1, xmm1, xmm2
    "c5fa10af000100004883bfd800000000"  # vmovss xmm5, [rdi+256]; cmp qword ptr [rdi+216], 0
    "7409c4c1ea2ad1c5d25eea"  # je whole; vcvtsi2ss xmm2, xmm2, r9; vdivss xmm5, xmm5, xmm2
    "c57a104e28c57a10562c"  # whole: vmovss xmm9, [rsi+40]; vmovss xmm10, [rsi+44]
    "c4412057dbc57a10a704010000"  # vxorps xmm11, xmm11, xmm11; vmovss xmm12, [rdi+260]
    "c57b10af080100004c8b56184989db"  # vmovsd xmm13, [rdi+264]; mov r10, [rsi+24]; mov r11, rbx
    "49c1e3044d01d331c94c8bbfd0000000"  # shl r11, 4; add r11, r10; xor ecx, ecx; mov r15, [rdi+208]
    "49c703ffffffff49c74310ffffffff"  # bin: mov qword ptr [r11], -1; mov qword ptr [r11+16], -1
    "4983c3204d891a4531ed4c89ca"  # add r11, 32; mov [r10], r11; xor r13d, r13d; mov rdx, r9
    "4885d27f0841bd01000000eb7d"  # test rdx, rdx; jg sample; mov r13d, 1; jmp filled
    "c4e1cb2af148ffc1"  # sample: vcvtsi2sd xmm6, xmm6, rcx; inc rcx
    "c4c14b58f5c5cb59f1"  # vaddsd xmm6, xmm6, xmm13; vmulsd xmm6, xmm6, xmm1
    "c5cb58f0c5cb5af6"  # vaddsd xmm6, xmm6, xmm0; vcvtsd2ss xmm6, xmm6, xmm6
    "c4c1782ef47252c5782ece"  # vucomiss xmm6, xmm12; jb outside; vucomiss xmm9, xmm6
    "724cc4c14a5ff3c4c14a5df2"  # jb outside; vmaxss xmm6, xmm6, xmm11; vminss xmm6, xmm6, xmm10
    "c4e1fa2cc6c4e1c22af8"  # vcvttss2si rax, xmm6; vcvtsi2ss xmm7, xmm7, rax
    "c5ca5cf7c5ca59f5"  # vsubss xmm6, xmm6, xmm7; vmulss xmm6, xmm6, xmm5
    "c5d25cfe4c8b6620488d6801"  # vsubss xmm7, xmm5, xmm6; mov r12, [rsi+32]; lea rbp, [rax+1]
    "4c39e5490f4fec480faf4610"  # cmp rbp, r12; cmovg rbp, r12; imul rax, [rsi+16]
    "480faf6e10e8410000004889e8"  # imul rbp, [rsi+16]; call put; mov rax, rbp
    "c5f828fee835000000eb06"  # vmovaps xmm7, xmm6; call put; jmp more
    "41bd01000000"  # outside: mov r13d, 1
    "48ffca7583"  # more: dec rdx; jne sample
    "4c89d8492b0248c1e804"  # filled: mov rax, r11; sub rax, [r10]; shr rax, 4
    "4189420845896a0c4983c21048ffcb"  # mov [r10+8], eax; mov [r10+12], r13d; add r10, 16; dec rbx
    "0f853bffffff31c0c3"  # jne bin; xor eax, eax; ret
    "b801000000c3"  # refused: mov eax, 1; ret
    "4d85ff74124d8d73f0493906"  # put: test r15, r15; je apart; lea r14, [r11-16]; cmp [r14], rax
    "74174983ee10493906740e"  # je joined; sub r14, 16; cmp [r14], rax; je joined
    "498903c4c17a117b084983c310c3"  # apart: mov [r11], rax; vmovss [r11+8], xmm7; add r11, 16; ret
    "c4c142587e08c4c17a117e08c3"  # joined: vaddss xmm7, xmm7, [r14+8]; vmovss [r14+8], xmm7; ret
)

# The same of bins of whole elements. rcx: where the region begins; xmm0: the width of a bin; r9:
# the bin; rax and rdx: its first element, and the first behind it.
BINNED = bytes.fromhex(
    "488b06c4c17a100400"  # mov rax, [rsi]; vmovss xmm0, [r8+rax]
    "c4c17a104c0008c5fa1097f0000000"  # vmovss xmm1, [r8+rax+8]; vmovss xmm2, [rdi+240]
    "c5fa109ff4000000c5f82ed0"  # vmovss xmm3, [rdi+244]; vucomiss xmm2, xmm0
    "0f8641010000c5f82ed10f8637010000"  # jbe refused; vucomiss xmm2, xmm1; jbe refused
    "c5f82ec30f862d010000c5f82ecb"  # vucomiss xmm0, xmm3; jbe refused; vucomiss xmm1, xmm3
    "0f8623010000c5fa1097e4000000"  # jbe refused; vmovss xmm2, [rdi+228]
    "c5fa59c2c5f259ca"  # vmulss xmm0, xmm0, xmm2; vmulss xmm1, xmm1, xmm2
    "c5fa109f10010000c5fa10a714010000"  # vmovss xmm3, [rdi+272]; vmovss xmm4, [rdi+276]
    "c5f854d4c5e856d3"  # vandps xmm2, xmm0, xmm4; vorps xmm2, xmm2, xmm3
    "c5fa58c2c5f054d4"  # vaddss xmm0, xmm0, xmm2; vandps xmm2, xmm1, xmm4
    "c5e856d3c5f258ca"  # vorps xmm2, xmm2, xmm3; vaddss xmm1, xmm1, xmm2
    "c4e1fa2cc8c4e1fa2cd14829ca"  # vcvttss2si rcx, xmm0; vcvttss2si rdx, xmm1; sub rdx, rcx
    "b8010000004801c24839c2480f4cd0"  # mov eax, 1; add rdx, rax; cmp rdx, rax; cmovl rdx, rax
    "488b5e08c4e1fa2ac2"  # mov rbx, [rsi+8]; vcvtsi2ss xmm0, xmm0, rdx
    "c4e1f22acbc5fa5ec1"  # vcvtsi2ss xmm1, xmm1, rbx; vdivss xmm0, xmm0, xmm1
    "c5fa108f000100004c8b56184989db"  # vmovss xmm1, [rdi+256]; mov r10, [rsi+24]; mov r11, rbx
    "49c1e3044d01d34c8b762049ffc6"  # shl r11, 4; add r11, r10; mov r14, [rsi+32]; inc r14
    "4c8b7e1031ed4531c9"  # mov r15, [rsi+16]; xor ebp, ebp; xor r9d, r9d
    "c4c1ea2ad1c5ea59d0"  # bin: vcvtsi2ss xmm2, xmm2, r9; vmulss xmm2, xmm2, xmm0
    "c4e3690ad201c4e1fa2cc2"  # vroundss xmm2, xmm2, xmm2, 1; vcvttss2si rax, xmm2
    "4801c84839e8480f4cc54c39f0"  # add rax, rcx; cmp rax, rbp; cmovl rax, rbp; cmp rax, r14
    "490f4fc649ffc1c4c1ea2ad1"  # cmovg rax, r14; inc r9; vcvtsi2ss xmm2, xmm2, r9
    "c5ea59d0c4e3690ad202"  # vmulss xmm2, xmm2, xmm0; vroundss xmm2, xmm2, xmm2, 2
    "c4e1fa2cd24801ca4839ea"  # vcvttss2si rdx, xmm2; add rdx, rcx; cmp rdx, rbp
    "480f4cd54c39f2490f4fd64d891a"  # cmovl rdx, rbp; cmp rdx, r14; cmovg rdx, r14; mov [r10], r11
    "4829c2480f4cd54531ed4885d2"  # sub rdx, rax; cmovl rdx, rbp; xor r13d, r13d; test rdx, rdx
    "410f94c54189520845896a0c"  # sete r13b; mov [r10+8], edx; mov [r10+12], r13d
    "490fafc74885d27415"  # imul rax, r15; test rdx, rdx; je filled
    "498903c4c17a114b084983c310"  # element: mov [r11], rax; vmovss [r11+8], xmm1; add r11, 16
    "4c01f848ffca75eb"  # add rax, r15; dec rdx; jne element
    "4983c21048ffcb0f856cffffff31c0c3"  # filled: add r10, 16; dec rbx; jne bin; xor eax, eax; ret
    "b801000000c3"  # refused: mov eax, 1; ret
)
