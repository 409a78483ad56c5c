"""RefusedError: why a request is not answered, in the terms that both REST and gRPC have."""

from __future__ import annotations

from enum import Enum

from polydevice.errors import (
    BlobError,
    DeviceMemoryError,
    InferCancelledError,
    InferTimeoutError,
    RequestError,
    ShapeError,
)


class Reason(Enum):
    """Kind of refusal: its HTTP status and the name of its gRPC status."""

    INVALID = (400, "INVALID_ARGUMENT")
    FORBIDDEN = (403, "PERMISSION_DENIED")
    NOT_FOUND = (404, "NOT_FOUND")
    TOO_SLOW = (408, "DEADLINE_EXCEEDED")
    TOO_LARGE = (413, "RESOURCE_EXHAUSTED")
    UNSUPPORTED = (415, "UNIMPLEMENTED")
    FAILED = (500, "INTERNAL")
    BUSY = (503, "RESOURCE_EXHAUSTED")
    ENDING = (503, "UNAVAILABLE")
    TIMEOUT = (504, "DEADLINE_EXCEEDED")

    @property
    def http(self) -> int:
        """The HTTP status."""
        return self.value[0]

    @property
    def grpc(self) -> str:
        """The name in ``grpc.StatusCode``."""
        return self.value[1]


class RefusedError(RequestError):
    """A request that is not answered; the message says what to do about it.

    Attributes:
        reason: its kind.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        """Refuse for a reason."""
        super().__init__(message)
        self.reason = reason


_REASONS: tuple[tuple[type[Exception], Reason], ...] = (
    (BlobError, Reason.INVALID),
    (ShapeError, Reason.INVALID),
    (InferTimeoutError, Reason.TIMEOUT),
    (InferCancelledError, Reason.ENDING),
    (DeviceMemoryError, Reason.BUSY),
)


def refusal(error: BaseException) -> RefusedError:
    """Return what a client is told of an error; of one that is not its own, the type alone."""
    if isinstance(error, RefusedError):
        return error
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return RefusedError(reason, str(error))
    return RefusedError(
        Reason.FAILED, f"the inference failed ({type(error).__name__}); the server's log says more"
    )
