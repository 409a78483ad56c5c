"""OrtValue and OrtDevice: values in host memory or on a device."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from polydevice.blob import Blob
from polydevice.compat.onnxruntime.enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtMemType,
)
from polydevice.compat.onnxruntime.surface import Surface
from polydevice.core import shared_core
from polydevice.dtype import Array, ElementType
from polydevice.readers.onnx.protos.element_types import code_of, element_type_of
from polydevice.remote import RemoteBlob
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc

_NAMES = {
    ElementType.f32: "float",
    ElementType.f64: "double",
    ElementType.f16: "float16",
    ElementType.bf16: "bfloat16",
    ElementType.boolean: "bool",
    ElementType.c64: "complex64",
    ElementType.c128: "complex128",
    ElementType.f8e4m3: "float8e4m3fn",
    ElementType.f8e4m3fnuz: "float8e4m3fnuz",
    ElementType.f8e5m2: "float8e5m2",
    ElementType.f8e5m2fnuz: "float8e5m2fnuz",
    ElementType.f4e2m1: "float4e2m1",
}
_ON_GPU = ("gpu", "cuda", "rocm", "hip", "dml", "webgpu")
_DEVICES = {"cpu": 0, **dict.fromkeys(_ON_GPU, 1), "npu": 3}


def type_name(desc: TensorDesc) -> str:
    """Return onnxruntime's name of a type, such as ``tensor(float)`` or ``seq(tensor(int64))``."""
    element = desc.element_type.value
    if element[0] in "iu" and element[1:].isdecimal():
        element = ("int" if element[0] == "i" else "uint") + element[1:]
    name = f"tensor({_NAMES.get(desc.element_type, element)})"
    if desc.kind.endswith("maps"):
        return f"seq(map({'string' if desc.kind == 'text_maps' else 'int64'},{name}))"
    if "sequence" in desc.kind:
        name = f"seq({name})"
    return f"optional({name})" if desc.kind.startswith("optional") else name


def element_type(wanted: Any) -> ElementType:
    """Return the element type for a NumPy type or ONNX's number of one."""
    if isinstance(wanted, int):
        return element_type_of(wanted)
    return ElementType.of(wanted)


class OrtDevice(Surface):
    """A kind of device and its number."""

    def __init__(self, c_ort_device: tuple[str, int]) -> None:
        """Keep name and number; `make` checks them."""
        self._name, self._number = c_ort_device

    @staticmethod
    def make(
        ort_device_name: str, device_id: int, vendor_id: int | OrtDeviceVendorId = -1
    ) -> OrtDevice:
        """Describe a device.

        Raises:
            Exception: for a name that is unknown.
        """
        if ort_device_name.lower() not in _DEVICES:
            raise Exception(f"Unsupported device type: {ort_device_name}")
        return OrtDevice((ort_device_name.lower(), int(device_id)))

    def device_id(self) -> int:
        """Return the device's number."""
        return self._number

    def device_type(self) -> int:
        """Return 0 for the host, 1 for a GPU, 3 for an NPU."""
        return _DEVICES[self._name]

    def device_mem_type(self) -> int:
        """Return 0: the device's own memory."""
        return int(OrtDeviceMemoryType.DEFAULT)

    def device_vendor_id(self) -> int:
        """Return 0: not told."""
        return int(OrtDeviceVendorId.NONE)


class OrtMemoryInfo(Surface):
    """Describes memory; nothing here takes one."""

    def __init__(self, arg0: str, arg1: OrtAllocatorType, arg2: int, arg3: OrtMemType) -> None:
        """Keep what is described."""
        self.name, self.allocator_type, self.device_id, self.mem_type = arg0, arg1, arg2, arg3
        self.device_mem_type = OrtDeviceMemoryType.DEFAULT
        self.device_vendor_id = int(OrtDeviceVendorId.NONE)


def get_ort_device_type(device_type: str) -> int:
    """Return 0 for the host, 1 for a GPU, 3 for an NPU.

    Raises:
        Exception: for a name that is unknown.
    """
    if device_type not in _DEVICES:
        raise Exception(f"Unsupported device type: {device_type}")
    return _DEVICES[device_type]


def is_gpu(device_type: str) -> bool:
    """Whether a device's name means a GPU, or else the host.

    Raises:
        Exception: it means neither.
    """
    if device_type.lower() in _ON_GPU:
        return True
    if device_type.lower() == "cpu":
        return False
    raise Exception(f"Unsupported device type: {device_type}")


def allocate(
    kind: ElementType, shape: Sequence[int], device_type: str, device_id: int
) -> Array | RemoteBlob:
    """Make memory on the host or on a GPU.

    Raises:
        Exception: no such kind of device.
        PolydeviceError: (a subclass) there is no GPU, or it has too little memory.
    """
    if not is_gpu(device_type):
        return np.empty(tuple(shape), kind.dtype)
    name = f"GPU.{device_id}" if device_id else "GPU"
    return shared_core().get_default_context(name).create_blob(TensorDesc(kind, Shape(shape)))


def at_address(address: int, kind: ElementType, shape: Sequence[int]) -> Array:
    """Return host memory at an address as an array; whoever gave the address keeps it alive."""
    size = int(np.prod(shape, dtype=np.int64)) * kind.dtype.itemsize
    memory = (ctypes.c_byte * size).from_address(address)
    array: Array = np.ctypeslib.as_array(memory).view(kind.dtype).reshape(tuple(shape))
    return array


class OrtValue(Surface):
    """A tensor in host memory (shared with NumPy) or on a GPU, or a list of arrays."""

    def __init__(self, ortvalue: Any, numpy_obj: Array | None = None, session: Any = None) -> None:
        """Wrap an array, a blob on a device, or a list of arrays; see the class methods."""
        self._value = ortvalue
        self._session = session  # whose memory it may be

    @classmethod
    def ortvalue_from_numpy(
        cls,
        numpy_obj: Array,
        /,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int | OrtDeviceVendorId = -1,
    ) -> OrtValue:
        """Share an array ("cpu"), or copy it to a GPU."""
        if not is_gpu(device_type):
            return cls(np.asarray(numpy_obj, order="C"))
        array = np.asarray(numpy_obj, order="C")
        blob = allocate(ElementType.of(array.dtype), array.shape, device_type, device_id)
        assert isinstance(blob, RemoteBlob)
        blob.copy_from(array)
        return cls(blob)

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, /, onnx_element_type: int) -> OrtValue:
        """Share an array whose elements are those of another type of the same width."""
        return cls(np.asarray(data, order="C").view(element_type_of(onnx_element_type).dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int | OrtDeviceVendorId = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """Make memory, not initialised."""
        return cls(allocate(_element_type(element_type), shape, device_type, device_id))

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """Share host memory of another library.

        Raises:
            BufferError: it is not in host memory.
        """
        return cls(np.from_dlpack(data))

    @property
    def _blob(self) -> Any:
        """What a request takes: the array, or the blob on the device."""
        return self._value

    def _desc(self) -> TensorDesc:
        if isinstance(self._value, Blob):
            return self._value.desc
        if isinstance(self._value, list):
            first = self._value[0] if self._value else np.empty(0, np.float32)
            return TensorDesc(ElementType.of(first.dtype), kind="sequence")
        return TensorDesc(ElementType.of(self._value.dtype), Shape(self._value.shape))

    def numpy(self) -> Array:
        """Return a copy in host memory."""
        if isinstance(self._value, list):
            raise RuntimeError("Only OrtValues that are Tensors are supported; this is a sequence.")
        if isinstance(self._value, RemoteBlob):
            array = np.empty(self._value.shape, self._value.element_type.dtype)
            self._value.copy_to(array)
            return array
        copied: Array = self._value.copy()
        return copied

    def update_inplace(self, data: Array) -> None:
        """Overwrite the content.

        Raises:
            RuntimeError: another type or shape.
        """
        desc = self._desc()
        if data.dtype != desc.dtype or desc.shape is None or data.shape != tuple(desc.shape):
            raise RuntimeError(
                f"The input's {data.dtype}{list(data.shape)} is not the OrtValue's "
                f"{desc.dtype}{list(desc.shape or ())}"
            )
        if isinstance(self._value, RemoteBlob):
            self._value.copy_from(np.ascontiguousarray(data))
        else:
            self._value[...] = data

    def shape(self) -> list[int]:
        """Return the sizes."""
        shape = self._desc().shape
        return [] if shape is None else list(shape.static)

    def data_type(self) -> str:
        """Return the type, such as "tensor(float)"."""
        return type_name(self._desc())

    def element_type(self) -> int:
        """Return ONNX's number of the element type."""
        return code_of(self._desc().element_type)

    def device_name(self) -> str:
        """Return "cpu" or "gpu"."""
        return "gpu" if isinstance(self._value, RemoteBlob) else "cpu"

    def data_ptr(self) -> int:
        """Return the address of host memory.

        Raises:
            RuntimeError: memory of a GPU has none that another library could use.
        """
        if isinstance(self._value, np.ndarray):
            return int(self._value.ctypes.data)
        raise RuntimeError("this OrtValue has no address in host memory; use numpy() for a copy")

    def tensor_size_in_bytes(self) -> int:
        """Return the size of the content."""
        desc = self._desc()
        return 0 if desc.shape is None else desc.shape.elements * desc.dtype.itemsize

    def has_value(self) -> bool:
        """Whether there is a value: an optional may be empty."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return not isinstance(self._value, list)

    def is_tensor_sequence(self) -> bool:
        """Whether it is a sequence of tensors."""
        return isinstance(self._value, list)

    def is_sparse_tensor(self) -> bool:
        """Return False: there are none here."""
        return False

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return a copy as NumPy."""
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, **arguments: Any) -> Any:
        """Share host memory through DLPack."""
        return self._value.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's number of the device."""
        kind, number = self._value.__dlpack_device__()
        return int(kind), int(number)


_element_type = element_type  # a method's argument has the same name


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copy each value into the one at the same place, between whatever devices.

    Raises:
        ValueError: lists of different length.
        RuntimeError: another type or shape.
    """
    if len(src) != len(dst):
        raise ValueError(f"{len(src)} values cannot be copied into {len(dst)}")
    for one, other in zip(src, dst, strict=True):
        other.update_inplace(one.numpy())
