"""The gRPC side: the Open Inference Protocol's service, on the event loop of the REST side."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import prod
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import DecodeError

from polydevice.dtype import Array
from polydevice.runtime.port_info import PortInfo
from polydevice.serve.call import Call
from polydevice.serve.datatypes import array_of, bytes_of, datatype_of, text_of
from polydevice.serve.grpc.rpc_messages import METHODS, SERVICE, message
from polydevice.serve.http.app import SERVER, apart
from polydevice.serve.http.rest import COPIED
from polydevice.serve.models.limits import Limits
from polydevice.serve.models.repository import Models
from polydevice.serve.refusal import Reason, RefusedError, refusal
from polydevice.serve.time_limit import time_limit
from polydevice.version import __version__

_log = logging.getLogger(__name__)

_CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Datatype → field of ``InferTensorContents``; FP16 and BF16 have none."""

_WIDEST = {"i": "i8", "u": "u8"}
"""Kind of integers → type that holds all that a message can; without one NumPy takes float64."""

CONNECTION_SECONDS = 600
"""After which a client is told to connect again, as all do by themselves; then what it has not sent
or taken in the time that a call may take is given up. Nothing else ends an answer that is not taken
as long as the client is there."""

PIECE = 1 << 16
"""Numbers that are converted at a time."""

_Answer = Callable[[Any, Any], Awaitable[Any]]


def make_server(models: Models) -> Any:
    """Return a gRPC server for these models, with no port yet."""
    limits = models.limits
    server = grpc.aio.server(
        maximum_concurrent_rpcs=limits.connections,
        options=[
            ("grpc.max_receive_message_length", limits.body_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", limits.connections),
            ("grpc.max_connection_idle_ms", 300_000),
            ("grpc.max_connection_age_ms", round(CONNECTION_SECONDS * 1e3)),
            ("grpc.max_connection_age_grace_ms", round(_call_seconds(limits) * 1e3)),
            ("grpc.server_handshake_timeout_ms", round(limits.header_seconds * 1e3)),
            ("grpc.so_reuseport", 0),
        ],
    )
    service = Service(models)
    # On the wire one message is a stream of one, and how long a stream's take can be bounded.
    handlers = {
        name: grpc.stream_unary_rpc_method_handler(
            _refusing(getattr(service, name), limits.body_seconds),
            request_deserializer=message(f"{name}Request").FromString,
            response_serializer=message(f"{name}Response").SerializeToString,
        )
        for name in METHODS
    }
    # Its messages may be large; it reads and writes them itself.
    infer = _refusing(service.ModelInfer, limits.body_seconds)
    handlers["ModelInfer"] = grpc.stream_unary_rpc_method_handler(infer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    return server


def _call_seconds(limits: Limits) -> float:
    """Return how long a call may take at most, from its head to when its answer is taken."""
    return limits.body_seconds + limits.request_seconds + limits.response_seconds


async def _read_message(context: Any, seconds: float) -> Any:
    """Return the message of a call.

    Raises:
        RefusedError: none came, or not in time.
    """
    try:
        with time_limit(seconds):
            found = await context.read()
    except TimeoutError:
        raise RefusedError(
            Reason.TOO_SLOW, f"the message did not come within {seconds:g} s"
        ) from None
    if found is grpc.aio.EOF:
        raise RefusedError(Reason.INVALID, "the call has no message")
    return found


def _refusing(answer: _Answer, seconds: float) -> _Answer:
    """Read the message, in so many seconds, and turn what a method raises into a gRPC status."""

    async def handle(_: Any, context: Any) -> Any:
        try:
            return await answer(await _read_message(context, seconds), context)
        except Exception as error:  # noqa: BLE001 - the client gets an answer whatever happened
            refused = refusal(error)
            if refused.reason is Reason.FAILED:
                _log.warning("a call failed", exc_info=error)
            await context.abort(grpc.StatusCode[refused.reason.grpc], str(refused))

    return handle


class Service:
    """The methods of the service, by the names that the protocol gives them."""

    def __init__(self, models: Models) -> None:
        """Answer for these models."""
        self._models = models

    async def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Say that the server runs."""
        return message("ServerLiveResponse")(live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Say whether it takes requests."""
        return message("ServerReadyResponse")(ready=not self._models.ending)

    async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Say whether a model takes requests."""
        self._models.get(request.name, request.version)
        return message("ModelReadyResponse")(ready=not self._models.ending)

    async def ServerMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Describe the server."""
        return message("ServerMetadataResponse")(**{**SERVER, "version": __version__})

    async def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Describe a model."""
        found = self._models.get(request.name, request.version)
        return message("ModelMetadataResponse")(**found.metadata(self._models.versions(found.name)))

    async def ModelStatistics(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return the counts of a model, or of all."""
        found = list(self._models)
        if request.name:
            versions = self._models.versions(request.name)
            if request.version:
                versions = [self._models.get(request.name, request.version).version]
            found = [self._models.get(request.name, version) for version in versions]
        return message("ModelStatisticsResponse")(
            model_stats=[
                {"name": each.name, "version": each.version, **each.statistics.as_dict()}
                for each in found
            ]
        )

    async def RepositoryIndex(self, request: Any, context: Any) -> Any:  # noqa: N802
        """List the models."""
        ending = self._models.ending
        if request.ready and ending:
            return message("RepositoryIndexResponse")()
        state = "UNAVAILABLE" if ending else "READY"
        return message("RepositoryIndexResponse")(
            models=[
                {"name": each.name, "version": each.version, "state": state}
                for each in self._models
            ]
        )

    async def ModelInfer(self, data: bytes, context: Any) -> bytes:  # noqa: N802
        """Compute; from and to messages as they are on the wire."""
        call = await apart(len(data), self._read, data)
        remaining = context.time_remaining()
        if remaining is not None:
            call.seconds = max(min(call.seconds or remaining, remaining), 1e-3)
        outputs = await call.model.answer(call)
        size = sum(array.nbytes for array in outputs.values())
        return await apart(size // COPIED, _written, call, outputs)

    def _read(self, data: bytes) -> Call:
        try:
            request = message("ModelInferRequest").FromString(data)
        except DecodeError as error:
            raise RefusedError(Reason.INVALID, f"the request is no message: {error}") from None
        model = self._models.taking(request.model_name, request.model_version)
        return read_call(request, Call(model))


def _written(call: Call, outputs: Mapping[str, Array]) -> bytes:
    model = call.model
    response = message("ModelInferResponse")(
        model_name=model.name, model_version=model.version, id=call.id
    )
    for name, array in outputs.items():
        port = model.outputs[name]
        response.outputs.add(name=name, datatype=datatype_of(port.element_type), shape=array.shape)
        response.raw_output_contents.append(bytes_of(array, port.element_type))
    return bytes(response.SerializeToString())


def read_call(request: Any, call: Call) -> Call:
    """Read a request into a call.

    Raises:
        RefusedError: for whatever is not as the protocol says.
    """
    call.id = request.id
    if len(call.id) > 1024:
        raise RefusedError(Reason.INVALID, "'id' must be a text of up to 1024 characters")
    call.note_parameters(_parameters(request.parameters), ("binary_data_output",))
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise RefusedError(
            Reason.INVALID,
            f"raw_input_contents has {len(raw)} entries for {len(request.inputs)} inputs; give one "
            "for each input, or none",
        )
    for number, tensor in enumerate(request.inputs):
        port, shape = call.port(tensor.name, tensor.datatype, list(tensor.shape))
        _refuse_parameters(tensor.parameters)
        try:
            if raw:
                if tensor.HasField("contents"):
                    raise RefusedError(
                        Reason.INVALID, "contents and raw_input_contents are both given"
                    )
                array = array_of(memoryview(raw[number]), port.element_type, shape)
            else:
                array = _contents(tensor.contents, port, shape)
        except RefusedError as error:
            raise RefusedError(error.reason, f"input {port.name!r}: {error}") from None
        call.inputs[port.name] = array
    for output in request.outputs:
        _refuse_parameters(output.parameters)
    call.complete([output.name for output in request.outputs])
    return call


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in given.items():
        kind = value.WhichOneof("parameter_choice")
        found[name] = getattr(value, kind) if kind else None
    return found


def _refuse_parameters(given: Mapping[str, Any]) -> None:
    for name in given:
        if name != "binary_data":  # everything is binary here
            raise RefusedError(Reason.INVALID, f"parameter {name[:80]!r} is not supported")


def _contents(contents: Any, port: PortInfo, shape: tuple[int, ...]) -> Array:
    datatype = datatype_of(port.element_type) or ""
    field = _CONTENTS.get(datatype)
    if field is None:
        raise RefusedError(Reason.INVALID, f"{datatype} is sent in raw_input_contents only")
    others = [each.name for each, _ in contents.ListFields() if each.name != field]
    if others:
        raise RefusedError(Reason.INVALID, f"{datatype} is sent in {field}, not in {others[0]}")
    values = getattr(contents, field)
    if len(values) != prod(shape):
        raise RefusedError(
            Reason.INVALID, f"{len(values)} values are given for shape {list(shape)}"
        )
    if datatype == "BYTES":
        array: Array = np.empty(len(values), object)
        array[:] = [text_of(value) for value in values]
        return array.reshape(shape)
    kind = port.dtype.kind
    wide = _array(values, np.dtype(_WIDEST.get(kind, port.dtype)))
    array = wide.astype(port.dtype)
    if kind in _WIDEST and not np.array_equal(wide, array):
        raise RefusedError(Reason.INVALID, f"a number is out of the range of {datatype}")
    return array.reshape(shape)


def _array(values: Sequence[float], dtype: np.dtype[Any]) -> Array:
    """Return what a message repeats."""
    if hasattr(values, "__array__"):  # protobuf 7; a twentieth of the time
        return np.array(values, dtype)
    array: Array = np.empty(len(values), dtype)
    for at in range(0, len(values), PIECE):  # other threads run between pieces
        array[at : at + PIECE] = np.array(values[at : at + PIECE], dtype)
    return array
