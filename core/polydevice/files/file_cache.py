"""FileCache: a folder of files found by a key; shared by processes, never a reason to fail.

One file per entry: magic, SHA-256 of the key, SHA-256 of the payload, payload. A file is used only
if all three check out; any other is set aside as ``.bad`` and made again. Nothing is unpickled, and
no failure here is ever more than a cache miss.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from polydevice.bounds import current_bounds
from polydevice.dataclass import dataclass
from polydevice.errors import ModelFileError
from polydevice.files import cache_folder
from polydevice.files.safe_open import read_given
from polydevice.locks import Lock

BAD_SUFFIX = ".bad"
KERNELS_SUFFIX = ".cl_cache"
MODELS_SUFFIX = ".blob"
SUFFIXES = (KERNELS_SUFFIX, MODELS_SUFFIX)
"""Of compiled kernels and of compiled networks; both may share a folder."""

_NAME = re.compile(r"[0-9a-f]{64}\.")
"""A key and a dot: other people's files are never listed or deleted."""

MAGIC = b"polydevice CL binary 1\n"
LOCK_LOOK_SECONDS = 0.2
"""How long to wait for another maker of an entry before looking whether to go on."""

_DIGEST_BYTES = 32
HEADER_BYTES = len(MAGIC) + 2 * _DIGEST_BYTES
DEFAULT_LIMIT_BYTES = 1 << 30
_FILE_LIMIT_BYTES = 1 << 40


@dataclass(frozen=True)
class CacheCounters:
    """What a cache did: lookups that hit and missed, files set aside as bad, stored, evicted."""

    hits: int = 0
    misses: int = 0
    bad: int = 0
    stored: int = 0
    evicted: int = 0


class FileCache:
    """A folder of entries, shared by any number of processes and threads.

    Args:
        folder: made if needed; refused (with one warning, and then no caching) if others could
            write it.
        suffix: of the files, one of `SUFFIXES`.
        contents: what is kept, for the warning.
        limit_bytes: the least recently used files are deleted beyond this.
    """

    def __init__(
        self, folder: Path, suffix: str, contents: str, limit_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> None:
        """Check the folder."""
        self.folder = folder
        self.suffix = suffix
        self.contents = contents
        self.limit_bytes = limit_bytes
        self._lock = Lock()
        self._counters = CacheCounters()
        self._warned = False
        problem = cache_folder.why_unusable(folder)
        self.usable = not problem
        if problem:
            self._warn(f"it {problem}")

    @property
    def counters(self) -> CacheCounters:
        """What happened so far."""
        return self._counters

    def load(self, key: bytes) -> bytes | None:
        """Return the payload of a key (32 bytes); None if it is not there or not good."""
        if not self.usable:
            return None
        path = self._path(key)
        try:
            content = read_given(path, "cache file", ModelFileError, _FILE_LIMIT_BYTES)
        except ModelFileError:
            self._count("misses")
            return None
        payload = payload_of(content, key)
        if payload is None:
            self.set_aside(key)
            self._count("misses")
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # recently used
        self._count("hits")
        return payload

    def has(self, key: bytes) -> bool:
        """Whether there is an entry for a key, which may turn out not to be good."""
        return self.usable and self._path(key).exists()

    def store(self, key: bytes, payload: bytes) -> None:
        """Keep a payload; a folder that is full, read-only or gone costs one warning."""
        if not self.usable or not payload:
            return
        digest = hashlib.sha256(payload).digest()
        try:
            cache_folder.write_atomically(self._path(key), MAGIC + key + digest + payload)
        except OSError as error:
            self._warn(f"writing failed: {error.strerror or error}")
            return
        self._count("stored")
        self._evict()

    @contextlib.contextmanager
    def making(self, key: bytes) -> Iterator[None]:
        """Let others wait who want to make the same entry, in this process or another.

        Whoever comes second finds the entry, and need not make it. Nobody waits for one that died,
        nor where the folder's system has no locks.

        Raises:
            InferCancelledError: (or InferTimeoutError) what the thread is at ended while it waited.
        """
        from filelock import FileLock, Timeout  # 0.01 s, for who makes entries alone

        lock = FileLock(self._path(key).with_suffix(".lock"))
        check = current_bounds().check
        if not Path(lock.lock_file).parent.is_dir():  # some versions of filelock would make it
            yield
            return
        try:
            while not lock.is_locked:
                check()
                with contextlib.suppress(Timeout):
                    lock.acquire(timeout=LOCK_LOOK_SECONDS, poll_interval=0.02)
        except (OSError, NotImplementedError):
            pass
        try:
            yield
        finally:
            if lock.is_locked:
                with contextlib.suppress(OSError):
                    Path(lock.lock_file).unlink()  # who waits for it looks for the entry next
                lock.release()

    def set_aside(self, key: bytes) -> None:
        """Rename a file that is damaged, or of no use to its reader, so that it is made again."""
        path = self._path(key)
        self._count("bad")
        with contextlib.suppress(OSError):
            path.replace(path.with_suffix(BAD_SUFFIX))

    def _path(self, key: bytes) -> Path:
        return self.folder / f"{key.hex()}{self.suffix}"

    def _evict(self) -> None:
        """Delete the least recently used files until the rest fits."""
        files = sorted(_files(self.folder, (self.suffix, BAD_SUFFIX)), key=lambda f: f.used_ns)
        excess = sum(file.size_bytes for file in files) - self.limit_bytes
        for file in files:
            if excess <= 0:
                return
            with contextlib.suppress(OSError):
                file.path.unlink()
                self._count("evicted")
            excess -= file.size_bytes

    def _count(self, what: str) -> None:
        with self._lock:
            self._counters = replace(self._counters, **{what: getattr(self._counters, what) + 1})

    def _warn(self, problem: str) -> None:
        with self._lock:
            if self._warned:
                return
            self._warned = True
        warnings.warn(
            f"{self.contents} are not kept in {self.folder}: {problem}. Loading works, but "
            "compiles every time; choose another CACHE_DIR",
            RuntimeWarning,
            stacklevel=3,
        )


@dataclass(frozen=True)
class CacheFile:
    """A file of a cache folder."""

    path: Path
    size_bytes: int
    used_ns: int

    @property
    def is_good(self) -> bool:
        """Whether name, key and checksum agree; reads the whole file."""
        try:
            key = bytes.fromhex(self.path.stem)
            content = read_given(self.path, "cache file", ModelFileError, _FILE_LIMIT_BYTES)
            return payload_of(content, key) is not None
        except (ModelFileError, ValueError):
            return False


def files_of(folder: Path) -> list[CacheFile]:
    """Return the cache's files in a folder, those set aside included; nothing else is listed."""
    return sorted(_files(folder, (*SUFFIXES, BAD_SUFFIX)), key=lambda file: file.path)


def _files(folder: Path, suffixes: tuple[str, ...]) -> Iterator[CacheFile]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(suffixes) and _NAME.match(entry.name):
                with contextlib.suppress(OSError):  # another process was faster
                    info = entry.stat(follow_symlinks=False)
                    yield CacheFile(Path(entry.path), info.st_size, info.st_mtime_ns)


def payload_of(content: bytes, key: bytes) -> bytes | None:
    """Return the payload of a file's content; None if anything about it is wrong."""
    if len(content) <= HEADER_BYTES or not content.startswith(MAGIC):
        return None
    start = len(MAGIC)
    payload = content[HEADER_BYTES:]
    digest = content[start + _DIGEST_BYTES : HEADER_BYTES]
    if content[start : start + _DIGEST_BYTES] != key or hashlib.sha256(payload).digest() != digest:
        return None
    return payload


def digest_of(*parts: bytes | str) -> bytes:
    """Return the SHA-256 of parts, so that ("ab", "c") and ("a", "bc") differ."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode() if isinstance(part, str) else part
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.digest()
