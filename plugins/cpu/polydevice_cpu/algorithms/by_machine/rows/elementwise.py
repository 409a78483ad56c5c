"""Chains of functions of f32 numbers, each with an operand or none, row by row, in one thread.

A primitive takes 0.2 to 0.5 us however few numbers there are; this takes some ns for each row, and
1 ns for 16 numbers of it. Of 8,192 to 262,144 numbers, sums, products and quotients take 0.6 to 0.9
of oneDNN's code's time so, functions 0.65 to 0.98, copies in another order 0.7 to 1.05. It is also
one code for all sizes, which is in the processor's cache when shapes take turns.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from polydevice.processor.machine_code import function_of
from polydevice.symbolic_size import is_symbolic
from polydevice_cpu.algorithms.by_machine.code import PARTS, Told, has_avx512, has_vectors, told
from polydevice_cpu.algorithms.by_machine.functions import TEMPORARY
from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
    MAX,
    MIN,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    RAX,
    RBP,
    RBX,
    RCX,
    RSP,
    STORE,
)
from polydevice_cpu.algorithms.by_machine.rows.chain import (
    Chain,
    Operand,
    Step,
    with_quotients,
)
from polydevice_cpu.algorithms.by_machine.rows.lanes import AXES
from polydevice_cpu.algorithms.by_machine.small import Form, loops

MOST = 1 << 22
"""Numbers of a result: of more, memory takes all of the time."""

FEW = 4096
"""The same where several threads could share the work."""

LEAST_SHARED = 1 << 14
"""So many are shared, if they may be: they take 13 us and more, and to begin and to end 3."""

MOST_ROWS, LEAST_ROW = 512, 16
"""Rows, however short they are; and how long they are on average where there are more."""

CACHED, SHORT, LONG = 1 << 16, 16, 512
"""Numbers of a part that stay at hand, and how long rows of larger ones are not."""

_POINTERS = R8, R9, R10, R11, R12, R13, RBX, RBP
MOST_OPERANDS = len(_POINTERS) - 2

LANES, _VECTOR, _LEAST, _SOME = 16, 0, 1, 1
_OPERAND = TEMPORARY[0]
_WHOLE, _MASK, _REST, _COUNT, _BEHIND = range(AXES - 1, AXES + 4)
"""Behind the sizes of the outer axes: vectors of a row, the mask of the last one's numbers, the
bytes of these in f32, and how many they are."""

Kinds = tuple[str, ...]
"""What operands and the result are of: `f` for f32, `u` for u8, `s` for i8. Two are of the first
operand and of the result, between which all are f32."""

FLOATS: Kinds = "f", "f"
_WIDEN = {"u": 0x31, "s": 0x21}
"""vpmovzxbd and vpmovsxbd."""
_NARROW = {"u": (0x11, 255.0), "s": (0x21, 127.0)}
"""vpmovusdb and vpmovsdb, and the largest number."""


MayBe = Callable[[int, int], bool]
"""Whether so many numbers of a result may be computed, in so many rows."""


def are_few(count: int, rows: int) -> bool:
    """Whether several threads of oneDNN's take more for so many numbers, in so many rows."""
    return count <= FEW and rows <= MOST_ROWS


def are_no_slower(count: int, rows: int) -> bool:
    """Whether one thread of oneDNN's takes no less."""
    return count <= MOST and (rows <= MOST_ROWS or count >= LEAST_ROW * rows)


def joins_no_slower(count: int, rows: int) -> bool:
    """Whether one thread of oneDNN's takes no less for a part of so many numbers that is joined.

    Rows of 24 and 12 numbers take it 8 us where there are 784, and this 6; of 12,544, which the
    second part finds in no cache any more, it takes 149 and this 176.
    """
    return count <= MOST and (count <= CACHED or not SHORT * rows < count < LONG * rows)


def prepared(
    steps: Sequence[Step],
    forms: Sequence[Form],
    may_be: MayBe = are_no_slower,
    kinds: Kinds = FLOATS,
) -> Told | None:
    """Return machine code and what it is told, but for the addresses of operands and result.

    Args:
        steps: what is done to the numbers of the first operand.
        forms: of the operands, in the order in which steps read them, and of the result, to which
            they are stretched.
        may_be: whether so many numbers may be computed, in so many rows.
        kinds: integers of 8 bits are read as f32, and results rounded to even ones and kept within
            limits; then elements follow each other along rows.

    Returns:
        None where there are too many numbers, rows or operands, or they lie otherwise than rows do.
    """
    addresses = range(len(forms))
    nothing = [0] * len(forms)
    return _told(tuple(steps), forms, addresses, nothing, len(forms), may_be, kinds=kinds)


def in_parts(
    steps: Sequence[Step],
    forms: Sequence[Form],
    threads: int,
    may_be: MayBe = are_no_slower,
    kinds: Kinds = FLOATS,
) -> list[Told] | None:
    """Return the same as calls that so many threads share; one of too few numbers for that."""
    whole = prepared(steps, forms, may_be, kinds)
    sizes, along = loops(forms)
    if whole is None or threads == 1 or math.prod(sizes) < LEAST_SHARED:
        return None if whole is None else [whole]
    parts, together = threads * PARTS, LANES if len(sizes) == 1 else 1
    ends = [sizes[0] * part // parts // together * together for part in range(parts)]
    found = []
    for begin, end in itertools.pairwise([*ends, sizes[0]]):
        if not end > begin:
            continue
        own: list[Form] = [((end - begin, *sizes[1:]), tuple(each)) for each in along]
        begins = [begin * each[0] for each in along]
        places = range(len(forms))
        told = _told(tuple(steps), own, places, begins, len(forms), _any, kinds=kinds)
        if told is None:
            return [whole]
        found.append(told)
    return found


def _any(_count: int, _rows: int) -> bool:
    return True


def joined(
    axis: int,
    forms: Sequence[Form],
    may_be: MayBe = are_no_slower,
    steps: Sequence[Step] = (),
    numbers: int = 0,
) -> list[Told] | None:
    """Return code, likewise, that joins parts along an axis.

    Args:
        axis: of the parts and the result.
        forms: of these; addresses of what steps read are between them.
        may_be: see `prepared`.
        steps: what is done to numbers then.
        numbers: how many operands these read, of one number each.
    """
    found, behind = [], 0
    *parts, (_, strides) = forms
    last = len(parts) + numbers
    single: Form = (1,) * len(strides), (0,) * len(strides)
    for number, (sizes, own) in enumerate(parts):
        told = _told(
            tuple(steps),
            [(sizes, own), *[single] * numbers, (sizes, strides)],
            (number, *range(len(parts), last), last),
            (0, *[0] * numbers, behind),
            last + 1,
            may_be,
        )
        if told is None:
            return None
        found.append(told)
        behind += strides[axis] * sizes[axis]
    return found


def copied(
    source: Form, target: Form, item_bytes: int, may_be: MayBe = are_no_slower, begin: int = 0
) -> Told | None:
    """Return code, likewise, that copies elements of 4 or 8 bytes and stretches them.

    The target begins so many bytes behind its address.
    """
    if item_bytes not in (4, 8):
        return None
    return _told((), [source, target], (0, 1), (0, begin), 2, may_be, item_bytes)


def _told(
    steps: tuple[Step, ...],
    forms: Sequence[Form],
    places: Sequence[int],
    begins: Sequence[int],
    addresses: int,
    may_be: MayBe,
    item_bytes: int = 4,
    kinds: Kinds = FLOATS,
) -> Told | None:
    """What `prepared` returns, for some of the addresses, behind which so many bytes are left out.

    Args:
        steps: see `prepared`.
        forms: likewise.
        places: which of the addresses they are at.
        begins: how many bytes behind each.
        addresses: how many there are.
        may_be: see `prepared`.
        item_bytes: of a number; those of 8 are copied alone.
        kinds: see `prepared`.
    """
    sizes, along = loops(forms)
    first, *between, result = kinds
    kinds = first, *(between or "f" * (len(forms) - 2)), result
    items = [item_bytes if kind == "f" else 1 for kind in kinds]
    if not is_symbolic(sizes[0]) and sizes == [1]:  # a row of one number
        along = [[item] for item in items]
    found = [each[-1] for each in along]
    is_by_rows = found[-1] == items[-1] and all(
        step in (0, item) for step, item in zip(found, items, strict=True)
    )
    are_rows_of_bytes = all(found[:-1][at] for at, kind in enumerate(kinds[:-1]) if kind != "f")
    are_bytes = {*kinds} != {"f"}
    if are_bytes and not (is_by_rows and found[0] and are_rows_of_bytes and has_avx512()):
        return None  # without AVX-512 there are no masks of bytes
    if not is_by_rows:
        sizes, along = [*sizes, 1], [[*each, item_bytes] for each in along]  # rows of one number
    count, rows = math.prod(sizes), math.prod(sizes[:-1])
    if len(sizes) > AXES or not count > 0 or not may_be(count, rows):
        return None
    if len(forms) > len(_POINTERS) or not has_vectors():
        return None
    are_rows = tuple(each[-1] != 0 for each in along)
    steps = with_quotients(steps, [not any(each) for each in along[1:]])
    function, constants = _function(steps, are_rows, tuple(places), item_bytes == 8, kinds)
    if function is None:
        return None
    sizes = [1] * (AXES - len(sizes)) + sizes
    along = [[0] * (AXES - len(each)) + each for each in along]
    numbers = [0] * addresses
    for place, begin in zip(places, begins, strict=True):
        numbers[place] = begin
    lanes = sizes[-1] * (item_bytes // 4)
    whole, rest = lanes // LANES, lanes % LANES
    numbers += [*sizes[:-1], whole, (1 << rest) - 1, 4 * rest, rest]
    for axis in reversed(range(AXES - 1)):
        numbers += [each[axis] - each[axis + 1] * sizes[axis + 1] for each in along]
    pack = struct.Struct(f"<{len(numbers)}q{len(constants)}s").pack
    return function, told(pack, *numbers, constants)


@lru_cache(maxsize=256)
def _function(
    steps: tuple[Step, ...],
    rows: tuple[bool, ...],
    places: tuple[int, ...],
    are_wide: bool,
    kinds: Kinds,
) -> tuple[Any | None, bytes]:
    code = _Rows(steps, rows, places, max(places) + 1, are_wide=are_wide, kinds=kinds)
    return function_of(code.emitted()), code.told()


class _Rows(Chain):
    """Code of a chain by rows: three loops around one over vectors."""

    def __init__(
        self,
        steps: Sequence[Step],
        rows: Sequence[bool],
        places: Sequence[int],
        addresses: int,
        *,
        are_wide: bool,
        kinds: Kinds,
    ) -> None:
        super().__init__(steps)
        self._are_wide, self._kinds = are_wide, kinds
        self._rows, self._places, self._addresses = rows, places, addresses
        self._pointers = _POINTERS[: len(rows)]
        between = zip(self._pointers[1:-1], kinds[1:-1], strict=True)
        self._of_bytes = {pointer: kind for pointer, kind in between if kind != "f"}

    def emitted(self) -> bytes:
        """Emit all of it, and return it."""
        outer, steps = AXES - 1, self._addresses + _BEHIND
        self.begin(outer)
        self.point(steps + outer * len(self._pointers))
        for place, pointer in zip(self._places, self._pointers, strict=True):
            self.load(pointer, R14, place)
        self.load(RAX, R14, self._addresses + _MASK)
        self.set_mask(_SOME, RAX)
        others = self.append_divisors(self._pointers[1:])
        self._append_loops(steps)
        if others:  # another code for divisors that are tiny or huge, or none
            self.divisors = {}
            for jump in others:
                self.here(jump)
            self._append_loops(steps)
        return self.assembled()

    def _append_loops(self, steps: int) -> None:
        """Append all of the loops, where steps along axes begin with that number, and the end."""
        outer, starts = AXES - 1, []
        for axis in range(outer):
            self.load(RAX, R14, self._addresses + axis)
            self.store(RAX, RSP, axis)
            starts.append(len(self.text))
        self._append_row()
        for axis in reversed(range(outer)):
            for pointer in self._pointers:
                self.add(pointer, R14, steps)
                steps += 1
            self.again(RSP, starts[axis], axis)
        self.end(outer)

    def _append_row(self) -> None:
        are_bytes = [kind != "f" for kind in self._kinds]
        moved = [
            (pointer, each)
            for pointer, each, is_row in zip(self._pointers, are_bytes, self._rows, strict=True)
            if is_row
        ]
        self.load(RCX, R14, self._addresses + _WHOLE)
        self.compare(RCX, 0)
        few = self.ahead("0f84")
        whole = len(self.text)
        self._append_vector(0)
        for pointer, is_bytes in moved:
            self.step(pointer, LANES if is_bytes else 4 * LANES)
        self.again(RCX, whole)
        self.here(few)
        self.load(RAX, R14, self._addresses + _REST)
        self.compare(RAX, 0)
        none = self.ahead("0f84")
        self._append_vector(_SOME)
        for pointer, is_bytes in moved:
            self.add(pointer, R14, self._addresses + (_COUNT if is_bytes else _REST))
        self.here(none)

    def append_operand(
        self, step: int, x: int, operand: Operand, behind: int = 0, mask: int = 0
    ) -> None:
        """Append an instruction with a vector and an operand, which may be of bytes."""
        pointer, _ = operand
        if pointer not in self._of_bytes:
            super().append_operand(step, x, operand, behind, mask)
            return
        self._append_widened(_OPERAND, pointer, self._of_bytes[pointer], mask)
        self.of_vectors(step, x, x, _OPERAND)

    def _append_widened(self, x: int, pointer: int, kind: str, mask: int) -> None:
        """Append what reads bytes as f32."""
        self.vector(_WIDEN[kind], x, 0, pointer, kind=2, prefix=1, mask=mask)
        self.vector(0x5B, x, 0, x, is_memory=False)  # vcvtdq2ps

    def _append_vector(self, mask: int) -> None:
        (first, is_row), *others, (result, _) = zip(self._pointers, self._rows, strict=True)
        given, *_, wanted = self._kinds
        if given != "f":
            self._append_widened(_VECTOR, first, given, mask)
        elif is_row:
            self.vector(LOAD, _VECTOR, 0, first, mask=mask)
        elif self._are_wide:
            self.vector(0x59, _VECTOR, 0, first, kind=2, prefix=1, wide=True)  # vpbroadcastq
        else:
            self.spread(_VECTOR, first)
        self.append_steps(_VECTOR, others, result, mask)
        if wanted == "f":
            self.vector(STORE, _VECTOR, 0, result, mask=mask)
            return
        opcode, most = _NARROW[wanted]
        if wanted == "u":
            self.clear(_LEAST)
            self.of_vectors(MAX, _VECTOR, _VECTOR, _LEAST)
        self.with_constant(MIN, _VECTOR, _VECTOR, most)
        self.vector(0x5B, _VECTOR, 0, _VECTOR, prefix=1, is_memory=False)  # vcvtps2dq
        self.vector(opcode, _VECTOR, 0, result, kind=2, prefix=2, mask=mask)
