"""Where vectors of 16 numbers are where registers hold 8: which ones stay in these."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from polydevice_cpu.algorithms.by_machine.avx2.encoding import RSP, Place
from polydevice_cpu.algorithms.by_machine.avx2.operations import WAYS, OnMask, Vector, Way

REGISTERS = 13
"""The first registers hold halves of vectors; the other three are for what comes between."""

HALF_BYTES = 32
VECTORS, MASKS = 32, 8

ROOM_BYTES = 2 * HALF_BYTES * (VECTORS + MASKS)
"""On the stack, for the others."""

_DEEPEST, _OFTEN = 6, 8
"""Loops within each other that count, and how often each is taken to run."""

_BETWEEN = range(REGISTERS, 16)
"""The other three."""

_CLEARS = {(1, 1, 0xEF), (1, 0, 0x57)}


class Use(NamedTuple):
    """An instruction, which vector it sets, and which ones it reads."""

    instruction: Vector
    sets: int | None
    reads: tuple[int, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """All of them."""
        return self.reads if self.sets is None else (self.sets, *self.reads)


Part = list[Use | None]
"""Instructions that follow each other; None for one on masks."""


class Homes:
    """Where halves of vectors and masks are.

    Attributes:
        halves: how many a vector has: one where vectors are of 8 numbers.
        single: vectors whose numbers are the same throughout, of which there is one half.
    """

    def __init__(
        self,
        operations: Sequence[Vector | OnMask],
        jumps: Mapping[int, int],
        halves: int,
    ) -> None:
        self.halves = halves
        uses = [
            Use(each, *touched(each)) if isinstance(each, Vector) else None for each in operations
        ]
        used = [use for use in uses if use is not None]
        self.single = _single(used)
        self._homes: dict[tuple[int, int], int | Place] = {}
        loops = [(to, end) for end, to in jumps.items() if to < end]
        by_use = _by_use(used, loops, self.single if halves > 1 else frozenset())
        if halves == 1:
            by_use = self._place_brief(by_use, _parts(operations, uses, jumps))
        self._place(by_use)

    def _place_brief(self, by_use: list[int], parts: Sequence[Part]) -> list[int]:
        """Give registers for what comes between to vectors where nothing does; return the others.

        Those that are used beside them come first: on the stack, they would need such registers.
        """
        known = _brief(parts)
        brief = [vector for vector in by_use if vector in known][: len(_BETWEEN)]
        used = [
            {number for use in part if use is not None for number in use.numbers} for part in parts
        ]
        beside = set().union(*(each for each in used if not each.isdisjoint(brief)))
        beside -= {*brief}
        if len(beside) > REGISTERS:
            return by_use
        for vector, home in zip(brief, _BETWEEN, strict=False):
            self._homes |= {(vector, half): home for half in range(2)}
        others = [vector for vector in by_use if vector not in brief]
        return sorted(others, key=lambda vector: vector not in beside)

    def _place(self, vectors: Iterable[int]) -> None:
        """Give vectors homes, in this order."""
        free, slot = list(range(REGISTERS)), 0
        for vector in vectors:
            halves = 1 if vector in self.single else self.halves
            if halves <= len(free):
                homes: list[int | Place] = [free.pop(0) for _ in range(halves)]
            else:
                homes = [
                    Place(RSP, offset_bytes=HALF_BYTES * (slot + half)) for half in range(halves)
                ]
                slot += halves
            for half in range(2):
                self._homes[vector, half] = homes[half % halves]

    def of(self, vector: int, half: int) -> int | Place:
        """Return the register of a half of a vector, or where it lies."""
        return self._homes[vector, half]

    @staticmethod
    def of_mask(mask: int, half: int) -> Place:
        """Return where a half of a mask lies, with as many bits as a number for each element."""
        return Place(RSP, offset_bytes=HALF_BYTES * (2 * (VECTORS + mask) + half))


def touched(each: Vector) -> tuple[int | None, tuple[int, ...]]:
    """Return which vector an instruction sets, and which ones it reads."""
    _, opcode, register, first, base, scaled, *_ = each
    return _touched(each.kind, each.prefix, opcode, register, first, base, scaled, each.is_memory)


@lru_cache(maxsize=4096)
def _touched(
    kind: int,
    prefix: int,
    opcode: int,
    register: int,
    first: int,
    base: int,
    scaled: int | None,
    is_memory: bool,
) -> tuple[int | None, tuple[int, ...]]:
    """The same of what an instruction says of them: code has each of these again and again."""
    way = WAYS.get((kind, prefix, opcode))
    last = () if is_memory else (base,)
    if way is Way.STORE:
        return (None if is_memory else base), (register,)
    if way in {Way.COMPARE, Way.TEST}:
        return None, (first, *last)
    if way is Way.SHIFT:
        return first, last
    if way is Way.HALF:
        return base, (register,)
    if way is Way.GATHER:
        assert scaled is not None
        return register, (first + scaled, register)
    if way is Way.SPREAD and opcode == 0x7C:
        return register, ()
    if way in {Way.BINARY, Way.POWER, Way.QUARTERS}:
        return register, (first, *last)
    if way is Way.SUM:
        return register, (first, *last, register)
    return register, last


def _parts(
    operations: Sequence[Vector | OnMask], uses: Sequence[Use | None], jumps: Mapping[int, int]
) -> list[Part]:
    """Instructions, cut where jumps are and where these lead to."""
    cuts, parts = sorted({*jumps, *jumps.values()}), dict[int, Part]()
    for each, use in zip(operations, uses, strict=True):
        parts.setdefault(bisect.bisect_right(cuts, each.place), []).append(use)
    return [*parts.values()]


def _brief(parts: Sequence[Part]) -> set[int]:
    """Vectors that are set and then read within parts where nothing comes between.

    These are of instructions that load a vector, fill it with a number from memory, or add products
    of vectors.
    """
    found, others = set[int](), set[int]()
    for part in parts:
        is_plain = all(use is not None and _is_plain(use.instruction) for use in part)
        known = set[int]()
        for use in part:
            if use is not None:
                others.update(number for number in use.reads if number not in known)
                known |= set() if use.sets is None else {use.sets}
        (found if is_plain else others).update(known)
    return found - others


def _is_plain(each: Vector) -> bool:
    """Whether an instruction needs no other register, where its vectors are in some."""
    if each.mask:
        return False
    way = WAYS.get(each.key)
    return way in ((Way.MOVE, Way.SPREAD) if each.is_memory else (Way.SUM,))


def index_of(each: Vector) -> int:
    """Return which vector has the places that numbers are gathered from."""
    assert each.scaled is not None
    return each.first + each.scaled


def clears(each: Vector) -> bool:
    """Whether an instruction fills a vector with zeros."""
    is_one = each.first == each.base and not each.is_memory and not each.mask
    return each.key in _CLEARS and is_one


def _single(used: Sequence[Use]) -> frozenset[int]:
    """Vectors whose numbers are the same throughout, whatever sets them."""
    found = {number for use in used for number in use.numbers}
    by_others = set[tuple[int, tuple[int, ...]]]()
    for each, sets, reads in used:
        if sets is None or _fills(each):
            continue
        if _is_alike(each):
            by_others.add((sets, reads))
        else:
            found.discard(sets)
    while others := {
        sets for sets, reads in by_others if sets in found and not found.issuperset(reads)
    }:
        found -= others
    return frozenset(found)


def _fills(each: Vector) -> bool:
    """Whether an instruction sets all numbers of a vector to the same one."""
    return clears(each) or (WAYS.get(each.key) is Way.SPREAD and not each.mask)


def _is_alike(each: Vector) -> bool:
    """Whether what it sets is the same throughout if what it reads is."""
    is_same = each.is_one or not each.is_memory
    ways = Way.BINARY, Way.SUM, Way.MOVE, Way.STORE, Way.UNARY, Way.SHIFT, Way.POWER
    # Unpacked ones are, too, but for f64's halves of what is filled with f32's.
    return is_same and not each.mask and not each.wide and WAYS.get(each.key) in ways


def _by_use(
    uses: Sequence[Use], loops: Sequence[tuple[int, int]], single: frozenset[int]
) -> list[int]:
    """Vectors, those first of which a half is used the most."""
    used = Counter[int]()
    starts, ends = sorted(start for start, _ in loops), sorted(end for _, end in loops)
    for use in uses:
        place = use.instruction.place
        depth = bisect.bisect_right(starts, place) - bisect.bisect_right(ends, place)
        for number in use.numbers:
            used[number] += _OFTEN ** min(depth, _DEEPEST) * (2 if number in single else 1)
    return [number for number, _ in used.most_common()]
