"""Tensor: host memory with a type and a shape."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polydevice.blob import Blob, RoiBlob
from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.graph.ports import ConstOutput
from polydevice.compat.openvino.graph.remote_tensor import RemoteTensor
from polydevice.compat.openvino.surface import Surface
from polydevice.compat.openvino.types.element_type import Type, element_of, type_of
from polydevice.compat.openvino.types.packing import packed, unpacked
from polydevice.compat.openvino.types.shapes import Shape, Strides, core_shape
from polydevice.dtype import Array, ElementType
from polydevice.errors import BlobError


class Tensor(Surface):
    """Host memory; `data` is a view of it."""

    __slots__ = ("_array", "_element")
    _element: ElementType
    _array: Array

    @translated
    def __init__(
        self,
        array: Any = None,
        shape: Any = None,
        type: Any = None,  # noqa: A002 - its name
        shared_memory: bool = False,
        *,
        image: Any = None,
        port: Any = None,
        other: Any = None,
        begin: Any = None,
        end: Any = None,
    ) -> None:
        """Make a tensor of an array (copied unless it is to be shared), or of type and shape.

        Args:
            array: NumPy array, what makes one, another tensor; or the element type, with `shape`;
                or an input or output of a model, whose type and shape are taken, with an array to
                share in place of `shape`.
            shape: sizes; with `array` and `type` the memory is taken for such a tensor, shared.
            type: element type, a Type or NumPy's; also in place of `array`.
            shared_memory: read and write the array's own memory, which is C-contiguous then.
            image: an object with NumPy's array interface, such as one of Pillow's.
            port: in place of `array`.
            other: in place of `array`: another tensor.
            begin: first element of the region of another tensor that this one is; or `shape`.
            end: the element behind its last; or `type`.

        Raises:
            RuntimeError: memory that cannot be shared, or too little of it.
        """
        array = next((each for each in (array, image, port, other) if each is not None), None)
        if isinstance(array, Type) or _is_type(array):
            self._allocate(element_of(array), shape)
        elif array is None:
            self._allocate(element_of(type), shape)
        elif isinstance(array, (Tensor, RemoteTensor)):
            self._share(array)
            self._cut(shape if begin is None else begin, type if end is None else end)
        elif isinstance(array, ConstOutput):
            self._allocate(element_of(array.element_type), array.shape)
            if shape is not None:
                self._array = _seen_as(np.asarray(shape), self._element, array.shape)
        elif shape is not None and type is not None:
            self._element = element_of(type)
            self._array = _seen_as(np.asarray(array), self._element, shape)
        else:
            self._take(np.asarray(array), shared_memory)

    @classmethod
    def _of(cls, array: Array, element: ElementType) -> Tensor:
        made = cls.__new__(cls)
        made._array, made._element = array, element
        return made

    def _allocate(self, element: ElementType, shape: Any) -> None:
        sizes = core_shape(() if shape is None else shape)
        if sizes is None:
            raise RuntimeError("a tensor needs sizes; this shape's rank is not known")
        self._element = element
        self._array = np.zeros(sizes.static, element.dtype)

    def _share(self, other: Tensor | RemoteTensor) -> None:
        if isinstance(other, RemoteTensor):
            raise RuntimeError("a tensor of a device is no host memory; use copy_to()")
        self._array, self._element = other._memory(), other._element

    def _cut(self, begin: Any, end: Any) -> None:
        """Be the region between two elements of what is shared."""
        if begin is None and end is None:
            return
        first, last, sizes = list(begin), list(end), self._array.shape
        inside = all(0 <= a <= b <= size for a, b, size in zip(first, last, sizes, strict=False))
        if not (inside and len(first) == len(last) == len(sizes)):
            raise RuntimeError(f"a region from {first} to {last} is not inside {list(sizes)}")
        self._array = self._array[tuple(slice(a, b) for a, b in zip(first, last, strict=True))]

    def _take(self, array: Array, shared_memory: bool) -> None:
        if shared_memory and not array.flags.c_contiguous:
            raise RuntimeError(
                "SHARED MEMORY MODE FOR THIS TENSOR IS NOT APPLICABLE! The array must be C "
                "contiguous; use np.ascontiguousarray() first"
            )
        self._element = ElementType.of(array.dtype)
        if self._element is ElementType.string:
            array = array.astype(object)
        self._array = array if shared_memory else np.array(array, order="C", copy=True)

    def _memory(self) -> Array:
        return self._array

    # -- content ------------------------------------------------------------------------------

    @property
    def data(self) -> Array:
        """The elements, shared; of text a copy, as bytes; narrower than a byte, a packed copy."""
        if self._element is ElementType.string:
            warnings.warn(
                "Data of string type will be copied! Please use dedicated properties `str_data` "
                "and `bytes_data` to avoid confusion while accessing Tensor's contents.",
                RuntimeWarning,
                stacklevel=2,
            )
            return self.bytes_data
        if self._element.bits < 8:
            return packed(self._memory(), self._element)
        return self._memory()

    @data.setter
    def data(self, value: Any) -> None:
        self._fill(value)

    @property
    def bytes_data(self) -> Array:
        """The texts as bytes, a copy."""
        return _each(self._memory(), _encoded, np.bytes_)

    @bytes_data.setter
    def bytes_data(self, value: Any) -> None:
        self._fill(np.asarray(value).astype(object))

    @property
    def str_data(self) -> Array:
        """The texts, a copy."""
        return _each(self._memory(), _decoded, np.str_)

    @str_data.setter
    def str_data(self, value: Any) -> None:
        self._fill(np.asarray(value).astype(object))

    def _fill(self, value: Any) -> None:
        array = np.asarray(value)
        if array.ndim and array.shape != self._memory().shape:
            self.set_shape(array.shape)
        self._memory()[...] = array

    def copy_to(self, target_tensor: Tensor | RemoteTensor) -> None:
        """Copy the elements into another tensor, which takes this one's shape.

        Raises:
            RuntimeError: another element type.
        """
        target_tensor.copy_from(self)

    def copy_from(self, source_tensor: Any) -> None:
        """Take the elements and the shape of another tensor.

        Raises:
            RuntimeError: another element type.
        """
        if isinstance(source_tensor, RemoteTensor):
            source_tensor.copy_to(self)
            return
        array = source_tensor._memory() if isinstance(source_tensor, Tensor) else source_tensor
        if array.dtype != self._memory().dtype:
            raise RuntimeError(
                f"Tensor element types are not equal. ({array.dtype} != {self._memory().dtype})"
            )
        self.set_shape(array.shape)
        self._memory()[...] = array

    # -- description --------------------------------------------------------------------------

    @property
    def element_type(self) -> Type:
        """Type of the elements."""
        return type_of(self._element)

    def get_element_type(self) -> Type:
        """Return the type of the elements."""
        return type_of(self._element)

    @property
    def shape(self) -> Shape:
        """Sizes; assigning others keeps the memory where it is large enough."""
        return Shape(self._memory().shape)

    @shape.setter
    def shape(self, shape: Any) -> None:
        self.set_shape(shape)

    def get_shape(self) -> Shape:
        """Return the sizes."""
        return Shape(self._memory().shape)

    @translated
    def set_shape(self, shape: Any) -> None:
        """Give the tensor other sizes; the elements are kept when there are as many."""
        sizes = _sizes(shape)
        memory = self._memory()
        if sizes == memory.shape:
            return
        if math.prod(sizes) == memory.size:
            self._replace(memory.reshape(sizes))
        else:
            self._replace(np.zeros(sizes, memory.dtype))

    def _replace(self, array: Array) -> None:
        self._array = array

    @property
    def strides(self) -> Strides:
        """Bytes from one element to the next, along every axis."""
        return Strides(self._memory().strides)

    def get_strides(self) -> Strides:
        """Return the bytes from one element to the next, along every axis."""
        return self.strides

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._memory().size

    def get_size(self) -> int:
        """Return the number of elements."""
        return self._memory().size

    @property
    def byte_size(self) -> int:
        """Bytes of the elements."""
        return (self.size * self.element_type.bitwidth + 7) // 8

    def get_byte_size(self) -> int:
        """Return the bytes of the elements."""
        return self.byte_size

    def is_continuous(self) -> bool:
        """Whether the elements follow each other."""
        return self._memory().flags.c_contiguous

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the elements as NumPy, shared where neither a copy nor another type is asked for.

        Raises:
            ValueError: `copy` is False, and another type is asked for.
        """
        array = self._memory()
        if dtype is None or np.dtype(dtype) == array.dtype:
            return array.copy() if copy else array
        if copy is False:
            raise ValueError(f"a tensor of {array.dtype} cannot be seen as {dtype} without a copy")
        return array.astype(dtype)

    def __dlpack__(self, **arguments: Any) -> Any:
        """Share the memory through DLPack."""
        return self._memory().__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's number of the host."""
        kind, number = self._memory().__dlpack_device__()
        return int(kind), int(number)

    def __copy__(self) -> Tensor:
        return Tensor._of(self._memory(), self._element)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return Tensor._of(self._memory().copy(), self._element)

    def _blob(self) -> Blob:
        memory = self._memory()
        of_region = RoiBlob if not memory.flags.c_contiguous else Blob
        return of_region(memory, self._element)

    def __repr__(self) -> str:
        return f"<Tensor: shape{self.shape} type: {self._element.value}>"


def _is_type(value: Any) -> bool:
    return isinstance(value, np.dtype) or (isinstance(value, type) and value is not None)


def _sizes(shape: Any) -> tuple[int, ...]:
    sizes = core_shape(shape)
    if sizes is None:
        raise BlobError("a tensor needs sizes; this shape's rank is not known")
    return sizes.static


def _seen_as(array: Array, element: ElementType, shape: Any) -> Array:
    """Return memory as a tensor of that type and shape; packed types are unpacked into a copy."""
    sizes = _sizes(shape)
    count = math.prod(sizes)
    if element.dtype.itemsize == array.dtype.itemsize and element.bits >= 8:
        if array.size < count or not array.flags.c_contiguous:
            raise RuntimeError(
                f"the array of {array.size} elements cannot be the memory of {count}; it must be C "
                "contiguous and large enough"
            )
        return array.reshape(-1)[:count].view(element.dtype).reshape(sizes)
    return unpacked(array.reshape(-1).view(np.uint8), element, count).reshape(sizes)


def _each(texts: Array, convert: Callable[[Any], Any], kind: Any) -> Array:
    return np.asarray([convert(text) for text in texts.reshape(-1)], kind).reshape(texts.shape)


def _encoded(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode()


def _decoded(text: Any) -> str:
    return text.decode() if isinstance(text, bytes) else str(text)


def arrays_of(tensors: Sequence[Any]) -> list[Array]:
    """Return the memory of tensors in host memory."""
    return [tensor._memory() for tensor in tensors]
