"""Plans by shapes, and what requests have bound of them; bounded by bytes, not by number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from polydevice.bounds import current_bounds
from polydevice.errors import DeviceMemoryError
from polydevice.locks import Lock
from polydevice.memory_budget import MemoryBudget

Shapes = tuple["tuple[int, ...] | None", ...]
"""Shapes of all inputs, in the network's order; None for what has no shape of its own."""

PLANS_BYTES = 512 << 20
"""What the plans of a network take at most, besides the latest; see `plans_limit`."""

LEAST_BYTES = 4 << 20
"""What a plan counts at least, so that a network of few layers does not keep thousands."""


UNSEEN = 16
"""After so many, or once they may take such a part of the limit more, bound plans are counted: to
ask each of them waits for memory."""


class Held(Protocol):
    """A plan, or one that is bound."""

    @property
    def held_bytes(self) -> int:
        """Estimate of what it takes by itself, without what others hold as well."""


P = TypeVar("P", bound=Held)
B = TypeVar("B", bound=Held)


def plans_limit(memory: MemoryBudget) -> int:
    """Return how many bytes plans may take of what a network may use: a sixteenth of it."""
    return min(PLANS_BYTES, memory.limit_bytes // 16)


class PlanCache(Generic[P]):
    """Plans by shapes; when they take too much, those used longest ago go.

    Shapes that take turns find their plans again if all of them fit; the newest always stays. May
    be used from any thread: who asks for what is known never waits for what is being made.

    Attributes:
        changes: how often plans came, went or became others; while it stays, whoever got a plan
            would get it again.
        gone: how often plans went or became others.
    """

    def __init__(self, limit_bytes: int, least_bytes: int = LEAST_BYTES) -> None:
        """Begin without plans: so many bytes for all, of which each counts so many at least."""
        self.changes = self.gone = 0
        self._limit_bytes = limit_bytes
        self._least_bytes = least_bytes
        self._found: OrderedDict[Shapes, P] = OrderedDict()
        self._used_bytes = 0
        self._lock = Lock()
        self._making = Lock()

    def get(self, shapes: Shapes, make: Callable[[], P]) -> P:
        """Return the plan for these shapes; makes it where it is not known.

        Where there is not enough memory for it, all others are dropped and it is made again.

        Raises:
            Exception: what `make` raises; then nothing is kept.
        """
        known = self._known(shapes)
        if known is None:
            held = [False]
            try:
                current_bounds().acquire(self._making, held)  # one at a time
                known = self._known(shapes)
                if known is None:
                    known = _made(make, self.plans, self.clear)
                    self._keep(shapes, known)
            finally:
                if held[0]:
                    self._making.release()
        return known

    def remake(self, shapes: Shapes, old: P, make: Callable[[], P]) -> None:
        """Put a better plan in the place of `old`, if that is still kept.

        Raises:
            Exception: what `make` raises; then `old` stays.
        """
        held = [False]
        try:
            current_bounds().acquire(self._making, held)
            with self._lock:
                is_kept = self._found.get(shapes) is old
            if not is_kept:
                return
            made = make()
            with self._lock:
                if self._found.get(shapes) is old:
                    self.changes += 1
                    self.gone += 1
                    self._found[shapes] = made
                    self._used_bytes += self._size(made) - self._size(old)
        finally:
            if held[0]:
                self._making.release()

    def _known(self, shapes: Shapes) -> P | None:
        with self._lock:
            known = self._found.get(shapes)
            if known is not None:
                self._found.move_to_end(shapes)
            return known

    def _keep(self, shapes: Shapes, made: P) -> None:
        dropped = []  # freed behind the lock: that may take long, and run code of others
        with self._lock:
            self.changes += 1
            self._found[shapes] = made
            self._used_bytes += self._size(made)
            while self._used_bytes > self._limit_bytes and len(self._found) > 1:
                _, oldest = self._found.popitem(last=False)
                self._used_bytes -= self._size(oldest)
                self.gone += 1
                dropped.append(oldest)

    def _size(self, plan: P) -> int:
        return max(plan.held_bytes, self._least_bytes)

    def touch(self, shapes: Shapes) -> None:
        """Count the plan for these shapes as used now, if it is still kept."""
        self._known(shapes)

    def plans(self) -> list[P]:
        """Return all that are kept, from the one used longest ago to the latest."""
        with self._lock:
            return list(self._found.values())

    def latest(self) -> P | None:
        """Return what was made or used last, if there is anything."""
        with self._lock:
            return next(reversed(self._found.values()), None)

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._found)

    @property
    def used_bytes(self) -> int:
        """What all of them take."""
        return self._used_bytes

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self.changes += 1
            self.gone += 1
            dropped = list(self._found.values())
            self._found.clear()
            self._used_bytes = 0
        del dropped


class Bindings(Generic[P, B]):
    """What one request has bound of its network's plans; for one thread at a time.

    A plan that the network no longer keeps is not bound for longer either.
    """

    def __init__(self, plans: PlanCache[P], limit_bytes: int) -> None:
        """Begin without any; they may take so many bytes together, the latest more."""
        self._plans = plans
        self._limit_bytes = limit_bytes
        self._bound: OrderedDict[P, B] = OrderedDict()
        self._gone = plans.gone
        self._unseen = self._unseen_bytes = 0

    def known(self, plan: P) -> B | None:
        """Return what is bound of a plan, which counts as used now; None where nothing is."""
        known = self._bound.get(plan)
        if known is not None:
            self._bound.move_to_end(plan)
        return known

    def get(self, plan: P, bind: Callable[[], B]) -> B:
        """Return what is bound of a plan; binds it where it is not.

        Raises:
            DeviceMemoryError: there is not enough memory, also without what else is bound.
        """
        known = self.known(plan)
        if known is not None:
            return known
        if self._gone != self._plans.gone:
            self._gone = self._plans.gone
            living = set(self._plans.plans())
            for other in [other for other in self._bound if other not in living]:
                del self._bound[other]
        made = self._bound[plan] = _made(bind, self._bound.keys, self._bound.clear)
        self._unseen += 1
        self._unseen_bytes += made.held_bytes
        if self._unseen >= UNSEEN or self._unseen_bytes * UNSEEN > self._limit_bytes:
            self._drop_oldest()
        return made

    def _drop_oldest(self) -> None:
        """Forget those used longest ago while all take too much."""
        self._unseen = self._unseen_bytes = 0
        left = sum(bound.held_bytes for bound in self._bound.values())
        while left > self._limit_bytes and len(self._bound) > 1:
            _, oldest = self._bound.popitem(last=False)
            left -= oldest.held_bytes

    def latest(self) -> B | None:
        """Return what was bound or used last, if there is anything."""
        return next(reversed(self._bound.values()), None)

    def __len__(self) -> int:
        return len(self._bound)

    def clear(self) -> None:
        """Forget all of them."""
        self._bound.clear()


T = TypeVar("T")


def _made(make: Callable[[], T], others: Callable[[], object], drop: Callable[[], None]) -> T:
    """Make something, if need be after dropping what takes its memory."""
    try:
        return make()
    except DeviceMemoryError:
        if not others():
            raise
    drop()
    return make()
