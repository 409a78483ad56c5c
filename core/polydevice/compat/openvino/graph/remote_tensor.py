"""RemoteTensor: memory of a device; TensorVector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from polydevice.blob import Blob
from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.surface import Surface
from polydevice.compat.openvino.types.element_type import Type, type_of
from polydevice.compat.openvino.types.shapes import Shape
from polydevice.remote import RemoteBlob


class RemoteTensor(Surface):
    """Memory of a device."""

    __slots__ = ("_remote",)

    def __init__(self, remote: RemoteBlob) -> None:
        """Wrap core's blob."""
        self._remote = remote

    def _blob(self) -> Blob:
        return self._remote

    @translated
    def copy_to(self, target_tensor: Any) -> None:
        """Copy the elements into another tensor.

        Raises:
            RuntimeError: another type or shape.
        """
        if isinstance(target_tensor, RemoteTensor):
            target_tensor.copy_from(self)
            return
        target_tensor.set_shape(self._remote.shape)
        self._remote.copy_to(target_tensor._memory())

    @translated
    def copy_from(self, source_tensor: Any) -> None:
        """Take the elements of another tensor.

        Raises:
            RuntimeError: another type or shape.
        """
        source = source_tensor._blob()
        self._remote.copy_from(source if isinstance(source, RemoteBlob) else source.array)

    def get_shape(self) -> Shape:
        """Return the sizes."""
        return Shape(self._remote.shape)

    @property
    def shape(self) -> Shape:
        """Sizes."""
        return Shape(self._remote.shape)

    @property
    def element_type(self) -> Type:
        """Type of the elements."""
        return type_of(self._remote.element_type)

    def get_element_type(self) -> Type:
        """Return the type of the elements."""
        return self.element_type

    def get_byte_size(self) -> int:
        """Return the bytes of the elements."""
        return self._remote.desc.span_bytes or 0

    def get_device_name(self) -> str:
        """Return the name of the device."""
        return self._remote.context.device_name

    @translated
    def get_params(self) -> dict[str, Any]:
        """Return what describes the memory."""
        return self._remote.params

    def _none(self) -> Any:
        raise RuntimeError("memory of a device is not the host's; use copy_to()")

    data = property(_none, doc="There is none: use `copy_to`.")
    bytes_data = property(_none, doc="There is none: use `copy_to`.")
    str_data = property(_none, doc="There is none: use `copy_to`.")

    def __repr__(self) -> str:
        return f"<RemoteTensor: shape{self.shape} type: {self._remote.element_type.value}>"


class TensorVector(list[Any]):
    """Tensors in order."""

    def __init__(self, tensors: Iterable[Any] = ()) -> None:
        """Copy a list."""
        super().__init__(tensors)
