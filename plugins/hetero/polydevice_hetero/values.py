"""Values: what one inference has computed so far, on the host, on devices, or both."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import BlobError
from polydevice.node import Port
from polydevice.remote import Copies, RemoteBlob, RemoteContext
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc

Value = Array | RemoteBlob


class Values:
    """Port → value of one request's inference; each is brought elsewhere at most once.

    Memory for that is kept from one inference to the next while shapes stay the same.

    Attributes:
        copies: what was copied here since `begin`.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self.copies = Copies()
        self._made: dict[Port, Value] = {}
        self._down: dict[Port, Array] = {}
        self._up: dict[Port, RemoteBlob] = {}
        self._arrays: dict[Port, Array] = {}
        self._blobs: dict[Port, RemoteBlob] = {}

    def begin(self) -> None:
        """Forget the former inference, except for its memory."""
        self.copies = Copies()
        self._made.clear()
        self._down.clear()
        self._up.clear()

    def __contains__(self, port: Port) -> bool:
        return port in self._made

    def __setitem__(self, port: Port, value: Value) -> None:
        self._made[port] = value

    def __getitem__(self, port: Port) -> Value:
        """Return a value where it was computed."""
        constant = port.node.constant
        return constant if constant is not None else self._made[port]

    def on_host(self, port: Port, into: Array | None = None) -> Array:
        """Return a value in host memory.

        Args:
            port: whose value.
            into: used, if it fits, where the value has to be brought here.
        """
        value = self[port]
        if not isinstance(value, RemoteBlob):
            return value
        if port not in self._down:
            if into is None or not _fits(into, value):
                into = self._arrays.get(port)
            if into is None or not _fits(into, value):
                into = self._arrays[port] = np.empty(value.shape, value.element_type.dtype)
            _copy(value, into)
            self.copies.downloads += 1
            self._down[port] = into
        return self._down[port]

    def downloads(self) -> list[Array]:
        """Return the memory for what is brought to the host; outputs may lie in it."""
        return list(self._arrays.values())

    def on_device(self, port: Port, context: RemoteContext) -> Value:
        """Return a value in memory of a context, or in host memory where it cannot be there."""
        value = self[port]
        if isinstance(value, RemoteBlob):
            return value if context.shares_memory_with(value.context) else self.on_host(port)
        if port not in self._up:
            blob = self._blobs.get(port)
            if blob is None or blob.shape != value.shape:
                blob = context.create_blob(TensorDesc(port.element_type, Shape(value.shape)))
                self._blobs[port] = blob
            blob.copy_from(value)
            self.copies.uploads += 1
            self._up[port] = blob
        return self._up[port]


def _copy(blob: RemoteBlob, into: Array) -> None:
    try:
        blob.copy_to(into)
    except BlobError:  # a region, which the host sees by mapping it only
        with blob.map("r") as array:
            into[...] = array


def _fits(array: Array, blob: RemoteBlob) -> bool:
    return (
        array.shape == blob.shape
        and array.dtype == blob.element_type.dtype
        and array.flags.c_contiguous
        and array.flags.writeable
    )
