"""Iterations: many iterations of a loop as one call of machine code.

From Python an iteration takes 1 us, and 0.5 for each value that it reads or gives.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.processor.machine_code import CALL, Calls, calls_at
from polydevice_cpu.algorithms.by_machine import between_iterations
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.plan.binding.bound import BoundPlan
from polydevice_cpu.plan.binding.stretches import Call

FEWEST = 4
"""Iterations that are worth it."""

CALLS = 96
"""About so many between two questions whether the inference may go on."""

TAKEN_BYTES = 1 << 22
"""What iterations give is written to arrays of so many bytes, or of one iteration; parts that do
not lie as they are read are copied to such ones."""

FIRST_BYTES = 1 << 14
"""And to the first of so many where a condition may end the loop at any time; then of as many as
there were before."""

MOST_ITERATIONS = 256
"""Iterations that one such array is for."""

Parts = Mapping[int, Callable[[int], Array]]


class Taken(NamedTuple):
    """A result of which every iteration's is kept.

    Attributes:
        result: which it is.
        parts: is appended to: what iterations give, or several of them, joined.
        axis: along which they are joined.
        backwards: whether the last one comes first.
    """

    result: int
    parts: list[Array]
    axis: int
    backwards: bool

    def add(self, block: Array) -> None:
        """Append what iterations have given, one behind the other."""
        if not len(block):
            return
        turned = block[::-1] if self.backwards else block
        count, *sizes = turned.shape
        sizes[self.axis] *= count
        order = (*range(1, self.axis + 1), 0, *range(self.axis + 1, turned.ndim))
        self.parts.append(turned.transpose(order).reshape(sizes))


class Iterations:
    """Iterations by turns of two bound plans, with what happens between their steps."""

    def __init__(
        self,
        bodies: Sequence[tuple[BoundPlan, Sequence[Call]]],
        own: Sequence[Array],
        taken: Sequence[Sequence[Array]],
        number: Array | None,
        conditions: Sequence[Array] | None,
    ) -> None:
        """Prepare what is called.

        Args:
            bodies: the plans, and the calls of their steps.
            own: where an iteration reads its parts.
            taken: of each plan, the results of which every iteration's is kept.
            number: where the iteration's number is read; None where nobody does.
            conditions: of each plan, the result that says whether there is another iteration; None
                where there always is.
        """
        self._bodies, self._own, self._taken, self._number = bodies, own, taken, number
        moves = [between_iterations.move(0, address_of(to), to.nbytes, (0, 0)) for to in own]
        self._in = [numbers_of(told) for _, told in moves]
        self._kept: list[Array] = [*self._in]
        self._out: list[list[Array]] = []
        self._before, each = len(moves), []
        self._may_end = conditions is not None
        for turn, (_, calls) in enumerate(bodies):
            results = taken[turn]
            gives = [
                between_iterations.move(address_of(x), 0, x.nbytes, (0, 2 * x.nbytes))
                for x in results
            ]
            self._out.append([numbers_of(told) for _, told in gives])
            behind = []
            if number is not None:
                behind.append(between_iterations.count(address_of(number), number.itemsize))
            if conditions is not None:
                behind.append(between_iterations.holds(address_of(conditions[turn])))
            rest = [numbers_of(told) for _, told in behind]
            self._kept += [*self._out[-1], *rest]
            one = [
                record_of(function, told)
                for (function, _), told in zip(moves, self._in, strict=True)
            ]
            one += [call.record for call in calls]  # type: ignore[attr-defined]
            one += [
                record_of(function, told)
                for (function, _), told in zip(
                    [*gives, *behind], [*self._out[-1], *rest], strict=True
                )
            ]
            each.append(one)
        self._each = len(each[0])
        self._at_once = max(CALLS // self._each, 1)
        self._records = np.array([*each[0], *each[1]] * (self._at_once // 2 + 2), CALL)
        self._call = calls_at(self._records.ctypes.data, 0, Calls)
        self.held_bytes = self._records.nbytes

    @staticmethod
    def suit(number: Array | None, conditions: Sequence[Array] | None) -> bool:
        """Whether a number and a condition are what machine code counts and looks at."""
        if number is not None and (number.size != 1 or number.dtype.kind != "i"):
            return False
        return conditions is None or all(x.size == 1 and x.dtype == np.bool_ for x in conditions)

    def go_on(
        self, iteration: int, end: int, changing: Parts, taken: Sequence[Taken]
    ) -> tuple[int, bool]:
        """Run iterations as `Rounds.go_on` does."""
        each_bytes = sum(result.nbytes for result in self._taken[0])
        most_bytes = max(each_bytes, sum(place.nbytes for place in self._own), 1)
        admit = current_bounds().admit
        if self._number is not None:
            self._number.fill(iteration)
        while iteration < end:
            count = min(end - iteration, MOST_ITERATIONS, max(TAKEN_BYTES // most_bytes, 1))
            if self._may_end:  # there may be few iterations, which want little memory
                count = min(count, max(iteration, FIRST_BYTES // max(each_bytes, 1), FEWEST))
            if each_bytes:
                needed = 2 * (iteration + count) * each_bytes
                admit(needed, f"a loop, after {iteration} iterations,")
            kept = self._point_to_parts(iteration, count, changing)
            blocks = self._point_to_blocks(iteration, count)
            with openmp.threads(1):
                done, goes_on = self._run(iteration, count)
            del kept
            for block, each in zip(blocks, taken, strict=True):
                each.add(block[:done])
            iteration += done
            if not goes_on:
                return iteration, False
        return iteration, True

    def _point_to_parts(self, iteration: int, count: int, changing: Parts) -> list[Array]:
        """Let iterations read their parts; return what has to live as long."""
        kept = []
        for numbers, place, part in zip(self._in, self._own, changing.values(), strict=True):
            whole, step = part(iteration), 0
            if whole.dtype != place.dtype or not whole.flags.c_contiguous:
                whole = np.array([part(iteration + n) for n in range(count)], place.dtype)
                step = place.nbytes
            elif count > 1:
                step = address_of(part(iteration + 1)) - address_of(whole)
            kept.append(whole)
            numbers[0], numbers[3] = address_of(whole), step
        return kept

    def _point_to_blocks(self, iteration: int, count: int) -> list[Array]:
        """Let iterations write what they give to new arrays, which are returned."""
        blocks = [np.empty((count, *x.shape), x.dtype) for x in self._taken[0]]
        for turn, moves in enumerate(self._out):
            first = (turn - iteration) & 1
            for numbers, block in zip(moves, blocks, strict=True):
                numbers[1] = address_of(block) + first * (block.nbytes // count)
        return blocks

    def _run(self, iteration: int, count: int) -> tuple[int, bool]:
        """Run so many iterations; return how many there were, and whether there may be more."""
        assert self._call is not None
        function, check = self._call.func, current_bounds().check
        begin, each = self._records.ctypes.data, self._each
        done, total = 0, count * each
        while done < total:
            check()
            now = done + (iteration & 1) * each
            wanted = min(total - done, self._at_once * each - done % each)
            place = begin + now % (2 * each) * CALL.itemsize
            left = function(ctypes.c_void_p(place), ctypes.c_size_t(wanted))
            done += wanted
            if not left:
                continue
            done -= left >> 32  # up to the call that did not return 0
            turn, number = divmod(done, each)
            status = left & 0xFFFFFFFF
            if status == between_iterations.ENDED:
                return turn + 1, False
            bound, calls = self._bodies[(iteration + turn) & 1]
            bound.go_on(calls[number - self._before], status)
            done += 1
        return count, True


def numbers_of(told: bytes) -> Array:
    """Return what a call between iterations is told, as numbers that it may change."""
    return np.frombuffer(bytearray(told), np.int64)


def record_of(function: Any, numbers: Array) -> tuple[int, ...]:
    """Return such a call as of type `CALL`."""
    return function.address, address_of(numbers), 0, 0, 0
