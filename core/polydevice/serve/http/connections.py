"""Connections that bound what uvicorn leaves open: slow heads of requests, and slow readers."""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from polydevice.serve.models.limits import Held, Limits

SPARE_CONNECTIONS = 64
"""Connections beyond the limit that are told so; more than these are closed without a word."""


REQUEST_HEAD_BYTES = 1 << 16
"""Bytes that the head of a request may have, with the lines behind a body in chunks."""

MOST_AHEAD = 64
"""Requests that may wait, of one connection, behind the one that is answered. A client that sends
more ahead is answered those, and then has to connect again, as for any that gets no answer."""

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


class BoundedProtocol(HttpToolsProtocol):
    """A connection with limits.

    What httptools leaves to its user is done here: it bounds neither the head of a request nor how
    many are sent ahead, does not ask for a host, and lets go of the body where a request offers
    another protocol (``Upgrade``), which this server reads as if it did not.

    Attributes:
        limits: of the server; `bounded_protocol` makes a class that has them.
        held: what the server holds.
    """

    limits: Limits
    held: Held

    def __init__(self, *args: Any, **settings: Any) -> None:
        """Make a connection as uvicorn does."""
        super().__init__(*args, **settings)
        self._due: asyncio.TimerHandle | None = None
        self._waiting = 0  # bytes of answers that the client has not taken
        self._headed = self._whole = False  # the head of a request has come; all of it
        self._head = self._hosts = 0  # bytes of its head; how often it names a host
        self._unread = 0  # bytes in a row of which nothing came yet
        self._deaf = False  # what comes now is let go

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; close at once what is far beyond the limit."""
        super().connection_made(_Joining(transport))  # type: ignore[arg-type]
        if len(self.connections) > self.limits.connections + SPARE_CONNECTIONS:
            transport.abort()
            return
        self._await_rest()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._deaf = True
        self._rest_came()
        self._taken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read, and wait for the rest of a request of which a part has come."""
        self._unset_keepalive_if_required()
        if self._deaf:
            return
        self._unread += len(data)
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    data = b""
                except httptools.HttpParserUpgrade as upgrade:
                    data = self._head_without_upgrade() + data[upgrade.args[0] :]
            self._count(self._unread)
        except httptools.HttpParserError:
            self._refuse()
        if self._whole or self._is_busy():
            self._rest_came()
        elif self._due is None:
            self._await_rest()

    def on_message_begin(self) -> None:
        """Begin to count the head of a request."""
        super().on_message_begin()
        self._headed = self._whole = False
        self._head = self._hosts = self._unread = 0

    def on_url(self, url: bytes) -> None:
        """Note what is asked for, or a part of it."""
        self._head += len(url)
        self._count(self._head)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a line of the head; or of those behind a body in chunks, which count as well."""
        self._unread = 0
        self._head += len(name) + len(value) + 4
        self._count(self._head)
        super().on_header(name, value)
        self._hosts += self.headers[-1][0] == b"host"

    def on_headers_complete(self) -> None:
        """Answer a request, or refuse it.

        Raises:
            HttpParserError: it is no request, or too many are sent ahead.
        """
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            return  # it is read once more, see `data_received`
        version = self.parser.get_http_version()
        if self.parser.should_upgrade() or self._hosts > 1 or self._hosts < (version == "1.1"):
            raise httptools.HttpParserError("a tunnel is asked for, or not one host")
        if len(self.pipeline) >= MOST_AHEAD:
            raise httptools.HttpParserError("too many requests are sent ahead")
        self._headed = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that all of a request has come."""
        if not self.parser.should_upgrade():
            self._whole = True
            super().on_message_complete()

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

    def _is_busy(self) -> bool:
        """Whether the latest request whose head has come waits for its answer."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _count(self, size: int) -> None:
        if size > REQUEST_HEAD_BYTES:
            raise httptools.HttpParserError(f"a head has more than {REQUEST_HEAD_BYTES} bytes")

    def _head_without_upgrade(self) -> bytes:
        """Return the head that was read, but for the offer of another protocol."""
        parser = self.parser
        lines = [parser.get_method(), b" ", self.url, b" HTTP/", parser.get_http_version().encode()]
        for name, value in self.headers:
            if name != b"upgrade":
                lines += [b"\r\n", name, b": ", value]
        return b"".join([*lines, b"\r\n\r\n"])

    def _refuse(self) -> None:
        """Read no more; answer what came before, or say that what came is no request."""
        self._deaf = True
        cycle = self.cycle
        if self._is_busy() and (not cycle.more_body or cycle.response_started or self.pipeline):
            cycle.keep_alive = False
        elif self._headed and not self._is_busy():
            self.transport.close()  # it is answered, and the rest of its body is what is wrong
        else:
            self.send_400_response("Invalid HTTP request received.")

    def _await_rest(self) -> None:
        """Wait for a head, or for the body of what is answered; for others `_Bodies` waits."""
        seconds = self.limits.body_seconds if self._headed else self.limits.header_seconds
        self._due = self.loop.call_later(seconds, self.transport.abort)

    def _rest_came(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _response_due(self) -> None:
        """Give up a client that has not taken an answer, which waits in memory."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()


def bounded_protocol(limits: Limits, held: Held) -> type[BoundedProtocol]:
    """Return the class of connections with these limits, which are counted together."""
    return type("BoundedProtocol", (BoundedProtocol,), {"limits": limits, "held": held})
