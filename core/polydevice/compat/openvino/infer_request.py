"""InferRequest: one inference at a time, with its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from polydevice.blob import Blob
from polydevice.compat.openvino.errors import failure, translated
from polydevice.compat.openvino.loaded import LoadedModel
from polydevice.compat.openvino.ports import ConstOutput
from polydevice.compat.openvino.results import OVDict
from polydevice.compat.openvino.surface import Surface
from polydevice.compat.openvino.tensor import RemoteTensor, Tensor
from polydevice.dtype import Array
from polydevice.errors import BlobError, PolydeviceError
from polydevice.infer_request import InferRequest as CoreRequest
from polydevice.infer_request import StatusCode
from polydevice.remote import RemoteBlob
from polydevice.shape import bounds
from polydevice.variable_state import VariableState as CoreState

if TYPE_CHECKING:
    from polydevice.compat.openvino.compiled_model import CompiledModel


class InferRequest(Surface):
    """One inference at a time, with its tensors."""

    __slots__ = ("__weakref__", "_compiled", "_loaded", "_places", "_request", "userdata")
    _compiled: CompiledModel
    _loaded: LoadedModel
    _places: dict[str, Array]
    _request: CoreRequest
    userdata: Any

    def __init__(self, other: InferRequest) -> None:
        """Share another request; `CompiledModel.create_infer_request` makes one."""
        self._request, self._loaded = other._request, other._loaded
        self._compiled, self._places = other._compiled, other._places
        self.userdata = other.userdata

    @classmethod
    def _of(cls, compiled: CompiledModel, request: CoreRequest) -> InferRequest:
        made = cls.__new__(cls)
        made._compiled, made._loaded, made._request = compiled, compiled._loaded, request
        made._places = {}
        made.userdata = None
        return made

    # -- running ------------------------------------------------------------------------------

    def infer(
        self,
        inputs: Any = None,
        share_inputs: bool = False,
        share_outputs: bool = False,
        *,
        decode_strings: bool = True,
    ) -> OVDict:
        """Run one inference.

        Args:
            inputs: number, name or port → value; a list of values; or the only input's value.
                Values are arrays, tensors, or what NumPy makes an array of; they are cast to the
                input's element type.
            share_inputs: read arrays that fit in place, instead of copying them.
            share_outputs: return the request's own memory, which the next inference overwrites.
            decode_strings: return text as NumPy's U, not S.

        Returns:
            Output → array.

        Raises:
            RuntimeError: inputs that do not fit, or the inference failed.
        """
        try:
            if inputs is None:
                results = self._request.infer()
            else:
                results = self._request.infer(self._feed(inputs, share_inputs))
        except PolydeviceError as error:
            raise failure(error) from error
        return OVDict(self._loaded.results(results, share_outputs, decode_strings))

    def _feed(self, inputs: Any, share: bool) -> dict[str, Any]:
        loaded = self._loaded
        feed = loaded.feed(inputs)
        if share:
            return {name: loaded.shared(name, value) for name, value in feed.items()}
        return {name: loaded.copied(name, v, self._place(name)) for name, v in feed.items()}

    def _place(self, name: str) -> Array | None:
        """Return the memory into which values of an input are copied; None: new memory each time.

        It is the request's own, or that of a tensor which was set.
        """
        place = self._places.get(name)
        if place is None and self._loaded.executable.inputs[name].sizes is not None:
            port = self._loaded.executable.inputs[name]
            place = self._places[name] = np.zeros(port.sizes or (), port.dtype)
        return place

    def start_async(
        self, inputs: Any = None, userdata: Any = None, share_inputs: bool = False
    ) -> None:
        """Begin an inference; `wait` returns when it is done.

        Args:
            inputs: as `infer` takes them.
            userdata: handed to the callback.
            share_inputs: read arrays that fit in place, instead of copying them.

        Raises:
            RuntimeError: inputs that do not fit, or the request is running.
        """
        if userdata is not None:
            self.userdata = userdata
        try:
            if inputs is None:
                self._request.start_async()
                return
            feed = self._loaded.feed(inputs)
            ready = {name: self._loaded.shared(name, value) for name, value in feed.items()}
            if not share_inputs:
                self._request.start_async(ready)
                return
            for name, value in ready.items():
                self._request.set_blob(name, _blob(self._loaded, name, value))
            self._request.start_async()
        except PolydeviceError as error:
            raise failure(error) from error

    @translated
    def wait(self) -> None:
        """Wait for the inference that `start_async` began; raises RuntimeError when it failed."""
        self._request.wait()

    @translated
    def wait_for(self, timeout: int) -> bool:
        """Wait, but at most so many milliseconds; returns whether the inference is done."""
        return self._request.wait(timeout) is not StatusCode.RESULT_NOT_READY

    def cancel(self) -> None:
        """Give up the inference that runs; `wait` then raises RuntimeError."""
        self._request.cancel()

    @translated
    def set_callback(self, callback: Any, userdata: Any = None) -> None:
        """Call ``callback(userdata)`` after each inference that `start_async` began."""
        self.userdata = userdata

        def done(status: StatusCode, _: Any) -> None:
            if status is StatusCode.OK:
                callback(self.userdata)

        self._request.set_completion_callback(None if callback is None else done)

    @property
    def latency(self) -> float:
        """Milliseconds that the last inference took."""
        return self._request.latency

    @property
    def results(self) -> OVDict:
        """Copies of the outputs."""
        arrays = {
            name: tensor._memory()
            for (_, name), tensor in zip(self._loaded.pairs, self.output_tensors, strict=True)
            if isinstance(tensor, Tensor)
        }
        return OVDict(self._loaded.results(arrays, share=False, decode=True))

    @property
    @translated
    def profiling_info(self) -> list[ProfilingInfo]:
        """Times of the layers in the last inference; raises RuntimeError without PERF_COUNT."""
        counts = self._request.get_perf_counts()
        return [ProfilingInfo._of(name, count) for name, count in counts.items()]

    def get_profiling_info(self) -> list[ProfilingInfo]:
        """Return times of the layers; see `profiling_info`."""
        return self.profiling_info

    def get_compiled_model(self) -> CompiledModel:
        """Return the model that it is a request of."""
        return self._compiled

    # -- tensors ------------------------------------------------------------------------------

    def get_tensor(self, name_or_port: Any) -> Any:
        """Return the tensor of an input or output, by name or port; live.

        Raises:
            RuntimeError: there is none.
        """
        return self._tensor(self._loaded.name(name_or_port))

    @translated
    def _tensor(self, name: str) -> Any:
        try:
            blob = self._request.get_blob(name)
        except BlobError:  # its sizes are not known yet
            blob = None
        if isinstance(blob, RemoteBlob):
            return RemoteTensor(blob)
        return _RequestTensor(self, name)

    def get_input_tensor(self, index: int | None = None) -> Any:
        """Return the tensor of the input of that number, or of the only one; live."""
        return self._tensor(_numbered(self._loaded.names, index, "input"))

    def get_output_tensor(self, index: int | None = None) -> Any:
        """Return the tensor of the output of that number, or of the only one; live."""
        return self._tensor(_numbered([name for _, name in self._loaded.pairs], index, "output"))

    @property
    def input_tensors(self) -> list[Any]:
        """The tensors of the inputs; live."""
        return [self._tensor(name) for name in self._loaded.names]

    @property
    def output_tensors(self) -> list[Any]:
        """The tensors of the outputs; live."""
        return [self._tensor(name) for _, name in self._loaded.pairs]

    @property
    def model_inputs(self) -> list[ConstOutput]:
        """The inputs."""
        return list(self._loaded.inputs)

    @property
    def model_outputs(self) -> list[ConstOutput]:
        """The outputs."""
        return list(self._loaded.outputs)

    def set_tensor(self, name_or_port: Any, tensor: Any) -> None:
        """Use a tensor's memory for an input or output, in place.

        Raises:
            RuntimeError: another element type or shape, or no such input or output.
        """
        self._set(self._loaded.name(name_or_port), tensor)

    @translated
    def _set(self, name: str, tensor: Any) -> None:
        blob = tensor._blob()
        self._request.set_blob(name, blob)
        if name in self._loaded.dtypes:
            self._places.pop(name, None)
            if not isinstance(blob, RemoteBlob) and self._loaded.executable.inputs[name].sizes:
                self._places[name] = blob.array

    def set_tensors(self, inputs: Any, tensors: Sequence[Any] | None = None) -> None:
        """Use tensors' memory: name or port → tensor; or the items of a batch of one input.

        Raises:
            RuntimeError: tensors that do not fit; items of a batch, which are not taken.
        """
        if tensors is not None:
            raise RuntimeError("items of a batch: stack them into one tensor, and use set_tensor()")
        for key, tensor in inputs.items():
            self._set(
                self._loaded.name(key)
                if isinstance(key, (str, ConstOutput))
                else self._loaded.input_name(key),
                tensor,
            )

    def set_input_tensor(self, index: Any, tensor: Any = None) -> None:
        """Use a tensor's memory for the input of that number, or for the only one."""
        if tensor is None:
            index, tensor = None, index
        self._set(_numbered(self._loaded.names, index, "input"), tensor)

    def set_input_tensors(self, *inputs: Any) -> None:
        """Use tensors' memory: number → tensor; or the items of a batch of an input."""
        if len(inputs) != 1 or not isinstance(inputs[0], Mapping):
            raise RuntimeError("items of a batch: stack them into one tensor, and use set_tensor()")
        for key, tensor in inputs[0].items():
            self._set(self._loaded.input_name(key), tensor)

    def set_output_tensor(self, index: Any, tensor: Any = None) -> None:
        """Use a tensor's memory for the output of that number, or for the only one."""
        if tensor is None:
            index, tensor = None, index
        self._set(_numbered([name for _, name in self._loaded.pairs], index, "output"), tensor)

    def set_output_tensors(self, outputs: Mapping[int, Any]) -> None:
        """Use tensors' memory: number → tensor."""
        for index, tensor in outputs.items():
            self.set_output_tensor(index, tensor)

    # -- variables ----------------------------------------------------------------------------

    @translated
    def query_state(self) -> list[VariableState]:
        """Return the variables that it keeps between inferences."""
        return [VariableState(state) for state in self._request.query_state()]

    @translated
    def reset_state(self) -> None:
        """Return all variables to their initial values."""
        for state in self._request.query_state():
            state.reset()

    def __repr__(self) -> str:
        inputs = "\n".join(map(repr, self._loaded.inputs))
        outputs = "\n".join(map(repr, self._loaded.outputs))
        return f"<InferRequest:\ninputs[\n{inputs}\n]\noutputs[\n{outputs}\n]>"


class _RequestTensor(Tensor):
    """The tensor of an input or output: whatever memory the request has for it now."""

    __slots__ = ("_name", "_of_request")

    def __init__(self, request: InferRequest, name: str) -> None:
        core = request._loaded.executable
        self._of_request, self._name = request, name
        port = core.inputs.get(name) or core.outputs[name]
        self._element = port.element_type

    @translated
    def _memory(self) -> Array:
        try:
            return self._of_request._request.get_blob(self._name).array
        except BlobError:
            executable = self._of_request._loaded.executable
            port = executable.inputs.get(self._name) or executable.outputs[self._name]
            sizes = [bounds(size)[0] for size in port.shape or (0,)]
            return np.zeros(sizes, port.dtype)

    def _replace(self, array: Array) -> None:
        request = self._of_request
        request._set(self._name, Tensor._of(np.array(array, order="C"), self._element))


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
    def state(self) -> Tensor:
        """The value, a copy; assigning a tensor replaces it. Raises RuntimeError before a run."""
        return self._read()

    @state.setter
    def state(self, tensor: Tensor) -> None:
        self._write(tensor)

    @translated
    def _read(self) -> Tensor:
        return Tensor._of(self._state.state, self._state.desc.element_type)

    @translated
    def _write(self, tensor: Tensor) -> None:
        self._state.state = tensor._memory()

    @translated
    def reset(self) -> None:
        """Return to the initial value."""
        self._state.reset()

    def __repr__(self) -> str:
        return f"<VariableState: {self.name}>"


class Status(IntEnum):
    """What became of a layer."""

    NOT_RUN = 0
    OPTIMIZED_OUT = 1
    EXECUTED = 2


class ProfilingInfo(Surface):
    """What an inference spent on one layer."""

    Status = Status
    NOT_RUN = Status.NOT_RUN
    OPTIMIZED_OUT = Status.OPTIMIZED_OUT
    EXECUTED = Status.EXECUTED

    def __init__(self) -> None:
        """Describe nothing yet."""
        self.status = Status.NOT_RUN
        self.real_time = self.cpu_time = timedelta()
        self.node_name = self.exec_type = self.node_type = ""

    @classmethod
    def _of(cls, name: str, count: Mapping[str, Any]) -> ProfilingInfo:
        made = cls()
        made.node_name = name
        made.status = Status.__members__.get(count["status"], Status.NOT_RUN)
        made.real_time = timedelta(microseconds=count["real_time"])
        made.cpu_time = timedelta(microseconds=count["cpu_time"])
        made.exec_type, made.node_type = count["exec_type"], count["layer_type"]
        return made


def _numbered(names: Sequence[str], index: int | None, what: str) -> str:
    if index is None:
        if len(names) != 1:
            raise RuntimeError(f"the model has {len(names)} {what}s; give a number")
        return names[0]
    if not 0 <= index < len(names):
        raise RuntimeError(f"there is no {what} {index}; the model has {len(names)}")
    return names[index]


def _blob(loaded: LoadedModel, name: str, value: Any) -> Blob:
    if isinstance(value, Blob):
        return value
    port = loaded.executable.inputs[name]
    return port.blob(port.as_array(value))
