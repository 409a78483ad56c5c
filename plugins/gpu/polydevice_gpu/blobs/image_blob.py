"""ImageBlob: a blob in a two-dimensional OpenCL image."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from polydevice.dtype import Array
from polydevice.errors import BlobError
from polydevice.tensor import TensorDesc
from polydevice_gpu import cl
from polydevice_gpu.blobs.blob import GpuBlob
from polydevice_gpu.blobs.region_blob import RegionBlob
from polydevice_gpu.cl.memory import sharing

if TYPE_CHECKING:
    from polydevice_gpu.blobs.context import GpuContext
    from polydevice_gpu.cl.memory.sharing import SharedMemory


class ImageBlob(GpuBlob):
    """A blob in a two-dimensional OpenCL image; kernels get its pixels by a copy on the device."""

    def __init__(
        self,
        context: GpuContext,
        desc: TensorDesc,
        image: cl.Image,
        shared: SharedMemory | None = None,
    ) -> None:
        """Use an image.

        Args:
            context: the context.
            desc: element type and shape.
            image: the image.
            shared: what the user gave.

        Raises:
            BlobError: the image's size or pixels are not those of the blob.
        """
        super().__init__(context, desc)
        self._image: cl.Image | None = image
        self._shared = shared
        item = self.element_type.dtype.itemsize
        channels = image.pixel_bytes // item
        rows: list[tuple[int, ...]] = [(image.height, image.width, channels)]
        rows += [(image.height, image.width)] if channels == 1 else []
        fitting = [row for row in rows if self.shape[-len(row) :] == row]
        if not fitting or image.pixel_bytes % item or math.prod(self.shape) != math.prod(rows[0]):
            raise BlobError(
                f"an image of width {image.width}, height {image.height} and {image.pixel_bytes} "
                f"bytes a pixel cannot be {desc}; a blob of it is [1, H, W, C] with the channels "
                "of a pixel innermost"
            )
        self._row_axis = len(self.shape) - len(fitting[0])

    @property
    def params(self) -> dict[str, Any]:
        """SHARED_MEM_TYPE, OCL_CONTEXT and MEM_HANDLE (pyopencl's objects)."""
        return {
            "SHARED_MEM_TYPE": "OCL_IMAGE2D",
            "OCL_CONTEXT": self.context.params["OCL_CONTEXT"],
            "MEM_HANDLE": self.handle,
        }

    @property
    def region(self) -> dict[str, Any]:
        """All of the image, for pyopencl's copies."""
        image = self._checked_image()
        return {"region": (image.width, image.height)}

    def _checked_image(self) -> cl.Image:
        if self._image is None:
            raise BlobError(f"{self!r} is released; make another blob")
        return self._image

    @property
    def handle(self) -> Any:
        """pyopencl's memory object."""
        return self._checked_image().handle

    def _drop(self) -> None:
        self._image = self._shared = None

    def fetch(self, queue: cl.Queue, target: cl.Buffer, size_bytes: int) -> None:
        """Enqueue a copy of the pixels."""
        image = self._checked_image()
        queue.copy_from_image(image, target, (0, 0), (image.width, image.height))

    def store(self, queue: cl.Queue, source: cl.Buffer, size_bytes: int) -> None:
        """Enqueue a copy into the pixels."""
        queue.copy_to_image(source, self._checked_image())

    def fetch_region(self, queue: cl.Queue, target: cl.Buffer, bounds: tuple[slice, ...]) -> None:
        """Enqueue a copy of a region's pixels."""
        image = self._checked_image()
        rows, columns = bounds[self._row_axis : self._row_axis + 2]
        sizes = (columns.stop - columns.start, rows.stop - rows.start)
        queue.copy_from_image(image, target, (columns.start, rows.start), sizes)

    def _mapped(self, queue: Any, mode: str) -> AbstractContextManager[Array]:
        return sharing.mapped_image(queue, self.handle, mode, repr(self))

    def _places(self) -> dict[str, Any]:
        return {"origin": (0, 0), **self.region}

    def cut(self, bounds: tuple[slice, ...]) -> RegionBlob:
        """Return the part within these bounds."""
        return RegionBlob(self, bounds)
