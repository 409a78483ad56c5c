"""Selection: the boxes of each class that stay, as NonMaxSuppression wants them, in one call.

Corners, the best ones of each row of scores, those of them that stay, and the table of it: NumPy's
calls between them take as long as all of it.
"""

from __future__ import annotations

import math
import struct
from array import array
from ctypes import c_void_p
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.greedy import ALL, judging, keeping, keeps
from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    LOAD,
    MAX,
    MIN,
    MUL,
    R8,
    R9,
    R10,
    R11,
    R12,
    R14,
    R15,
    RAX,
    RBP,
    RBX,
    RCX,
    RDI,
    RDX,
    RSI,
    STORE,
    SUB,
    Instructions,
)
from polydevice_cpu.algorithms.by_machine.ranking.above import MOST, finding, finds
from polydevice_cpu.algorithms.by_machine.ranking.best import (
    ROOM,
    SQUARE,
    TOLD_BYTES,
    ranking,
    ranks,
)
from polydevice_cpu.onednn.engine import address_of

_BOXES, _CORNERS, _BOXES_LEFT, _RANKING, _KEEPING, _INDEX, _KEPT, _TABLE, _SCORED = range(9)
_SCORES, _COUNT, _ROWS, _CLASSES, _LIMIT, _IS_CUT, _ROW_BYTES, _FOUND = range(9, 17)
"""What it is told: addresses; boxes of all images; how many of a row are ranked, how many rows
there are, how many of an image, how many are to stay, and whether others lie behind those ranked;
then it tells how many stayed. Behind that is what both functions are told that it calls."""

SPARED = 1 << 16
"""Squares of what is ranked that take less time than NumPy's calls."""

FEW, MANY = 48, 1 << 12
"""So many are ranked at first where all rows together would have more than `MANY`, as each takes
time: of 90 rows of 1,917, of which few have any, the whole takes 50 us, and 65."""

FEWEST, TIMES = 128, 4
"""All that are above the limit are ranked first, if they are not more than so many or so many times
those that are to be ranked else: in crowds the best ones remove one another. 20 classes of 525
boxes, of which 100 each are above, take 70 us, and NumPy 570; where 400 are, and boxes lie apart,
60 of each take 65 us, and all 200."""

INDICES = 1 << 18
"""So many of all rows there is room for then, at most."""

AGAIN = 16
"""So many times what failed before is not attempted again."""

_SLOTS = 17
_KEEPS = _SLOTS + TOLD_BYTES // 8
_STARTS: tuple[tuple[int, int], ...] = (
    *((_BOXES, 1), (_CORNERS, 3), (_INDEX, 3), (_KEPT, 3), (_TABLE, 4), (_SCORED, 5), (_SCORES, 2)),
    *((_SLOTS, 2), (_SLOTS + 1, 3), (_SLOTS + 3, 0)),
    *((_KEEPS, 3), (_KEEPS + 1, 3), (_KEEPS + 5, 3), (_KEEPS + 7, 3)),
)
"""(place, memory): where addresses are added that `select` numbers: of what is told, boxes, scores,
room, the table and the scores of what stays. What ranks is told scores, index and what is ranked;
what keeps boxes corners, index, judges and what stays."""

_GIVEN = tuple((place, which) for place, which in _STARTS if which in (1, 2))
"""Those of boxes and scores, which each call has others of."""

SPARE, SPARE_NUMBERS = 2, 1 << 13
"""So many calls' memory is kept at most, of so many numbers of 8 bytes each."""

_TOLD = struct.Struct(f"@{_SLOTS}q").pack
_LARGEST = np.iinfo(np.int64).max

LACKS = 3
"""Returned where fewer stayed than may, and others lie behind those ranked."""


class _Room(NamedTuple):
    """Memory for one call.

    Attributes:
        numbers: what the function is told, which writes to it.
        told: the same before that, but for the addresses of boxes and scores.
        at: where the numbers are.
        table: what it makes, as `scored`.
        scored: likewise.
        kept: what is between.
    """

    numbers: array[int]
    told: array[int]
    at: c_void_p
    table: Array
    scored: Array
    kept: Array


@dataclass
class Prepared:
    """What selects boxes of scores of some sizes.

    Attributes:
        function: is told where the numbers are.
        numbers: what it is told, of which a copy is.
        room: numbers of 8 bytes that it needs.
        most: how many rows the table may have.
        kept: what it reads besides.
        spare: memory of calls that have ended, one for each thread that was at it: to find it anew
            takes 3 us, a third of a call for 81 boxes.
    """

    function: Any
    numbers: array[int]
    room: int
    most: int
    kept: object
    spare: list[_Room] = field(default_factory=list)

    def take(self) -> _Room:
        """Return memory that no other call has."""
        try:
            return self.spare.pop()
        except IndexError:
            pass
        numbers = self.numbers[:]
        begin, _ = numbers.buffer_info()
        room = np.empty(self.room, np.int64)
        table, scored = np.empty((self.most, 3), np.int64), np.empty((self.most, 3), np.float32)
        starts = begin, 0, 0, address_of(room), address_of(table), address_of(scored)
        for place, which in _STARTS:
            numbers[place] += starts[which]
        return _Room(numbers, numbers[:], c_void_p(begin), table, scored, room)

    def give_back(self, room: _Room) -> None:
        """Let another call have memory; much of it is let go of."""
        if self.room + 5 * self.most <= SPARE_NUMBERS and len(self.spare) < SPARE:
            self.spare.append(room)


@dataclass
class Attempts:
    """By how many of each row boxes are selected, and what was right for those of before.

    Attributes:
        counts: to attempt, one after the other, each with whether these are all above the limit.
        first: place of the first one that did not fail.
        left: for how many times that is believed.
    """

    counts: tuple[tuple[int, bool], ...]
    first: int = 0
    left: int = 0


@lru_cache(maxsize=2)
def _selecting(*, is_centered: bool) -> bytes:
    code = Instructions()
    code.begin(0)
    code.move(RBP, RDI)
    _append_corners(code, is_centered=is_centered)
    failed = []
    told = 8 * _SLOTS
    for function, test, jump in ((_RANKING, "85c0", "0f85"), (_KEEPING, "4885c0", "0f88")):
        code.move(RDI, RBP)
        code.step(RDI, told)
        code.raw(f"ff55{8 * function:02x}")  # call [rbp + 8 * function]
        code.raw(test)  # test eax, eax: whether it is 0; test rax, rax: or less
        failed.append(code.ahead(jump))
        told += TOLD_BYTES
    code.store(RAX, RBP, _FOUND)
    code.move(RBX, RAX)
    lacks = _append_table(code)
    code.end(0)
    for jump_ in failed:
        code.here(jump_)
    code.end(0, status=1)
    code.here(lacks)
    code.end(0, status=LACKS)
    return code.assembled()


def _append_corners(code: Instructions, *, is_centered: bool) -> None:
    """Append what makes lower and upper corners of four boxes at a time."""
    code.load(R8, RBP, _BOXES)
    code.load(R9, RBP, _CORNERS)
    code.load(RCX, RBP, _BOXES_LEFT)
    code.plain(0x03, RCX, RCX)
    code.plain(0x03, RCX, RCX)  # numbers
    code.raw("b8cccc0000")  # mov eax, 0xcccc
    code.set_mask(2, RAX)
    if is_centered:
        code.raw("b80000003f62f27d487cd8")  # mov eax, 0.5; vpbroadcastd zmm3, eax
    four = len(code.text)
    code.raw("be10000000b8ffffffff")  # mov esi, 16; mov eax, -1
    code.raw("4839f1480f42f1c4e248f5c0")  # cmp rcx, rsi; cmovb rsi, rcx; bzhi eax, eax, esi
    code.set_mask(1, RAX)
    code.vector(LOAD, 0, 0, R8, mask=1)
    if is_centered:
        for register, order in ((1, 0x44), (2, 0xEE)):  # centers twice, sizes twice
            code.vector(0x04, register, 0, 0, kind=3, prefix=1, is_memory=False, last_byte=order)
        code.of_vectors(MUL, 2, 2, 3)
        given, low, high = (1, 2), SUB, ADD
    else:
        code.vector(
            0x04, 1, 0, 0, kind=3, prefix=1, is_memory=False, last_byte=0x4E
        )  # the other corner
        given, low, high = (0, 1), MIN, MAX
    code.of_vectors(low, 4, *given)
    code.vector(high, 4, *given, is_memory=False, mask=2)
    code.vector(STORE, 4, 0, R9, mask=1)
    for register in (R8, R9):
        code.step(register, 64)
    code.step(RCX, -16)
    code.jump(four, "0f8f")  # jg


def _append_table(code: Instructions) -> int:
    """Append what writes image, class and box of each that stays, and the score besides.

    Returns:
        The jump where fewer stayed of a row than may.
    """
    for register, number in (
        *((R8, _KEPT), (R9, _TABLE), (R10, _SCORED), (R11, _INDEX)),
        *((RCX, _SCORES), (R12, _ROWS), (RDX, _COUNT)),
    ):
        code.load(register, RBP, number)
    code.raw("4531f64531ff")  # xor r14d, r14d: class; xor r15d, r15d: image
    row = len(code.text)
    code.raw("31f6")  # xor esi, esi: how many stay of the row
    kept = len(code.text)
    code.raw("4885db")  # test rbx, rbx
    none = code.ahead("0f84")
    code.load(RAX, R8)
    code.plain(0x3B, RAX, RDX)  # cmp
    behind = code.ahead("0f8d")  # jge
    code.raw("498b3cc3")  # mov rdi, [r11 + rax * 8]
    code.store(R15, R9, 0)
    code.store(R14, R9, 1)
    code.store(RDI, R9, 2)
    code.raw("c4c1fa2ac7c4c17a1102")  # vcvtsi2ss xmm0, xmm0, r15; vmovss [r10], xmm0
    code.raw("c4c1fa2ac6c4c17a114204")  # vcvtsi2ss xmm0, xmm0, r14; vmovss [r10 + 4], xmm0
    code.raw("c5fa1004b9c4c17a114208")  # vmovss xmm0, [rcx + rdi * 4]; vmovss [r10 + 8], xmm0
    code.step(R8, 8)
    code.step(R9, 24)
    code.step(R10, 12)
    code.raw("48ffc648ffcb")  # inc rsi; dec rbx
    code.jump(kept)
    code.here(none)
    code.here(behind)
    code.raw(f"48837d{8 * _IS_CUT:02x}00")  # cmp qword ptr [rbp + ...], 0
    whole = code.ahead("0f84")
    code.plain(0x3B, RSI, RBP, 8 * _LIMIT)
    enough = code.ahead("0f8d")
    code.raw("498b44d3f8bfffffffff")  # mov rax, [r11 + rdx * 8 - 8]; mov edi, -1: NONE
    code.plain(0x3B, RAX, RDI)
    lacks = code.ahead("0f85")
    code.here(whole)
    code.here(enough)
    code.add(RDX, RBP, _COUNT)
    code.add(RCX, RBP, _ROW_BYTES)
    code.raw("49ffc6")  # inc r14
    code.plain(0x3B, R14, RBP, 8 * _CLASSES)
    same = code.ahead("0f85")
    code.raw("4531f649ffc7")  # xor r14d, r14d; inc r15
    code.here(same)
    code.again(R12, row)
    return lacks


def select(
    boxes: Array, scores: Array, limits: tuple[int, float, float], *, is_centered: bool
) -> tuple[Array, Array] | None:
    """Return [n, 3] of image, class and box that stay, i64, and the same with scores, f32.

    Args:
        boxes: [images, number, 4], row-major f32: two corners each, or the center and the size.
        scores: [images, classes, number], row-major f32.
        limits: how many may stay of each class, 1 or more; the threshold of intersection over
            union, 0 or more; the number that scores are above.
        is_centered: whether boxes are centers and sizes.

    Returns:
        None where the processor cannot, a box has no finite area, or other ways take less time.
    """
    attempts = _attempts(scores.shape, limits)
    attempts.left -= 1
    first = attempts.first if attempts.left > 0 else 0
    for number, (count, is_whole) in enumerate(attempts.counts[first:], first):
        made = prepared(scores.shape, count, limits, is_centered=is_centered, is_whole=is_whole)
        status, found = _by(made, boxes, scores)
        if not status or (status != LACKS and not is_whole):
            return found
        attempts.first, attempts.left = number + 1, AGAIN
    return None


def _by(made: Prepared, boxes: Array, scores: Array) -> tuple[int, tuple[Array, Array] | None]:
    """Return 0 and what `select` returns; or why that is None."""
    room = made.take()
    numbers = room.numbers
    numbers[:] = room.told
    starts = 0, address_of(boxes), address_of(scores)
    for place, which in _GIVEN:
        numbers[place] += starts[which]
    status = made.function(room.at)
    if not status:
        found = numbers[_FOUND]
        made_of_it = room.table[:found].copy(), room.scored[:found].copy()
    made.give_back(room)
    return status, None if status else made_of_it


@lru_cache(maxsize=64)
def _attempts(shape: tuple[int, ...], limits: tuple[int, float, float]) -> Attempts:
    images, classes, number = shape
    rows, counts = images * classes, _counts(shape, limits[0])
    whole = []
    for most in (min(max(FEWEST, TIMES * max(counts, default=0)), MOST), MOST):
        count = min(most, number)
        pairs = count * min(limits[0], count)
        if finds(rows, number) and rows * count <= INDICES and keeps(pairs, rows * pairs):
            whole.append((count, True))
    ranked = [(count, False) for count in counts]
    return Attempts(tuple(dict.fromkeys(whole[:1] + ranked + whole[1:])))


def _counts(shape: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """How many are to be ranked of each row, at first and then.

    Scores are above the limit of few boxes, mostly: of others too few are ranked at first.
    """
    images, classes, number = shape
    rows = images * classes
    wanted = min(2 * limit, number)
    more = [min(8 * limit, number)]
    if not _may(rows, number, wanted, limit):
        square = max(SQUARE * number, SPARED // rows)
        wanted, more = min(math.isqrt(square), math.isqrt(ALL // rows)), []
        if not wanted or not _may(rows, number, wanted, limit):
            return ()
    few = [FEW] if wanted > FEW and rows * wanted > MANY else []
    more = [count for count in more if count > wanted and _may(rows, number, count, limit)]
    return *few, wanted, *more


def _may(rows: int, number: int, count: int, limit: int) -> bool:
    """Whether there is code that selects by so many of each row, and takes less time."""
    pairs = count * min(limit, count)
    return ranks(rows, number, count, SPARED) and keeps(pairs, rows * pairs)


@lru_cache(maxsize=64)
def prepared(
    shape: tuple[int, ...],
    count: int,
    limits: tuple[int, float, float],
    *,
    is_centered: bool,
    is_whole: bool,
) -> Prepared:
    """Return what selects boxes by so many of each row; others are as `select` has them.

    Args:
        shape: of the scores.
        count: how many are ranked of each row, 1 or more.
        limits: see `select`.
        is_centered: the same.
        is_whole: whether the code fails where more are above the limit.
    """
    limit, iou, least = limits
    images, classes, number = shape
    rows = images * classes
    most = rows * min(limit, count)
    places, total = [], 0  # within the room, in bytes
    for size in (rows * count, most, 2 * images * number, -(-judging(count, limit) // 2)):
        places.append(8 * total)
        total += size
    index, kept, corners, judges = places
    groups = _groups(images, classes, number, count)
    if is_whole:
        best, best_told = finding((0, index, 0), (rows, number), count, least)
    else:
        rank = partial(ranking, descending=True, above=least)
        best, best_told = rank((0, index, 0), (rows, number), count)
    told = corners, index, address_of(groups), judges, kept
    keep, keep_told = keeping(told, rows, count, limit, iou)
    numbers = _TOLD(
        *(0, corners, images * number, best.address, keep.address, index, kept, 0, 0, 0),
        *(count, rows, classes, limit, count < number and not is_whole, 4 * number, 0),
    )
    numbers += best_told + keep_told
    made = array("q", numbers + bytes(-len(numbers) % 8))
    given = len(made)
    made[_SLOTS + 3] = 8 * given  # what is kept, which lies behind
    made.extend([_LARGEST] * ROOM + [0] * count)
    function = function_of(_selecting(is_centered=is_centered))
    assert function is not None  # as there is one that ranks
    return Prepared(function, made, total, most, groups)


@lru_cache(maxsize=16)
def _groups(images: int, classes: int, number: int, count: int) -> Array:
    """What is looked at together: `count` indices each, into the boxes of an image."""
    starts = np.arange(images * classes) * count
    return np.stack([starts, starts + count, np.arange(images).repeat(classes) * number], 1)
