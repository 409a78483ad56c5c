"""supervise: tuning in child processes, which a hanging or crashing candidate cannot outlast."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from polydevice.tuning import TunedLayer
from polydevice.tuning_journal import VARIABLE, Journal

LOADING_S = 1800.0
"""So long may a child be silent outside of candidates: it reads and compiles the network."""

_LOOK_S = 0.2


@dataclass
class Supervised:
    """What was found in all children together.

    Attributes:
        status: with which the last child ended; what it said of a failure is on stderr.
        layers: that were tuned, or left because the time is over.
        lost: candidates that hung or killed their process.
    """

    status: int
    layers: list[TunedLayer]
    lost: list[str]


def supervise(
    arguments: Sequence[str],
    limit_s: float,
    progress: Callable[[Journal], None],
    tell: Callable[[str], None],
) -> Supervised:
    """Run ``polydevice`` with arguments until it ends by itself.

    Args:
        arguments: of the command line.
        limit_s: seconds after which a candidate counts as hanging.
        progress: told the journal from time to time.
        tell: told of each candidate that is left out.
    """
    with tempfile.TemporaryDirectory(prefix="polydevice-tuning-") as folder:
        path = Path(folder) / "journal"
        path.touch()
        lost: set[str] = set()
        while True:
            status = _run(arguments, path, limit_s, progress)
            journal = Journal.read(path)
            progress(journal)
            if status == 0 or journal.lost == lost:
                break
            for name in sorted(journal.lost - lost):
                tell(f"{_short(name)}: hung or killed its process; left out")
            lost = set(journal.lost)
        return Supervised(status, journal.layers, sorted(map(_short, lost)))


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
) -> int:
    process = subprocess.Popen(
        [sys.executable, "-m", "polydevice", *arguments],
        env={**os.environ, VARIABLE: str(path)},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    before = Journal.read(path).lost
    try:
        while process.poll() is None:
            time.sleep(_LOOK_S)
            journal = Journal.read(path)
            progress(journal)
            limit = limit_s if journal.lost - before else LOADING_S
            if time.time() - path.stat().st_mtime > limit:
                _kill(process)
                return -1
        return int(process.returncode)
    finally:
        if process.poll() is None:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and what its driver started; one stuck in the kernel is not waited for."""
    with contextlib.suppress(OSError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
