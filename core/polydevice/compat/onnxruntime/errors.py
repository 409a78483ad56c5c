"""The exceptions of onnxruntime, and which of them our own become."""

from __future__ import annotations

from typing import ClassVar

from polydevice.errors import (
    BlobError,
    DeviceError,
    ElementTypeError,
    InferCancelledError,
    ModelFileError,
    ModelFormatError,
    NetworkError,
    OptionError,
    PolydeviceError,
    UnsupportedNetworkError,
    UnsupportedOperationError,
)


class OrtError(Exception):
    """What onnxruntime's status codes have in common; not one of its names."""

    code: ClassVar[int] = 0
    status: ClassVar[str] = ""
    text = ""  # the message without what `of` puts in front

    @classmethod
    def of(cls, text: str) -> OrtError:
        """Make an exception with the text that onnxruntime gives it."""
        made = cls(f"[ONNXRuntimeError] : {cls.code} : {cls.status} : {text}")
        made.text = text
        return made


class Fail(OrtError):
    """A model cannot be used, or running it failed."""

    code, status = 1, "FAIL"


class InvalidArgument(OrtError):
    """An input or output that the model does not have, or that does not fit it."""

    code, status = 2, "INVALID_ARGUMENT"


class NoSuchFile(OrtError):
    """The model's file does not exist."""

    code, status = 3, "NO_SUCHFILE"


class NoModel(OrtError):
    """No model was given."""

    code, status = 4, "NO_MODEL"


class EngineError(OrtError):
    """Not raised here; programs name it."""

    code, status = 5, "ENGINE_ERROR"


class RuntimeException(OrtError):
    """Running a model failed in an operator."""

    code, status = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(OrtError):
    """The content is no ONNX model."""

    code, status = 7, "INVALID_PROTOBUF"


class ModelLoaded(OrtError):
    """Not raised here; programs name it."""

    code, status = 8, "MODEL_LOADED"


class NotImplemented(OrtError):
    """What neither onnxruntime nor polydevice, or polydevice alone, does not do."""

    code, status = 9, "NOT_IMPLEMENTED"


class InvalidGraph(OrtError):
    """The model's graph is not valid, or has an operator that does not exist."""

    code, status = 10, "INVALID_GRAPH"


class EPFail(OrtError):
    """A device failed, or cannot run the model."""

    code, status = 11, "EP_FAIL"


class ModelLoadCanceled(OrtError):
    """Not raised here; programs name it."""

    code, status = 12, "MODEL_LOAD_CANCELED"


class ModelRequiresCompilation(OrtError):
    """Not raised here; programs name it."""

    code, status = 13, "MODEL_REQUIRES_COMPILATION"


class NotFound(OrtError):
    """Not raised here; programs name it."""

    code, status = 14, "NOT_FOUND"


class DeviceReset(OrtError):
    """Not raised here; programs name it."""

    code, status = 15, "DEVICE_RESET"


def load_failure(error: PolydeviceError, source: str | None) -> OrtError:
    """Return what onnxruntime raises where loading a model raised `error`.

    Args:
        error: of `Core.read_network` or `Core.load_network`.
        source: the model's path; None for bytes.
    """
    where = f"Load model from {source} failed:" if source is not None else ""
    if isinstance(error, ModelFileError):
        if source is not None and "does not exist" in str(error):
            return NoSuchFile.of(f"{where}Load model {source} failed. File doesn't exist")
        unreadable = "not a regular file" in str(error)
        return (InvalidProtobuf if unreadable else InvalidArgument).of(f"{where}{error}")
    kinds: list[tuple[type[PolydeviceError], type[OrtError]]] = [
        (UnsupportedOperationError, NotImplemented),
        (ElementTypeError, InvalidGraph),
        (NetworkError, Fail),
        (UnsupportedNetworkError, NotImplemented),
        (DeviceError, EPFail),
        (OptionError, EPFail),
    ]
    if isinstance(error, ModelFormatError):  # one with a cause is about a node
        kinds = [(ModelFormatError, InvalidGraph if error.__cause__ else InvalidProtobuf)]
    found = next((theirs for ours, theirs in kinds if isinstance(error, ours)), Fail)
    return found.of(f"{where}{error}")


def run_failure(error: PolydeviceError) -> OrtError:
    """Return what onnxruntime raises where an inference raised `error`."""
    if isinstance(error, BlobError):
        return InvalidArgument.of(str(error))
    if isinstance(error, InferCancelledError):
        return Fail.of(f"Exiting due to terminate flag being set to true. {error}")
    return (EPFail if isinstance(error, DeviceError) else Fail).of(str(error))
