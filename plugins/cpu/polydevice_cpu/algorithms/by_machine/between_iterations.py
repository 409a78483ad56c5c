"""What a loop does between the steps of its iterations, so that many of these are one call.

Each is told numbers that it changes itself, so that the next iteration's call is the same.
"""

from __future__ import annotations

import struct
from typing import Any

from polydevice.processor.machine_code import function_of

# size_t move(numbers* rdi): 0. Copies, and goes on to the next part on both sides.
_MOVE = bytes.fromhex(
    "f30f1efa4889fa"  # endbr64; mov rdx, rdi
    "488b32488b7a08488b4a10"  # mov rsi, [rdx]; mov rdi, [rdx+8]; mov rcx, [rdx+16]
    "488b4218480102"  # mov rax, [rdx+24]; add [rdx], rax
    "488b422048014208"  # mov rax, [rdx+32]; add [rdx+8], rax
    "f3a431c0c3"  # rep movsb; xor eax, eax; ret
)

# size_t count(numbers* rdi): 0. Adds 1 to an integer of 8 bytes, or of 4.
_COUNT = bytes.fromhex(
    "f30f1efa488b0748ff0031c0c3"  # endbr64; mov rax, [rdi]; inc qword ptr [rax]; xor eax, eax; ret
)
_COUNT_NARROW = bytes.fromhex(
    "f30f1efa488b07ff0031c0c3"  # endbr64; mov rax, [rdi]; inc dword ptr [rax]; xor eax, eax; ret
)

# size_t holds(numbers* rdi): 0 where a byte is not 0, else `ENDED`.
_HOLDS = bytes.fromhex(
    "f30f1efa488b07"  # endbr64; mov rax, [rdi]
    "803800740331c0c3"  # cmp byte ptr [rax], 0; je end; xor eax, eax; ret
    "b8ff7f0000c3"  # end: mov eax, 32767; ret
)

ENDED = 32767
"""What no other call returns."""

Between = tuple[Any, bytes]
"""A function, and the numbers that it is told."""


def move(source: int, target: int, size_bytes: int, steps: tuple[int, int]) -> Between:
    """Copy a part, and take the next one on both sides by these steps next time."""
    return function_of(_MOVE), struct.pack("@5q", source, target, size_bytes, *steps)


def count(place: int, item_bytes: int) -> Between:
    """Add 1 to an integer."""
    code = _COUNT if item_bytes == struct.calcsize("@q") else _COUNT_NARROW
    return function_of(code), struct.pack("@q", place)


def holds(place: int) -> Between:
    """End the calls where a condition does not hold."""
    return function_of(_HOLDS), struct.pack("@q", place)
