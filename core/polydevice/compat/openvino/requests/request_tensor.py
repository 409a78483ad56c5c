"""RequestTensor: the memory of a request's input or output; BatchTensors: items of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polydevice.blob import Blob
from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.graph.ports import ConstOutput
from polydevice.compat.openvino.graph.tensor import Tensor
from polydevice.compat.openvino.types.layout import NOTE, Layout
from polydevice.dtype import Array
from polydevice.errors import BlobError
from polydevice.runtime.request_memory import PortKind
from polydevice.shape import bounds

if TYPE_CHECKING:
    from polydevice.compat.openvino.requests.infer_request import InferRequest


class RequestTensor(Tensor):
    """The tensor of an input or output: whatever memory the request has for it now."""

    __slots__ = ("_kind", "_name", "_of_request", "_port")

    def __init__(self, request: InferRequest, kind: PortKind, name: str) -> None:
        core = request._loaded.executable
        self._of_request, self._kind, self._name = request, kind, name
        self._port = (core.inputs if kind == "input" else core.outputs)[name]
        self._element = self._port.element_type

    @translated
    def _memory(self) -> Array:
        try:
            return self._of_request._request.get_blob(self._name, self._kind).array
        except BlobError:
            sizes = [bounds(size)[0] for size in self._port.shape or (0,)]
            return np.zeros(sizes, self._port.dtype)

    def _replace(self, array: Array) -> None:
        tensor = Tensor._of(np.array(array, order="C"), self._element)
        self._of_request._set(self._kind, self._name, tensor)


class BatchTensors:
    """Tensors that are the items of a batch, read anew for every inference."""

    def __init__(self, port: ConstOutput, tensors: Sequence[Any]) -> None:
        """Keep the tensors.

        Args:
            port: the input, whose layout begins with N.
            tensors: [1, …] each, as many as the batch has items.

        Raises:
            RuntimeError: no tensors, no layout with N in front, or not one for every item.
            TypeError: what is no tensor.
        """
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                raise TypeError(f"items of a batch are tensors, not {type(tensor).__name__}")
        if not tensors:
            raise RuntimeError("items of a batch: give at least one tensor")
        layout = Layout(str(port._port.node.rt_info.get(NOTE) or "..."))
        if not layout.has_name("N") or layout.get_index_by_name("N") != 0:
            raise RuntimeError(
                "items of a batch are taken by inputs whose layout has N in front; the layout is "
                f"{layout}: set one with Parameter.set_layout() before the model is compiled"
            )
        batch = None if port._port.shape is None else port._port.shape[0]
        given = sum(tensor._memory().shape[0] for tensor in tensors)
        if isinstance(batch, int) and batch != given:
            raise RuntimeError(f"{given} items are given for a batch of {batch}")
        self._tensors = tuple(tensors)

    def blob(self) -> Blob:
        """Return the items as they are now, behind each other."""
        arrays = [tensor._memory() for tensor in self._tensors]
        return Blob(np.concatenate(arrays), self._tensors[0]._element)
