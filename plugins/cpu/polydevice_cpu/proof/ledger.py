"""What trials have shown, in memory and in a file per oneDNN library and processor.

The file lies in the user's cache folder and has a line for each verdict, with its checksum. What is
new is appended; a file that has grown too long, or has lines that do not check out, is written
again. A folder that cannot be used costs the trials of each process anew, nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import math
import time
import zlib
from functools import lru_cache
from pathlib import Path

from polydevice.dataclass import dataclass
from polydevice.files import cache_folder
from polydevice.locks import Lock
from polydevice_cpu import processor
from polydevice_cpu.onednn.descriptor import required

FORMAT = 5
"""Raise it when trials become stricter or more lenient, or keys or lines mean something else."""
LIMIT = 20_000
"""Verdicts that a file keeps when it is written again; a network has some tens."""
LIMIT_BYTES = 1 << 24
REST_SECONDS = 10.0
"""How long a process waits before it adds to the file again."""
LOCK_SECONDS = 5.0
"""How long a process waits for another one to write the file, which takes milliseconds."""


class Ledger:
    """Verdicts by key: empty where the trial was right, else what was wrong."""

    def __init__(self, path: Path | None) -> None:
        """Read the file; None keeps everything in memory."""
        self.path = path
        self._lock = Lock()
        found = _Contents({}, 0, is_good=True) if path is None else _read(path)
        self._verdicts = found.verdicts
        self._new: dict[str, str] = {}  # what is not in the file
        self._lines = found.lines
        self._is_good = found.is_good  # so that lines can be added
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
            self._verdicts[key] = self._new[key] = reason

    def keep_soon(self) -> None:
        """Write what is new, unless that was done in the last `REST_SECONDS`."""
        if self._new and time.monotonic() - self._written >= REST_SECONDS:
            self.keep()
            self._written = time.monotonic()

    def keep(self) -> None:
        """Write what is new, if there is anything, behind what is there.

        What could not be written (the folder is read-only, the disk full) is new still.
        """
        if self.path is None or not self._new:
            return
        from filelock import FileLock  # 0.01 s and 1 MB, for who writes alone

        with contextlib.suppress(OSError, NotImplementedError):  # the latter: no locks there
            with FileLock(f"{self.path}.lock", timeout=LOCK_SECONDS):
                with self._lock:
                    new = dict(self._new)
                if self._is_good and self._lines + len(new) <= 2 * LIMIT:
                    _append(self.path, new)
                    self._lines += len(new)
                else:
                    self._write_again(self.path)
            with self._lock:
                for key in new:
                    self._new.pop(key, None)

    def _write_again(self, path: Path) -> None:
        """Write the last verdicts of this process and of others."""
        found = _read(path).verdicts
        with self._lock:
            self._verdicts = {**found, **self._verdicts}
            kept = dict(list(self._verdicts.items())[-LIMIT:])
        cache_folder.write_atomically(path, b"".join(map(_line, kept.items())))
        self._lines, self._is_good = len(kept), True


@lru_cache(maxsize=1)
def ledger() -> Ledger:
    """Return the process's ledger, for its oneDNN library and processor."""
    loaded = required()
    isa = loaded.value("get_effective_cpu_isa")
    parts = (f"{FORMAT}", loaded.version, loaded.build, f"{isa:#x}", processor.name())
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    folder = cache_folder.default_folder() / "onednn-proofs"
    return Ledger(None if cache_folder.why_unusable(folder) else folder / f"{name}.lines")


def keep_verdicts() -> None:
    """Write what this process has found out: now, or if that was done lately, when it ends.

    A network whose shapes change finds out something for many of them. A line takes 3 us, where
    writing 20,000 of them again took 90 to 140 ms, within an inference.
    """
    if ledger.cache_info().currsize:
        ledger().keep_soon()


@dataclass(frozen=True)
class _Contents:
    """Verdicts of a file, its lines, and whether all of them check out and are not too many."""

    verdicts: dict[str, str]
    lines: int
    is_good: bool


def _line(verdict: tuple[str, str]) -> bytes:
    text = json.dumps(verdict).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _append(path: Path, verdicts: dict[str, str]) -> None:
    """Write lines; what an interrupted process left of one ends before them."""
    with path.open("ab", buffering=0) as file:
        lines = b"\n" + b"".join(map(_line, verdicts.items()))
        if file.write(lines) != len(lines):
            raise OSError(f"{path} is not written whole")


def _read(path: Path) -> _Contents:
    try:
        with path.open("rb") as file:
            text = file.read(LIMIT_BYTES)
    except OSError:
        return _Contents({}, 0, is_good=True)
    lines = [line for line in text.split(b"\n") if line]
    good = [line[9:] for line in lines if line[:9] == b"%08x " % zlib.crc32(line[9:])]
    try:
        found = dict(json.loads(b"[%s]" % b",".join(good)))
    except (ValueError, TypeError, RecursionError):
        found, good = {}, []
    verdicts = {str(key): str(value) for key, value in found.items()}
    is_good = len(good) == len(lines) <= 2 * LIMIT and len(text) < LIMIT_BYTES
    return _Contents(verdicts, len(lines), is_good=is_good)
