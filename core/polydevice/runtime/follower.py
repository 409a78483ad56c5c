"""Follower: is told of every inference of a network, and of what ran in it, while it follows.

`ExecutableNetwork.follow` begins and `leave` ends it. Nothing is measured for a network that nobody
follows. All times are of `time.perf_counter_ns`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

_log = logging.getLogger(__name__)


class Inference(NamedTuple):
    """One inference that has ended, well or not.

    Attributes:
        network: its name.
        device: where it ran.
        request: number of the request, unique in the process.
        queued_ns: when it was started, if it then waited for a thread; None for synchronous ones.
        start_ns: when the device began with it.
        end_ns: when its results were there.
        thread: the operating system's number of the thread that ran it.
        error: what ended it; None when it ended well.
    """

    network: str
    device: str
    request: int
    queued_ns: int | None
    start_ns: int
    end_ns: int
    thread: int
    error: BaseException | None


class Step(NamedTuple):
    """Something that the host computed in an inference: name, type of layer, kernel."""

    name: str
    type: str
    kernel: str


class Command(NamedTuple):
    """Something that a device did: a kernel, or a copy.

    Attributes:
        name: of the kernel, or of the memory.
        kind: "kernel", "upload", "download" or "copy".
        start_ns: on the host's clock, like `end_ns`.
        end_ns: when it ended.
        bytes: that were copied; 0 for kernels.
    """

    name: str
    kind: str
    start_ns: int
    end_ns: int
    bytes: int = 0


class Batch(ABC):
    """What was enqueued on a device in one inference; the driver has the times.

    Attributes:
        lane: where it ran, such as "GPU.0, queue 1".
        enqueued: when the host began and ended to enqueue something, and how many commands.
    """

    lane: str
    enqueued: Sequence[tuple[int, int, int]]

    @property
    def count(self) -> int:
        """How many commands there are."""
        return sum(count for _, _, count in self.enqueued)

    @abstractmethod
    def commands(self) -> Sequence[Command]:
        """Ask the driver for the times; waits for the commands, which have ended as a rule."""


class Follower:
    """Override what is of interest. Methods are called in the threads that infer, at once.

    What they raise is logged, and the inference goes on.
    """

    batches_every: int = 0
    """Devices tell of one inference in so many what it enqueued (`batch`); 0 for as many as take
    half a percent of the time, by what keeping the times of commands costs the driver at hand."""

    def inference(self, done: Inference) -> None:
        """An inference has ended; called after the steps and the batch of it."""

    def steps(self, steps: Sequence[Step], marks: Sequence[int]) -> None:
        """The host computed steps one after another.

        Args:
            steps: what ran; the same object for every inference of a plan.
            marks: when the first began and when each ended; one more than steps.
        """

    def batch(self, batch: Batch) -> None:
        """A device has done what was enqueued in an inference."""


def log_failure(follower: Follower) -> None:
    """Log what a follower raises, and go on; to be called while it is handled."""
    _log.exception("%r failed; the inference goes on", follower)
