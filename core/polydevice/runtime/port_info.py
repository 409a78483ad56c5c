"""PortInfo: an input or output of an executable network, and which values fit it."""

from __future__ import annotations

from typing import Any

import numpy as np

from polydevice.blob import Blob
from polydevice.dtype import Array, ElementType
from polydevice.errors import BlobError
from polydevice.network.port_setting import default_layout
from polydevice.node import Node, Port
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc

_FITTED = 256
"""Sizes that are remembered of an input."""


class PortInfo:
    """An input or output of an executable network: name, element type, shape, layout.

    Its `key` is what devices keep its memory under: the name, but for an output that is called as
    an input is.
    """

    __slots__ = (
        "_fitted", "desc", "dtype", "element_type", "key", "kind", "layout", "name", "sizes",
        "tensor_names",
    )  # fmt: skip

    def __init__(
        self,
        kind: str,
        name: str,
        desc: TensorDesc,
        layout: str,
        tensor_names: frozenset[str],
        key: str = "",
    ) -> None:
        self.kind = kind
        self.name = name
        self.key = key or name
        self.desc = desc.without_value()
        self.layout = layout
        self.tensor_names = tensor_names
        self.element_type = desc.element_type
        self.dtype = desc.dtype
        static = desc.shape is not None and desc.shape.is_static
        self.sizes = desc.shape.static if static and desc.shape is not None else None
        # Sizes of arrays that fitted: to ask takes 4 µs.
        self._fitted = set() if self.sizes is None else {self.sizes}

    @property
    def shape(self) -> Shape | None:
        """Sizes; None when the rank is unknown."""
        return self.desc.shape

    @property
    def precision(self) -> str:
        """The Inference Engine's name of the element type."""
        return self.element_type.precision

    def check(self, element_type: ElementType, sizes: tuple[int, ...]) -> None:
        """Raise BlobError when a value of this type and shape does not fit."""
        if self.desc.kind != "tensor":
            if element_type is not ElementType.string or len(sizes) != 1:
                raise BlobError(
                    f"{self.kind} {self.name!r} is of kind {self.desc.kind}: a 1-D array of "
                    "objects, one per tensor"
                )
            return
        if element_type is not self.element_type:
            raise BlobError(
                f"{self.kind} {self.name!r} has element type {self.element_type}, "
                f"not {element_type}"
            )
        if not _fits(self.desc.shape, sizes):
            shape = self.desc.shape
            text = f"{self.kind} {self.name!r} has shape {shape}, not {Shape(sizes)}"
            if len(self.layout) > 2 and sorted(map(str, shape or ())) == sorted(map(str, sizes)):
                text += f"; its layout is {self.layout}, so transpose, or set another layout on it"
            raise BlobError(text)

    def blob(self, array: Array) -> Blob:
        """Wrap an array of this input or output; containers are arrays of objects."""
        if self.desc.kind != "tensor":
            return Blob(array)
        if array.dtype != self.dtype or not array.flags.c_contiguous:
            return Blob(array, self.element_type)
        blob = Blob.__new__(Blob)  # which is all that Blob() would check, in 2 µs
        blob.array, blob.element_type = array, self.element_type
        return blob

    def as_array(self, value: Any) -> Array:
        """Return `value` as an array that can be read in place; itself when it fits already.

        Raises:
            BlobError: for another shape, or a type that cannot be converted without loss.
        """
        if (
            type(value) is np.ndarray
            and value.dtype == self.dtype
            and value.shape in self._fitted
            and value.flags.c_contiguous
        ):
            return value
        try:
            array = _contiguous(value, self.dtype)
        except BlobError as error:
            raise BlobError(f"{self.kind} {self.name!r}: {error}") from None
        container = self.desc.kind != "tensor"
        self.check(ElementType.string if container else self.element_type, array.shape)
        if container:
            self.check_items(array)
        else:
            if len(self._fitted) >= _FITTED:
                self._fitted = set()
            self._fitted.add(array.shape)
        return array

    def check_items(self, array: Array) -> None:
        """Raise BlobError when a sequence, or what an optional holds, is anything but tensors."""
        wrong = _wrong_item(list(array), self.desc)
        if wrong:
            raise BlobError(f"{self.kind} {self.name!r} is of kind {self.desc.kind}{wrong}")

    def __repr__(self) -> str:
        return f"{self.name}: {self.desc} {self.layout}"


def _wrong_item(items: list[Any], desc: TensorDesc) -> str:
    """Return what no item of a container may be, "" where all are right."""
    if desc.kind.startswith("optional"):
        if len(items) > 1:
            return f", which holds one value or none, not {len(items)}"
        if desc.kind == "optional_sequence" and items:
            (held,) = items
            if not isinstance(held, np.ndarray) or held.dtype != object or held.ndim != 1:
                what = type(held).__name__
                return f": its item is a {what}, not a 1-D array of objects, one per tensor"
            items = list(held)
    for place, item in enumerate(items):
        if not isinstance(item, (np.ndarray, np.generic)):
            return f": item {place} is a {type(item).__name__}, not an array of {desc.element_type}"
        if item.dtype != desc.element_type.dtype:
            return f": item {place} has element type {item.dtype}, not {desc.element_type}"
    return ""


def port_info(kind: str, name: str, port: Port, node: Node, key: str = "") -> PortInfo:
    """Describe an input or output of a network; `node` is its Parameter or Result."""
    layout = str(node.rt_info.get("blob_layout", "")) or default_layout(port.desc.rank)
    return PortInfo(kind, name, port.desc, layout, frozenset(port.names), key)


def _fits(shape: Shape | None, sizes: tuple[int, ...]) -> bool:
    """Whether a value of these sizes is admitted by a network's shape."""
    return shape is None or shape.admits(sizes)


def _contiguous(value: Any, dtype: np.dtype[Any]) -> Array:
    """Return `value` as a C-contiguous array of `dtype`, itself when it is one already.

    Floating point becomes integers by dropping what is behind the point, as the Inference Engine
    did and as NumPy assigns: a picture of float64 is an input of U8.

    Raises:
        BlobError: when converting would lose more than that: a number that is out of range.
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise BlobError(f"it is no array: {error}") from None
    if array.dtype.kind == "S" and dtype.hasobject:
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError as error:
            raise BlobError(f"texts are UTF-8: {error}") from None
    if array.dtype != dtype:
        if not np.can_cast(array.dtype, dtype, casting="same_kind") and not _in_range(array, dtype):
            raise BlobError(
                f"cannot convert {array.dtype} to {dtype} without loss{_range(dtype)}; "
                f"use .astype({str(dtype)!r}) if that is meant"
            )
        array = array.astype(dtype)
    return array if array.flags.c_contiguous else array.copy(order="C")


def _in_range(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether numbers become integers of a type without being wrapped around."""
    if array.dtype.kind not in "fiu" or dtype.kind not in "iu":
        return False
    if not array.size:
        return True
    limits = np.iinfo(dtype)
    # What lies less than 1 beyond becomes the limit itself; Python compares without rounding.
    least, most = array.min().item(), array.max().item()
    return bool(limits.min - 1 < least and most < limits.max + 1)  # false for NaN


def _range(dtype: np.dtype[Any]) -> str:
    if dtype.kind not in "iu":
        return ""
    limits = np.iinfo(dtype)
    return f" (values must be numbers from {limits.min} to {limits.max})"
