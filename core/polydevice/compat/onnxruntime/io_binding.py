"""IOBinding: inputs and outputs in memory of the caller's choice, without copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polydevice.compat.onnxruntime.errors import InvalidArgument
from polydevice.compat.onnxruntime.model import misfit
from polydevice.compat.onnxruntime.surface import Surface
from polydevice.compat.onnxruntime.values import (
    OrtValue,
    allocate,
    at_address,
    element_type,
    is_gpu,
)
from polydevice.dtype import Array
from polydevice.remote import RemoteBlob
from polydevice.shape import Shape

if TYPE_CHECKING:
    from polydevice.compat.onnxruntime.session import InferenceSession

_element_type = element_type  # methods have an argument of the same name


class IOBinding(Surface):
    """Memory for the inputs and outputs of a session's runs.

    Host memory is read and written in place, and so is memory on the session's device. An output
    that is bound to a device and not to memory stays there, in memory that the next run reuses.
    """

    def __init__(self, session: InferenceSession) -> None:
        """Make a binding with nothing bound."""
        self._session = session
        self._request = session._loaded.executable.create_infer_request()
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}
        self._new_inputs: dict[str, Any] = {}  # not the request's yet
        self._new_outputs: dict[str, Any] = {}
        self._is_stale = False  # the request has memory that is not bound any more

    # -- inputs -------------------------------------------------------------------------------

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Read an input from an array, in place when it is C-contiguous."""
        self._bind_input(name, np.asarray(arr_on_cpu, order="C"))

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Read an input from memory at an address of the host.

        Raises:
            RuntimeError: an address of a GPU, which belongs to another library than OpenCL.
        """
        self._bind_input(name, _memory(device_type, element_type, shape, buffer_ptr))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Read an input from an OrtValue, in place."""
        self._bind_input(name, ortvalue._blob)

    def _bind_input(self, name: str, value: Any) -> None:
        if name not in self._session._loaded.descs:
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")
        self._inputs[name] = self._new_inputs[name] = value

    def synchronize_inputs(self) -> None:
        """Return: inputs are read when the run begins."""

    # -- outputs ------------------------------------------------------------------------------

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Write an output into memory at an address of the host, or into memory made for it.

        Args:
            name: of the output.
            device_type: "cpu", or "cuda" or "gpu" to leave it on the device.
            device_id: the device's number.
            element_type: NumPy type or ONNX's number; needed with `shape`.
            shape: sizes; without them the model decides.
            buffer_ptr: address; without one memory is made.

        Raises:
            RuntimeError: an address of a GPU.
        """
        if buffer_ptr is not None and shape is not None:
            memory: Any = _memory(device_type, element_type, shape, buffer_ptr)
        elif shape is not None and element_type is not None:
            memory = allocate(_element_type(element_type), shape, device_type, device_id)
        else:
            memory = "gpu" if is_gpu(device_type) else "cpu"
        self._bind_output(name, memory)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Write an output into an OrtValue."""
        self._bind_output(name, ortvalue._blob)

    def _bind_output(self, name: str, memory: Any) -> None:
        """Bind memory, or "cpu" or "gpu" for memory of the request's own there."""
        if name in self._outputs and isinstance(memory, str):
            before = self._outputs[name]
            self._is_stale |= not (isinstance(before, str) and before == memory)
        self._outputs[name] = self._new_outputs[name] = memory

    def synchronize_outputs(self) -> None:
        """Return: a run ends when its outputs are there."""

    def get_outputs(self) -> list[OrtValue]:
        """Return the outputs in the order of binding; the next run overwrites them."""
        return [OrtValue(self._value(name), session=self._session) for name in self._outputs]

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """Return the outputs; see `get_outputs`."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Array]:
        """Return copies of the outputs in host memory."""
        return [value.numpy() for value in self.get_outputs()]

    def _value(self, name: str) -> Any:
        blob = self._request.get_blob(self._session._loaded.outputs[name][0], "output")
        return blob if isinstance(blob, RemoteBlob) else blob.array

    # -- both ---------------------------------------------------------------------------------

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs.clear()
        self._new_inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs; the next run makes new memory for what is bound then."""
        self._outputs.clear()
        self._renew()

    def _renew(self) -> None:
        """Go on with another request, which has none of the memory of this one."""
        self._request = self._session._loaded.executable.create_infer_request()
        self._new_inputs, self._new_outputs = dict(self._inputs), dict(self._outputs)
        self._is_stale = False

    def _run(self) -> None:
        """Run the session's request on what is bound."""
        descs = self._session._loaded.descs
        if len(self._inputs) != len(descs):
            missing = [name for name in descs if name not in self._inputs]
            raise InvalidArgument.of(f"Missing Input: {', '.join(missing)}")
        if not self._outputs:
            raise InvalidArgument.of("At least one output should be requested.")
        if self._is_stale:
            self._renew()
        if self._new_inputs or self._new_outputs:
            self._apply()
        self._request.infer()
        for name, memory in self._outputs.items():
            if isinstance(memory, np.ndarray) and (found := self._value(name)) is not memory:
                self._new_outputs[name] = memory  # which the request has let go
                raise InvalidArgument.of(
                    f"output {name} has shape {Shape(found.shape)} with these inputs, but the "
                    f"memory bound to it has {Shape(memory.shape)}"
                )

    def _apply(self) -> None:
        loaded, request = self._session._loaded, self._request
        for name, memory in self._new_inputs.items():
            found = misfit(name, loaded.descs[name], memory)
            if found is not None:
                raise found
            request.set_blob(name, memory, "input")
        for name, memory in self._new_outputs.items():
            if name not in loaded.outputs:
                raise InvalidArgument.of(f"Invalid output name: {name}")
            own = loaded.outputs[name][0]
            if not isinstance(memory, str):
                request.set_blob(own, memory, "output")
            elif memory == "gpu":
                request.keep_on_device(own)
        self._new_inputs, self._new_outputs = {}, {}


def _memory(device_type: str, element_type: Any, shape: Sequence[int], address: int) -> Array:
    if is_gpu(device_type):
        raise RuntimeError(
            "an address in a GPU's memory belongs to the library that allocated it, and OpenCL "
            "cannot use it; copy it to the host, or use OrtValue.ortvalue_from_numpy(array, 'gpu')"
        )
    return at_address(address, _element_type(element_type), shape)
