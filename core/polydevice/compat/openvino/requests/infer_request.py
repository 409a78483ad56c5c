"""InferRequest: one inference at a time, with its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polydevice.blob import Blob, RoiBlob
from polydevice.compat.openvino.errors import failure, translated
from polydevice.compat.openvino.graph.ports import ConstOutput
from polydevice.compat.openvino.graph.remote_tensor import RemoteTensor
from polydevice.compat.openvino.graph.tensor import Tensor
from polydevice.compat.openvino.requests.loaded import LoadedModel
from polydevice.compat.openvino.requests.profiling_info import ProfilingInfo
from polydevice.compat.openvino.requests.request_tensor import BatchTensors, RequestTensor
from polydevice.compat.openvino.requests.results import OVDict
from polydevice.compat.openvino.requests.variable_state import VariableState
from polydevice.compat.openvino.surface import Surface
from polydevice.dtype import Array
from polydevice.errors import BlobError, InferenceError, PolydeviceError
from polydevice.infer_request import InferRequest as CoreRequest
from polydevice.infer_request import StatusCode
from polydevice.remote import RemoteBlob
from polydevice.runtime.request_memory import PortKind

if TYPE_CHECKING:
    from polydevice.compat.openvino.devices.compiled_model import CompiledModel


class InferRequest(Surface):
    """One inference at a time, with its tensors."""

    __slots__ = (
        "__weakref__",
        "_batches",
        "_compiled",
        "_loaded",
        "_places",
        "_request",
        "userdata",
    )
    _batches: dict[str, BatchTensors]
    _compiled: CompiledModel
    _loaded: LoadedModel
    _places: dict[str, Array]
    _request: CoreRequest
    userdata: Any

    def __init__(self, other: InferRequest) -> None:
        """Share another request; `CompiledModel.create_infer_request` makes one."""
        self._request, self._loaded = other._request, other._loaded
        self._compiled, self._places = other._compiled, other._places
        self._batches = other._batches
        self.userdata = other.userdata

    @classmethod
    def _of(cls, compiled: CompiledModel, request: CoreRequest) -> InferRequest:
        made = cls.__new__(cls)
        made._compiled, made._loaded, made._request = compiled, compiled._loaded, request
        made._places, made._batches = {}, {}
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
            if self._batches:
                self._join_batches(inputs)
            if inputs is None:
                results = self._request.infer()
            else:
                results = self._request.infer(self._feed(inputs, share_inputs))
        except PolydeviceError as error:
            raise failure(error) from error
        return OVDict(self._loaded.results(results, share_outputs, decode_strings))

    def _join_batches(self, inputs: Any) -> None:
        """Join the items of batches that were given as tensors and are not replaced by inputs."""
        for name in () if inputs is None else self._loaded.feed(inputs):
            self._batches.pop(name, None)
        for name, items in self._batches.items():
            self._request.set_blob(name, items.blob(), "input")

    def _feed(self, inputs: Any, share: bool) -> dict[str, Any]:
        loaded = self._loaded
        feed = loaded.feed(inputs)
        if share:
            return {name: loaded.shared(name, value) for name, value in feed.items()}
        ready = {}
        for name, value in feed.items():
            place = self._places.get(name)
            ready[name] = loaded.copied(name, value, self._place(name) if place is None else place)
        return ready

    def _place(self, name: str) -> Array | None:
        """Make the memory into which values of an input are copied; None: new memory each time."""
        port = self._loaded.executable.inputs[name]
        if port.sizes is None:
            return None
        place = self._places[name] = np.zeros(port.sizes, port.dtype)
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
            if self._batches:
                self._join_batches(inputs)
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
        """Times of the layers in the last inference; none were run without PERF_COUNT."""
        try:
            counts = self._request.get_perf_counts()
        except InferenceError:  # nothing is counted
            placement = self._loaded.executable.placement()
            return [ProfilingInfo._unmeasured(placed) for placed in placement]
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
        return self._tensor(*self._loaded.end(name_or_port))

    @translated
    def _tensor(self, kind: PortKind, name: str) -> Any:
        try:
            blob = self._request.get_blob(name, kind)
        except BlobError:  # its sizes are not known yet
            blob = None
        if isinstance(blob, RemoteBlob):
            return RemoteTensor(blob)
        return RequestTensor(self, kind, name)

    def get_input_tensor(self, index: int | None = None) -> Any:
        """Return the tensor of the input of that number, or of the only one; live."""
        return self._tensor("input", _numbered(self._loaded.names, index, "input"))

    def get_output_tensor(self, index: int | None = None) -> Any:
        """Return the tensor of the output of that number, or of the only one; live."""
        return self._tensor("output", _numbered(self._loaded.out_names, index, "output"))

    @property
    def input_tensors(self) -> list[Any]:
        """The tensors of the inputs; live."""
        return [self._tensor("input", name) for name in self._loaded.names]

    @property
    def output_tensors(self) -> list[Any]:
        """The tensors of the outputs; live."""
        return [self._tensor("output", name) for name in self._loaded.out_names]

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
        self._set(*self._loaded.end(name_or_port), tensor)

    @translated
    def _set(self, kind: PortKind, name: str, tensor: Any) -> None:
        if not isinstance(tensor, (Tensor, RemoteTensor)):
            raise TypeError(
                f"{kind} {name!r} takes an openvino.Tensor, not {type(tensor).__name__}; make one "
                "with Tensor(array)"
            )
        blob = tensor._blob()
        self._request.set_blob(name, blob, kind)
        if kind == "input":
            self._batches.pop(name, None)
            self._places.pop(name, None)
            in_place = not isinstance(blob, (RemoteBlob, RoiBlob))
            if in_place and self._loaded.executable.inputs[name].sizes:
                self._places[name] = blob.array

    def set_tensors(self, inputs: Any, tensors: Sequence[Any] | None = None) -> None:
        """Use tensors' memory: name or port → tensor; or the items of a batch of one input.

        Raises:
            RuntimeError: tensors that do not fit, or no such input or output.
            TypeError: what is no tensor.
        """
        if tensors is not None:
            self._set_items(self._loaded.input_name(inputs), tensors)
            return
        for key, tensor in inputs.items():
            known = isinstance(key, (str, ConstOutput))
            end = self._loaded.end(key) if known else ("input", self._loaded.input_name(key))
            self._set(*end, tensor)

    def set_input_tensor(self, index: Any, tensor: Any = None) -> None:
        """Use a tensor's memory for the input of that number, or for the only one.

        Raises:
            RuntimeError: another element type or shape, or no such input.
            TypeError: what is no tensor.
        """
        if tensor is None:
            index, tensor = None, index
        self._set("input", _numbered(self._loaded.names, index, "input"), tensor)

    def set_input_tensors(self, *inputs: Any) -> None:
        """Use tensors' memory: number → tensor; or the items of a batch of an input.

        Raises:
            RuntimeError: another element type or shape, or no such input.
            TypeError: what is no tensor.
        """
        given = inputs[-1]
        if isinstance(given, Mapping):
            for key, tensor in given.items():
                self._set("input", self._loaded.input_name(key), tensor)
            return
        index = inputs[0] if len(inputs) > 1 else None
        self._set_items(_numbered(self._loaded.names, index, "input"), given)

    def _set_items(self, name: str, tensors: Sequence[Any]) -> None:
        if len(tensors) == 1:
            self._set("input", name, tensors[0])
        else:
            port = self._loaded.inputs[self._loaded.names.index(name)]
            self._batches[name] = BatchTensors(port, tensors)

    def set_output_tensor(self, index: Any, tensor: Any = None) -> None:
        """Use a tensor's memory for the output of that number, or for the only one.

        Raises:
            RuntimeError: another element type or shape, or no such output.
            TypeError: what is no tensor.
        """
        if tensor is None:
            index, tensor = None, index
        self._set("output", _numbered(self._loaded.out_names, index, "output"), tensor)

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
