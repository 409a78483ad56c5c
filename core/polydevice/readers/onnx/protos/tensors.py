"""TensorProto and SparseTensorProto → arrays, wherever their data is stored."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.errors import ModelFormatError
from polydevice.readers.onnx.budget import Budget
from polydevice.readers.onnx.protos.element_types import element_type_of
from polydevice.readers.onnx.protos.external_data import ExternalData
from polydevice.readers.onnx.protos.large_tensors import LargeTensors
from polydevice.readers.onnx.protos.messages import SparseTensorProto, TensorProto
from polydevice.shape import has_array

_FLOAT = {ElementType.f32, ElementType.c64}
_DOUBLE = {ElementType.f64, ElementType.c128}
_UINT64 = {ElementType.u32, ElementType.u64}
# 6-bit types keep one element per int32 entry; narrower ones are packed into bytes there too.
_PACKED_BITS = (1, 2, 4)


class TensorReader:
    """Turns tensors of one model into arrays."""

    def __init__(
        self, external: ExternalData, budget: Budget, large: LargeTensors | None = None
    ) -> None:
        """Read tensors.

        Args:
            external: reads external data.
            budget: counts dense forms of sparse tensors.
            large: reads what was left in the model file; None where the messages hold it all.
        """
        self._external = external
        self._budget = budget
        self._large = large

    def dense(self, tensor: TensorProto) -> tuple[Array, ElementType]:
        """Return a tensor's elements and element type.

        Raises:
            ModelFormatError: when type, shape and amount of data do not agree.
            ModelFileError, WeightsError: for external data, see `ExternalData.read`.
        """
        element_type = element_type_of(tensor.data_type)
        shape = _shape(tensor.dims, tensor.name)
        if tensor.HasField("segment"):
            raise ModelFormatError(f"tensor {tensor.name!r}: segments are not supported")
        if element_type is ElementType.string:
            return self._strings(tensor, shape), element_type
        bits = element_type.bits
        size_bytes = -(-math.prod(shape) * bits // 8)
        raw: bytes | Array
        if tensor.data_location == TensorProto.EXTERNAL:
            raw = self._external.read(tensor.name, _entries(tensor), size_bytes)
        elif tensor.HasField("raw_data"):
            raw = tensor.raw_data if self._large is None else self._large.data(tensor.raw_data)
            if len(raw) != size_bytes:
                raise ModelFormatError(
                    f"tensor {tensor.name!r} has {len(raw)} bytes of data; "
                    f"{element_type}{list(shape)} needs {size_bytes}"
                )
        else:
            return _typed(tensor, element_type, shape), element_type
        return from_bytes(raw, element_type, shape), element_type

    def _strings(self, tensor: TensorProto, shape: tuple[int, ...]) -> Array:
        if tensor.HasField("raw_data") or tensor.data_location == TensorProto.EXTERNAL:
            raise ModelFormatError(f"string tensor {tensor.name!r} must use string_data")
        items = [text.decode("utf-8", "surrogateescape") for text in tensor.string_data]
        _check_count(tensor.name, len(items), shape)
        array = np.empty(len(items), object)
        array[:] = items
        return array.reshape(shape)

    def sparse(self, tensor: SparseTensorProto) -> tuple[Array, ElementType]:
        """Return a sparse tensor in dense form.

        Raises:
            ModelFormatError: for indices outside the shape, or of the wrong shape.
            ModelLimitError: when sparse tensors together get too large.
        """
        name = tensor.values.name
        values, element_type = self.dense(tensor.values)
        indices, index_type = self.dense(tensor.indices)
        shape = _shape(tensor.dims, name)
        count = math.prod(shape)
        if index_type is not ElementType.i64 or values.ndim != 1:
            raise ModelFormatError(f"sparse tensor {name!r}: needs 1-D values and int64 indices")
        self._budget.take_dense(count * element_type.dtype.itemsize)
        if indices.shape == (len(values), len(shape)) and len(shape) != 1:
            if np.any(indices < 0) or np.any(indices >= np.array(shape)):
                raise ModelFormatError(f"sparse tensor {name!r}: an index lies outside {shape}")
            indices = np.ravel_multi_index(tuple(indices.T), shape)
        elif indices.size != len(values):
            raise ModelFormatError(
                f"sparse tensor {name!r}: {list(indices.shape)} indices for {len(values)} values"
            )
        flat = indices.reshape(-1)
        if np.any(flat < 0) or np.any(flat >= count):
            raise ModelFormatError(f"sparse tensor {name!r}: an index lies outside {shape}")
        array = np.zeros(count, element_type.dtype)
        array[flat] = values
        return array.reshape(shape), element_type


def from_bytes(raw: bytes | Array, element_type: ElementType, shape: tuple[int, ...]) -> Array:
    """Read little-endian elements; those narrower than a byte are packed, lowest bits first."""
    data = np.frombuffer(raw, np.uint8) if isinstance(raw, bytes) else np.asarray(raw)
    if element_type.bits < 8:
        return _unpack(data, element_type, shape)
    if element_type is ElementType.boolean:
        return np.asarray(data != 0).reshape(shape)
    return data.view(element_type.dtype).reshape(shape)


def _unpack(data: Array, element_type: ElementType, shape: tuple[int, ...]) -> Array:
    count, bits = math.prod(shape), element_type.bits
    if 8 % bits == 0:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        codes = (data[:, None] >> shifts) & np.uint8((1 << bits) - 1)
    else:
        stream = np.unpackbits(data, bitorder="little")[: count * bits].reshape(count, bits)
        codes = np.packbits(stream, axis=1, bitorder="little")
    return np.asarray(codes.reshape(-1)[:count].view(element_type.dtype)).reshape(shape)


def _typed(tensor: TensorProto, element_type: ElementType, shape: tuple[int, ...]) -> Array:
    """Read data from the field that belongs to the type (float_data, int32_data…)."""
    name, count = tensor.name, math.prod(shape)
    if element_type in _FLOAT or element_type in _DOUBLE:
        single = element_type in _FLOAT
        numbers = np.array(
            tensor.float_data if single else tensor.double_data,
            np.float32 if single else np.float64,
        )
        if element_type in (ElementType.c64, ElementType.c128):
            _check_count(name, len(numbers), (2, count))
        else:
            _check_count(name, len(numbers), shape)
        return numbers.view(element_type.dtype).reshape(shape)
    if element_type is ElementType.i64 or element_type in _UINT64:
        wide = tensor.int64_data if element_type is ElementType.i64 else tensor.uint64_data
        _check_count(name, len(wide), shape)
        return (
            np.array(wide, np.int64 if element_type is ElementType.i64 else np.uint64)
            .astype(element_type.dtype)
            .reshape(shape)
        )
    numbers = np.array(tensor.int32_data, np.int32)
    if element_type.bits in _PACKED_BITS:
        _check_count(name, len(numbers), (-(-count * element_type.bits // 8),))
        return _unpack(numbers.astype(np.uint8), element_type, shape)
    _check_count(name, len(numbers), shape)
    if element_type is ElementType.boolean:
        return np.asarray(numbers != 0).reshape(shape)
    if element_type.is_integer:
        return numbers.astype(element_type.dtype).reshape(shape)
    codes = numbers.astype(np.uint16 if element_type.bits == 16 else np.uint8)
    return codes.view(element_type.dtype).reshape(shape)


def _shape(dims: Sequence[int], name: str) -> tuple[int, ...]:
    shape = tuple(int(size) for size in dims)
    if any(size < 0 for size in shape):
        raise ModelFormatError(f"tensor {name!r} has a negative size in {list(shape)}")
    if len(shape) > 32:
        raise ModelFormatError(f"tensor {name!r} has rank {len(shape)}; at most 32 is possible")
    if not has_array(shape):
        raise ModelFormatError(f"tensor {name!r} has sizes {list(shape)}, which no array can have")
    return shape


def _check_count(name: str, count: int, shape: Sequence[int]) -> None:
    if count != math.prod(shape):
        raise ModelFormatError(
            f"tensor {name!r} has {count} elements of data; its shape needs {math.prod(shape)}"
        )


def _entries(tensor: TensorProto) -> dict[str, str]:
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key in entries:
            raise ModelFormatError(
                f"tensor {tensor.name!r}: external data entry {entry.key!r} is given twice"
            )
        entries[entry.key] = entry.value
    return entries
