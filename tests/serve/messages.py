"""Requests over HTTP as bytes, for the `typed_model` of FP32."""

from __future__ import annotations

import json

TENSOR = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
BODY = json.dumps({"inputs": [TENSOR]}).encode()
POST = b"POST /v2/models/FP32/infer HTTP/1.1\r\nHost: x\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
IN_CHUNKS = b"%x\r\n%s\r\n%x;kind=rest\r\n%s\r\n0\r\n" % (9, BODY[:9], len(BODY) - 9, BODY[9:])
_UPGRADE = POST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n" + IN_CHUNKS
WHOLE = {
    "length": POST + LENGTH + b"\r\n" + BODY,
    "chunks": POST + _CHUNKED + b"\r\n",
    "chunks-and-trailer": POST + _CHUNKED + b"Sum: 6\r\n\r\n",
    "h2c": _UPGRADE + LENGTH + b"\r\n" + BODY,
    "h2c-in-chunks": _UPGRADE + _CHUNKED + b"\r\n",
    "websocket": _UPGRADE.replace(b"h2c", b"websocket") + LENGTH + b"\r\n" + BODY,
}
"""The same request in several ways."""
