"""Tensor data in files beside the model: which files may be read, and how.

The location comes from an untrusted file, so it may name only a regular file inside the model's
own folder, reached without any link. Folders are opened one by one relative to the one before
(openat with O_NOFOLLOW), and checks are made on the open file, so that nothing can be swapped
between check and use. Data is read, not mapped: a mapped file that shrinks kills the process.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from polydevice.errors import ModelFileError, ModelFormatError, WeightsError

_KEYS = {"location", "offset", "length", "checksum", "basepath"}
_NUMBER = re.compile(r"[0-9]{1,18}")


class ExternalData:
    """Reads tensor data from the files of one folder."""

    def __init__(self, folder: Path | None) -> None:
        """Allow reading from `folder`; None (a model given as bytes) allows nothing."""
        self._folder = folder
        self._regions: dict[tuple[str, int, int], bytes] = {}
        self._taken: dict[str, int] = {}

    def read(self, tensor: str, entries: Mapping[str, str], size_bytes: int) -> bytes:
        """Return the bytes of one tensor.

        Args:
            tensor: its name, for messages.
            entries: the key-value pairs of the model file.
            size_bytes: what type and shape need.

        Raises:
            ModelFormatError: for unknown, missing or malformed entries.
            ModelFileError: when the location is not allowed or there is no such file.
            WeightsError: when the data lies outside the file or has another length.
        """
        location, offset = self._entries(tensor, entries, size_bytes)
        region = (location, offset, size_bytes)
        if region not in self._regions:
            self._regions[region] = self._read(tensor, location, offset, size_bytes)
        return self._regions[region]

    def _entries(self, tensor: str, entries: Mapping[str, str], size: int) -> tuple[str, int]:
        unknown = sorted(set(entries) - _KEYS)
        if unknown:
            raise ModelFormatError(
                f"tensor {tensor!r}: unknown external data entry {unknown[0]!r}; "
                f"legal: {', '.join(sorted(_KEYS))}"
            )
        if not entries.get("location"):
            raise ModelFormatError(f"tensor {tensor!r}: external data without a location")
        numbers = {}
        for key in ("offset", "length"):
            text = entries.get(key, "")
            if text and not _NUMBER.fullmatch(text):
                raise ModelFormatError(
                    f"tensor {tensor!r}: external data {key} {text!r} is not a number of bytes"
                )
            numbers[key] = int(text) if text else None
        if numbers["length"] is not None and numbers["length"] != size:
            raise WeightsError(
                f"tensor {tensor!r}: external data has {numbers['length']} bytes, "
                f"but its type and shape need {size}"
            )
        return entries["location"], numbers["offset"] or 0

    def _read(self, tensor: str, location: str, offset: int, size: int) -> bytes:
        if self._folder is None:
            raise ModelFileError(
                f"tensor {tensor!r} is in the file {location!r}; a model given as bytes has no "
                "folder to look in: read it by its path, or store the tensors inside the model"
            )
        fd = _open_below(self._folder, location, tensor)
        try:
            status = os.fstat(fd)
            _check_file(status, tensor, location)
            if size > status.st_size or offset > status.st_size - size:
                raise WeightsError(
                    f"tensor {tensor!r}: bytes {offset} to {offset + size} lie outside "
                    f"{location!r}, which has {status.st_size}"
                )
            # Distinct regions that overlap would multiply a small file in memory.
            self._taken[location] = self._taken.get(location, 0) + size
            if self._taken[location] > status.st_size:
                raise WeightsError(
                    f"tensor {tensor!r}: the tensors in {location!r} overlap; together they are "
                    f"larger than the file of {status.st_size} bytes"
                )
            return _read_exactly(fd, offset, size, tensor, location)
        except OSError as error:
            raise ModelFileError(
                f"tensor {tensor!r}: cannot read {location!r}: {error.strerror}"
            ) from error
        finally:
            os.close(fd)


def check_location(location: str, tensor: str) -> list[str]:
    """Return the parts of a legal location; raises ModelFileError for every other one."""
    parts = location.split("/")
    illegal = (
        location.startswith("/")
        or "\\" in location
        or "\0" in location
        or (len(location) > 1 and location[1] == ":")
        or any(part in ("", "..") for part in parts)
    )
    parts = [part for part in parts if part != "."]
    if illegal or not parts:
        raise ModelFileError(
            f"tensor {tensor!r}: external data location {location!r} is not allowed; "
            "it must be a relative path below the model's folder, without '..'"
        )
    return parts


def _open_below(folder: Path, location: str, tensor: str) -> int:
    """Open a file below `folder` without following any link; returns its descriptor."""
    parts = check_location(location, tensor)
    directory = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        fd = os.open(folder, directory)
    except OSError as error:
        raise ModelFileError(f"cannot open the model's folder: {error.strerror}") from error
    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK if last else directory
        try:
            following = os.open(part, flags | os.O_NOFOLLOW, dir_fd=fd)
        except (OSError, ValueError) as error:
            raise ModelFileError(
                f"tensor {tensor!r}: external data file {location!r} cannot be opened at "
                f"{part!r}: {getattr(error, 'strerror', None) or error}. Links are not followed; "
                "copy what they lead to into the model's folder (cp -rL)"
            ) from error
        finally:
            os.close(fd)
        fd = following
    return fd


def _check_file(status: os.stat_result, tensor: str, location: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(f"tensor {tensor!r}: external data {location!r} is not a regular file")
    if status.st_nlink > 1:
        raise ModelFileError(
            f"tensor {tensor!r}: external data {location!r} has {status.st_nlink} hard links and "
            "may be a file from elsewhere; copy it"
        )


def _read_exactly(fd: int, offset: int, size: int, tensor: str, location: str) -> bytes:
    chunks = []
    remaining = size
    while remaining:
        chunk = os.pread(fd, min(remaining, 1 << 30), offset)
        if not chunk:
            raise WeightsError(f"tensor {tensor!r}: {location!r} became shorter while it was read")
        chunks.append(chunk)
        offset += len(chunk)
        remaining -= len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
