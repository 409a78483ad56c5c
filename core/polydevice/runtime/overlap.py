"""Overlap: keeps the host memory that an inference reads apart from what it writes.

Device memory is its device's affair, which knows what a launch may read while it writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import NoneType

import numpy as np

from polydevice.blob import Blob, RoiBlob
from polydevice.dtype import Array
from polydevice.errors import BlobError
from polydevice.remote import RemoteBlob


def host_arrays(blobs: Mapping[str, Blob], names: Iterable[str]) -> dict[str, Array]:
    """Return name → array of those blobs that exist and lie in host memory.

    A region is none of them: what is read is memory of its own, into which it is gathered.
    """
    found = {}
    for name in names:  # asked at every inference on new inputs, nearly always of plain blobs
        blob = blobs.get(name)
        if type(blob) is Blob or not isinstance(blob, (NoneType, RemoteBlob, RoiBlob)):
            found[name] = blob.array
    return found


def overwritten(inputs: Mapping[str, Array], written: Iterable[Array]) -> list[str]:
    """Return the names of the inputs that may change while they are read."""
    found = []
    for each in written:
        for name, array in inputs.items():
            if np.may_share_memory(array, each) and name not in found:
                found.append(name)
    return found


def check_outputs(outputs: Mapping[str, Array]) -> None:
    """Raise BlobError when two outputs would be written to the same memory."""
    if len(outputs) < 2:
        return
    seen: list[tuple[str, Array]] = []
    for name, array in outputs.items():
        for other, held in seen:
            if np.may_share_memory(array, held):
                raise BlobError(
                    f"output {name!r} shares memory with another output, {other!r}; use two blobs"
                )
        seen.append((name, array))
