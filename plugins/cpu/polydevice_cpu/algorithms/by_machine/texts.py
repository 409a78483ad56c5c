"""Texts: what goes through many of them, or through many tokens, by machine code."""

from __future__ import annotations

import ctypes
from array import array
from typing import Any

from polydevice.processor.machine_code import function_of

CLASSES_SHIFT = 7
"""Binary logarithm of how many classes of characters there may be."""

DEAD = 1
"""The state that no text leaves."""

# size_t walk(told* rdi): 0, or 1 where the next state is not known. rsi: the next character's
# class; r8, rcx: lengths, and what is left of this text; r9: texts left; r10: the next states;
# r11: whether a state accepts; rdx: what was found; rax: the state.
_WALK = bytes.fromhex(
    "f30f1efa53"  # endbr64; push rbx
    "488b374c8b47084c8b4f10"  # mov rsi, [rdi]; mov r8, [rdi+8]; mov r9, [rdi+16]
    "4c8b57184c8b5f20488b5728"  # mov r10, [rdi+24]; mov r11, [rdi+32]; mov rdx, [rdi+40]
    "488b4730488b4f38"  # mov rax, [rdi+48]; mov rcx, [rdi+56]
    "4885c97421"  # character: test rcx, rcx; jz ended
    "c1e007"  # shl eax, 7
    "0fb61e09c3"  # movzx ebx, byte ptr [rsi]; or ebx, eax
    "410fbf1c5a85db7829"  # movsx ebx, word ptr [r10+rbx*2]; test ebx, ebx; js unknown
    "48ffc648ffc989d883f80175dd"  # inc rsi; dec rcx; mov eax, ebx; cmp eax, 1; jne character
    "4801ce"  # add rsi, rcx
    "418a1c03881a48ffc2"  # ended: mov bl, [r11+rax]; mov [rdx], bl; inc rdx
    "4983c00831c049ffc97424"  # add r8, 8; xor eax, eax; dec r9; jz all
    "498b08ebc1"  # mov rcx, [r8]; jmp character
    "c1e8074889374c894708"  # unknown: shr eax, 7; mov [rdi], rsi; mov [rdi+8], r8
    "4c894f1048895728"  # mov [rdi+16], r9; mov [rdi+40], rdx
    "4889473048894f38b801000000"  # mov [rdi+48], rax; mov [rdi+56], rcx; mov eax, 1
    "5bc3"  # all: pop rbx; ret
)

# size_t count(told* rdi): 0. r8, r9: a token, and where its row ends; rbx: bytes between tokens
# that belong together, rbp: how many more may; r10, r11: the last one, and the node that it led
# to; rdx, rax, rcx: a branch, and where it may be; r12, r13: branches; r14: what ends at nodes;
# r15: the row's counts.
_COUNT = bytes.fromhex(
    "f30f1efa53554154"  # endbr64; push rbx; push rbp; push r12
    "415541564157"  # push r13; push r14; push r15
    "4c8b074c8b7f084c8b6710"  # mov r8, [rdi]; mov r15, [rdi+8]; mov r12, [rdi+16]
    "4c8b6f184c8b77204d89c1"  # mov r13, [rdi+24]; mov r14, [rdi+32]; mov r9, r8
    "488b5f584c034f30"  # row: mov rbx, [rdi+88]; add r9, [rdi+48]
    "4d89c84c2b4730"  # distance: mov r8, r9; sub r8, [rdi+48]
    "458b184d89c2488b6f40"  # start: mov r11d, [r8]; mov r10, r8; mov rbp, [rdi+64]
    "4585db745e"  # test r11d, r11d; jz next
    "83fb04744b"  # cmp ebx, 4; je counted
    "48ffcd74544901da4d39ca734c"  # longer: dec rbp; jz next; add r10, rbx; cmp r10, r9; jae next
    "418b0a85c97445"  # mov ecx, [r10]; test ecx, ecx; jz next
    "4c89da48c1e2204809ca"  # mov rdx, r11; shl rdx, 32; or rdx, rcx
    "488b4748480fafc248c1e820"  # mov rax, [rdi+72]; imul rax, rdx; shr rax, 32
    "4c21e84889c148c1e104"  # probe: and rax, r13; mov rcx, rax; shl rcx, 4
    "4939140c740c"  # cmp [r12+rcx], rdx; je found
    "48ffc049833c0c0075e6eb13"  # inc rax; cmp qword ptr [r12+rcx], 0; jne probe; jmp next
    "458b5c0c08"  # found: mov r11d, [r12+rcx+8]
    "438b049e85c078ad"  # counted: mov eax, [r14+r11*4]; test eax, eax; js longer
    "41ff0487eba7"  # inc dword ptr [r15+rax*4]; jmp longer
    "4983c0044d39c8728a"  # next: add r8, 4; cmp r8, r9; jb start
    "4883c304483b5f380f8675ffffff"  # add rbx, 4; cmp rbx, [rdi+56]; jbe distance
    "4c037f5048ff4f280f855fffffff"  # add r15, [rdi+80]; dec qword ptr [rdi+40]; jnz row
    "415f415e415d415c"  # pop r15; pop r14; pop r13; pop r12
    "5d5b31c0c3"  # pop rbp; pop rbx; xor eax, eax; ret
)

MULTIPLIER = 0x9E3779B97F4A7C15
"""A branch is looked for from the place on that the middle bits of its product with this name."""

_CHARACTER, _NEXT, _ACCEPTS, _STATE = 0, 3, 4, 6
"""Numbers that it is told."""


class Walk:
    """A walk through texts, which stops wherever the next state is not known."""

    def __init__(self, places: tuple[int, int, int], count: int, first: int) -> None:
        """Begin.

        Args:
            places: addresses of all characters' classes, of lengths of i64, and of room for a byte
                for each text.
            count: how many texts there are, at least 1.
            first: the length of the first one.
        """
        classes, lengths, found = places
        self._told = array("q", (classes, lengths, count, 0, 0, found, 0, first))
        self._at = ctypes.c_void_p(self._told.buffer_info()[0])
        self._function: Any = function_of(_WALK)

    def go_on(self, next_states: int, accepts: int) -> int | None:
        """Go through the rest; return the state whose next one is not known, None at the end.

        Args:
            next_states: address of them: for each state, for each class, of 2 bytes; below 0 where
                it is not known.
            accepts: address of whether each state accepts, of a byte each.
        """
        self._told[_NEXT], self._told[_ACCEPTS] = next_states, accepts
        return self._told[_STATE] if self._function(self._at) else None

    @property
    def character(self) -> int:
        """Address of the class that is not known to follow."""
        return self._told[_CHARACTER]


def is_there() -> bool:
    """Whether there is code for texts."""
    return function_of(_WALK) is not None


def count_grams(
    places: tuple[int, int, int, int],
    mask: int,
    rows: int,
    tokens: int,
    distances: range,
    longest: int,
    grams: int,
) -> None:
    """Count the n-grams that begin at each token of each row.

    Args:
        places: addresses of [rows, tokens] i32, numbers from 1, or 0 of what is in no n-gram; of
            [rows, grams] i32, which are added to; of branches, 16 bytes each: a node times 2^32 and
            the token that follows, and the next node, or 0; and of i32 for each node: the n-gram
            that ends there, or below 0. The nodes of single tokens have their numbers.
        mask: how many branches there is room for, a power of two, less one; some are free.
        rows: at least 1.
        tokens: of a row, at least 1.
        distances: between tokens that belong together, ascending by 1; single ones count at 1.
        longest: tokens of an n-gram at most.
        grams: how many n-grams there are.
    """
    ids, counts, branches, ends = places
    told = array("q", (ids, counts, branches, mask, ends, rows, 4 * tokens, 4 * distances[-1]))
    told.extend((longest, MULTIPLIER - (1 << 64), 4 * grams, 4 * distances[0]))
    function_of(_COUNT)(ctypes.c_void_p(told.buffer_info()[0]))  # type: ignore[misc]
