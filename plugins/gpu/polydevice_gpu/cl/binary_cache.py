"""Compiled programs on disk, found by everything that could change them.

One file per program: magic, SHA-256 of the key, SHA-256 of the payload, payload (what
``CL_PROGRAM_BINARIES`` gave). A file is used only if all three check out; any other is set aside as
``.bad`` and the program is built again. Nothing is unpickled, and no failure here is ever more than
a cache miss.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import warnings
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from polydevice_gpu.cl import cache_folder
from polydevice_gpu.cl.discovery.facts import DeviceFacts

SUFFIX = ".cl_cache"
_BAD_SUFFIX = ".bad"
_MAGIC = b"polydevice CL binary 1\n"
_DIGEST_BYTES = 32
_HEADER_BYTES = len(_MAGIC) + 2 * _DIGEST_BYTES
DEFAULT_LIMIT_BYTES = 1 << 30


@dataclass(frozen=True)
class CacheCounters:
    """What a cache did: lookups that hit and missed, files set aside as bad, stored, evicted."""

    hits: int = 0
    misses: int = 0
    bad: int = 0
    stored: int = 0
    evicted: int = 0


def program_key(source: str, options: str, facts: DeviceFacts) -> bytes:
    """Return the SHA-256 of everything that determines a program's binary."""
    parts = (
        _our_version(),
        source,
        options,
        facts.name,
        facts.version,
        facts.driver_version,
        facts.opencl_c_version,
        facts.platform_name,
        facts.platform_version,
    )
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little"))  # so that ("ab", "c") is not ("a", "bc")
        digest.update(encoded)
    return digest.digest()


class BinaryCache:
    """A folder of program binaries, shared by any number of processes and threads.

    Args:
        folder: made if needed; refused (with one warning, and then no caching) if others could
            write it.
        limit_bytes: the least recently used files are deleted beyond this.
    """

    def __init__(self, folder: Path, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        """Check the folder."""
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
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
        """Return the binary of a key; None if it is not there or not good."""
        if not self.usable:
            return None
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            self._count("misses")
            return None
        payload = _unpack(content, key)
        if payload is None:
            self.set_aside(key)
            self._count("misses")
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # recently used
        self._count("hits")
        return payload

    def store(self, key: bytes, payload: bytes) -> None:
        """Keep a binary; a folder that is full, read-only or gone costs one warning."""
        if not self.usable or not payload:
            return
        digest = hashlib.sha256(payload).digest()
        try:
            cache_folder.write_atomically(self._path(key), _MAGIC + key + digest + payload)
        except OSError as error:
            self._warn(f"writing failed: {error.strerror or error}")
            return
        self._count("stored")
        self._evict()

    def set_aside(self, key: bytes) -> None:
        """Rename a file that is damaged, or that the driver refused, so that it is built again."""
        path = self._path(key)
        self._count("bad")
        with contextlib.suppress(OSError):
            path.replace(path.with_suffix(_BAD_SUFFIX))

    def _path(self, key: bytes) -> Path:
        return self.folder / f"{key.hex()}{SUFFIX}"

    def _evict(self) -> None:
        """Delete the least recently used files until the rest fits."""
        files = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.endswith((SUFFIX, _BAD_SUFFIX)):
                    with contextlib.suppress(OSError):  # another process was faster
                        info = entry.stat(follow_symlinks=False)
                        files.append((info.st_mtime_ns, info.st_size, entry.path))
        excess = sum(size for _, size, _ in files) - self.limit_bytes
        for _, size, path in sorted(files):
            if excess <= 0:
                return
            with contextlib.suppress(OSError):
                Path(path).unlink()
                self._count("evicted")
            excess -= size

    def _count(self, what: str) -> None:
        with self._lock:
            self._counters = replace(self._counters, **{what: getattr(self._counters, what) + 1})

    def _warn(self, problem: str) -> None:
        with self._lock:
            if self._warned:
                return
            self._warned = True
        warnings.warn(
            f"compiled kernels are not kept in {self.folder}: {problem}. Loading works, but "
            "compiles every time; choose another CACHE_DIR",
            RuntimeWarning,
            stacklevel=3,
        )


def _unpack(content: bytes, key: bytes) -> bytes | None:
    """Return the payload of a file's content; None if anything about it is wrong."""
    if len(content) <= _HEADER_BYTES or not content.startswith(_MAGIC):
        return None
    start = len(_MAGIC)
    payload = content[_HEADER_BYTES:]
    digest = content[start + _DIGEST_BYTES : _HEADER_BYTES]
    if content[start : start + _DIGEST_BYTES] != key or hashlib.sha256(payload).digest() != digest:
        return None
    return payload


def _our_version() -> str:
    try:
        return version("polydevice")
    except PackageNotFoundError:
        return "not installed"
