"""TensorDesc: what is known of a value before it is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.errors import ElementTypeError
from polydevice.interval import IntLike, sized
from polydevice.shape import DimLike, Shape
from polydevice.symbolic_size import is_formula, whole


@dataclass(frozen=True)
class TensorDesc:
    """Element type and shape of a value; `shape` None means that even the rank is unknown.

    `value` holds the elements themselves where they are known before inference (constants and
    what is computed from them); a shape rule that needs a number, such as Reshape's target,
    takes it from here. A value computed from sizes of which some are unknown is an object array
    whose items are numbers or `Interval`. `kind` is "tensor", or for ONNX's container types
    "sequence", "optional" or "optional_sequence", where type and shape describe the items, and
    "number_maps" or "text_maps" (polydevice.ops.containers).
    """

    element_type: ElementType
    shape: Shape | None = None
    value: Array | None = field(default=None, compare=False, repr=False)
    kind: str = "tensor"

    @property
    def rank(self) -> int | None:
        """Number of dimensions, None when unknown."""
        return None if self.shape is None else len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of the value's array: that of the elements, object for containers."""
        return self.element_type.dtype if self.kind == "tensor" else np.dtype(object)

    @property
    def is_static(self) -> bool:
        """Whether every size is known."""
        return self.kind == "tensor" and self.shape is not None and self.shape.is_static

    @property
    def span_bytes(self) -> int | None:
        """Bytes of a value whose sizes are known, each size of 0 counted as 1; else None.

        What works on single axes takes memory for their sizes even where no element exists, so
        limits look at this: a shape such as [0, 2147483648] is as broken as without the 0.
        """
        if self.kind != "tensor" or self.shape is None:
            return None
        total = 1 if self.element_type is ElementType.dynamic else self.dtype.itemsize
        for size in self.shape:
            if not isinstance(size, int):
                return None
            if size > 0:  # not 1: what is planned for larger sizes serves 1
                total *= size
        return total

    @property
    def constant(self) -> Array | None:
        """The fully known value, or None (also None while some elements are unknown)."""
        if self.value is not None and self.value.dtype == object:
            return self.value if is_formula(self.value) else None
        return self.value

    @property
    def ints(self) -> list[IntLike] | None:
        """The value as a flat list of ``int`` and `Interval`, or None when it is unknown.

        An unknown element may be negative, where that has a meaning; `sizes` is for the rest.
        """
        if self.value is None:
            return None
        if self.value.dtype != object:
            try:
                return [int(v) for v in self.value.reshape(-1)]
            except (OverflowError, ValueError):
                raise ElementTypeError(f"{self.value.reshape(-1)[:9]} are no integers") from None
        return list(self.value.reshape(-1)) if self.element_type.is_integer else None

    @property
    def sizes(self) -> list[DimLike] | None:
        """The value as a flat list of sizes (``int`` or `Dim`), or None when it is unknown.

        Known numbers come as they are, so that a negative one can be named in an error; unknown
        ones are sizes.
        """
        items = self.ints
        return None if items is None else [sized(item) for item in items]

    @property
    def static_ints(self) -> list[int] | None:
        """The value as a flat list of ints, or None while it is not fully known."""
        value = self.constant
        return None if value is None else [whole(v) for v in value.reshape(-1)]

    def with_shape(self, shape: Sequence[DimLike | None] | None) -> TensorDesc:
        """Return the same type with another shape and no known value."""
        return TensorDesc(
            self.element_type, None if shape is None else Shape(shape), kind=self.kind
        )

    def with_type(self, element_type: ElementType) -> TensorDesc:
        """Return the same shape with another element type and no known value."""
        return TensorDesc(element_type, self.shape, kind=self.kind)

    def without_value(self) -> TensorDesc:
        """Return type and shape alone."""
        return self if self.value is None else replace(self, value=None)

    def __str__(self) -> str:
        shape = "[...]" if self.shape is None else str(self.shape)
        text = f"{self.element_type}{shape}"
        return text if self.kind == "tensor" else f"{self.kind}({text})"


def desc_of(array: Array) -> TensorDesc:
    """Describe an array, keeping it as the known value."""
    array = np.asarray(array)
    return TensorDesc(ElementType.of(array.dtype), Shape(array.shape), array)
