"""The search for the fewest steps that must be kept in f32."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field

from polydevice.dataclass import dataclass

Step = tuple[str, ...]
"""Layers that the device computes at once: what lies between them is not stored."""

Measure = Callable[[AbstractSet[Step]], float]
"""Steps kept in f32 → error of the outputs, beside those with all of them kept."""


@dataclass
class Search:
    """A search by groups of neighbouring steps.

    A group's own error is that of the network with the group alone in less than f32: everything
    else is exact. The group with the largest is halved until single steps are left, and those are
    kept; groups that do little are never looked into. Roundings of different steps are taken to
    add like independent ones, which only decides when the whole is worth measuring: what counts is
    the measured error of the whole.

    Attributes:
        steps: those in question, in the network's order.
        measure: measures the network with some steps kept.
        limit: largest error of the whole that will do.
        expired: whether the time is over; groups are then kept whole.
        kept: step → its own error, or that of the group that was kept whole.
        error: of the whole with them.
    """

    steps: Sequence[Step]
    measure: Measure
    limit: float
    expired: Callable[[], bool]
    kept: dict[Step, float] = field(default_factory=dict)
    error: float = math.inf
    _open: list[tuple[float, int, tuple[Step, ...]]] = field(default_factory=list)
    _scale: float = 1.0
    _number: Iterator[int] = field(default_factory=itertools.count)

    def run(self, error: float) -> bool:
        """Find them; whether they suffice.

        Args:
            error: of the network with nothing kept.
        """
        self.error = error
        if error <= self.limit:
            return True
        self._add(tuple(self.steps), error)
        return self._look()

    def go_on(self, error: float) -> bool:
        """Keep more, since the error turned out larger; whether what is kept then suffices.

        Args:
            error: of the network with what is kept so far, as `measure` measures from now on.
        """
        if not self.kept and not self._open:
            return self.run(error)
        self._learn(error)
        return self._look()

    def _look(self) -> bool:
        while self._open and not self.expired():
            negative, _, group = heapq.heappop(self._open)
            if len(group) > 1:
                self._halve(group)
            else:
                self._keep(group, -negative)
            if self._is_worth_measuring() and self._suffices():
                return True
        return self._keep_groups()

    def _keep_groups(self) -> bool:
        """Keep whole groups: those that alone break the bound, then twice as many each time."""
        number = max(1, sum(-error > self.limit for error, _, _ in self._open))
        while self._open:
            for _ in range(min(number, len(self._open))):
                negative, _, group = heapq.heappop(self._open)
                self._keep(group, -negative)
            if self._suffices():
                return True
            number *= 2
        return False

    def _keep(self, group: tuple[Step, ...], error: float) -> None:
        self.kept.update(dict.fromkeys(group, error))

    def _halve(self, group: tuple[Step, ...]) -> None:
        middle = len(group) // 2
        everything = set(self.steps)
        for half in (group[:middle], group[middle:]):
            self._add(half, self.measure(everything.difference(half)))

    def _add(self, group: tuple[Step, ...], error: float) -> None:
        heapq.heappush(self._open, (-error, next(self._number), group))

    def _estimate(self) -> float:
        return math.sqrt(sum(error * error for error, _, _ in self._open))

    def _is_worth_measuring(self) -> bool:
        if not self._open:
            return True
        largest = -self._open[0][0]
        return largest <= self.limit and self._estimate() * self._scale <= self.limit

    def _suffices(self) -> bool:
        self._learn(self.measure(set(self.kept)))
        return self.error <= self.limit

    def _learn(self, error: float) -> None:
        self.error = error
        estimate = self._estimate()
        if self.error > self.limit and 0 < estimate < math.inf:
            self._scale = max(self._scale, self.error / estimate)
