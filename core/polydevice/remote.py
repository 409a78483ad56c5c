"""RemoteContext and RemoteBlob: device memory that networks and their users share.

A device that has them (GPU) fills in the parameters; docs/remote-blobs.md lists them. `RemoteBlob`
is a `Blob` without an array: everything that takes blobs takes it, and the host sees its content
through `RemoteBlob.map` or copies only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from polydevice.blob import Blob, crop
from polydevice.compound_blob import NV12Blob
from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.errors import BlobError, OptionValueError
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc

if TYPE_CHECKING:
    from polydevice.core import Core

MAP_MODES = ("r", "w", "rw")
"""What may be done with a mapped blob: read, overwrite completely, or both."""


@dataclass
class Copies:
    """How often memory was copied.

    Attributes:
        uploads: from the host to the device.
        downloads: from the device to the host.
        on_device: within the device.
    """

    uploads: int = 0
    downloads: int = 0
    on_device: int = 0

    def __add__(self, other: Copies) -> Copies:
        """Count both."""
        return Copies(
            self.uploads + other.uploads,
            self.downloads + other.downloads,
            self.on_device + other.on_device,
        )

    def copy(self) -> Copies:
        """Return the counts as they are now."""
        return Copies(self.uploads, self.downloads, self.on_device)

    def since(self, before: Copies) -> Copies:
        """Return what was added to an earlier count."""
        return Copies(
            self.uploads - before.uploads,
            self.downloads - before.downloads,
            self.on_device - before.on_device,
        )

    @property
    def with_host(self) -> int:
        """Copies between host and device, in either direction."""
        return self.uploads + self.downloads


class RemoteContext(ABC):
    """A device's own objects, in which networks are loaded and blobs are made.

    From `Core.create_context`, `Core.get_default_context` or `ExecutableNetwork.get_context`. What
    was made in it keeps it alive.
    """

    def __init__(self, device_name: str) -> None:
        """Keep the name of the device, such as "GPU.0"."""
        self.device_name = device_name

    @property
    @abstractmethod
    def params(self) -> dict[str, Any]:
        """What describes the context: CONTEXT_TYPE and the device's objects."""

    def shares_memory_with(self, other: RemoteContext) -> bool:
        """Whether blobs of another context can be used in this one."""
        return other is self

    def holds(self, element_type: ElementType) -> bool:
        """Whether blobs of a type can be inputs and outputs of the context's networks."""
        return True

    @abstractmethod
    def create_blob(self, desc: TensorDesc, params: Mapping[str, Any] | None = None) -> RemoteBlob:
        """Make a blob: allocate its memory, or wrap memory that is there already.

        Args:
            desc: element type and shape; static.
            params: nothing to allocate; SHARED_MEM_TYPE and a handle to wrap.

        Raises:
            BlobError: memory that is too small, of another context, or of a kind that the device
                does not have; a handle that is a blob of another type or shape already.
            DeviceMemoryError: the memory cannot be allocated.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.device_name})"


class RemoteBlob(Blob, ABC):
    """Device memory that a request reads or writes in place.

    Attributes:
        context: where it was made.
        element_type: of the elements.
    """

    def __init__(self, context: RemoteContext, desc: TensorDesc) -> None:
        """Describe the memory.

        Raises:
            BlobError: for a shape that is not static.
        """
        self.context = context
        self.element_type = desc.element_type
        self._shape = static_sizes(desc)

    # -- what a device implements -------------------------------------------------------------

    @property
    @abstractmethod
    def params(self) -> dict[str, Any]:
        """What describes the memory: SHARED_MEM_TYPE and the device's handles."""

    @abstractmethod
    def map(self, mode: str = "rw", queue: Any = None) -> AbstractContextManager[Array]:
        """Show the memory to the host for the length of a ``with`` block.

        Args:
            mode: "r" to read, "w" to overwrite all of it, "rw" for both.
            queue: of the device, after whose commands the memory is shown; by default the
                context's.

        Returns:
            A context manager that gives a NumPy array of the blob's type and shape. The array
            must not be touched behind the block, and no request may use the blob inside of it.

        Raises:
            BlobError: another mode; memory that the host may not see, or that is released.
        """

    @abstractmethod
    def copy_from(
        self,
        source: Blob | Array,
        *,
        queue: Any = None,
        wait_for: Sequence[Any] = (),
        blocking: bool = True,
    ) -> Any:
        """Fill the blob; returns the device's event of the copy.

        Args:
            source: a blob of the same context, which is copied on the device, or host memory.
            queue: of the device, to copy on; by default the context's.
            wait_for: events of the device to wait for.
            blocking: return when the copy is done; else `source` must stay as it is until then.

        Raises:
            BlobError: another type or shape, memory of another context, or released memory.
        """

    @abstractmethod
    def copy_to(
        self,
        target: Blob | Array,
        *,
        queue: Any = None,
        wait_for: Sequence[Any] = (),
        blocking: bool = True,
    ) -> Any:
        """Copy the content elsewhere; returns the device's event.

        Args:
            target: a blob of the same context, or host memory that can be written.
            queue: see `copy_from`; so are `wait_for` and `blocking`.
            wait_for: events of the device to wait for.
            blocking: return when the copy is done; else `target` must not be read until then.

        Raises:
            BlobError: as `copy_from`.
        """

    @abstractmethod
    def release(self) -> None:
        """Give the memory back, or let go of what was wrapped; requests refuse it from then on."""

    @abstractmethod
    def cut(self, bounds: tuple[slice, ...]) -> RemoteBlob:
        """Return the part within these bounds."""

    def overlaps(self, other: RemoteBlob) -> bool:
        """Whether another blob of the context may share bytes with this one."""
        return other is self

    # -- the same for all devices -------------------------------------------------------------

    @property
    def array(self) -> Array:
        """There is none.

        Raises:
            BlobError: always; the content is not in host memory.
        """
        raise BlobError(
            f"{self!r} is device memory and has no array; use `with blob.map() as array:`, or "
            "blob.copy_to(array)"
        )

    @array.setter
    def array(self, value: Array) -> None:
        raise BlobError(f"{self!r} is device memory; use blob.copy_from(array)")

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return self._shape

    @property
    def desc(self) -> TensorDesc:
        """Element type and shape."""
        return TensorDesc(self.element_type, Shape(self._shape))

    def roi(self, x: int, y: int, width: int, height: int, layout: str = "NCHW") -> RemoteBlob:
        """Return a region of an image, to be set as an input; see `Blob.roi`.

        Raises:
            BlobError: a region that is not inside, or another layout.
        """
        return self.cut(crop(self._shape, layout, x, y, width, height))

    def __dlpack__(self, **arguments: Any) -> Any:
        """There is no host memory to share; raises BlobError."""
        return self.array.__dlpack__(**arguments)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.desc} on {self.context.device_name})"


def static_sizes(desc: TensorDesc) -> tuple[int, ...]:
    """Return the sizes of what device memory is to hold.

    Raises:
        BlobError: they are not known.
    """
    if desc.shape is None or not desc.is_static:
        raise BlobError(f"a remote blob needs a static shape, not {desc}; fix its sizes first")
    return desc.shape.static


def make_shared_context(
    core: Core, device_name: str, context: Any = None, *, queue: Any = None, va_display: Any = None
) -> RemoteContext:
    """Make a context of an OpenCL context or a VA display.

    Args:
        core: the core.
        device_name: "GPU", or "GPU.1" to choose one of the context's devices.
        context: a pyopencl.Context or OpenCL's handle as a number.
        queue: the user's in-order queue, on which networks are to run.
        va_display: a VADisplay as a number, instead of `context` and `queue`.

    Raises:
        OptionError: (a subclass) both a display and a context or queue, or what does not exist.
        DeviceError: the device has no contexts.
    """
    if va_display is not None:
        if context is not None or queue is not None:
            raise OptionValueError(
                "va_display makes a context of its own; leave out context and queue with it"
            )
        return core.create_context(
            device_name, {"CONTEXT_TYPE": "VA_SHARED", "VA_DEVICE": va_display}
        )
    params = {"CONTEXT_TYPE": "OCL", "OCL_CONTEXT": context}
    if queue is not None:
        params["OCL_QUEUE"] = queue
    return core.create_context(device_name, params)


def make_shared_blob(
    desc: TensorDesc,
    context: RemoteContext,
    memory: Any = None,
    *,
    surface: int | None = None,
    plane: int = 0,
) -> RemoteBlob:
    """Allocate a blob, or make one of memory that is there already.

    Args:
        desc: element type and shape.
        context: where.
        memory: a buffer, image or SVM memory of the device's library; None allocates.
        surface: a VASurfaceID instead.
        plane: of the surface: 0 for Y, 1 for UV.

    Raises:
        BlobError: both memory and a surface, or what `RemoteContext.create_blob` refuses.
        DeviceMemoryError: the memory cannot be allocated.
    """
    if memory is not None and surface is not None:
        raise BlobError("a blob is of memory or of a surface, not of both; leave one out")
    if surface is not None:
        params = {"SHARED_MEM_TYPE": "VA_SURFACE", "DEV_OBJECT_HANDLE": surface, "VA_PLANE": plane}
        return context.create_blob(desc, params)
    return context.create_blob(desc, None if memory is None else {"MEM_HANDLE": memory})


def make_shared_blob_nv12(
    context: RemoteContext,
    y: Any = None,
    uv: Any = None,
    *,
    surface: int | None = None,
    height: int = 0,
    width: int = 0,
) -> NV12Blob:
    """Make the two planes of an NV12 image one compound blob.

    Args:
        context: where.
        y: image or buffer of the Y plane.
        uv: image or buffer of the UV plane, half as high and half as wide, two channels.
        surface: a VASurfaceID instead of `y` and `uv`.
        height: of the image; needed for buffers and surfaces.
        width: of the image; needed for buffers and surfaces.

    Raises:
        BlobError: missing or odd sizes, or what ``create_blob`` raises for a plane.
    """
    height, width = height or getattr(y, "height", 0), width or getattr(y, "width", 0)
    if height < 2 or width < 2 or height % 2 or width % 2:
        raise BlobError(
            f"height={height}, width={width} are no sizes of an NV12 image; both are even, and "
            "needed for buffers and surfaces"
        )
    sizes = ([1, height, width, 1], [1, height // 2, width // 2, 2])
    first, second = (TensorDesc(ElementType.u8, Shape(size)) for size in sizes)
    if surface is None and (y is None or uv is None):
        raise BlobError("an NV12 image needs both planes, y and uv, or a surface")
    return NV12Blob(
        make_shared_blob(first, context, y, surface=surface, plane=0),
        make_shared_blob(second, context, uv, surface=surface, plane=1),
    )
