"""Bytes looked up in a table of 256, 64 at a time by machine code: 0.05 ns each, by NumPy 0.75."""

from __future__ import annotations

import struct
from functools import lru_cache

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import (
    PARTS_AT_ONCE,
    Code,
    has_avx512,
    may_share,
    told,
)
from polydevice_cpu.algorithms.by_machine.rows.shares import TAKEN
from polydevice_cpu.onednn.engine import address_of

SHARED = 1 << 17
"""From so many bytes on threads share them."""

_LINE = 64

_ARGUMENTS = struct.Struct("@PPnnnP").pack
"""Bytes, result, how many there are, how many a thread takes at a time, how many are taken, and the
table."""

# size_t loop(_ARGUMENTS* rdi), by any number of threads at once. rsi, rdx: the next byte and the
# end of what the thread has taken; zmm0 to zmm3: the table, of which the lower and the upper half
# are looked at.
_LOOK = bytes.fromhex(
    "f30f1efa488b472862f17f486f00"  # endbr64; mov rax, [rdi+40]; vmovdqu8 zmm0, [rax]
    "62f17f486f480162f17f486f5002"  # vmovdqu8 zmm1, [rax+64]; vmovdqu8 zmm2, [rax+128]
    "62f17f486f5803"  # vmovdqu8 zmm3, [rax+192]
    "488b77184889f2"  # claim: mov rsi, [rdi+24]; mov rdx, rsi
    "f0480fc177204c8b5f104c39de"  # lock xadd [rdi+32], rsi; mov r11, [rdi+16]; cmp rsi, r11
    "736d4801f24c39da490f47d3"  # jae end; add rdx, rsi; cmp rdx, r11; cmova rdx, r11
    "4c8b074c8b4f0849c7c2ffffffff"  # mov r8, [rdi]; mov r9, [rdi+8]; mov r10, -1
    "c4c1fb92ca"  # kmovq k1, r10
    "4889d14829f176c54883f940"  # look: mov rcx, rdx; sub rcx, rsi; jbe claim; cmp rcx, 64
    "730ac442f0f5d2c4c1fb92ca"  # jae whole; bzhi r10, r10, rcx; kmovq k1, r10
    "62d17fc96f243062f1fd486fec"  # whole: vmovdqu8 zmm4{k1}{z}, [r8+rsi]; vmovdqa64 zmm5, zmm4
    "62f1fd486ff462f27d4875e9"  # vmovdqa64 zmm6, zmm4; vpermi2b zmm5, zmm0, zmm1
    "62f26d4875f362f27e4829d4"  # vpermi2b zmm6, zmm2, zmm3; vpmovb2m k2, zmm4
    "62f17f4a6fee62d17f497f2c31"  # vmovdqu8 zmm5{k2}, zmm6; vmovdqu8 [r9+rsi]{k1}, zmm5
    "4883c640ebb0"  # add rsi, 64; jmp look
    "c5f87731c0c3"  # end: vzeroupper; xor eax, eax; ret
)


@lru_cache(maxsize=1)
def is_there() -> bool:
    """Whether `look_up` looks anything up."""
    return has_avx512("avx512vbmi") and function_of(_LOOK) is not None


def look_up(x: Array, table: Array, result: Array) -> None:
    """Write table[x] to the result, where there is code for it.

    Args:
        x: bytes that follow each other, taken for numbers without sign.
        table: [256], bytes.
        result: likewise, as many as x.
    """
    function = function_of(_LOOK)
    assert function is not None
    function(_ARGUMENTS(address_of(x), address_of(result), x.size, x.size, 0, address_of(table)))


def code(table: Array, count: int, threads: int) -> Code | None:
    """Return code for so many bytes and their results; None where nothing begins it anew.

    Args:
        table: see `look_up`.
        count: of bytes.
        threads: how many may share the work.
    """
    if not may_share():
        return None
    each, users = count, 1
    if threads > 1 and count >= SHARED:
        each, users = -(-count // (threads * PARTS_AT_ONCE * _LINE)) * _LINE, threads
    numbers = told(_ARGUMENTS, 0, 0, count, each, 0, address_of(table))
    return Code.together((function_of(_LOOK), numbers), TAKEN, users, table)
