"""What trials have shown, in memory and in a file per oneDNN library and processor.

The file lies in the user's cache folder. It is written whole, with what other processes found
meanwhile; one that does not check out is ignored and written again, and a folder that cannot be
used costs the trials of each process anew, nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import math
import time
from functools import lru_cache
from pathlib import Path

from polydevice.files import cache_folder
from polydevice.locks import Lock
from polydevice_cpu import processor
from polydevice_cpu.onednn.descriptor import required

FORMAT = 3
"""Raise it when trials become stricter or more lenient, or keys mean something else."""
LIMIT = 20_000
"""Verdicts that a file keeps; a network has some tens."""
LIMIT_BYTES = 1 << 24
REST_SECONDS = 10.0
"""How long a process waits before it writes the file again."""
LOCK_SECONDS = 5.0
"""How long a process waits for another one to write the file, which takes milliseconds."""


class Ledger:
    """Verdicts by key: empty where the trial was right, else what was wrong."""

    def __init__(self, path: Path | None) -> None:
        """Read the file; None keeps everything in memory."""
        self.path = path
        self._lock = Lock()
        self._verdicts: dict[str, str] = {} if path is None else _read(path)
        self._noted = self._kept = 0  # how many outcomes, and how many of them are in the file
        self._written = -math.inf
        if path is not None:
            atexit.register(self.keep)

    @property
    def verdicts(self) -> dict[str, str]:
        """A copy of everything that is known."""
        with self._lock:
            return dict(self._verdicts)

    def verdict(self, key: str) -> str | None:
        """What is known about a key; None where nothing is."""
        return self._verdicts.get(key)

    def note(self, key: str, reason: str) -> None:
        """Remember the outcome of a trial."""
        with self._lock:
            self._verdicts[key] = reason
            self._noted += 1

    def keep_soon(self) -> None:
        """Write what is new, unless that was done in the last `REST_SECONDS`."""
        if self._noted != self._kept and time.monotonic() - self._written >= REST_SECONDS:
            self.keep()
            self._written = time.monotonic()

    def keep(self) -> None:
        """Write what is new, if there is anything, with what other processes wrote.

        What could not be written (the folder is read-only, the disk full) is new still.
        """
        if self.path is None or self._noted == self._kept:
            return
        from filelock import FileLock  # 0.01 s and 1 MB, for who writes alone

        with contextlib.suppress(OSError, NotImplementedError):  # the latter: no locks there
            with FileLock(f"{self.path}.lock", timeout=LOCK_SECONDS):
                found = _read(self.path)
                with self._lock:
                    noted = self._noted
                    self._verdicts = {**found, **self._verdicts}
                    kept = dict(list(self._verdicts.items())[-LIMIT:])
                content = {"format": FORMAT, "verdicts": kept, "checksum": _checksum(kept)}
                cache_folder.write_atomically(self.path, json.dumps(content, indent=0).encode())
            self._kept = noted


@lru_cache(maxsize=1)
def ledger() -> Ledger:
    """Return the process's ledger, for its oneDNN library and processor."""
    loaded = required()
    isa = loaded.value("get_effective_cpu_isa")
    parts = (loaded.version, loaded.build, f"{isa:#x}", processor.name())
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    folder = cache_folder.default_folder() / "onednn-proofs"
    return Ledger(None if cache_folder.why_unusable(folder) else folder / f"{name}.json")


def keep_verdicts() -> None:
    """Write what this process has found out: now, or if that was done lately, when it ends.

    A full file takes 55 ms to write, and a network whose shapes change finds out something for many
    of them.
    """
    if ledger.cache_info().currsize:
        ledger().keep_soon()


def _read(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(LIMIT_BYTES))
        verdicts = content["verdicts"]
        good = content["format"] == FORMAT and content["checksum"] == _checksum(verdicts)
        return {str(key): str(value) for key, value in verdicts.items()} if good else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _checksum(verdicts: object) -> str:
    return hashlib.sha256(json.dumps(verdicts, sort_keys=True).encode()).hexdigest()
