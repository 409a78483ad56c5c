"""Blob: the memory of one input or output of a request."""

from __future__ import annotations

from typing import Any

import numpy as np

from polydevice.arguments import integer, shown, text
from polydevice.dtype import Array, ElementType
from polydevice.errors import BlobError
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc


class Blob:
    """Host memory that a request reads or writes in place.

    ``Blob(array)`` shares the array's memory. Reading and writing go through `array` (NumPy),
    ``np.asarray(blob)``, DLPack (``np.from_dlpack(blob)``) or the buffer protocol.
    """

    __slots__ = ("array", "element_type")

    def __init__(self, array: Array, element_type: ElementType | None = None) -> None:
        """Wrap an array without copying it.

        Args:
            array: C-contiguous array of the element type's NumPy type.
            element_type: needed only where a NumPy type stands for several (u1 in bytes).

        Raises:
            BlobError: when the array is not C-contiguous, or not of that element type.
        """
        if not isinstance(array, np.ndarray):
            raise BlobError(
                f"a blob wraps a NumPy array, not {type(array).__name__}; use np.asarray() first"
            )
        if not array.flags.c_contiguous:
            raise BlobError(
                f"a blob needs C-contiguous memory; this array has strides {array.strides} for "
                f"shape {array.shape}; use np.ascontiguousarray() first, or RoiBlob(array) for "
                "an input that is gathered at every inference"
            )
        if element_type is not None and not isinstance(element_type, ElementType):
            raise BlobError(f"{shown(element_type)} is no ElementType")
        self.array = array
        self.element_type = element_type or ElementType.of(array.dtype)
        if self.element_type.dtype != array.dtype:
            raise BlobError(
                f"element type {self.element_type} needs an array of "
                f"{self.element_type.dtype}, not {array.dtype}"
            )

    @classmethod
    def empty(cls, desc: TensorDesc) -> Blob:
        """Allocate memory, not initialised, for a static descriptor.

        Raises:
            BlobError: it is none, or its sizes are not all known.
        """
        if not isinstance(desc, TensorDesc):
            raise BlobError(f"{shown(desc)} is no TensorDesc; give one, of known sizes")
        if desc.shape is None:
            raise BlobError(f"cannot allocate memory for {desc}: its rank is unknown")
        dtype = desc.element_type.dtype
        return cls(np.empty(desc.shape.static, dtype), desc.element_type)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return self.array.shape

    @property
    def desc(self) -> TensorDesc:
        """Element type and shape."""
        return TensorDesc(self.element_type, Shape(self.shape))

    def roi(self, x: int, y: int, width: int, height: int, layout: str = "NCHW") -> Blob:
        """Return a region of an image, to be set as an input; live, not a copy.

        Args:
            x: first column.
            y: first row.
            width: columns.
            height: rows.
            layout: which axes of the blob are H and W: "NCHW", "NHWC", "CHW", "HWC" or "HW".

        Raises:
            BlobError: a region that is not inside, or another layout.
        """
        return RoiBlob(self.array[crop(self.shape, layout, x, y, width, height)], self.element_type)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the memory as a NumPy array."""
        if dtype is not None and np.dtype(dtype) != self.array.dtype:
            return self.array.astype(dtype)
        return self.array.copy() if copy else self.array

    def __dlpack__(self, **arguments: Any) -> Any:
        """Share the memory through DLPack."""
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's (CPU, 0)."""
        kind, index = self.array.__dlpack_device__()
        return int(kind), int(index)

    def __buffer__(self, flags: int) -> memoryview:
        """Share the memory through the buffer protocol (Python 3.12 and newer)."""
        return memoryview(self.array)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"Blob({self.desc})"


class RoiBlob(Blob):
    """A part of a larger array as an input: whatever strides, gathered whenever it is read."""

    __slots__ = ("_gathered", "view")

    def __init__(self, view: Array, element_type: ElementType | None = None) -> None:
        """Keep a view of an array; it must not change while an inference reads it.

        Raises:
            BlobError: not an array, or not of that element type.
        """
        if not isinstance(view, np.ndarray):
            raise BlobError(f"a region is part of a NumPy array, not of {type(view).__name__}")
        self.view = view
        super().__init__(np.empty_like(view, order="C", subok=False), element_type)

    @property
    def array(self) -> Array:
        """The region's elements now, C-contiguous; the same memory every time."""
        self.gather()
        return self._gathered

    @array.setter
    def array(self, value: Array) -> None:
        self._gathered = value

    def gather(self) -> None:
        """Copy the region's elements into the memory that `array` is."""
        np.copyto(self._gathered, self.view)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the region."""
        return self._gathered.shape

    def __repr__(self) -> str:
        return f"RoiBlob({TensorDesc(self.element_type, Shape(self.shape))})"


LAYOUTS = ("NCHW", "NHWC", "CHW", "HWC", "HW")


def crop(
    shape: tuple[int, ...], layout: str, x: int, y: int, width: int, height: int
) -> tuple[slice, ...]:
    """Return the bounds of a region of an image along every axis.

    Raises:
        BlobError: naming the region and the image, when it is not inside; or another layout.
    """
    x, y = integer(x, "x", BlobError), integer(y, "y", BlobError)
    width, height = integer(width, "width", BlobError), integer(height, "height", BlobError)
    if text(layout, "layout", BlobError) not in LAYOUTS or len(layout) != len(shape):
        raise BlobError(
            f"layout {layout!r} does not say which axes of shape {list(shape)} are height and "
            f"width; legal for {len(shape)} axes: "
            f"{', '.join(each for each in LAYOUTS if len(each) == len(shape)) or 'none'}"
        )
    rows, columns = shape[layout.index("H")], shape[layout.index("W")]
    inside = 0 <= x < x + width <= columns and 0 <= y < y + height <= rows
    if not inside:
        raise BlobError(
            f"region x={x}, y={y}, width={width}, height={height} is not inside an image of "
            f"width {columns} and height {rows}"
        )
    bounds = {"H": slice(y, y + height), "W": slice(x, x + width)}
    return tuple(bounds.get(letter, slice(0, n)) for letter, n in zip(layout, shape))
