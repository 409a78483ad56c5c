"""Member: a network loaded on one of several devices, and how it does there."""

from __future__ import annotations

import time

from polydevice.executable_network import ExecutableNetwork
from polydevice.runtime.executor import Executor

WEIGHT = 0.2
"""Of the latest inference in the moving mean of times."""

TIMES = 100
"""A device counts as hanging when an inference takes so many times as long as it did on average."""

FIRST = 10
"""How many time limits the first inference may take, which prepares much."""

LEFT_SECONDS = 1.0
"""How long closing waits for a thread that was left behind."""


class Member:
    """One of the devices that can run a network.

    Its counters are changed by the `Schedule` that it belongs to, under that one's lock.

    Attributes:
        device: the name it was asked for by.
        executable: the network, loaded there.
        slots: how many requests it runs at a time at most.
        fewest: how many keep each of its streams busy, or all slots where the user said how many.
        width: how many it is given at a time at present.
        threads: those that run them, one for each slot.
        free: numbers of the slots that run nothing.
        beyond: how many run besides, in threads of the user's.
        seconds: mean time of an inference while it runs as many as it did; 0 before it is known.
        inferences: how many ended well.
        failure: why it gets no more requests; empty while it does.
        left: inferences that were waited for in vain, and whose threads hang.
    """

    def __init__(
        self, device: str, executable: ExecutableNetwork, slots: int = 0, limit_s: float = 0
    ) -> None:
        """Take over a loaded network.

        Args:
            device: its name.
            executable: the network.
            slots: how many requests it may run at a time; 0 for the device's optimal number.
            limit_s: seconds after which it counts as hanging; 0 for never.
        """
        self.device = device
        self.executable = executable
        self.slots = slots or executable.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
        self.fewest = slots or min(self.slots, executable.streams)
        self.width = self.slots
        self.threads = Executor(f"{device}-shared", self.slots)
        self.free = list(range(self.slots))
        self.beyond = 0
        self.seconds = 0.0
        self.inferences = 0
        self.failure = ""
        self.left = 0
        self._limit_s = limit_s

    @property
    def is_watched(self) -> bool:
        """Whether its inferences run in threads that are left behind where they hang."""
        return self._limit_s > 0

    @property
    def limit_s(self) -> float:
        """Seconds after which an inference that begins now hangs."""
        if not self.seconds:
            return FIRST * self._limit_s
        return max(self._limit_s, TIMES * self.seconds)

    @property
    def has_room(self) -> bool:
        """Whether it is to be given another request."""
        return self.slots - len(self.free) < self.width

    @property
    def is_idle(self) -> bool:
        """Whether it runs nothing."""
        return len(self.free) == self.slots and not self.beyond

    @property
    def load(self) -> float:
        """How long one more request would take, among those that run, in seconds if known."""
        running = self.slots - len(self.free) + self.beyond
        return (self.seconds or 1e-9) * (1 + running / self.width)

    def start(self) -> int:
        """Take a slot, or begin without one; return its number."""
        if self.free:
            return self.free.pop(0)
        self.beyond += 1
        return self.slots

    def end(self, slot: int) -> None:
        """Free a slot, which is used again first, since its memory was used last."""
        if slot < self.slots:
            self.free.insert(0, slot)
        else:
            self.beyond -= 1

    def forget_running(self) -> None:
        """Free all slots: in a process that was forked, what ran runs in the other one."""
        self.free = list(range(self.slots))
        self.beyond = self.left = 0

    def note(self, seconds: float) -> None:
        """Count an inference; the first one's time says nothing, since much is made by it."""
        self.inferences += 1
        if self.inferences > 1:
            self.seconds += (seconds - self.seconds) * (WEIGHT if self.seconds else 1)

    def close(self, end: float) -> None:
        """Close the network there; waits until `end`, of ``time.monotonic()``."""
        self.threads.close(min(end, time.monotonic() + LEFT_SECONDS) if self.left else end)
        self.executable.close_by(end)

    def describe(self) -> str:
        """Say in one line how it does."""
        if self.failure:
            return f"{self.device}: taken out after {self.inferences} inferences: {self.failure}"
        times = f", {self.seconds * 1e3:.3g} ms each" if self.seconds else ""
        width = f"{self.width} at a time"
        if self.width < self.slots:
            width += f", which was faster than {self.slots}"
        return f"{self.device}: {self.inferences} inferences{times}, {width}"
