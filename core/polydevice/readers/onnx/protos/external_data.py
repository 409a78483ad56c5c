"""Tensor data in files beside the model: which files may be read, and how.

The location comes from an untrusted file; `safe_open` says what it may name. Data is read, not
mapped: a mapped file that shrinks kills the process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from polydevice.errors import ModelFileError, ModelFormatError, WeightsError
from polydevice.files.safe_open import open_named
from polydevice.files.stored import StoredBuffer, StoredFile

_KEYS = {"location", "offset", "length", "checksum", "basepath"}
_NUMBER = re.compile(r"[0-9]{1,18}")


class ExternalData:
    """Reads tensor data from the files of one folder."""

    def __init__(self, folder: Path | None) -> None:
        """Allow reading from `folder`; None (a model given as bytes) allows nothing."""
        self._folder = folder
        self._regions: dict[tuple[str, int, int], StoredBuffer] = {}
        self._files: dict[str, StoredFile] = {}
        self._taken: dict[str, int] = {}

    def read(self, tensor: str, entries: Mapping[str, str], size_bytes: int) -> StoredBuffer:
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
        # one file, however its name is spelled ("w", "./w"); opening it checks the rest
        location = "/".join(part for part in location.split("/") if part != ".") or location
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

    def _read(self, tensor: str, location: str, offset: int, size: int) -> StoredBuffer:
        if self._folder is None:
            raise ModelFileError(
                f"tensor {tensor!r} is in the file {location!r}; a model given as bytes has no "
                "folder to look in: read it by its path, or store the tensors inside the model"
            )
        fd, available = open_named(
            self._folder, location, f"tensor {tensor!r}: external data", ModelFileError
        )
        try:
            if size > available or offset > available - size:
                raise WeightsError(
                    f"tensor {tensor!r}: bytes {offset} to {offset + size} lie outside "
                    f"{location!r}, which has {available}"
                )
            # Distinct regions that overlap would multiply a small file in memory.
            self._taken[location] = self._taken.get(location, 0) + size
            if self._taken[location] > available:
                raise WeightsError(
                    f"tensor {tensor!r}: the tensors in {location!r} overlap; together they are "
                    f"larger than the file of {available} bytes"
                )
            file = self._files.get(location)
            if file is None or not file.is_in(fd):
                file = self._files[location] = StoredFile(self._folder / location, fd)
            data = StoredBuffer.read(file, fd, offset, size)
            if data is None:
                raise WeightsError(
                    f"tensor {tensor!r}: {location!r} became shorter while it was read"
                )
            return data
        except OSError as error:
            raise ModelFileError(
                f"tensor {tensor!r}: cannot read {location!r}: {error.strerror}"
            ) from error
        finally:
            os.close(fd)
