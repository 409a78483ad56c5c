"""What a connection makes of bytes: requests in pieces, ahead of their turn, and what is none."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator

import pytest

from polydevice.serve.http.connections import MOST_AHEAD, REQUEST_HEAD_BYTES
from polydevice.serve.models.model import ModelSpec
from polydevice.serve.server import Server

from .messages import BODY, IN_CHUNKS, LAST, LENGTH, LIVE, POST, WHOLE
from .running import KINDS, SECONDS, running, typed_model

LONG = b"a" * (REQUEST_HEAD_BYTES + (1 << 18))
"""The server reads up to 256 KB at a time, and looks at how much there is after that."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("models") / "FP32.onnx"
    path.write_bytes(typed_model(KINDS["FP32"]))
    with running([ModelSpec(path, device="CPU")]) as found:
        yield found


def answers(server: Server, *parts: bytes) -> list[tuple[int, bytes]]:
    """Return status and body of all that comes until the server ends the connection."""
    data = b""
    with socket.create_connection(("127.0.0.1", server.http_port), SECONDS) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for part in parts:
                client.sendall(part)
            while chunk := client.recv(1 << 16):
                data += chunk
        except ConnectionError:  # it ended before all was sent
            pass
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        (size,) = re.findall(rb"(?i)content-length: (\d+)", head)
        found.append((int(head[9:12]), data[: int(size)]))
        data = data[int(size) :]
    return found


def statuses(server: Server, *parts: bytes) -> list[int]:
    return [status for status, _ in answers(server, *parts)]


@pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE)
def test_requests_come_in_pieces_and_ahead(server: Server, text: bytes) -> None:
    """A body whose head offers HTTP/2, as Java's client does, is not lost."""
    for parts in (
        [text, text, LAST],
        [text + text + LAST],
        [bytes([b]) for b in text + text + LAST],
    ):
        found = answers(server, *parts)
        assert [status for status, _ in found] == [200, 200, 200]
        assert [json.loads(body)["outputs"][0]["data"] for _, body in found[:2]] == [[1, 2, 3]] * 2


def test_requests_far_ahead_of_their_turn_are_not_kept(server: Server) -> None:
    few, many = MOST_AHEAD // 2, MOST_AHEAD * 20
    assert statuses(server, LIVE * few + LAST) == [200] * (few + 1)
    found = statuses(server, LIVE * many + LAST)
    assert set(found) == {200}
    assert MOST_AHEAD <= len(found) < many


@pytest.mark.parametrize(
    "text",
    [
        b"GET /v2 HTTP/1.1\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: x\r\nhost: y\r\n\r\n",
        b"GET /v2 HTTP/1.1\nHost: x\n\n",
        b"GET /v2 HTTP/1.1\r\nHost: x\r\nA : 1\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: x\r\nA: 1\r\n 2\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        POST + LENGTH + b"Content-Length: 1\r\n\r\n" + BODY,
        POST + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n" + IN_CHUNKS + b"\r\n",
        POST + b"Transfer-Encoding: gzip\r\n\r\n" + BODY,
        POST + b"Content-Length: +3\r\n\r\nabc",
        POST + b"Content-Length: " + b"9" * 99 + b"\r\n\r\nabc",
        POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + LONG,
        POST + b"Transfer-Encoding: chunked\r\n\r\n" + IN_CHUNKS[:-3] + b"0\r\nA: " + LONG,
        b"GET /" + LONG,
        b"GET /v2 HTTP/1.1\r\nHost: x\r\nA: " + LONG,
        b"GET /v2 HTTP/1.1\r\nHost: x\r\n" + LONG,
        b"GET /v2 HTTP/1.1\r\nHost: x\r\n" + b"".join(b"A: %04d\r\n" % n for n in range(9999)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1 << 20, 5000], ids=["at-once", "in-parts"])
def test_what_is_no_request_is_refused(server: Server, text: bytes, size: int) -> None:
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    assert statuses(server, *parts) in ([400], []), text[:80]  # [] where it is not listened to
    assert statuses(server, LIVE + LAST) == [200, 200]


def test_what_is_right_is_answered_before_what_is_wrong(server: Server) -> None:
    assert statuses(server, POST + LENGTH + b"\r\n" + BODY + b"\x00nonsense\r\n\r\n") == [200]
    assert statuses(server, LIVE * 3 + b"GET\r\n\r\n" + LIVE) == [200] * 3
    # The rest of a body that was refused for its head is no request, whatever it says.
    other = POST.replace(b"FP32", b"other") + b"Content-Length: %d\r\n\r\n" % len(LIVE)
    assert statuses(server, other, LIVE, LAST) == [404, 200]


def test_numbers_of_http(server: Server) -> None:
    assert statuses(server, b"GET /v2 HTTP/1.0\r\n\r\n" + LIVE) == [200]
    assert statuses(server, b"GET http://x/v2 HTTP/1.1\r\nHost: x\r\n\r\n" + LAST) == [200, 200]
