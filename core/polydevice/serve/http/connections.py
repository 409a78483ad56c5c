"""Connections that bound what uvicorn leaves open: slow heads of requests, and slow readers."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from polydevice.serve.models.limits import Held, Limits

SPARE_CONNECTIONS = 64
"""Connections beyond the limit that are told so; more than these are closed without a word."""


HEAD_BYTES, JOINED_BYTES = 2048, 1 << 16
"""Up to so many bytes are taken for the head of an answer, and for a body that goes with it."""


class _Joining:
    """A transport that sends the head of an answer together with a short body behind it.

    uvicorn writes both by themselves, and the client would wake up for each.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._write = transport.write
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        self._flush()  # close, abort, and whoever asks how much there is
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write, or wait for what comes next in the same turn of the event loop."""
        if self._head:
            head, self._head = self._head, b""
            if len(data) <= JOINED_BYTES:
                self._write(head + data)
                return
            self._write(head)
        elif 0 < len(data) <= HEAD_BYTES:
            self._head = data
            asyncio.get_running_loop().call_soon(self._flush)
            return
        if data:
            self._write(data)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._write(head)


class BoundedProtocol(H11Protocol):
    """A connection with limits.

    Attributes:
        limits: of the server; `bounded_protocol` makes a class that has them.
        held: what the server holds.
    """

    limits: Limits
    held: Held

    def __init__(self, *args: Any, **settings: Any) -> None:
        """Make a connection as uvicorn does."""
        super().__init__(*args, **settings)
        self._head_due: asyncio.TimerHandle | None = None
        self._waiting = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; close at once what is far beyond the limit."""
        super().connection_made(_Joining(transport))  # type: ignore[arg-type]
        if len(self.connections) > self.limits.connections + SPARE_CONNECTIONS:
            transport.abort()
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._head_came()
        self._taken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read, and wait for the rest of a head of which a part has come."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head_came()
        elif self._head_due is None:
            self._await_head()

    def on_response_complete(self) -> None:
        """Begin to wait for the client to take the answer."""
        super().on_response_complete()
        if self.transport.get_write_buffer_size():  # seldom; else the system has taken all of it
            self.loop.call_later(self.limits.response_seconds, self._response_due)

    def pause_writing(self) -> None:
        """Count an answer that waits for the client to take it."""
        super().pause_writing()
        self._taken()
        self._waiting = self.transport.get_write_buffer_size()
        self.held.wait(self._waiting)

    def resume_writing(self) -> None:
        """Count it no more, but for a rest of some kilobytes."""
        super().resume_writing()
        self._taken()

    def _taken(self) -> None:
        self.held.free(self._waiting)
        self._waiting = 0

    def _await_head(self) -> None:
        self._head_due = self.loop.call_later(self.limits.header_seconds, self.transport.abort)

    def _head_came(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _response_due(self) -> None:
        """Give up a client that has not taken an answer, which waits in memory."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()


def bounded_protocol(limits: Limits, held: Held) -> type[BoundedProtocol]:
    """Return the class of connections with these limits, which are counted together."""
    return type("BoundedProtocol", (BoundedProtocol,), {"limits": limits, "held": held})
