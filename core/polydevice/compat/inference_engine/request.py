"""InferRequest: one inference at a time."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from polydevice.blob import Blob as CoreBlob
from polydevice.compat.inference_engine.blobs import Blob, TensorDesc
from polydevice.compat.inference_engine.constants import StatusCode
from polydevice.compat.inference_engine.descriptions import PreProcessInfo, model_sizes
from polydevice.compat.inference_engine.surface import Surface
from polydevice.compat.openvino.errors import failure, translated
from polydevice.dtype import Array
from polydevice.errors import PolydeviceError
from polydevice.infer_request import InferRequest as CoreRequest
from polydevice.runtime.port_info import PortInfo
from polydevice.runtime.variable_state import VariableState as CoreState


class InferRequest(Surface):
    """One inference at a time."""

    def __init__(self, request: CoreRequest) -> None:
        """Show core's."""
        self._request = request
        self._executable = request.executable
        self._arrays: dict[str, Array] = {}
        self._held: dict[str, Blob] = {}

    # -- running ------------------------------------------------------------------------------

    def infer(self, inputs: Mapping[str, Any] | None = None) -> None:
        """Run one inference; `output_blobs` then have the results.

        Args:
            inputs: name → array, which is copied into the input's memory.

        Raises:
            AssertionError: there is no input of that name.
            ValueError: an array of another shape.
            RuntimeError: the inference failed, or the request is running.
        """
        self._run(inputs)

    def _run(self, inputs: Mapping[str, Any] | None) -> dict[str, Array]:
        if inputs is not None:
            self._fill(inputs)
        try:
            return self._request.infer()
        except PolydeviceError as error:
            raise failure(error) from error

    def async_infer(self, inputs: Mapping[str, Any] | None = None) -> None:
        """Begin an inference; see `infer` and `wait`."""
        if inputs is not None:
            self._fill(inputs)
        try:
            self._request.start_async()
        except PolydeviceError as error:
            raise failure(error) from error

    def _fill(self, inputs: Mapping[str, Any]) -> None:
        for name, value in inputs.items():
            array = self._arrays.get(name)
            if array is None:
                array = self._array(name)
            array[...] = value

    @translated
    def _array(self, name: str) -> Array:
        known = self._executable.inputs
        assert name in known, f"No input with name {name} found! Possible inputs: {sorted(known)}"
        array = self._arrays[name] = self._request.get_blob(name).array
        return array

    @translated
    def wait(self, timeout: int | None = None) -> StatusCode:
        """Wait for the inference that `async_infer` began.

        Args:
            timeout: None or -1 until it is done, 0 only to ask, else milliseconds.

        Raises:
            RuntimeError: the inference failed.
        """
        return StatusCode(int(self._request.wait(timeout)))

    @translated
    def set_completion_callback(
        self, py_callback: Callable[[int, Any], Any], py_data: Any = None
    ) -> None:
        """Call ``py_callback(status, py_data)`` after each inference that `async_infer` began."""
        self._request.set_completion_callback(
            lambda status, data: py_callback(int(status), data), py_data
        )

    @property
    def latency(self) -> float:
        """Milliseconds that the last inference took."""
        return self._request.latency

    @translated
    def get_perf_counts(self) -> dict[str, dict[str, Any]]:
        """Return layer → status, exec_type, layer_type, real_time, cpu_time, execution_index."""
        return self._request.get_perf_counts()

    @translated
    def set_batch(self, size: int) -> None:
        """Compute only so many items of the batch; the device must be loaded for that.

        Raises:
            ValueError: a size below 1.
        """
        if size <= 0:
            raise ValueError(f"Batch size should be positive integer number but {size} specified")
        self._request.set_batch(size)

    # -- blobs --------------------------------------------------------------------------------

    @property
    @translated
    def input_blobs(self) -> dict[str, Blob]:
        """Name → memory of an input; live."""
        return {n: self._blob(n, p) for n, p in sorted(self._executable.inputs.items())}

    @property
    @translated
    def output_blobs(self) -> dict[str, Blob]:
        """Name → copy of an output."""
        ports = sorted(self._executable.outputs.items())
        return {name: copy.deepcopy(self._blob(name, port)) for name, port in ports}

    def _blob(self, name: str, port: PortInfo) -> Blob:
        held = self._held.get(name)
        if held is not None:
            return held
        array = self._request.get_blob(name).array
        desc = TensorDesc(port.precision, model_sizes(port), port.layout)
        return Blob._of(desc, array if array.ndim else array.reshape(1))

    @property
    def inputs(self) -> dict[str, Array]:
        """Name → array of an input."""
        _warn("inputs", "input_blobs")
        return {name: blob.buffer for name, blob in self.input_blobs.items()}

    @property
    def outputs(self) -> dict[str, Array]:
        """Name → array of an output, a copy."""
        _warn("outputs", "output_blobs")
        return {name: blob.buffer for name, blob in self.output_blobs.items()}

    @translated
    def set_blob(
        self, blob_name: str, blob: Blob, preprocess_info: PreProcessInfo | None = None
    ) -> None:
        """Use a blob's memory for an input or output.

        Raises:
            RuntimeError: another precision or size, or preprocessing, which is set on the network.
        """
        if preprocess_info is not None:
            raise RuntimeError(
                "preprocessing of one blob is not possible; set it on the IENetwork before loading"
            )
        port = self._executable.inputs.get(blob_name) or self._executable.outputs.get(blob_name)
        array = blob.buffer
        if port is not None and port.sizes is not None and array.size == _count(port.sizes):
            array = array.reshape(port.sizes)
        element = port.element_type if port is not None and port.dtype == array.dtype else None
        self._request.set_blob(blob_name, CoreBlob(array, element))
        self._held[blob_name] = blob
        self._arrays.pop(blob_name, None)

    @property
    def preprocess_info(self) -> dict[str, PreProcessInfo]:
        """Name → the steps before an input, which cannot be changed any more."""
        return {name: PreProcessInfo(fixed=True) for name in sorted(self._executable.inputs)}

    @translated
    def query_state(self) -> list[VariableState]:
        """Return the variables that it keeps between inferences."""
        return [VariableState(state) for state in self._request.query_state()]


class VariableState(Surface):
    """A variable that a request keeps between inferences."""

    def __init__(self, state: CoreState) -> None:
        """Show core's."""
        self._state = state

    @property
    def name(self) -> str:
        """The name."""
        return self._state.name

    @property
    @translated
    def state(self) -> Blob:
        """The value, a copy."""
        array = self._state.state
        layout = {0: "SCALAR", 1: "C", 2: "NC", 3: "CHW", 4: "NCHW", 5: "NCDHW"}
        desc = TensorDesc(
            self._state.desc.element_type.precision,
            list(array.shape),
            layout.get(array.ndim, "BLOCKED"),
        )
        return Blob._of(desc, array)

    @translated
    def reset(self) -> None:
        """Return to the initial value."""
        self._state.reset()


def _count(sizes: tuple[int, ...]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count


def _warn(name: str, instead: str) -> None:
    warnings.warn(
        f"'{name}' property of InferRequest is deprecated. Please use '{instead}' instead.",
        DeprecationWarning,
        stacklevel=3,
    )
