"""Code: calls of machine code for some sizes, which are still to be told addresses."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from polydevice.processor.machine_code import CALL, Calls, calls_at, function_of, processor_flags
from polydevice.symbolic_size import is_symbolic, number_of
from polydevice.symbolic_trace import current_trace
from polydevice_cpu.onednn.library import has_instructions
from polydevice_cpu.onednn.openmp import parallel_address

Told = tuple[Any, "bytes | tuple[int, ...]"]
"""A function, and what it is told the address of, as bytes or numbers of 8 bytes: first there is
room of 8 bytes for each address, which holds what is added to that, most often 0."""

PARTS = 2
"""How many parts of its work each thread takes, about, as others may have its core meanwhile."""

PARTS_AT_ONCE = 4
"""The same within one call, where to take a part is one addition."""

_PER_CALL = CALL.itemsize // 8

# size_t share(block* rdi): {GOMP_parallel, claim, threads, how many calls, the next one, calls,
# whether one has refused what it reads}
_SHARE = bytes.fromhex(
    "f30f1efa53"  # endbr64; push rbx
    "4889fb48c7432000000000"  # mov rbx, rdi; mov qword ptr [rbx+32], 0
    "48c7433000000000"  # mov qword ptr [rbx+48], 0
    "488b7b084889de8b531031c9"  # mov rdi, [rbx+8]; mov rsi, rbx; mov edx, [rbx+16]; xor ecx, ecx
    "ff138b43305bc3"  # call [rbx]; mov eax, [rbx+48]; pop rbx; ret
)

# void claim(block* rdi): calls one after the other, as long as there is one that nobody took
_CLAIM = bytes.fromhex(
    "f30f1efa534889fb"  # endbr64; push rbx; mov rbx, rdi
    "b801000000f0480fc14320"  # next: mov eax, 1; lock xadd [rbx+32], rax
    "483b4318731b"  # cmp rax, [rbx+24]; jae end
    "486bc02848034328"  # imul rax, rax, 40; add rax, [rbx+40]
    "488b7808ff10"  # mov rdi, [rax+8]; call [rax]
    "85c074ddc7433001000000"  # test eax, eax; jz next; mov dword ptr [rbx+48], 1
    "ebd4"  # jmp next
    "5bc3"  # end: pop rbx; ret
)
_CALLS_AT = 5
"""Number of what `_SHARE` is told that says where calls are."""

# size_t together(block* rdi): {GOMP_parallel, function, threads, what it is told, what is taken}
_TOGETHER = bytes.fromhex(
    "f30f1efa534889fb"  # endbr64; push rbx; mov rbx, rdi
    "488b432048c70000000000"  # mov rax, [rbx+32]; mov qword ptr [rax], 0
    "488b7b08488b73188b5310"  # mov rdi, [rbx+8]; mov rsi, [rbx+24]; mov edx, [rbx+16]
    "31c9ff1331c05bc3"  # xor ecx, ecx; call [rbx]; xor eax, eax; pop rbx; ret
)


_AVX512 = 0x27
"""oneDNN's bits of an instruction set with AVX-512 as Skylake's servers have it."""
_AVX2 = 0x7
"""The same of one with AVX2 and FMA."""


@lru_cache(maxsize=16)
def has_avx512(*beyond: str) -> bool:
    """Whether machine code with AVX-512 may run: not where oneDNN has been told not to use it.

    Args:
        beyond: what the processor must have besides, by the system's names, such as avx512_vnni.
    """
    is_there = has_instructions(_AVX512) and function_of(_CLAIM) is not None
    return is_there and processor_flags() >= {*beyond}


@lru_cache(maxsize=1)
def has_vectors() -> bool:
    """Whether emitted code may run: with AVX-512, or made of instructions of AVX2 and FMA."""
    if has_avx512():
        return True
    is_there = has_instructions(_AVX2) and function_of(_CLAIM) is not None
    return is_there and processor_flags() >= {"avx2", "fma", "f16c"}


def may_share() -> bool:
    """Whether several threads may have a part of the calls each, or of one."""
    tables = _SHARE, _CLAIM, _TOGETHER
    return parallel_address() is not None and None not in map(function_of, tables)


def parts_of(count: int, threads: int, *, is_worth_it: bool) -> list[tuple[int, int]]:
    """Return where parts of so many begin and end, of which each is a call that threads share.

    Args:
        count: how many there are.
        threads: how many share the calls.
        is_worth_it: whether they should; all is one part where they should not, or cannot.
    """
    if threads < 2 or not is_worth_it or not may_share():
        return [(0, count)]
    parts = min(threads * PARTS, count)
    return [(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


def told_numbers(numbers: Iterable[int]) -> array[int]:
    """Return numbers that code is told: as it reads them, or as a list while sizes are formulas."""
    if current_trace() is None:
        return array("q", numbers)
    return cast("array[int]", list(numbers))


def told(pack: Callable[..., bytes], *values: Any) -> Any:
    """Return what a function is told of values: packed; as numbers while sizes are formulas.

    Args:
        pack: of a structure that begins with numbers of 8 bytes; of these alone some are formulas.
        values: of its fields.
    """
    if current_trace() is None or not any(map(is_symbolic, values)):
        return pack(*values)
    packed = pack(*map(number_of, values))
    words = list(array("q", packed + bytes(-len(packed) % 8)))
    for place, value in enumerate(values):
        if is_symbolic(value):
            words[place] = value if isinstance(value, int) else value.known()
    return tuple(words)


class Within(NamedTuple):
    """A call that is told addresses in several places.

    Attributes:
        function: it.
        numbers: of 8 bytes, what it is told the address of.
        starts: where in these addresses begin.
    """

    function: Any
    numbers: tuple[int, ...]
    starts: tuple[int, ...]


Phase = list[Within]
"""Calls that may run in any order."""


class Code(NamedTuple):
    """Calls of functions with the same values; who has other memory takes a copy of the numbers.

    Attributes:
        numbers: calls as of type `CALL`, and behind them what each function is told.
        starts: where that begins, of each that is told addresses.
        pointers: (number, what it points to): places in the numbers.
        size: how many calls there are; each may be shared by threads.
        kept: what code reads besides.
        threads: how many share a call.
    """

    numbers: array[int]
    starts: tuple[int, ...]
    pointers: tuple[tuple[int, int], ...]
    size: int
    kept: object = None
    threads: int = 1

    @classmethod
    def of(cls, told: Sequence[Told], kept: object = None) -> Code:
        """Return calls one after the other."""
        if len(told) == 1:  # as most are: in a third of the time
            ((function, numbers),) = told
            if isinstance(numbers, tuple):
                found = told_numbers((function.address, 0, 0, 0, 0, *numbers))
                return cls(found, (_PER_CALL,), ((1, _PER_CALL),), 1, kept)
        found, starts = _laid(told_numbers(()), told)
        pointers = [(_PER_CALL * number + 1, start) for number, start in enumerate(starts)]
        return cls(found, tuple(starts), tuple(pointers), len(starts), kept)

    @classmethod
    def shared(cls, told: Sequence[Told], threads: int, kept: object = None) -> Code:
        """Return calls in any order, which threads share; several where they `may_share` them.

        It returns 1 where any of them does not return 0, after all of them.
        """
        if len(told) == 1:
            return cls.of(told, kept)
        calls = [Within(function, as_numbers(numbers), (0,)) for function, numbers in told]
        return cls.in_phases([calls], threads, kept)

    @classmethod
    def together(cls, told: Told, taken: int, threads: int, kept: object = None) -> Code:
        """Return one call of a function that threads run at once; where they `may_share` it.

        Args:
            told: the function, and what it is told.
            taken: number of what it counts the parts of its work with that have been taken.
            threads: how many there are at most.
            kept: what it reads besides.
        """
        together, (function, numbers) = function_of(_TOGETHER), told
        assert together is not None
        block = parallel_address() or 0, function.address, threads, 0, 0
        found = told_numbers((together.address, 0, 0, 0, 0, *block))
        start = len(found)
        _append(found, numbers)
        pointers = (1, _PER_CALL), (_PER_CALL + 3, start), (_PER_CALL + 4, start + taken)
        return cls(found, (start,), pointers, 1, kept, threads)

    @classmethod
    def in_phases(cls, phases: Sequence[Phase], threads: int, kept: object = None) -> Code:
        """Return phases one after the other, of each of which threads share the calls.

        Several where they `may_share` them.
        """
        found, starts, pointers = told_numbers(()), list[int](), list[tuple[int, int]]()

        def append(calls: Iterable[Within]) -> None:
            own = [*calls]
            first = len(found)
            for function, *_ in own:
                found.extend((function.address, 0, 0, 0, 0))
            for number, (_, numbers, places) in enumerate(own):
                pointers.append((first + _PER_CALL * number + 1, len(found)))
                starts.extend(len(found) + place for place in places)
                found.extend(numbers)

        if threads == 1:
            append(call for phase in phases for call in phase)
            size = sum(map(len, phases))
            return cls(found, tuple(starts), tuple(pointers), size, kept)
        share, claim = function_of(_SHARE), function_of(_CLAIM)
        assert share is not None
        assert claim is not None
        for _ in phases:
            found.extend((share.address, 0, 0, 0, 0))
        for number, phase in enumerate(phases):
            block = len(found)
            pointers.append((_PER_CALL * number + 1, block))
            found.extend((parallel_address() or 0, claim.address, threads, len(phase), 0, 0, 0))
            pointers.append((block + _CALLS_AT, len(found)))
            append(phase)
        return cls(found, tuple(starts), tuple(pointers), len(phases), kept, threads)

    def bound(self, addresses: Sequence[int]) -> CodeCall:
        """Return a call on memory at these addresses."""
        numbers = self.numbers[:]
        begin, _ = numbers.buffer_info()
        for number, place in self.pointers:
            numbers[number] = begin + 8 * place
        for start in self.starts:
            for place, address in enumerate(addresses, start):
                numbers[place] += address
        call = calls_at(begin, self.size, CodeCall)
        assert call is not None  # there is the code that it calls
        call.code, call.numbers = self, numbers
        return call


def _laid(found: array[int], told: Sequence[Told]) -> tuple[array[int], list[int]]:
    """Calls behind what there is, and what they are told; and where that begins, of each."""
    for function, _ in told:
        found.extend((function.address, 0, 0, 0, 0))
    starts = []
    for _, numbers in told:
        starts.append(len(found))
        _append(found, numbers)
    return found, starts


def _append(found: array[int], numbers: bytes | tuple[int, ...]) -> None:
    found.extend(as_numbers(numbers))


def as_numbers(told: bytes | tuple[int, ...]) -> tuple[int, ...]:
    """Return what a function is told as numbers of 8 bytes."""
    return told if isinstance(told, tuple) else tuple(array("q", told + bytes(-len(told) % 8)))


class AddressedCalls(Calls):
    """Machine code of a step; who computes instead what it refuses asks where that lies."""

    __slots__ = ()

    def addresses(self, count: int) -> Sequence[int]:
        """Return where its values are, of so many."""
        raise NotImplementedError


class CodeCall(AddressedCalls):
    """Machine code on memory: a call that returns 0.

    Attributes:
        code: what it runs.
        numbers: what that is told; addresses may be changed between calls.
    """

    __slots__ = ("code", "numbers")
    code: Code
    numbers: array[int]

    def addresses(self, count: int) -> list[int]:
        """Return where its values are, of so many."""
        start = self.code.starts[0]
        before = self.code.numbers
        return [self.numbers[start + value] - before[start + value] for value in range(count)]

    def places(self, value: int) -> list[tuple[int, int]]:
        """Return where in the numbers the address of a value is, and what is added to it there."""
        before = self.code.numbers
        return [(start + value, before[start + value]) for start in self.code.starts]
