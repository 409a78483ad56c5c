"""Limits: everything that a server bounds, with the numbers it starts from; and `Held`."""

from __future__ import annotations

from dataclasses import fields

from polydevice.dataclass import dataclass
from polydevice.errors import OptionValueError
from polydevice.serve.refusal import Reason, RefusedError


@dataclass(frozen=True)
class Limits:
    """What one server takes, at most.

    Attributes:
        max_batch: items that are computed together; 1 computes each request by itself.
        max_delay_ms: how long the first request of a batch waits for others. 0 batches what has
            come while the device was busy, and delays nothing.
        requests: inferences at a time of each model; 0 is the device's optimal number.
        queue: requests of each model that wait; more are refused.
        body_bytes: of one request.
        json_bytes: of the JSON part of one request, which takes many times that once it is read;
            and of the tensors of its answer that are JSON.
        pending_bytes: of the bodies of all requests over REST together, and of their answers until
            clients have taken them.
        connections: at a time, over REST and gRPC each; more are refused.
        header_seconds: for a client to send the head of a request.
        body_seconds: for a client to send the rest of it.
        response_seconds: for a client to take the answer.
        request_seconds: for a request to be answered, its time in the queue included.
        drain_seconds: for what was accepted to be answered, once the server is to end.
    """

    max_batch: int = 1
    max_delay_ms: float = 0.0
    requests: int = 0
    queue: int = 256
    body_bytes: int = 64 << 20
    json_bytes: int = 8 << 20
    pending_bytes: int = 512 << 20
    connections: int = 256
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    response_seconds: float = 30.0
    request_seconds: float = 60.0
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        """Check every number.

        Raises:
            OptionValueError: for one that is not possible.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("max_delay_ms", "requests") else 1
            if field.type == "float" and least:
                least = 0.001  # type: ignore[assignment]
            if not least <= value <= 1 << 40:
                raise OptionValueError(f"{field.name}={value} is not possible; use {least} or more")
        if self.max_batch > 4096:
            raise OptionValueError(f"max_batch={self.max_batch} is not possible; use up to 4096")


class Held:
    """Counts the bytes of requests and answers that a server holds; on its event loop.

    Attributes:
        size: how many there are.
    """

    def __init__(self, limits: Limits) -> None:
        """Count up to `Limits.pending_bytes`."""
        self.size = 0
        self._most = limits.pending_bytes

    def take(self, size: int) -> None:
        """Count so many more, until `free`.

        Raises:
            RefusedError: that would be too many.
        """
        if size > self._most:
            raise RefusedError(
                Reason.TOO_LARGE,
                f"this needs {size} bytes, and the server holds {self._most} at most; send fewer "
                "items at a time",
            )
        if self.size + size > self._most:
            raise RefusedError(
                Reason.BUSY,
                f"requests and answers hold {self.size} bytes of {self._most} already; try again "
                "later",
            )
        self.size += size

    def wait(self, size: int) -> None:
        """Count so many more that wait for a client, whatever there is already."""
        self.size += size

    def free(self, size: int) -> None:
        """Count so many no more."""
        self.size -= size
