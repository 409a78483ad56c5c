"""Schedule: which device runs the next request; requests wait here for one that is free."""

from __future__ import annotations

import logging
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from polydevice.errors import DeviceError, DeviceMemoryError, PolydeviceError
from polydevice.locks import Lock
from polydevice_auto.member import Member
from polydevice_auto.narrowing import Narrowing

_log = logging.getLogger(__name__)

SLOWER = 1.2
"""A request stays on its device while no free one is quicker by more than this: on another it takes
memory, too, and its outputs lie elsewhere than before."""

PATIENCE = 10
"""A device stays idle when it would take so many times longer than waiting for a busy one."""


class Waiting(ABC):
    """An inference that wants a device.

    Attributes:
        only: the one device that will do; None for any.
        failed: devices on which it failed just now, which do not get it again.
        last: the device that ran the request before, where it has its memory.
    """

    only: Member | None = None
    last: Member | None = None
    failed: Mapping[Member, PolydeviceError]

    @abstractmethod
    def begin(self, member: Member, slot: int) -> None:
        """Run on a device, in a slot that is taken for it; returns at once."""

    @abstractmethod
    def give_up(self, error: PolydeviceError) -> None:
        """End, since no device is left."""


Ready = list[tuple[Waiting, Member, int]]
"""What begins now, on which devices, in which slots."""


class Schedule(ABC):
    """The devices of a network, and the inferences that wait for them, in the order they came.

    Every method may be called from any thread.

    Attributes:
        name: of the network, for messages.
        changed: held to look at members.
    """

    def __init__(self, name: str, members: Iterable[Member]) -> None:
        """Begin with these devices, in order of preference."""
        self.name = name
        self.changed = Lock()
        self._members = list(members)
        self._pinned = dict.fromkeys(self._members, 0)
        self._waiting: list[Waiting] = []
        self._narrowing = Narrowing()
        _all.add(self)

    def _forget_running(self) -> None:
        """Begin anew in a process that was forked, without the threads that ran and waited."""
        self.changed = Lock()
        self._waiting.clear()
        for member in self._members:
            member.forget_running()

    @property
    def members(self) -> list[Member]:
        """Every device, in order of preference; those that were taken out too."""
        with self.changed:
            return list(self._members)

    @property
    def working(self) -> list[Member]:
        """The devices that get requests, in order of preference."""
        return [member for member in self.members if not member.failure]

    @abstractmethod
    def _choose(self, able: Sequence[Member], last: Member | None, others: int) -> Member | None:
        """Return the device for the next request, which has a free slot; None to wait.

        Args:
            able: those that may run it.
            last: the one that ran it before.
            others: how many wait besides.
        """

    @abstractmethod
    def _choose_busy(self, able: Sequence[Member]) -> Member:
        """Return the device for a request that does not wait, when `_choose` has none."""

    def prefer(self, member: Member) -> None:
        """Add a device before all others."""
        with self.changed:
            self._members.insert(0, member)
            self._pinned[member] = 0
        self.begin_ready()

    def pin(self) -> Member:
        """Return the device for a request that stays on one: that with the fewest for its slots.

        Raises:
            DeviceError: all were taken out.
        """
        with self.changed:
            able = self._able({})
            chosen = min(able, key=lambda member: self._pinned[member] / member.slots)
            self._pinned[chosen] += 1
            return chosen

    # -- who runs where -----------------------------------------------------------------------

    def take(self, wanting: Waiting) -> tuple[Member, int]:
        """Return a device for an inference that does not wait, and the number of its slot.

        Where none is free it computes beside what runs, as on one device.

        Raises:
            DeviceError: no device is left.
            PolydeviceError: what the request failed with first, when it failed on all.
        """
        with self.changed:
            able = self._able_for(wanting)
            chosen = self._choose(able, wanting.last, len(self._waiting))
            if chosen is None:
                chosen = self._choose_busy(able)
            return chosen, chosen.start()

    def ask(self, wanting: Waiting) -> None:
        """Have an inference begin on a device, now or when one is free.

        Raises:
            DeviceError: no device is left.
            PolydeviceError: what the request failed with first, when it failed on all.
        """
        with self.changed:
            able = self._able_for(wanting)
            chosen = None if self._waiting else self._choose(able, wanting.last, 0)
            if chosen is None:
                self._waiting.append(wanting)
                ready, lost = self._find_ready()
            else:
                ready, lost = [(wanting, chosen, chosen.start())], []
        _go(ready, lost)

    def withdraw(self, wanting: Waiting) -> bool:
        """Forget an inference that waits; False where it has begun."""
        with self.changed:
            if wanting not in self._waiting:
                return False
            self._waiting.remove(wanting)
            return True

    def note(self, member: Member, seconds: float) -> None:
        """Count an inference that ended well, and took so long."""
        with self.changed:
            member.note(seconds)

    def give_back(self, member: Member, slot: int) -> Waiting | None:
        """Free a slot; what waits for one begins.

        Returns:
            An inference that the calling thread, which was the slot's, is to run there.
        """
        with self.changed:
            member.end(slot)
            if member.fewest < member.slots:
                self._narrow(member)
            if not self._waiting:
                return None
            ready, lost = self._find_ready()
        here = next((each for each in ready if each[1:] == (member, slot)), None)
        _go([each for each in ready if each is not here], lost)
        return here[0] if here is not None else None

    def _narrow(self, ended: Member) -> None:
        """Give devices as many requests as are faster, found when one has ended an inference."""
        narrowing = self._narrowing
        narrowing.ended(ran_out=ended.is_idle and not self._waiting)
        for member in self._members:
            member.width = member.fewest if narrowing.is_on else member.slots

    def begin_ready(self) -> None:
        """Begin what waits and has a device now."""
        with self.changed:
            ready, lost = self._find_ready()
        _go(ready, lost)

    def _find_ready(self) -> tuple[Ready, list[tuple[Waiting, PolydeviceError]]]:
        """Take slots for what waits, first come, first served; and find what waits in vain."""
        ready: Ready = []
        lost: list[tuple[Waiting, PolydeviceError]] = []
        declined = False  # by one that takes any device: so would others
        for wanting in list(self._waiting):
            if not any(member.has_room for member in self._members):
                break
            is_plain = wanting.only is None and not wanting.failed
            if is_plain and declined:
                continue
            try:
                able = self._able_for(wanting)
            except PolydeviceError as error:
                self._waiting.remove(wanting)
                lost.append((wanting, error))
                continue
            chosen = self._choose(able, wanting.last, len(self._waiting) - 1)
            if chosen is None:
                declined = declined or is_plain
                continue
            self._waiting.remove(wanting)
            ready.append((wanting, chosen, chosen.start()))
        return ready, lost

    def _able_for(self, wanting: Waiting) -> list[Member]:
        return self._able(wanting.failed) if wanting.only is None else [wanting.only]

    def _able(self, failed: Mapping[Member, PolydeviceError]) -> list[Member]:
        able = [m for m in self._members if not m.failure and m not in failed]
        if able:  # one on which an inference hangs is soon taken out, unless there is no other
            return [m for m in able if not m.left] or able
        if failed:
            raise next(iter(failed.values()))
        raise DeviceError(
            f"no device is left for network {self.name!r}; load it again. "
            + "; ".join(member.describe() for member in self._members)
        )

    def has_others(self, failed: Mapping[Member, PolydeviceError]) -> bool:
        """Whether another device still gets requests."""
        return any(not m.failure and m not in failed for m in self._members)

    def take_out(self, failed: Mapping[Member, PolydeviceError]) -> None:
        """Give no more requests to devices on which one failed that then ran on another.

        Too little memory for one request is no reason: it may be enough for the next.
        """
        for member, error in failed.items():
            with self.changed:
                known = member.failure
                if not isinstance(error, DeviceMemoryError):
                    member.failure = known or f"{type(error).__name__}: {error}"
            if not known:
                gets = "gets this request" if not member.failure else "runs its requests"
                _log.warning(
                    "%s failed on a request of network %r: %s. Another device %s",
                    *(member.device, self.name, error, gets),
                )

    def close_idle(self, member: Member) -> bool:
        """Give a device no more requests; whether it runs nothing, so that it can be closed."""
        with self.changed:
            member.failure = member.failure or "a preferred device took over"
            return member.is_idle


class InOrder(Schedule):
    """The first device that is there runs everything."""

    def _choose(self, able: Sequence[Member], last: Member | None, others: int) -> Member | None:
        return able[0] if able[0].has_room else None

    def _choose_busy(self, able: Sequence[Member]) -> Member:
        return able[0]


class BySpeed(Schedule):
    """The quickest device that is free; one that is much slower than waiting stays idle.

    Every device is tried once: until its time is known, it counts as the quickest.
    """

    def _choose(self, able: Sequence[Member], last: Member | None, others: int) -> Member | None:
        free = [member for member in able if member.has_room]
        if not free:
            return None
        chosen = min(free, key=lambda member: member.seconds)
        if last is not None and last in free and last.seconds <= SLOWER * chosen.seconds:
            return last
        expected = [
            member.seconds * (1 + (others + 1) / member.width)
            for member in able
            if not member.has_room
        ]
        if chosen.seconds and expected and chosen.seconds > PATIENCE * min(expected):
            return None
        return chosen

    def _choose_busy(self, able: Sequence[Member]) -> Member:
        return min(able, key=lambda member: member.load)


_all: weakref.WeakSet[Schedule] = weakref.WeakSet()


def _after_fork() -> None:
    for schedule in list(_all):
        schedule._forget_running()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _go(ready: Ready, lost: Iterable[tuple[Waiting, PolydeviceError]]) -> None:
    for wanting, member, slot in ready:
        wanting.begin(member, slot)
    for wanting, error in lost:
        wanting.give_up(error)
