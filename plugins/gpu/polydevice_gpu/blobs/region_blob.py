"""RegionBlob: a region of a buffer or image."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from polydevice.dtype import Array
from polydevice.errors import BlobError
from polydevice.remote import RemoteBlob
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice_gpu import cl
from polydevice_gpu.blobs.blob import GpuBlob


class RegionBlob(GpuBlob):
    """A region of another blob, to be read as an input through a copy on the device."""

    def __init__(self, parent: GpuBlob, bounds: tuple[slice, ...]) -> None:
        """Describe the region; see `RemoteBlob.roi`."""
        sizes = Shape(part.stop - part.start for part in bounds)
        super().__init__(parent.context, TensorDesc(parent.element_type, sizes))
        self.parent = parent
        self._bounds = bounds

    @property
    def params(self) -> dict[str, Any]:
        """Those of the whole."""
        return self.parent.params

    @property
    def whole(self) -> GpuBlob:
        """The blob that this is a region of."""
        return self.parent

    @property
    def handle(self) -> Any:
        """pyopencl's memory object."""
        return self.parent.handle

    def _drop(self) -> None:
        pass  # the whole belongs to its own users

    def check_usable(self) -> None:
        """Refuse a region of memory that cannot be used now.

        Raises:
            BlobError: the memory is released, or mapped.
        """
        super().check_usable()
        self.parent.check_usable()

    def allows(self, kind: str) -> str:
        """A region can be read only."""
        return self.parent.allows(kind) if kind == "input" else "it is a region; only inputs can be"

    def overlaps(self, other: RemoteBlob) -> bool:
        """Whether another blob may share bytes with the whole."""
        return other is self or self.parent.overlaps(other)

    def acquire(self, queue: int) -> None:
        """Take the whole over."""
        self.parent.acquire(queue)

    def give_back(self, queue: int) -> None:
        """Hand the whole back."""
        self.parent.give_back(queue)

    def fetch(self, queue: cl.Queue, target: cl.Buffer, size_bytes: int) -> None:
        """Enqueue a copy of the region, or of the first items of its batch."""
        items = min(size_bytes * self.shape[0] // self.size_bytes, self.shape[0])
        first, *others = self._bounds
        bounds = (slice(first.start, first.start + items), *others)
        self.parent.fetch_region(queue, target, bounds)

    def store(self, queue: cl.Queue, source: cl.Buffer, size_bytes: int) -> None:
        """Regions are read only."""
        raise BlobError(f"{self!r} is a region; only inputs can be")

    def cut(self, bounds: tuple[slice, ...]) -> RegionBlob:
        """Return the part within these bounds."""
        inner = (
            slice(mine.start + more.start, mine.start + more.stop)
            for mine, more in zip(self._bounds, bounds)
        )
        return RegionBlob(self.parent, tuple(inner))

    @contextmanager
    def map(self, mode: str = "rw", queue: Any = None) -> Iterator[Array]:
        """Show the region to the host: a strided view of the mapped whole."""
        if mode == "w":
            mode = "rw"  # what is around the region stays
        with self.parent.map(mode, queue) as whole:
            yield whole[self._bounds]

    def _mapped(self, queue: Any, mode: str) -> AbstractContextManager[Array]:
        raise BlobError(f"{self!r} is a region; map() it")

    def _places(self) -> dict[str, Any]:
        raise BlobError(f"{self!r} is a region and cannot be copied; copy the whole, or map() it")
