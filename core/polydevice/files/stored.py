"""Stored arrays: weights in memory that know where in a file they were read from.

So that whoever has packed them can let go of them, and read them again should they be wanted.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.errors import ModelFileError

LEAST_BYTES = 4096
"""What is worth knowing the place of: a page."""

MAPPED_BYTES = 1 << 16
"""From which on a buffer has pages of its own, which the system gets back as soon as it is gone:
glibc may keep what lies between other things."""


class StoredFile:
    """A file as it was when it was first opened; one that has changed since is refused."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Remember an open file, which its opener closes.

        Args:
            path: where it is found again.
            descriptor: it, open.
        """
        self.path = path.absolute()
        self.title = f"file {str(path)!r}"
        self._identity = _identity(descriptor)
        self._kept: int | None = None

    def is_in(self, descriptor: int) -> bool:
        """Whether an open file is this one, unchanged."""
        return _identity(descriptor) == self._identity

    def keep(self) -> bool:
        """Hold the file open, so that it may be renamed or deleted; False if it has changed."""
        if self._kept is None:
            try:
                descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError:
                return False
            weakref.finalize(self, os.close, descriptor).atexit = False
            self._kept = descriptor
        return self.is_in(self._kept)

    def read(self, offset: int, size_bytes: int) -> StoredBuffer:
        """Read a part again.

        Raises:
            ModelFileError: the file has changed since it was first opened, or is gone.
        """
        with self._opened() as descriptor:
            buffer = None
            if self.is_in(descriptor):
                buffer = StoredBuffer.read(self, descriptor, offset, size_bytes)
            if buffer is None or not self.is_in(descriptor):
                raise self._changed("the file has changed")
        return buffer

    @contextmanager
    def _opened(self) -> Iterator[int]:
        if self._kept is not None:
            yield self._kept
            return
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise self._changed(f"the file has gone ({error.strerror})") from None
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _changed(self, how: str) -> ModelFileError:
        return ModelFileError(
            f"weights in {self.title} are wanted again, but {how} since they were read. Load the "
            "network again; to replace a model, write a new file and rename it"
        )


def _identity(descriptor: int) -> tuple[int, int, int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class StoredBuffer(np.ndarray[Any, np.dtype[np.uint8]]):
    """Bytes of a file in memory of their own; plain arrays are views on them."""

    file: StoredFile
    offset: int

    @classmethod
    def read(
        cls, file: StoredFile, descriptor: int, offset: int, size_bytes: int
    ) -> StoredBuffer | None:
        """Read bytes of an open file; None where it ends before.

        Args:
            file: it.
            descriptor: it, open.
            offset: of the first byte.
            size_bytes: how many.

        Raises:
            MemoryError: there is no memory for them.
        """
        memory: mmap.mmap | bytearray
        if size_bytes >= MAPPED_BYTES:
            try:
                memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            except OSError as error:
                raise MemoryError(f"no memory for {size_bytes} bytes of {file.title}") from error
        else:
            memory = bytearray(size_bytes)
        # directly on the memory: a view's base is the first array that is not on another one
        made: StoredBuffer = cls(size_bytes, np.uint8, memory)
        done = 0
        while done < size_bytes:
            count = os.preadv(descriptor, [made.data[done:]], offset + done)
            if not count:
                return None
            done += count
        made.flags.writeable = False
        made.file, made.offset = file, offset
        return made


def stored_buffer(array: Array) -> StoredBuffer | None:
    """Return what an array is a view on, if that was read from a file and knows where."""
    base: Array | None = array
    while isinstance(base, np.ndarray):
        if isinstance(base, StoredBuffer) and hasattr(base, "file"):
            return base
        base = base.base
    return None


@dataclass(frozen=True)
class Stored:
    """A view on a stored buffer, without the buffer."""

    buffer: weakref.ref[StoredBuffer]
    file: StoredFile
    offset: int
    size_bytes: int
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, array: Array) -> Stored | None:
        """Return the place of an array's elements; None where it does not know it."""
        buffer = stored_buffer(array)
        if buffer is None:
            return None
        start = array.ctypes.data - buffer.ctypes.data
        shape, strides = array.shape, array.strides
        place = buffer.file, buffer.offset, buffer.nbytes
        return cls(weakref.ref(buffer), *place, start, shape, strides, array.dtype)

    def array(self) -> Array:
        """Return the array: the one that somebody still has, or what is read again.

        Raises:
            ModelFileError: it must be read again, and the file has changed.
        """
        buffer = self.buffer()
        if buffer is None:
            buffer = self.file.read(self.offset, self.size_bytes)
        made: Array = np.ndarray(
            self.shape, self.dtype, np.asarray(buffer), self.start, self.strides
        )
        return made
