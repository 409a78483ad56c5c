"""Where vectors of 16 numbers are where registers hold 8: which ones stay in these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

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

_CLEARS = {(1, 1, 0xEF), (1, 0, 0x57)}


class Homes:
    """Where halves of vectors and masks are.

    Attributes:
        halves: how many a vector has: one where vectors are of 8 numbers.
        single: vectors whose numbers are the same throughout, of which there is one half.
    """

    def __init__(
        self,
        operations: Sequence[Vector | OnMask],
        loops: Iterable[tuple[int, int]],
        halves: int,
    ) -> None:
        self.halves = halves
        vectors = [each for each in operations if isinstance(each, Vector)]
        self.single = _single(vectors)
        self._homes: dict[tuple[int, int], int | Place] = {}
        free, slot = list(range(REGISTERS)), 0
        for vector in _by_use(vectors, [*loops], self.single if halves > 1 else frozenset()):
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


def touched(each: Vector) -> tuple[int | None, list[int]]:
    """Return which vector an instruction sets, and which ones it reads."""
    way = WAYS.get(each.key)
    last = [] if each.is_memory else [each.base]
    if way is Way.STORE:
        return (None if each.is_memory else each.base), [each.register]
    if way in {Way.COMPARE, Way.TEST}:
        return None, [each.first, *last]
    if way is Way.SHIFT:
        return each.first, last
    if way is Way.HALF:
        return each.base, [each.register]
    if way is Way.GATHER:
        return each.register, [index_of(each), each.register]
    if way is Way.SPREAD and each.opcode == 0x7C:
        return each.register, []
    if way in {Way.BINARY, Way.POWER, Way.QUARTERS}:
        return each.register, [each.first, *last]
    if way is Way.SUM:
        return each.register, [each.first, *last, each.register]
    return each.register, last


def index_of(each: Vector) -> int:
    """Return which vector has the places that numbers are gathered from."""
    assert each.scaled is not None
    return each.first + each.scaled


def clears(each: Vector) -> bool:
    """Whether an instruction fills a vector with zeros."""
    is_one = each.first == each.base and not each.is_memory and not each.mask
    return each.key in _CLEARS and is_one


def _single(vectors: Sequence[Vector]) -> frozenset[int]:
    """Vectors whose numbers are the same throughout, whatever sets them."""
    found = {number for each in vectors for number in _numbers(each)}
    while True:
        others = set()
        for each in vectors:
            sets, reads = touched(each)
            if sets in found and not _is_single(each, reads, found):
                others.add(sets)
        if not others:
            return frozenset(found)
        found -= others


def _is_single(each: Vector, reads: Sequence[int], single: set[int]) -> bool:
    if clears(each) or (WAYS.get(each.key) is Way.SPREAD and not each.mask):
        return True
    is_same = each.is_one or not each.is_memory
    ways = Way.BINARY, Way.SUM, Way.MOVE, Way.STORE, Way.UNARY, Way.SHIFT, Way.POWER
    known = WAYS.get(each.key) in ways
    # Unpacked ones are, too, but for f64's halves of what is filled with f32's.
    return known and is_same and not each.mask and not each.wide and single.issuperset(reads)


def _numbers(each: Vector) -> list[int]:
    sets, reads = touched(each)
    return reads if sets is None else [sets, *reads]


def _by_use(
    vectors: Sequence[Vector], loops: Sequence[tuple[int, int]], single: frozenset[int]
) -> list[int]:
    """Vectors, those first of which a half is used the most."""
    used = Counter[int]()
    for each in vectors:
        depth = sum(start <= each.place < end for start, end in loops)
        for number in _numbers(each):
            used[number] += _OFTEN ** min(depth, _DEEPEST) * (2 if number in single else 1)
    return [number for number, _ in used.most_common()]
