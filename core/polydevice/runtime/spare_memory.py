"""SpareMemory: memory of arrays that nobody has any more, for the next ones of other sizes.

Pages that the system gives anew are touched for the first time, which took 4 to 6 us for each on a
virtual machine: 0.5 to 1.2 ms for the answer of MiniLM, 800 KB, of an inference of 10 ms.
"""

from __future__ import annotations

import math
import weakref

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import DeviceMemoryError
from polydevice.memory_budget import MemoryBudget

LEAST_BYTES = 1 << 14
"""Smaller arrays are allocated: Python's memory has room for them, mostly."""

MOST_BYTES = 1 << 24
"""So much is kept for later at most; of larger arrays nothing."""

MARGIN = 8
"""A piece is by such a part larger than what it was made for, for arrays that grow bit by bit."""

WASTE = 8
"""No array lies in memory of more than so many times its size, as the user may keep it."""


class _Piece(np.ndarray):
    """Memory that arrays lie in.

    It is of a type of its own, so that NumPy leaves what is leased between it and them.

    Attributes:
        lease: what tells when the last of them is gone; None while there is none.
    """

    lease: _Lease | None = None


class _Lease(weakref.ref[Array]):
    """Of what is leased of a piece: the base of each array, and of each view of it."""

    __slots__ = ("owner", "piece")
    owner: weakref.ref[SpareMemory]
    piece: _Piece


class SpareMemory:
    """Of one request. Arrays may be let go of in any thread; whoever holds a view has all of it.

    Nothing is kept where somebody has limited the memory.
    """

    def __init__(self, memory: MemoryBudget) -> None:
        """Begin with none, of what a network may use."""
        self._memory = memory
        self._own = weakref.ref(self)
        self._most_bytes = 0 if memory.is_set else MOST_BYTES
        self._spare: list[_Piece] = []

    def array(self, shape: tuple[int, ...], dtype: np.dtype[np.generic], what: str) -> Array:
        """Return an array, not initialised.

        Args:
            shape: sizes.
            dtype: type of the elements.
            what: it is, for the message.

        Raises:
            DeviceMemoryError: it is more than the network may use.
        """
        size = math.prod(shape) * dtype.itemsize
        if not LEAST_BYTES <= size <= self._most_bytes:
            size = size or dtype.itemsize * math.prod(n or 1 for n in shape)
            return self._memory.allocated(size, what, lambda: np.empty(shape, dtype))
        piece = self._fitting(size)
        if piece is None:
            piece = self._allocated(size + size // MARGIN, what)
        leased: Array = np.ndarray(piece.nbytes, np.uint8, piece)
        piece.lease = lease = _Lease(leased, _take_back)
        lease.owner, lease.piece = self._own, piece
        array: Array = np.ndarray(shape, dtype, leased)
        return array

    def close(self) -> None:
        """Keep nothing, now and from now on."""
        self._most_bytes = 0
        self._spare.clear()

    def _allocated(self, size: int, what: str) -> _Piece:
        def make() -> _Piece:
            piece: _Piece = _Piece(size, np.uint8)
            return piece

        try:
            return self._memory.allocated(size, what, make)
        except DeviceMemoryError:
            if not self._spare:
                raise
            self._spare.clear()
            return self._memory.allocated(size, what, make)

    def _fitting(self, size: int) -> _Piece | None:
        """The smallest spare piece that suits; where all are too small, the largest goes."""
        suits, small = -1, -1
        for place, piece in enumerate(self._spare):
            if piece.nbytes < size:
                if small < 0 or piece.nbytes > self._spare[small].nbytes:
                    small = place
            elif suits < 0 or piece.nbytes < self._spare[suits].nbytes:
                suits = place
        if suits >= 0 and self._spare[suits].nbytes <= WASTE * size:
            return self._spare.pop(suits)  # others only append
        if suits < 0 <= small:
            del self._spare[small]
        return None

    def take_back(self, piece: _Piece) -> None:
        """Have a piece again in which nothing lies any more."""
        if piece.nbytes + sum(each.nbytes for each in self._spare) <= self._most_bytes:
            self._spare.append(piece)


def _take_back(lease: weakref.ref[Array]) -> None:
    assert isinstance(lease, _Lease)
    owner, piece = lease.owner(), lease.piece
    piece.lease = None
    if owner is not None:
        owner.take_back(piece)
