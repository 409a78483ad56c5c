"""safe_open: which files are read, and how they are opened; the one policy for all of them.

A path that the user gives may lead anywhere, to a regular file. A path that another file names may
name only a regular file inside that file's folder, reached without any link, as the file may come
from a stranger. Folders are opened one by one relative to the one before (openat with O_NOFOLLOW),
and checks are made on the open file, so that nothing can be swapped between check and use. A FIFO
or device is refused without waiting for its other end.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from polydevice.errors import PolydeviceError

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


_noted: ContextVar[list[str] | None] = ContextVar("noted", default=None)


@contextmanager
def noting_paths() -> Iterator[list[str]]:
    """Collect the paths that are asked for here, whether or not they may be opened."""
    paths: list[str] = []
    before = _noted.set(paths)
    try:
        yield paths
    finally:
        _noted.reset(before)


def _note(path: str) -> None:
    paths = _noted.get()
    if paths is not None and path not in paths:
        paths.append(path)


def open_given(path: Path, what: str, error: type[PolydeviceError]) -> tuple[int, int]:
    """Open a file whose path the user gave; return its descriptor and size in bytes.

    Args:
        path: of the file; links are followed.
        what: how messages call it ("model file").
        error: what is raised when there is no such file, or it is no regular file.
    """
    _note(str(path))
    try:
        descriptor = os.open(path, _READ)
    except FileNotFoundError:
        raise error(f"{what} {str(path)!r} does not exist") from None
    except (OSError, ValueError) as failure:
        reason = getattr(failure, "strerror", None) or failure
        raise error(f"{what} {str(path)!r} cannot be opened: {reason}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise error(f"{what} {str(path)!r} is {kind}; a regular file is needed")
    return descriptor, status.st_size


def read_given(path: Path, what: str, error: type[PolydeviceError], limit_bytes: int) -> bytes:
    """Return the content of a file whose path the user gave; see `open_given`."""
    return _read(*open_given(path, what, error), f"{what} {str(path)!r}", error, limit_bytes)


def read_named(
    folder: Path, location: str, what: str, error: type[PolydeviceError], limit_bytes: int
) -> bytes:
    """Return the content of a file that another file names; see `open_named`."""
    opened = open_named(folder, location, what, error)
    return _read(*opened, f"{what} {location!r}", error, limit_bytes)


def open_named(
    folder: Path, location: str, what: str, error: type[PolydeviceError]
) -> tuple[int, int]:
    """Open a file that another file names; return its descriptor and size in bytes.

    Args:
        folder: where the naming file lies.
        location: what it says: a relative path, with forward slashes.
        what: how messages call it ("tensor 'w': external data").
        error: what is raised for a location that is not allowed, and for files that are missing,
            no regular file, reached by a link, or have several names.
    """
    _note(f"{folder}/{location}")
    return _open_parts(folder, check_location(location, what, error), what, error)


def open_beside(path: Path, what: str, error: type[PolydeviceError]) -> tuple[int, int]:
    """Open a file that is looked for beside another, as one that the other names."""
    _note(str(path))
    return _open_parts(path.parent, [path.name], what, error)


def _open_parts(
    folder: Path, parts: list[str], what: str, error: type[PolydeviceError]
) -> tuple[int, int]:
    location = "/".join(parts)
    descriptor = _open_below(folder, parts, what, error)
    status = os.fstat(descriptor)
    reason = ""
    if not stat.S_ISREG(status.st_mode):
        reason = "is not a regular file"
    elif status.st_nlink > 1:
        reason = (
            f"has {status.st_nlink} hard links and may be a file from elsewhere; copy it into the "
            "folder"
        )
    if reason:
        os.close(descriptor)
        raise error(f"{what} {location!r} {reason}")
    return descriptor, status.st_size


def check_location(location: str, what: str, error: type[PolydeviceError]) -> list[str]:
    """Return the parts of a legal location; raises `error` for every other one."""
    parts = location.split("/")
    illegal = (
        location.startswith("/")
        or "\\" in location
        or not location.isprintable()
        or (len(location) > 1 and location[1] == ":")
        or any(part in ("", "..") for part in parts)
    )
    parts = [part for part in parts if part != "."]
    if illegal or not parts:
        raise error(
            f"{what} location {location!r} is not allowed; it must be a relative path below the "
            "folder of the file that names it, without '..'"
        )
    return parts


def _open_below(folder: Path, parts: list[str], what: str, error: type[PolydeviceError]) -> int:
    try:
        descriptor = os.open(folder, _FOLDER)
    except OSError as failure:
        raise error(f"cannot open the folder {str(folder)!r}: {failure.strerror}") from failure
    for position, part in enumerate(parts):
        flags = _READ if position == len(parts) - 1 else _FOLDER
        try:
            following = os.open(part, flags | os.O_NOFOLLOW, dir_fd=descriptor)
        except (OSError, ValueError) as failure:
            raise error(
                f"{what} file {'/'.join(parts)!r} cannot be opened at {part!r}: "
                f"{getattr(failure, 'strerror', None) or failure}. Links are not followed; copy "
                "what they lead to into the folder (cp -rL)"
            ) from failure
        finally:
            os.close(descriptor)
        descriptor = following
    return descriptor


def _read(
    descriptor: int, size: int, title: str, error: type[PolydeviceError], limit_bytes: int
) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        if size > limit_bytes:
            raise error(f"{title} has {size} bytes; at most {limit_bytes} are read")
        try:
            return file.read(size)
        except OSError as failure:
            raise error(f"{title} cannot be read: {failure.strerror}") from failure
