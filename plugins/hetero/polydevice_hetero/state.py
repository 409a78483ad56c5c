"""HeteroVariable: a variable of a HETERO request.

A subgraph has no memory of its own in HETERO: the request keeps every variable, feeds it to the
subgraph that reads it and takes the new value from the one that assigns it. Where both are on one
device, the value stays there, in two blobs that take turns.
"""

from __future__ import annotations

from polydevice.dtype import Array
from polydevice.passes.lower_state import Variable
from polydevice.remote import RemoteBlob
from polydevice.runtime.variable import RequestVariable


class HeteroVariable(RequestVariable):
    """A variable of one request; `value` None means that the initial value comes next."""

    def __init__(self, variable: Variable) -> None:
        """Start at the initial value."""
        super().__init__(variable.name, variable.read.desc)
        self.value: Array | RemoteBlob | None = None
        self._memory: RemoteBlob | None = None

    def reset(self) -> None:
        """Let the initial value come next."""
        self.value = None

    def advance(self, blob: RemoteBlob) -> RemoteBlob | None:
        """Make a blob the present value; return the one before it, which is free to be written."""
        free, self._memory, self.value = self._memory, blob, blob
        return free

    def get(self) -> Array | None:
        """Return a copy of the value, from wherever it is."""
        if isinstance(self.value, RemoteBlob):
            with self.value.map("r") as array:
                copied: Array = array.copy()
            return copied
        return None if self.value is None else self.value.copy()

    def set(self, value: Array) -> None:
        """Keep an array."""
        self.value = value
