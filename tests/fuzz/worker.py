"""The child process in which cases and mutants run, and what watches over it.

A crash, a hang or memory beyond the limit ends the child, never the fuzzer: the outcome is noted
and the rest goes on in a new child. Time is the child's CPU time, so a slow or busy machine changes
nothing; a child that waits without using the CPU at all is stuck.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import Self

from tests.fuzz.check import UNSUPPORTED, Outcome

BATCHES = 200
"""After so many, a child is replaced by a new one: machine code of what it has loaded stays, other
runtimes and oneDNN lose some memory for each size, and address space ends at 6,000 networks."""

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Limits(NamedTuple):
    """What one case or mutant may take.

    Attributes:
        cpu_s: CPU seconds of the child.
        stuck_s: seconds of waiting during which the child used no CPU.
        memory: bytes on top of what the child has when it is ready.
    """

    cpu_s: float = 60.0
    stuck_s: float = 120.0
    memory: int = 3 << 30


class Batch(NamedTuple):
    """Cases or mutants of one kind with these numbers, on one device."""

    kind: str
    seed: int
    start: int
    count: int
    device: str
    classes: tuple[str, ...] = ()


class Single(NamedTuple):
    """One case (of `files.answered`'s arguments) or one mutant's files."""

    kind: str
    content: Any
    device: str


@dataclass(frozen=True)
class Done:
    """An outcome, and the (domain, operator, opset) that the case had."""

    number: int
    outcome: Outcome
    operators: tuple[tuple[str, str, int], ...] = ()


def work(pipe: Connection, limits: Limits, elsewhere: Any) -> None:
    """Do jobs until the other end closes."""
    from polydevice import Core
    from tests.fuzz import evaluate, jobs

    evaluate.ELSEWHERE.flag = elsewhere
    core = Core()
    pipe.send(None)
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        # OpenCL runtimes reserve more address space than they use: under a limit some find no
        # device at all. What a job takes beyond it is seen by its resident size (`Workplace`).
        _limit_memory(None if "GPU" in job.device else limits.memory)
        for number, run in jobs.runs(job, core):
            pipe.send(number)
            pipe.send(run())
        pipe.send(None)


def _limit_memory(more: int | None) -> None:
    """Limit the address space to so much more than is taken now, if it is not; None lifts that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if more is None:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    elif soft == hard:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
        wanted = now + more
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


class Workplace:
    """One child at a time, started when it is needed and again after it died."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._process: Any = None
        self._pipe: Any = None
        self._elsewhere: Any = None
        self._batches = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the child."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process, self._batches = None, 0

    def one(self, job: Single) -> Outcome:
        """Run one case or mutant."""
        (done,) = self._run(job)
        return done.outcome

    def run(self, batch: Batch) -> Iterator[Done]:
        """Run a batch; whatever happens, every number has an outcome."""
        start, end = batch.start, batch.start + batch.count
        while start < end:
            for done in self._run(batch._replace(start=start, count=end - start)):
                start = done.number + 1
                yield done
        self._batches += 1
        if self._batches >= BATCHES:
            self.stop()

    def _run(self, job: Batch | Single) -> Iterator[Done]:
        """Yield outcomes until the job is done or the child has died of it."""
        if self._process is None:
            self._begin()
        self._pipe.send(job)
        number = None
        while True:
            message = self._receive(self.limits)
            if isinstance(message, Outcome):
                self.stop()
                if self._elsewhere.value:
                    message = Outcome(UNSUPPORTED, f"in another runtime: {message.detail}")
                if number is None:
                    raise RuntimeError(f"the child failed before its first case: {message}")
                yield Done(number, message)
                return
            if message is None:
                return
            if isinstance(message, Done):
                yield message
            else:
                number = message

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._elsewhere = context.Value("b", 0, lock=False)
        arguments = there, self.limits, self._elsewhere
        self._process = context.Process(target=work, args=arguments, daemon=True)
        self._process.start()
        there.close()
        trouble = self._receive(Limits())
        if isinstance(trouble, Outcome):
            raise RuntimeError(f"the child did not start: {trouble}")

    def _receive(self, limits: Limits) -> Any:
        """Return the child's next message, or as an Outcome why there is none."""
        pid = self._process.pid
        begin = used = _cpu_seconds(pid)
        memory = _resident(pid)
        last = time.monotonic()
        while not self._pipe.poll(0.2):
            now = _cpu_seconds(pid)
            if now > used:
                used, last = now, time.monotonic()
            if now - begin > limits.cpu_s:
                return Outcome("hang", f"more than {limits.cpu_s:g} s of CPU time")
            if time.monotonic() - last > limits.stuck_s:
                return Outcome("hang", f"waits for ever: no CPU time in {limits.stuck_s:g} s")
            if _resident(pid) - memory > limits.memory:
                return Outcome("memory", f"more than {limits.memory >> 20} MiB")
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            return Outcome("crash", f"the process ended with code {self._process.exitcode}")


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0
