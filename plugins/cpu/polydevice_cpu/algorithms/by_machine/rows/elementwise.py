"""Chains of functions of f32 numbers, each with an operand or none, row by row, in one thread.

A primitive takes 0.2 to 0.5 us however few numbers there are; this takes some ns for each row, and
1 ns for 16 numbers of it. Of 8,192 to 262,144 numbers, sums, products and quotients take 0.6 to 0.9
of oneDNN's code's time so, functions 0.65 to 0.98, copies in another order 0.7 to 1.05. It is also
one code for all sizes, which is in the processor's cache when shapes take turns.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Told, has_avx512, told
from polydevice_cpu.algorithms.by_machine.functions import TEMPORARY, Activation, Functions
from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    DIVIDE,
    LOAD,
    MAX,
    MIN,
    MUL,
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
    RDI,
    RSI,
    RSP,
    STORE,
)
from polydevice_cpu.algorithms.by_machine.rows.lanes import AXES
from polydevice_cpu.algorithms.by_machine.small import Form, loops
from polydevice_cpu.algorithms.by_machine.windows.following import (
    OF_POWERS,
    Function,
    Link,
    append_function,
)

MOST = 1 << 22
"""Numbers of a result: of more, memory takes all of the time."""

FEW = 4096
"""The same where several threads could share the work."""

MOST_ROWS, LEAST_ROW = 512, 16
"""Rows, however short they are; and how long they are on average where there are more."""

CACHED, SHORT, LONG = 1 << 16, 16, 512
"""Numbers of a part that stay at hand, and how long rows of larger ones are not."""

HELD = 0
"""A step that adds what the result has held."""

QUOTIENT = 1
"""One that divides by the next operand, one number for all, and rounds; limits have to follow."""

Step = int | Link | Activation
"""What is done to a number: an instruction with that of the next operand, or a function."""


class Divisor(NamedTuple):
    """Vectors that hold what divides, one by it, limits of what is divided, and a factor."""

    divisor: int
    inverse: int
    least: int
    most: int
    factor: int


Operand = tuple[int, bool]
"""What points to an operand, and whether it has a number for each; else one for all."""

_POINTERS = R8, R9, R10, R11, R12, R13, RBX, RBP
LANES, _VECTOR, _LEAST, _SOME = 16, 0, 1, 1
_DIVISORS = (19, 20, 21, 22, 23), (14, 15, 16, 17, 18), (9, 10, 11, 12, 13), (4, 5, 6, 7, 8)
_CHECKED, _TINY, _HUGE = 7, 2.0**-60, 2.0**60
"""The mask of divisors that are neither tiny nor huge."""
_ROUND, _LIMIT = Activation("round", 0, 0), 2.0**20
"""What may limit a rounded quotient, so that quotients of the limits' products are near enough."""
_WHOLE, _MASK, _REST, _COUNT, _BEHIND = range(AXES - 1, AXES + 4)
"""Behind the sizes of the outer axes: vectors of a row, the mask of the last one's numbers, the
bytes of these in f32, and how many they are."""

Kinds = tuple[str, str]
"""What the first operand and the result are of: `f` for f32, `u` for u8, `s` for i8."""

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


def joined(axis: int, forms: Sequence[Form], may_be: MayBe = are_no_slower) -> list[Told] | None:
    """Return code, likewise, that joins operands along an axis."""
    found, behind = [], 0
    *parts, (_, strides) = forms
    last = len(parts)
    for number, (sizes, steps) in enumerate(parts):
        own = [(sizes, steps), (sizes, strides)]
        told = _told((), own, (number, last), (0, behind), last + 1, may_be)
        if told is None:
            return None
        found.append(told)
        behind += strides[axis] * sizes[axis]
    return found


def copied(
    source: Form, target: Form, item_bytes: int, may_be: MayBe = are_no_slower
) -> Told | None:
    """Return code, likewise, that copies elements of 4 or 8 bytes and stretches them."""
    if item_bytes not in (4, 8):
        return None
    return _told((), [source, target], (0, 1), (0, 0), 2, may_be, item_bytes)


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
    items = [item_bytes] * len(forms)
    items[0], items[-1] = (item_bytes if kind == "f" else 1 for kind in kinds)
    found = [each[-1] for each in along]
    is_by_rows = found[-1] == items[-1] and all(
        step in (0, item) for step, item in zip(found, items, strict=True)
    )
    if kinds != FLOATS and not (is_by_rows and found[0]):
        return None
    if not is_by_rows:
        sizes, along = [*sizes, 1], [[*each, item_bytes] for each in along]  # rows of one number
    count, rows = math.prod(sizes), math.prod(sizes[:-1])
    if len(sizes) > AXES or not count > 0 or not may_be(count, rows):
        return None
    if len(forms) > len(_POINTERS) or not has_avx512():
        return None
    are_rows = tuple(each[-1] != 0 for each in along)
    steps = _with_quotients(steps, [not any(each) for each in along[1:]])
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


def _with_quotients(steps: Sequence[Step], are_single: Sequence[bool]) -> tuple[Step, ...]:
    """Steps with quotients where one number for all divides what is rounded and limited then."""
    found: list[Step] = []
    singles = iter(are_single)
    for place, step in enumerate(steps):
        is_single = isinstance(step, int) and step != HELD and next(singles)
        if is_single and step == DIVIDE and _is_limited(steps[place + 1 : place + 3]):
            found.append(QUOTIENT)
        elif step != _ROUND or found[-1:] != [QUOTIENT]:  # which rounds itself
            found.append(step)
    return tuple(found)


def _is_limited(steps: Sequence[Step]) -> bool:
    """Whether two steps round, and limit to whole numbers."""
    if len(steps) < 2 or steps[0] != _ROUND:
        return False
    limits = steps[1]
    if not _is_link(limits) or limits[0] is not Function.CLIP:
        return False
    return all(abs(limit) <= _LIMIT and float(limit).is_integer() for limit in limits[1:])


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


class Chain(Functions):
    """Code with a chain of functions; RDI is where numbers of links lie, RSI where constants do."""

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__()
        self.steps = steps
        self.divisors: dict[int, Divisor] = {}
        """What holds numbers of quotients, by what points to the divisors."""
        self._links = [step for step in steps if _is_link(step)]

    def told(self) -> bytes:
        """Return what code is told behind numbers: a 1, those of links, of powers, and others."""
        pairs = [(1.0, 0.0), *(step[1:] for step in self._links)]
        text = b"".join(struct.pack("<ff", *pair) for pair in pairs)
        powers = struct.pack(f"<{len(OF_POWERS)}q", *OF_POWERS)
        return text + powers + b"".join(self.constants)

    def point(self, numbers: int) -> None:
        """Append what points to these, behind so many numbers that RDI points to, as R14 then."""
        self.move(R14, RDI)
        self.step(RDI, 8 * numbers)
        self.move(RSI, RDI)
        self.step(RSI, 8 * (1 + len(self._links) + len(OF_POWERS)))

    def append_steps(
        self, x: int, operands: Sequence[Operand], result: int, mask: int, behind: int = 0
    ) -> None:
        """Append the chain on a vector, which lies so many vectors behind where operands begin."""
        left, links = iter(operands), 0
        held: Divisor | None = None
        for step in self.steps:
            if isinstance(step, Activation):
                self.activate(x, step)
            elif isinstance(step, tuple):
                links += 1
                held = self._append_link(x, step[0], 2 * links, held)
            elif step == HELD:
                self.vector(ADD, x, x, result, behind=behind, mask=mask)
            elif step == QUOTIENT:
                held = self._append_quotient(x, next(left)[0])
            else:
                pointer, is_row = next(left)
                if is_row:
                    self.vector(step, x, x, pointer, behind=behind, mask=mask)
                else:
                    self.vector(step, x, x, pointer, is_one=True)

    def _append_link(
        self, x: int, function: Function, place: int, held: Divisor | None
    ) -> Divisor | None:
        """Append a function; return what a divisor before it still holds for the next one."""
        if held is not None and function is Function.CLIP:
            return held  # it was limited before it was divided
        if held is not None and function is Function.LINEAR:
            behind = place + 1
            self.vector(0xA8, x, held.factor, RDI, behind=behind, kind=2, prefix=1, is_one=True)
            return None
        append_function(self, [x], function, (place, 2 * (1 + len(self._links)), 0))
        return None

    def _append_quotient(self, x: int, pointer: int) -> Divisor | None:
        """Append what divides, rounds and, where that is returned which holds the numbers, limits.

        A product by the inverse, set right by its rest, takes half the time. Where the inverse is
        the number nearest to it, what comes out is the one nearest to the quotient (Markstein,
        1990): of 1.2e10 none was another.
        """
        held = self.divisors.get(pointer)
        if held is None:
            self.vector(DIVIDE, x, x, pointer, is_one=True)
        else:
            near = TEMPORARY[0]
            self.of_vectors(MAX, x, x, held.least)
            self.of_vectors(MIN, x, x, held.most)
            self.of_vectors(MUL, near, x, held.inverse)
            self.vector(0xBC, x, near, held.divisor, kind=2, prefix=1, is_memory=False)
            self.vector(0xA8, x, held.inverse, near, kind=2, prefix=1, is_memory=False)
        self.activate(x, _ROUND)
        return held


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

    def emitted(self) -> bytes:
        """Emit all of it, and return it."""
        outer, steps = AXES - 1, self._addresses + _BEHIND
        self.begin(outer)
        self.point(steps + outer * len(self._pointers))
        for place, pointer in zip(self._places, self._pointers, strict=True):
            self.load(pointer, R14, place)
        self.load(RAX, R14, self._addresses + _MASK)
        self.set_mask(_SOME, RAX)
        others = self._append_divisors()
        self._append_loops(steps)
        if others:  # another code for divisors that are tiny or huge, or none
            self.divisors = {}
            for jump in others:
                self.here(jump)
            self._append_loops(steps)
        return bytes(self.text)

    def _append_divisors(self) -> list[int]:
        """Append what fills vectors for quotients, and leads elsewhere where that is not right."""
        least, most = TEMPORARY[:2]
        jumps, links, pointers = [], 0, iter(self._pointers[1:])
        vectors = iter(_DIVISORS)
        for step in self.steps:
            links += _is_link(step)
            pointer = next(pointers) if isinstance(step, int) and step != HELD else 0
            held = next(vectors, None) if step == QUOTIENT else None
            if held is None or pointer in self.divisors:
                continue
            self.divisors[pointer] = made = Divisor(*held)
            self.spread(made.divisor, pointer)
            self.fill(least, _TINY)
            self.fill(most, _HUGE)
            for pair in ((least, made.divisor), (made.divisor, most)):
                self.not_above(_CHECKED, *pair)
                self.raw("c5f898ff")  # kortestw k7, k7
                jumps.append(self.ahead("0f83"))  # not all
            self.fill(least, 1)
            self.of_vectors(DIVIDE, made.inverse, least, made.divisor)
            for number, vector in enumerate((made.least, made.most)):
                self.vector(
                    MUL, vector, made.divisor, RDI, behind=2 * links + 2 + number, is_one=True
                )
            self.spread(made.factor, RDI, behind=2 * links + 4)
        return jumps

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
        are_bytes = [False] * len(self._pointers)
        are_bytes[0], are_bytes[-1] = (kind != "f" for kind in self._kinds)
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

    def _append_vector(self, mask: int) -> None:
        (first, is_row), *others, (result, _) = zip(self._pointers, self._rows, strict=True)
        given, wanted = self._kinds
        if given != "f":
            self.vector(_WIDEN[given], _VECTOR, 0, first, kind=2, prefix=1, mask=mask)
            self.vector(0x5B, _VECTOR, 0, _VECTOR, is_memory=False)  # vcvtdq2ps
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


def _is_link(step: Step) -> TypeGuard[Link]:
    return isinstance(step, tuple) and not isinstance(step, Activation)
