"""GivenMemory: what one inference reads and writes, looked at once while it stays the same."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import BlobError
from polydevice_gpu.blobs.blob import GpuBlob


class GivenMemory:
    """The memory of a plan's inputs and outputs, outside of its arena.

    Attributes:
        inputs: by name.
        outputs: likewise.
        arrays: the inputs on the host.
        remote: inputs and outputs on the device.
        owners: whom these belong to, each once: several may be regions of one.
        overwritten: inputs on the device that share memory with an output.
        is_settled: whether launches were seen to read and write it all in place.
    """

    def __init__(
        self, inputs: Mapping[str, Array | GpuBlob], outputs: Mapping[str, Array | GpuBlob]
    ) -> None:
        """Look at it.

        Raises:
            BlobError: two outputs share memory.
        """
        self.inputs, self.outputs = inputs, outputs
        self.is_settled = False
        self.arrays = {n: each for n, each in inputs.items() if isinstance(each, np.ndarray)}
        self._read = read = {
            n: each for n, each in inputs.items() if not isinstance(each, np.ndarray)
        }
        self._written = written = _written(outputs)
        self.remote = [*read.values(), *written]
        self.owners = list(dict.fromkeys(blob.whole for blob in self.remote))
        self.overwritten = frozenset(
            name for name, blob in read.items() if any(blob.overlaps(each) for each in written)
        )

    @property
    def is_remote(self) -> bool:
        """Whether all of it is on the device."""
        return len(self.remote) == len(self.inputs) + len(self.outputs)

    @property
    def used_in_place(self) -> list[GpuBlob]:
        """What launches read and write without copies."""
        kept = [blob for name, blob in self._read.items() if name not in self.overwritten]
        return [blob for blob in (*kept, *self._written) if blob.buffer is not None]

    def is_of(
        self, inputs: Mapping[str, Array | GpuBlob], outputs: Mapping[str, Array | GpuBlob]
    ) -> bool:
        """Whether these are the very dictionaries that were looked at."""
        return inputs is self.inputs and outputs is self.outputs


def _written(outputs: Mapping[str, Array | GpuBlob]) -> list[GpuBlob]:
    """Return the blobs that the launches write.

    Raises:
        BlobError: two of them share memory.
    """
    blobs: list[GpuBlob] = []
    for name, blob in outputs.items():
        if isinstance(blob, np.ndarray):
            continue
        if any(blob.overlaps(other) for other in blobs):
            raise BlobError(f"output {name!r} shares memory with another output; use two blobs")
        blobs.append(blob)
    return blobs
