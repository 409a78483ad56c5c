"""Overlap: keeps the host memory that an inference reads apart from what it writes.

Device memory is its device's affair, which knows what a launch may read while it writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from polydevice.blob import Blob, RoiBlob
from polydevice.dtype import Array
from polydevice.errors import BlobError
from polydevice.remote import RemoteBlob


def host_arrays(blobs: Mapping[str, Blob], names: Iterable[str]) -> dict[str, Array]:
    """Return name → array of those blobs that exist and lie in host memory.

    A region is none of them: what is read is memory of its own, into which it is gathered.
    """
    found = ((name, blobs.get(name)) for name in names)
    return {
        name: blob.array
        for name, blob in found
        if blob is not None and not isinstance(blob, (RemoteBlob, RoiBlob))
    }


def overwritten(inputs: Mapping[str, Array], written: Iterable[Array]) -> list[str]:
    """Return the names of the inputs that may change while they are read."""
    memory = list(written)
    return [
        name
        for name, array in inputs.items()
        if any(np.may_share_memory(array, each) for each in memory)
    ]


def check_outputs(outputs: Mapping[str, Array]) -> None:
    """Raise BlobError when two outputs would be written to the same memory."""
    seen: list[tuple[str, Array]] = []
    for name, array in outputs.items():
        for other, held in seen:
            if np.may_share_memory(array, held):
                raise BlobError(
                    f"output {name!r} shares memory with another output, {other!r}; use two blobs"
                )
        seen.append((name, array))
