"""RemoteContext: a device's memory, in which tensors are made."""

from __future__ import annotations

from typing import Any

import numpy as np

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.graph.remote_tensor import RemoteTensor
from polydevice.compat.openvino.graph.tensor import Tensor
from polydevice.compat.openvino.surface import Surface
from polydevice.compat.openvino.types.element_type import element_of
from polydevice.compat.openvino.types.shapes import core_shape
from polydevice.remote import RemoteContext as CoreContext
from polydevice.tensor import TensorDesc


class RemoteContext(Surface):
    """A device's memory, in which models are loaded and tensors are made."""

    def __init__(self, context: CoreContext) -> None:
        """Show core's."""
        self._context = context

    def get_device_name(self) -> str:
        """Return the name of the device."""
        return self._context.device_name

    def get_params(self) -> dict[str, Any]:
        """Return what describes the context."""
        return self._context.params

    @translated
    def create_tensor(
        self,
        type: Any,  # noqa: A002 - its name
        shape: Any,
        properties: Any = None,
    ) -> RemoteTensor:
        """Allocate memory of the device, or wrap memory that the properties describe."""
        desc = TensorDesc(element_of(type), core_shape(shape))
        return RemoteTensor(self._context.create_blob(desc, properties or None))

    @translated
    def create_host_tensor(self, type: Any, shape: Any) -> Tensor:  # noqa: A002 - its name
        """Make memory of the host."""
        sizes = core_shape(shape)
        if sizes is None:
            raise RuntimeError("a tensor needs sizes; this shape's rank is not known")
        element = element_of(type)
        return Tensor._of(np.zeros(sizes.static, element.dtype), element)
