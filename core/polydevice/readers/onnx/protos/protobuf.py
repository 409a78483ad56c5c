"""Bytes → ModelProto, checked as far as a model can be before its graph is read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from google.protobuf.message import DecodeError, Message  # publishes no types

from polydevice.errors import ModelFileError, ModelFormatError, ModelLimitError
from polydevice.files.safe_open import open_given
from polydevice.files.stored import StoredFile
from polydevice.readers.limits import ReadLimits
from polydevice.readers.onnx.protos.large_tensors import LargeTensors
from polydevice.readers.onnx.protos.messages import ModelProto, TensorProto


def read_file(path: Path, limits: ReadLimits) -> bytes:
    """Return a model file's bytes.

    Raises:
        ModelFileError: when it is missing, empty, unreadable or no regular file.
        ModelLimitError: when it is larger than the limit.
    """
    with _opened(path, limits) as file, _reading(path):
        return file.read()


@contextmanager
def read_apart(path: Path, limits: ReadLimits) -> Iterator[tuple[bytes, LargeTensors]]:
    """Read a model file's bytes but for its large tensors, which can be read in the context.

    Raises:
        ModelFileError, ModelLimitError: as `read_file`.
    """
    with _opened(path, limits) as file:
        with _reading(path):
            large = LargeTensors(StoredFile(path, file.fileno()), file.fileno())
            message = large.message()
            if message is None:
                file.seek(0)
                message = file.read()
        yield message, large


@contextmanager
def _opened(path: Path, limits: ReadLimits) -> Iterator[BinaryIO]:
    descriptor, size = open_given(path, "model file", ModelFileError)
    with os.fdopen(descriptor, "rb") as file:
        _check_size(size, limits)
        yield file


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelFileError(f"cannot read {str(path)!r}: {error.strerror}") from error


def _check_size(size: int, limits: ReadLimits) -> None:
    if size > limits.onnx_bytes:
        raise ModelLimitError(
            f"the model has {size} bytes; at most {limits.onnx_bytes} are read. Store its tensors "
            "as external data"
        )


def parse(data: bytes, limits: ReadLimits) -> ModelProto:
    """Parse a model and check that it holds a graph and its opsets.

    Raises:
        ModelFileError: when there are no bytes.
        ModelFormatError: when it is not an ONNX model, or lacks a graph.
        ModelLimitError: when it is larger than the limit.
    """
    if not data:
        raise ModelFileError("the model is empty")
    _check_size(len(data), limits)
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        raise ModelFormatError(
            f"not a well-formed ONNX model ({error}); the file may be truncated, or be of "
            "another format"
        ) from None
    if not model.HasField("graph") or not model.ir_version:
        raise ModelFormatError("the file is not an ONNX model: it has no graph or no IR version")
    if not model.graph.node and not model.graph.output:
        raise ModelFormatError("the ONNX model's graph is empty")
    _check_texts(model)
    return model


def _check_texts(message: Message) -> None:
    """Raise ModelFormatError for a text that is not UTF-8; protobuf hands it out as bytes."""
    if isinstance(message, TensorProto):  # whose data, often large, would be copied below
        _check("name", [message.name])
        for entry in message.external_data:
            _check("external_data", [entry.key, entry.value])
        return
    for field, value in message.ListFields():
        repeated = not isinstance(value, (str, bytes, int, float, Message))
        if field.type == field.TYPE_STRING:
            _check(field.name, value if repeated else [value])
        elif field.type == field.TYPE_MESSAGE:
            for inner in value if repeated else [value]:
                _check_texts(inner)


def _check(name: str, texts: Iterable[object]) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise ModelFormatError(f"the {name} {text!r} in the model is not UTF-8")


def opsets_of(imports: object) -> dict[str, int]:
    """Return domain → version; the default domain, also written "ai.onnx", is "".

    Raises:
        ModelFormatError: for a domain that is imported in two versions or a version below 1.
    """
    opsets: dict[str, int] = {}
    for entry in imports:  # type: ignore[attr-defined]
        domain = default_domain(entry.domain)
        if entry.version < 1 or opsets.get(domain, entry.version) != entry.version:
            raise ModelFormatError(
                f"operator set {entry.domain or 'ai.onnx'} is imported as version {entry.version}"
                + (f" and {opsets[domain]}" if domain in opsets else "")
            )
        opsets[domain] = entry.version
    return opsets


def default_domain(domain: str) -> str:
    """Return "" for both names of ONNX's own domain, every other name as it is."""
    return "" if domain == "ai.onnx" else domain
