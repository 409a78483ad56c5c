"""TensorDesc and Blob: what describes memory, and memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from polydevice.compat.inference_engine.surface import Surface
from polydevice.dtype import Array, ElementType
from polydevice.errors import ElementTypeError

PRECISIONS = (
    "FP32", "FP64", "FP16", "I64", "U64", "I32", "U32", "I16", "I4", "I8", "U16", "U4", "U8",
    "BOOL", "BIN", "BF16",
)  # fmt: skip
LAYOUTS = (
    "ANY", "NCHW", "NHWC", "NCDHW", "NDHWC", "OIHW", "GOIHW", "OIDHW", "GOIDHW", "SCALAR", "C",
    "CHW", "HW", "NC", "CN", "BLOCKED",
)  # fmt: skip


def element_of(precision: str) -> ElementType:
    """Return the element type of a precision.

    Raises:
        ValueError: there is none of that name.
    """
    if precision not in PRECISIONS:
        raise ValueError(
            f"Unsupported precision {precision}! List of supported precisions: {list(PRECISIONS)}"
        )
    try:
        return ElementType.parse(precision)
    except ElementTypeError as error:
        raise ValueError(str(error)) from error


def checked_layout(layout: str) -> str:
    """Return a layout.

    Raises:
        ValueError: there is none of that name.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"Unsupported layout {layout}! List of supported layouts: {list(LAYOUTS)}")
    return layout


class TensorDesc(Surface):
    """Precision, sizes and layout."""

    def __init__(self, precision: str, dims: Sequence[int], layout: str) -> None:
        """Describe memory.

        Raises:
            ValueError: there is no such precision.
            KeyError: there is no such layout.
        """
        self.precision = precision
        self.dims = dims
        if layout not in LAYOUTS:
            raise KeyError(layout)
        self._layout = layout

    @property
    def precision(self) -> str:
        """The precision, such as "FP32"."""
        return self._precision

    @precision.setter
    def precision(self, precision: str) -> None:
        element_of(precision)
        self._precision = precision

    @property
    def dims(self) -> list[int]:
        """The sizes."""
        return list(self._dims)

    @dims.setter
    def dims(self, dims: Sequence[int]) -> None:
        self._dims = tuple(int(size) for size in dims)

    @property
    def layout(self) -> str:
        """What the axes mean, such as "NCHW"."""
        return self._layout

    @layout.setter
    def layout(self, layout: str) -> None:
        self._layout = checked_layout(layout)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorDesc):
            return NotImplemented
        mine = (self._precision, self._dims, self._layout)
        return mine == (other._precision, other._dims, other._layout)

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorDesc:
        return TensorDesc(self._precision, self._dims, self._layout)

    def __repr__(self) -> str:
        return f"TensorDesc({self._precision!r}, {list(self._dims)}, {self._layout!r})"


class Blob(Surface):
    """Memory of an input or output."""

    def __init__(self, tensor_desc: TensorDesc | None = None, array: Array | None = None) -> None:
        """Make memory, or share an array's.

        Args:
            tensor_desc: what it is.
            array: whose memory is shared; copied when it is not contiguous.

        Raises:
            AttributeError: the array has another number of elements, or no description is given.
            ValueError: the array is of another type.
        """
        if tensor_desc is None:
            if array is not None:
                raise AttributeError("Tensor_desc has to be specified if array is given")
            return
        self._desc = tensor_desc
        dtype = element_of(tensor_desc.precision).dtype
        dims = tensor_desc.dims
        count = math.prod(dims)
        if array is None:
            self._array = np.empty(dims or [1], dtype)
            return
        if array.size != count:
            raise AttributeError(
                f"Number of elements in provided numpy array {array.size} and required by "
                f"TensorDesc {count} are not equal"
            )
        if array.dtype != dtype:
            raise ValueError(
                f"Data type {array.dtype} of provided numpy array doesn't match to TensorDesc "
                f"precision {tensor_desc.precision}"
            )
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        self._array = array.ravel(order="F") if fortran else array
        if not self._array.flags.c_contiguous:
            self._array = self._array.copy()

    @classmethod
    def _of(cls, desc: TensorDesc, array: Array) -> Blob:
        made = cls.__new__(cls)
        made._desc, made._array = desc, array
        return made

    @property
    def buffer(self) -> Array:
        """The memory."""
        return self._array

    @property
    def tensor_desc(self) -> TensorDesc:
        """What it is."""
        return self._desc

    def __deepcopy__(self, memo: dict[int, Any]) -> Blob:
        return Blob._of(self._desc.__deepcopy__(memo), self._array.copy())
