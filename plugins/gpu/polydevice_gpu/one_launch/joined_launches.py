"""JoinedLaunches: what a request replays of a stretch: one launch, or all of its launches."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from polydevice.errors import InferenceError
from polydevice_gpu import cl
from polydevice_gpu.cl.queues.launch import Argument
from polydevice_gpu.graph import Memory
from polydevice_gpu.one_launch import trial
from polydevice_gpu.one_launch.stretch import WAIT_NS, Stretch, word
from polydevice_gpu.one_launch.turns import turn_of

_LOG = logging.getLogger("polydevice.gpu")
_TIMED, _PORTS = 4, 6
"""Parameters of the kernel: whether stages are timed, and the first that may be another buffer."""


class WaitInVainError(InferenceError):
    """Groups of one launch waited for others in vain, so that what it computed is void."""


class JoinedLaunches(cl.LaunchList):
    """The launches of a stretch, which `enqueue` runs as one where that is possible.

    They run one by one once the groups of the one did not meet, and where they are timed and the
    one has no clock.

    Attributes:
        state: what the groups count in, on the device; none before `complete`.
        seen: what the kernel said when it was last read: groups that arrived and left, and the
            stage that was waited for in vain.
        since: when the first run was enqueued that `check` has not seen; 0 after that.
    """

    def __init__(self, device: cl.Device, stretch: Stretch) -> None:
        """Start without any launch; `complete` follows when all are there."""
        super().__init__(device)
        self.stretch = stretch
        self._given: list[list[Argument]] = []
        self._port_of: dict[tuple[int, int], int] = {}
        self._one: cl.LaunchList | None = None
        # Read by direct access: to ordinary memory that takes 11 µs more (H200), to this one 5.
        self._told = device.memory.shared(trial.STATE_BYTES, "what one launch told")
        assert self._told.host is not None
        self.seen: npt.NDArray[np.uint32] = self._told.host.view(np.uint32)
        self.seen[:] = 0
        self._said = self.seen.data  # any() of four takes 0.2 us, NumPy's 3
        self.since = 0.0
        self.state: cl.Buffer | None = None
        self._on = device
        self._turn = turn_of(device)
        self._ports: list[Argument] = []
        self._late: dict[tuple[int, int], Argument] = {}  # exchanged, and not yet set
        self._kept: list[cl.Buffer] = []
        self._times: cl.Buffer | None = None
        self._read_times = np.zeros(len(stretch.stages) + 1, np.uint64)
        self._is_timed = False

    def add(
        self,
        kernel: cl.Kernel,
        global_size: Sequence[int],
        local_size: Sequence[int] | None,
        arguments: Sequence[Argument],
        *,
        name: str = "",
    ) -> int:
        """Append a launch of the stretch; see `LaunchList.add`."""
        number = super().add(kernel, global_size, local_size, arguments, name=name)
        self._given.append(list(arguments))
        return number

    def may_change(self, launch: int, position: int, memory: Memory) -> None:
        """Say that an argument may become another buffer."""
        self._port_of[launch, position] = self.stretch.ports.index(memory)

    def complete(self) -> None:
        """Write the stages' records, when all launches are there."""
        stretch, device = self.stretch, self._on
        if stretch.failed:
            return
        fixed = [
            argument
            for number, arguments in enumerate(self._given)
            for position, argument in enumerate(arguments)
            if isinstance(argument, cl.Buffer) and (number, position) not in self._port_of
        ]
        lies_at = trial.addresses(stretch.note, device, fixed)
        words: list[int] = []
        rotation = 0
        for number in range(len(stretch.stages)):
            if stretch.meets[number]:
                rotation = 0
            ahead = self._weights(number + 1, lies_at)
            words += stretch.record(number, self._words(number, lies_at), rotation, ahead)
            rotation += stretch.busy(number)
        self._prepare_one(np.array(words, np.uint64), fixed)

    def _weights(self, number: int, lies_at: dict[int, int]) -> tuple[int, int]:
        """Return address and bytes of the largest constant of a stage, which is read ahead."""
        if number == len(self.stretch.stages):
            return 0, 0
        constants = [self._given[number][at] for at in self.stretch.stages[number].constants]
        buffers = [each for each in constants if isinstance(each, cl.Buffer)]
        largest = max(buffers, key=lambda each: each.size_bytes, default=None)
        if largest is None:
            return 0, 0
        return lies_at[largest.pointer], largest.size_bytes

    def _words(self, number: int, lies_at: dict[int, int]) -> list[int]:
        """Return the words of a launch's arguments."""
        words = []
        places = dict(self.stretch.stages[number].local_places())
        used = 0
        for position, argument in enumerate(self._given[number]):
            if (number, position) in self._port_of:
                words.append(self._port_of[number, position])
            elif isinstance(argument, cl.Buffer):
                words.append(lies_at[argument.pointer])
            elif isinstance(argument, np.generic):
                words.append(word(argument))
            else:
                words.append(used)
                used += places[position]
        return words

    def _prepare_one(self, words: npt.NDArray[np.uint64], fixed: list[cl.Buffer]) -> None:
        stretch, device = self.stretch, self._on
        records = trial.padded(device, words.size, "stages")
        self.state = device.memory.zeros(trial.STATE_BYTES, "state of one launch")
        self._times = device.memory.zeros(self._read_times.nbytes, "times of one launch")
        with device.queue() as queue:
            queue.upload(records, words)
        ports: list[Argument] = [self.state] * len(stretch.ports)
        for (number, position), port in self._port_of.items():
            ports[port] = self._given[number][position]
        self._ports = ports
        self._one = cl.LaunchList(device)
        size = stretch.local_size
        self._one.add(
            stretch.kernel,
            (stretch.groups * size,),
            (size,),
            [
                *(records, np.int32(words.size), self.state, np.uint64(WAIT_NS)),
                *(np.int32(0), self._times, *ports),
            ],
            name=f"{len(stretch.stages)} launches as one",
        )
        self._kept = fixed

    def set_argument(self, launch: int, position: int, argument: Argument) -> None:
        """Exchange an argument; see `LaunchList.set_argument`."""
        self._given[launch][position] = argument
        # The launch itself gets it when it is to run alone.
        self._late[launch, position] = argument
        if self._one is None:
            return
        port = self._port_of[launch, position]
        if self._ports[port] is not argument:
            self._ports[port] = argument
            self._one.set_argument(0, _PORTS + port, argument)

    def enqueue(self, queue: cl.Queue) -> None:
        """Enqueue the stretch; returns at once."""
        stretch = self.stretch
        if self._one is None or stretch.failed or (queue.profiling and not stretch.has_clock):
            self._is_timed = False
            self.enqueue_one_by_one(queue)
            return
        if not stretch.waits:
            self._one.enqueue(queue)
            return
        if self._is_timed != queue.profiling:
            self._is_timed = queue.profiling
            self._one.set_argument(0, _TIMED, np.int32(self._is_timed))
        self.since = self.since or time.perf_counter()
        self._turn.enqueue(queue, self._one.enqueue)
        if stretch.tells:
            assert self.state is not None
            queue.download(self.state, self.seen, wait=False)
        if self._is_timed:
            assert self._times is not None
            queue.download(self._times, self._read_times, wait=False)

    def enqueue_one_by_one(self, queue: cl.Queue) -> None:
        """Enqueue the launches without joining them."""
        for (launch, position), argument in self._late.items():
            super().set_argument(launch, position, argument)
        self._late.clear()
        super().enqueue(queue)

    def profile(self) -> list[cl.LaunchTime]:
        """Return the time of each launch; as parts of the one that they were.

        Between two stages all groups meet then, so that the sum may be more than the whole is
        without being timed.
        """
        if not self._is_timed or self._one is None:
            return super().profile()
        (whole,) = self._one.profile()
        since = [int(each) - int(self._read_times[0]) for each in self._read_times]
        return [
            cl.LaunchTime(
                stage.name,
                whole.queued_ns,
                whole.started_ns + since[number],
                whole.started_ns + since[number + 1],
                whole.enqueuing_ns // len(self.stretch.stages),
            )
            for number, stage in enumerate(self.stretch.stages)
        ]

    def check(self) -> None:
        """See that the runs since the last check ended, after the queue got there.

        What a run told is read where it may have waited in vain: not where it ended sooner.

        Raises:
            WaitInVainError: groups waited for others in vain. From now on all requests launch one
                by one.
        """
        since, self.since = self.since, 0.0
        if since and not self.stretch.tells and time.perf_counter() - since > WAIT_NS / 2e9:
            assert self.state is not None
            with self._on.queue() as queue:
                queue.download(self.state, self.seen)
        if not any(self._said):
            return
        stage = int(self.seen[2])
        if not self.stretch.failed:
            self.give_up(
                f"a work-group waited {WAIT_NS / 1e9:g} s for others that did not come "
                f"(word {stage})"
            )
            _LOG.warning(
                "%d launches that ran as one on %s run one by one from now on: %s. Another program "
                "may hold a part of the device",
                *(len(self.stretch.stages), self._on.name, self.stretch.failed),
            )
        self.seen[:] = 0
        raise WaitInVainError(
            f"{len(self.stretch.stages)} launches that run as one did not end on {self._on.name}: "
            f"{self.stretch.failed}. Another program may hold a part of the device. What they read "
            "may be overwritten: infer again with the inputs; they run one by one from now on, and "
            "with GPU_SINGLE_LAUNCH=NO from the start"
        )

    def give_up(self, reason: str) -> None:
        """Let all requests launch one by one from now on; forgets what the last run told."""
        self.stretch.failed = reason
        self.seen[:] = 0
