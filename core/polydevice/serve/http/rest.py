"""Inference requests and answers as the REST protocol writes them: JSON, with binary tensors.

Sources: "Inference Protocol, HTTP/REST" of the Open Inference Protocol (V2), and its binary tensor
data extension. What a client sends is not trusted: sizes and types are checked before anything
of that size is made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from polydevice.dtype import Array
from polydevice.serve.call import Call
from polydevice.serve.datatypes import array_of, buffer_of, datatype_of
from polydevice.serve.http.json_tensors import array_from, text_from
from polydevice.serve.models.limits import Limits
from polydevice.serve.models.model import ServedModel
from polydevice.serve.refusal import Reason, RefusedError

HEADER_LENGTH = "Inference-Header-Content-Length"

COPIED = 64
"""Bytes that are copied in the time in which one byte of a number becomes JSON; at least."""


class RestCall:
    """An inference that came over REST, and which of its outputs go back in binary form."""

    def __init__(self, model: ServedModel, body: bytes, header_length: str | None, limits: Limits):
        """Read a request.

        Args:
            model: the model it is for.
            body: JSON, and the binary tensors behind it.
            header_length: bytes of JSON, as the client says; None when all is JSON.
            limits: of the server.

        Raises:
            RefusedError: for whatever is not as the protocol says.
        """
        self.call = Call(model)
        self._limits = limits
        at = _header_length(body, header_length, limits)
        document = _document(body[:at])
        self._binary = memoryview(body)[at:]
        self.call.id = _text(document, "id")
        parameters = _object(document.get("parameters", {}), "parameters")
        self.call.note_parameters(parameters, ("binary_data_output",))
        by_default = _truth(parameters, "binary_data_output")
        for tensor in _objects(document.get("inputs"), "inputs"):
            self._read(tensor)
        if len(self._binary):
            raise RefusedError(
                Reason.INVALID, f"{len(self._binary)} bytes of binary data belong to no input"
            )
        wanted = _objects(document.get("outputs", []), "outputs")
        self.call.complete([each.get("name") for each in wanted])
        self._in_binary = dict.fromkeys(self.call.outputs, by_default)
        for each in wanted:
            own = _object(each.get("parameters", {}), "parameters of an output")
            _refuse_others(own, ("binary_data",))
            if "binary_data" in own:
                self._in_binary[each["name"]] = _truth(own, "binary_data")

    def _read(self, tensor: Mapping[str, Any]) -> None:
        port, shape = self.call.port(
            tensor.get("name"), tensor.get("datatype"), tensor.get("shape")
        )
        parameters = _object(tensor.get("parameters", {}), "parameters of an input")
        _refuse_others(parameters, ("binary_data_size",))
        size = parameters.get("binary_data_size")
        try:
            if size is None:
                array = array_from(tensor.get("data"), port, shape)
            else:
                if type(size) is not int or not 0 <= size <= len(self._binary):
                    raise RefusedError(
                        Reason.INVALID,
                        f"binary_data_size={str(size)[:40]} is not possible: "
                        f"{len(self._binary)} bytes are left",
                    )
                array = array_of(self._binary[:size], port.element_type, shape)
                self._binary = self._binary[size:]
        except RefusedError as error:
            raise RefusedError(error.reason, f"input {port.name!r}: {error}") from None
        self.call.inputs[port.name] = array

    def json_bytes(self, outputs: Mapping[str, Array]) -> int:
        """Return how many bytes of outputs become JSON or texts, which takes long.

        The others, which are copied, count a part of their bytes: the time of a copy.
        """
        return sum(
            array.nbytes // COPIED
            if self._in_binary[name] and array.dtype != object
            else array.nbytes
            for name, array in outputs.items()
        )

    def write(self, outputs: Mapping[str, Array]) -> tuple[bytes, int | None]:
        """Return the answer, and the length of its JSON where binary tensors follow.

        Raises:
            RefusedError: an output has values that JSON has not, or is too long for it.
        """
        model = self.call.model
        tensors, binary = [], []
        room = self._limits.json_bytes
        for name, array in outputs.items():
            port = model.outputs[name]
            tensor: dict[str, Any] = {
                "name": name,
                "datatype": datatype_of(port.element_type),
                "shape": list(array.shape),
            }
            if self._in_binary[name]:
                binary.append(buffer_of(array, port.element_type))
                tensor["parameters"] = {"binary_data_size": len(binary[-1])}
                tensors.append(_dumped(tensor))
            else:
                data = text_from(name, array, room)
                room -= len(data)
                tensors.append(f'{_dumped(tensor)[:-1]},"data":[{data}]}}')
        document: dict[str, Any] = {"model_name": model.name, "model_version": model.version}
        if self.call.id:
            document["id"] = self.call.id
        header = f'{_dumped(document)[:-1]},"outputs":[{",".join(tensors)}]}}'.encode()
        if not any(self._in_binary.values()):
            return header, None
        return b"".join([header, *binary]), len(header)


def _header_length(body: bytes, given: str | None, limits: Limits) -> int:
    length = len(body)
    if given is not None:
        if not (given.isascii() and given.isdigit() and len(given) < 16) or int(given) > length:
            raise RefusedError(
                Reason.INVALID,
                f"{HEADER_LENGTH} is the number of bytes of JSON, up to {length}; "
                f"not {given[:40]!r}",
            )
        length = int(given)
    if length > limits.json_bytes:
        raise RefusedError(
            Reason.TOO_LARGE,
            f"{length} bytes of JSON are more than {limits.json_bytes}; send binary tensors",
        )
    return length


def _document(text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text.decode())
    except UnicodeDecodeError:
        raise RefusedError(Reason.INVALID, "the request is not UTF-8") from None
    except RecursionError:
        raise RefusedError(Reason.INVALID, "the request is nested too deeply") from None
    except ValueError as error:  # JSONDecodeError, and integers of thousands of digits
        raise RefusedError(Reason.INVALID, f"the request is no JSON: {str(error)[:200]}") from None
    return _object(found, "the request")


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise RefusedError(Reason.INVALID, f"{what} must be an object: {{…}}")
    return value


def _objects(value: Any, what: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or len(value) > 4096:
        raise RefusedError(Reason.INVALID, f"{what} must be a list of up to 4096 objects: [{{…}}]")
    return [_object(each, f"each of {what}") for each in value]


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name, "")
    if not isinstance(value, str) or len(value) > 1024:
        raise RefusedError(Reason.INVALID, f"{name!r} must be a text of up to 1024 characters")
    return value


def _truth(parameters: Mapping[str, Any], name: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise RefusedError(Reason.INVALID, f"parameter {name!r} must be true or false")
    return value


def _refuse_others(parameters: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in parameters:
        if name not in known:
            raise RefusedError(
                Reason.INVALID,
                f"parameter {name[:80]!r} is not supported; supported: {', '.join(known)}",
            )


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
