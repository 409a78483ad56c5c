"""Folders for what is kept between runs: private to the user, written atomically.

Program binaries are code that a driver will run, so a folder that others may write is refused.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import tempfile
import time
from pathlib import Path

VARIABLE = "POLYDEVICE_CACHE_DIR"

_UNFINISHED = ".writing"
_ABANDONED_AFTER_S = 3600.0
"""No file takes that long to write: whoever began it was killed."""


def default_folder() -> Path:
    """Return the user's cache folder for polydevice, or what the environment variable names."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("polydevice", appauthor=False))


def why_unusable(folder: Path) -> str:
    """Make a folder, with its parents, if it is not there; return why it cannot be trusted or used.

    Empty if it can be. A folder must be a real directory, belong to this user (or to root), and
    not be writable for others; that is verified, because a folder that exists keeps its mode.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        info = folder.lstat()
    except OSError as error:
        return f"cannot be made: {error.strerror or error}"
    if not stat.S_ISDIR(info.st_mode):
        return "is not a directory (links are refused)"
    if os.name == "posix":
        if info.st_uid not in {os.geteuid(), 0}:
            return f"belongs to another user (uid {info.st_uid})"
        if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return (
                f"is writable for other users (mode {stat.S_IMODE(info.st_mode):o}); chmod 700 it"
            )
    return "" if os.access(folder, os.R_OK | os.X_OK) else "may not be read"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers see all of it or none, also after a crash or power cut.

    A process that is killed meanwhile leaves an unfinished file beside it, which the first process
    that writes into the folder an hour later removes.

    Raises:
        OSError: read-only, full or vanished folder; nothing is left behind.
    """
    _remove_abandoned(path.parent)
    handle, temporary = tempfile.mkstemp(_UNFINISHED, f".{path.name[:40]}.", path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


@functools.lru_cache(maxsize=64)
def _remove_abandoned(folder: Path) -> None:
    """Remove what killed writers left in a folder; looked for once in each process."""
    oldest = time.time() - _ABANDONED_AFTER_S
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            if not (entry.name.startswith(".") and entry.name.endswith(_UNFINISHED)):
                continue
            with contextlib.suppress(OSError):  # another process removes it, too
                if entry.is_file(follow_symlinks=False) and entry.stat().st_mtime < oldest:
                    Path(entry.path).unlink()
