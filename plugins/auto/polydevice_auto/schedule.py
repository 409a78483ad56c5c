"""Schedule: which device runs the next request; requests wait here for one that is free."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from polydevice.bounds import current_bounds
from polydevice.errors import DeviceError, DeviceMemoryError, PolydeviceError
from polydevice.runtime.executor import is_stream_thread
from polydevice_auto.member import Member

_log = logging.getLogger(__name__)

LOOK_SECONDS = 0.05
"""How long a request waits for a device before it looks whether it was cancelled."""

SLOWER = 1.2
"""A request stays on its device while no free one is quicker by more than this: on another it takes
memory, too, and its outputs lie elsewhere than before."""

PATIENCE = 10
"""A device stays idle when it would take so many times longer than waiting for a busy one."""


class Schedule(ABC):
    """The devices of a network, and the requests that wait for them.

    Every method may be called from any thread.

    Attributes:
        name: of the network, for messages.
        changed: held to look at members; notified when a device becomes free, comes or goes.
    """

    def __init__(self, name: str, members: Iterable[Member]) -> None:
        """Begin with these devices, in order of preference."""
        self.name = name
        self.changed = threading.Condition()
        self._members = list(members)
        self._pinned = dict.fromkeys(self._members, 0)
        self._waiting = 0

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
    def _choose(self, able: Sequence[Member], last: Member | None) -> Member | None:
        """Return the device for the next request, which has a free slot; None to wait."""

    @abstractmethod
    def _choose_busy(self, able: Sequence[Member]) -> Member:
        """Return the device for a request that does not wait, when `_choose` has none."""

    def prefer(self, member: Member) -> None:
        """Add a device before all others."""
        with self.changed:
            self._members.insert(0, member)
            self._pinned[member] = 0
            self.changed.notify_all()

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

    def take(
        self,
        only: Member | None,
        failed: Mapping[Member, PolydeviceError],
        last: Member | None = None,
    ) -> tuple[Member, int]:
        """Wait for a device, and return it with the number of the slot that is taken.

        A thread of the user's does not wait: it computes beside what runs, as on one device.

        Args:
            only: the one device that will do; None for any.
            failed: devices on which the request failed just now, which do not get it again.
            last: the device that ran the request before, where it has its memory.

        Raises:
            DeviceError: no device is left.
            PolydeviceError: what the request failed with first, when it failed on all.
            InferCancelledError: the inference was cancelled; or timed out, likewise.
        """
        bounds = current_bounds()
        with self.changed:
            while True:
                bounds.check()
                able = [only] if only is not None else self._able(failed)
                chosen = self._choose(able, last)
                if chosen is None and not is_stream_thread():
                    chosen = self._choose_busy(able)
                if chosen is not None:
                    return chosen, chosen.start()
                self._waiting += 1
                try:
                    self.changed.wait(LOOK_SECONDS)
                finally:
                    self._waiting -= 1

    def _able(self, failed: Mapping[Member, PolydeviceError]) -> list[Member]:
        able = [m for m in self._members if not m.failure and m not in failed]
        if able:
            return able
        if failed:
            raise next(iter(failed.values()))
        raise DeviceError(
            f"no device is left for network {self.name!r}; load it again. "
            + "; ".join(member.describe() for member in self._members)
        )

    def give_back(self, member: Member, slot: int, seconds: float | None) -> None:
        """Free a slot.

        Args:
            member: whose.
            slot: which.
            seconds: what the inference took; None when it did not end well.
        """
        with self.changed:
            member.end(slot)
            if seconds is not None:
                member.note(seconds)
            self.changed.notify()

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

    def _choose(self, able: Sequence[Member], last: Member | None) -> Member | None:
        return able[0] if able[0].free else None

    def _choose_busy(self, able: Sequence[Member]) -> Member:
        return able[0]


class BySpeed(Schedule):
    """The quickest device that is free; one that is much slower than waiting stays idle.

    Every device is tried once: until its time is known, it counts as the quickest.
    """

    def _choose(self, able: Sequence[Member], last: Member | None) -> Member | None:
        free = [member for member in able if member.free]
        if not free:
            return None
        chosen = min(free, key=lambda member: member.seconds)
        if last is not None and last in free and last.seconds <= SLOWER * chosen.seconds:
            return last
        expected = [
            member.seconds * (1 + (self._waiting + 1) / member.slots)
            for member in able
            if not member.free
        ]
        if chosen.seconds and expected and chosen.seconds > PATIENCE * min(expected):
            return None
        return chosen

    def _choose_busy(self, able: Sequence[Member]) -> Member:
        return min(able, key=lambda member: member.load)
