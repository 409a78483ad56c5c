"""supervise: tuning in child processes, which a hanging or crashing candidate cannot outlast."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from polydevice.dataclass import dataclass
from polydevice.tuning import TunedLayer
from polydevice.tuning.journal import VARIABLE, Journal

LOADING_S = 1800.0
"""So long may a child be silent outside of candidates: it reads and compiles the network."""

_LOOK_S = 0.2


@dataclass
class Supervised:
    """What was found in all children together.

    Attributes:
        status: with which the last child ended; 0 as well when the budget is over.
        failure: what became of the last child; empty when it ended by itself, and said on stderr
            what failed.
        layers: that were tuned, or left because the time is over.
        lost: candidates that hung or killed their process.
    """

    status: int
    failure: str
    layers: list[TunedLayer]
    lost: list[str]


def supervise(
    arguments: Sequence[str],
    limit_s: float,
    progress: Callable[[Journal], None],
    tell: Callable[[str], None],
    budget_s: int = 0,
) -> Supervised:
    """Run ``polydevice tune`` with arguments until it ends by itself.

    A signal that ends this process ends the child and removes the journal first.

    Args:
        arguments: of the command, behind its name and its budget.
        limit_s: seconds after which a candidate counts as hanging.
        progress: told the journal from time to time.
        tell: told of each candidate that is left out.
        budget_s: seconds for all children together, after which none is started; 0 for no limit.
    """
    began = time.monotonic()
    with _ending_cleanly(), tempfile.TemporaryDirectory(prefix="polydevice-tuning-") as folder:
        path = Path(folder) / "journal"
        path.touch()
        lost: set[str] = set()
        left_s = budget_s
        while True:
            status, failure = _run([f"--budget={left_s}", *arguments], path, limit_s, progress)
            journal = Journal.read(path)
            progress(journal)
            if status == 0 or journal.lost == lost:
                break
            for name in sorted(journal.lost - lost):
                tell(f"{_short(name)}: hung or killed its process; left out")
            lost = set(journal.lost)
            if budget_s:
                left_s = math.ceil(budget_s - (time.monotonic() - began))
                if left_s <= 0:
                    tell(f"the {budget_s} s are over; run the command again to go on")
                    status, failure = 0, ""
                    break
        return Supervised(status, failure, journal.layers, sorted(map(_short, lost)))


@contextlib.contextmanager
def _ending_cleanly() -> Iterator[None]:
    """Let signals that would end this process at once raise SystemExit, once."""
    wanted = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    if threading.current_thread() is not threading.main_thread():
        wanted = []
    taken = [each for each in wanted if each and signal.getsignal(each) is signal.SIG_DFL]

    def end(number: int, _frame: object) -> None:
        for each in taken:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for each in taken:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each in taken:
            signal.signal(each, signal.SIG_DFL)


def end_with_parent() -> None:
    """Let this process end soon after the one that watches it, however that ends."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, name="polydevice:parent", daemon=True).start()


def _short(name: str) -> str:
    kind, _, rest = name.partition(";")
    return f"{kind} {rest.rpartition('|')[2]}"


def _run(
    arguments: Sequence[str], path: Path, limit_s: float, progress: Callable[[Journal], None]
) -> tuple[int, str]:
    """Run one child; return its status and, when it did not end by itself, what happened."""
    process = subprocess.Popen(
        [sys.executable, "-m", "polydevice", "tune", *arguments],
        env={**os.environ, VARIABLE: str(path)},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        before = Journal.read(path).lost
        size, changed = path.stat().st_size, time.monotonic()  # not the file's time: clocks are set
        while process.poll() is None:
            time.sleep(_LOOK_S)
            journal = Journal.read(path)
            progress(journal)
            now = path.stat().st_size
            if now != size:
                size, changed = now, time.monotonic()
            limit = limit_s if journal.lost - before else LOADING_S
            if time.monotonic() - changed > limit:
                _kill(process)
                return -1, f"was ended, having given no sign for {limit:.0f} s"
        return process.returncode, _fate(process.returncode)
    finally:
        if process.poll() is None:
            _kill(process)


def _fate(status: int) -> str:
    """Say what ended a process that did not end by itself; empty for one that did."""
    if status in (0, 1, 2):
        return ""
    if status == -getattr(signal, "SIGKILL", 0):
        return "was killed by SIGKILL, as systems do when memory is short"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and what its driver started; one stuck in the kernel is not waited for."""
    with contextlib.suppress(OSError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
