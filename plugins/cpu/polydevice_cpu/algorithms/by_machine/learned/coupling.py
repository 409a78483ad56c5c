"""Coupling: probabilities of classes from those of pairs, by machine code: row by row.

NumPy takes 20 calls for each class and iteration.
"""

from __future__ import annotations

import struct

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Told, told

# size_t couple(told* rdi): 0. rsi, rdx: the row's pairs and its result; r8, r11: Q and Q p, r9
# classes; rbx: bytes of a row of Q; r10: rows left; r12, r13: rows of Q; rax, rcx: classes; r14:
# iterations left; xmm4: 1; xmm5: p' Q p; xmm6: how near it has to come.
_COUPLE = bytes.fromhex(
    "f30f1efa53415441554156"  # endbr64; push rbx; push r12; push r13; push r14
    "488b37488b57084c8b4710"  # mov rsi, [rdi]; mov rdx, [rdi+8]; mov r8, [rdi+16]
    "4c8b57184c8b4f204a8d1c8d00000000"  # mov r10, [rdi+24]; mov r9, [rdi+32]; lea rbx, [r9*4]
    "4989db4d0fafd94d01c3"  # mov r11, rbx; imul r11, r9; add r11, r8
    "f30f106730f30f107734"  # movss xmm4, [rdi+48]; movss xmm6, [rdi+52]
    "4d89c431c0"  # row: mov r12, r8; xor eax, eax
    "41c7048400000000"  # first: mov dword ptr [r12+rax*4], 0
    "f30f104738"  # movss xmm0, [rdi+56]
    "f30f1104824901dc48ffc0"  # movss [rdx+rax*4], xmm0; add r12, rbx; inc rax
    "4c39c872e3"  # cmp rax, r9; jb first
    "4d89c431c0"  # mov r12, r8; xor eax, eax
    "488d48014d89e54c39c9"  # class: lea rcx, [rax+1]; mov r13, r12; cmp rcx, r9
    "735f"  # jae paired
    "4901ddf30f10064883c604"  # pair: add r13, rbx; movss xmm0, [rsi]; add rsi, 4
    "0f28ccf30f5cc8"  # movaps xmm1, xmm4; subss xmm1, xmm0
    "0f57d2"  # xorps xmm2, xmm2
    "0f28d9f30f59d8"  # movaps xmm3, xmm1; mulss xmm3, xmm0
    "f30f5cd3"  # subss xmm2, xmm3
    "f3410f11148cf3410f11548500"  # movss [r12+rcx*4], xmm2; movss [r13+rax*4], xmm2
    "f30f59c0f3410f58448d00"  # mulss xmm0, xmm0; addss xmm0, [r13+rcx*4]
    "f3410f11448d00"  # movss [r13+rcx*4], xmm0
    "f30f59c9f3410f580c84"  # mulss xmm1, xmm1; addss xmm1, [r12+rax*4]
    "f3410f110c84"  # movss [r12+rax*4], xmm1
    "48ffc14c39c972a9"  # inc rcx; cmp rcx, r9; jb pair
    "4901dc48ffc0eb95"  # add r12, rbx; inc rax; jmp class
    "4c8b7728"  # paired: mov r14, [rdi+40]
    "0f57ed4d89c431c0"  # again: xorps xmm5, xmm5; mov r12, r8; xor eax, eax
    "0f57c031c9"  # product: xorps xmm0, xmm0; xor ecx, ecx
    "f3410f100c8c"  # term: movss xmm1, [r12+rcx*4]
    "f30f590c8a"  # mulss xmm1, [rdx+rcx*4]
    "f30f58c148ffc14c39c972e9"  # addss xmm0, xmm1; inc rcx; cmp rcx, r9; jb term
    "f3410f110483f30f590482"  # movss [r11+rax*4], xmm0; mulss xmm0, [rdx+rax*4]
    "f30f58e8"  # addss xmm5, xmm0
    "4901dc48ffc04c39c872ca"  # add r12, rbx; inc rax; cmp rax, r9; jb product
    "31c0"  # xor eax, eax
    "f3410f100483f30f5cc5"  # check: movss xmm0, [r11+rax*4]; subss xmm0, xmm5
    "0f28cd"  # movaps xmm1, xmm5
    "f3410f5c0c83f30f5fc1"  # subss xmm1, [r11+rax*4]; maxss xmm0, xmm1
    "0f2fc6730d"  # comiss xmm0, xmm6; jae better
    "48ffc04c39c872dc"  # inc rax; cmp rax, r9; jb check
    "e997000000"  # jmp ended
    "4d89c431c0"  # better: mov r12, r8; xor eax, eax
    "f3410f100c84"  # change: movss xmm1, [r12+rax*4]
    "f3410f101483"  # movss xmm2, [r11+rax*4]
    "0f28c5f30f5cc2"  # movaps xmm0, xmm5; subss xmm0, xmm2
    "f30f5ec1"  # divss xmm0, xmm1
    "f30f101c82f30f58d8"  # movss xmm3, [rdx+rax*4]; addss xmm3, xmm0
    "f30f111c82"  # movss [rdx+rax*4], xmm3
    "0f28dcf30f58d8"  # movaps xmm3, xmm4; addss xmm3, xmm0
    "f30f59c8f30f58d2f30f58ca"  # mulss xmm1, xmm0; addss xmm2, xmm2; addss xmm1, xmm2
    "f30f59c8"  # mulss xmm1, xmm0
    "f30f58e9f30f5eebf30f5eeb"  # addss xmm5, xmm1; divss xmm5, xmm3; divss xmm5, xmm3
    "31c9"  # xor ecx, ecx
    "f3410f100c8cf30f59c8"  # other: movss xmm1, [r12+rcx*4]; mulss xmm1, xmm0
    "f3410f580c8bf30f5ecb"  # addss xmm1, [r11+rcx*4]; divss xmm1, xmm3
    "f3410f110c8b"  # movss [r11+rcx*4], xmm1
    "f30f10148af30f5ed3"  # movss xmm2, [rdx+rcx*4]; divss xmm2, xmm3
    "f30f11148a"  # movss [rdx+rcx*4], xmm2
    "48ffc14c39c972d0"  # inc rcx; cmp rcx, r9; jb other
    "4901dc48ffc04c39c80f8277ffffff"  # add r12, rbx; inc rax; cmp rax, r9; jb change
    "49ffce0f8500ffffff"  # dec r14; jnz again
    "4801da49ffca0f855efeffff"  # ended: add rdx, rbx; dec r10; jnz row
    "415e415d415c5b31c0"  # pop r14; pop r13; pop r12; pop rbx; xor eax, eax
    "c3"  # ret
)

_ARGUMENTS = struct.Struct("@3P3q4f").pack
"""Addresses of pairs, the result and room; rows, classes, iterations; and numbers."""


def is_there() -> bool:
    """Whether there is code for it."""
    return function_of(_COUPLE) is not None


def room(classes: int) -> int:
    """Return for how many numbers there has to be room."""
    return classes * (classes + 1)


def coupling(rows: int, classes: int, iterations: int, near: float) -> Told:
    """Return the function, and what it is told but for addresses of pairs, result and room.

    Args:
        rows: at least 1.
        classes: at least 2.
        iterations: at most.
        near: how near the iteration has to come.
    """
    numbers = 0, 0, 0, rows, classes, iterations, 1.0, near, 1 / classes, 0.0
    return function_of(_COUPLE), told(_ARGUMENTS, *numbers)
