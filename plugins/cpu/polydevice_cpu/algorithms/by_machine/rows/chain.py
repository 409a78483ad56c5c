"""Chains of functions of vectors of f32 numbers, each with an operand or none."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeGuard

from polydevice_cpu.algorithms.by_machine.functions import TEMPORARY, Activation, Functions
from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    DIVIDE,
    MAX,
    MIN,
    MUL,
    R14,
    RDI,
    RSI,
)
from polydevice_cpu.algorithms.by_machine.windows.following import (
    OF_POWERS,
    Function,
    Link,
    append_function,
)

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

_DIVISORS = (19, 20, 21, 22, 23), (14, 15, 16, 17, 18), (9, 10, 11, 12, 13), (4, 5, 6, 7, 8)
_CHECKED, _TINY, _HUGE = 7, 2.0**-60, 2.0**60
"""The mask of divisors that are neither tiny nor huge."""
_ROUND, _LIMIT = Activation("round", 0, 0), 2.0**20
"""What may limit a rounded quotient, so that quotients of the limits' products are near enough."""


def with_quotients(steps: Sequence[Step], are_single: Sequence[bool]) -> tuple[Step, ...]:
    """Return steps with quotients where one number divides what is rounded and limited then.

    Args:
        steps: of a chain.
        are_single: of each operand, whether it is one number for all.
    """
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
                self.append_operand(step, x, next(left), behind, mask)

    def append_operand(
        self, step: int, x: int, operand: Operand, behind: int = 0, mask: int = 0
    ) -> None:
        """Append an instruction with a vector and an operand; see `append_steps`."""
        pointer, is_row = operand
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

    def append_divisors(self, pointers: Iterable[int]) -> list[int]:
        """Append what fills vectors for quotients; return jumps where that is not right.

        Args:
            pointers: what points to operands, in the order in which steps read them.
        """
        least, most = TEMPORARY[:2]
        jumps, links = [], 0
        places, vectors = iter(pointers), iter(_DIVISORS)
        for step in self.steps:
            links += _is_link(step)
            pointer = next(places) if isinstance(step, int) and step != HELD else 0
            held = next(vectors, None) if step == QUOTIENT else None
            if held is None or pointer in self.divisors:
                continue
            self.divisors[pointer] = made = Divisor(*held)
            self.spread(made.divisor, pointer)
            self.fill(least, _TINY)
            self.fill(most, _HUGE)
            for pair in ((least, made.divisor), (made.divisor, most)):
                self.not_above(_CHECKED, *pair)
                self.test_all(_CHECKED)
                jumps.append(self.ahead("0f83"))  # jnc
            self.fill(least, 1)
            self.of_vectors(DIVIDE, made.inverse, least, made.divisor)
            for number, vector in enumerate((made.least, made.most)):
                self.vector(
                    MUL, vector, made.divisor, RDI, behind=2 * links + 2 + number, is_one=True
                )
            self.spread(made.factor, RDI, behind=2 * links + 4)
        return jumps


def _is_link(step: Step) -> TypeGuard[Link]:
    return isinstance(step, tuple) and not isinstance(step, Activation)
