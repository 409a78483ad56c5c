"""Image: a two-dimensional OpenCL image that somebody else made."""

from __future__ import annotations

from typing import Any


class Image:
    """A two-dimensional image, kept alive.

    Attributes:
        handle: pyopencl's image.
        pointer: OpenCL's handle as a number.
        width: pixels in a row.
        height: rows.
        pixel_bytes: bytes of one pixel.
        name: for messages.
    """

    __slots__ = ("handle", "height", "name", "pixel_bytes", "pointer", "width")

    def __init__(self, handle: Any, name: str) -> None:
        """Look the sizes up."""
        self.handle = handle
        self.pointer: int = handle.int_ptr
        self.width: int = handle.width
        self.height: int = handle.height
        self.pixel_bytes: int = handle.element_size
        self.name = name

    def __repr__(self) -> str:
        return f"Image({self.width} × {self.height}, {self.pixel_bytes} bytes a pixel)"
