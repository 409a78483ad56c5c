"""ValuesOnDisk: values of one side of a comparison, in files while they are still needed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from polydevice.comparison.values import read_values, write_values
from polydevice.dtype import Array
from polydevice.errors import ModelFileError
from polydevice.node import Port

_ON_DISK = "/var/tmp"  # noqa: S108 - the folder inside it has a random name and is the user's alone
"""Where Linux keeps large temporary files; /tmp often is memory."""


@contextmanager
def values_on_disk() -> Iterator[ValuesOnDisk]:
    """Make a folder for values, in ``TMPDIR`` or, without that, /var/tmp, and remove it at the end.

    Raises:
        ModelFileError: there is no place for it.
    """
    chosen = os.environ.get("TMPDIR")
    if not chosen and os.access(_ON_DISK, os.W_OK):
        chosen = _ON_DISK
    try:
        made = tempfile.TemporaryDirectory(
            prefix="polydevice-compare-", dir=chosen, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise _no_room(error) from error
    with made as folder:
        yield ValuesOnDisk(Path(folder))


class ValuesOnDisk:
    """Port → value. Memory holds a value only while it is looked at."""

    def __init__(self, folder: Path) -> None:
        """Take an empty folder."""
        self._folder = folder
        self._files: dict[Port, Path] = {}
        self._made = 0

    def __contains__(self, port: Port) -> bool:
        return port in self._files

    def put(self, port: Port, value: Array) -> None:
        """Write a value.

        Raises:
            ModelFileError: the disk is full.
        """
        is_plain = value.dtype.kind in "biufc"
        path = self._folder / f"{self._made}.{'npy' if is_plain else 'npz'}"
        self._made += 1
        try:
            if is_plain:
                np.save(path, value, allow_pickle=False)
            else:
                write_values(path, {"value": value})
        except OSError as error:
            raise _no_room(error) from error
        self._files[port] = path

    def __getitem__(self, port: Port) -> Array:
        path = self._files[port]
        if path.suffix == ".npz":
            return read_values(path)["value"]
        loaded = np.load(path, allow_pickle=False)
        assert isinstance(loaded, np.ndarray), "it was written as an array"
        return loaded

    def keep_only(self, ports: set[Port]) -> None:
        """Remove the values of all other ports."""
        for port in self._files.keys() - ports:
            self._files.pop(port).unlink()


def _no_room(error: OSError) -> ModelFileError:
    return ModelFileError(
        f"the values to compare cannot be written: {error}. Set TMPDIR to a folder with more room, "
        "or compare with a smaller group_bytes"
    )
