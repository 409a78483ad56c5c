"""A server in a thread of the test's process, and plain HTTP to it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from polydevice import Core
from polydevice.serve.models.limits import Limits
from polydevice.serve.models.model import ModelSpec
from polydevice.serve.models.repository import Models
from polydevice.serve.server import Server

SECONDS = 120
"""For what should take milliseconds, on a machine that has much to do."""


@contextlib.contextmanager
def running(specs: Sequence[ModelSpec], **limits: Any) -> Iterator[Server]:
    """Serve models until the block ends."""
    ready = threading.Event()
    found: list[Server] = []
    errors: list[BaseException] = []

    def serve(core: Core) -> None:
        async def main() -> None:
            server = Server(Models(core, specs, Limits(**limits)), port=0, grpc_port=0)
            found.append(server)
            await server.serve(ready.set)

        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)
        finally:
            ready.set()

    with Core() as core:
        thread = threading.Thread(target=serve, args=(core,), daemon=True)
        thread.start()
        try:
            assert ready.wait(SECONDS)
            if errors:
                raise errors[0]
            yield found[0]
        finally:
            if found:
                found[0].stop()
            thread.join(SECONDS)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def ask(
    server: Server, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any, dict[str, str]]:
    """Return the status, the JSON or bytes, and the headers of an answer."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=SECONDS)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        data = answer.read()
        kind = answer.getheader("Content-Type", "")
        found = json.loads(data) if kind.startswith("application/json") and data else data
        return answer.status, found, dict(answer.getheaders())
    finally:
        connection.close()


def typed_model(kind: int, rows: int | str = "N") -> bytes:
    """y = x, of one ONNX element type, with the sizes rows × 3."""
    x = helper.make_tensor_value_info("x", kind, [rows, 3])
    y = helper.make_tensor_value_info("y", kind, [rows, 3])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "typed", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString()


KINDS = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BF16": TensorProto.BFLOAT16,
    "BYTES": TensorProto.STRING,
}
"""Datatype of the protocol → ONNX's."""


def values(datatype: str, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Random values of a datatype, its limits among them."""
    if datatype == "BOOL":
        return rng.integers(0, 2, shape).astype(bool)
    if datatype == "BYTES":
        texts = ["", "a", "zwölf", "\n\"'", "x" * 300, "日本"]
        return rng.choice(np.array(texts, object), shape)
    if datatype.startswith(("FP", "BF")):
        dtype = {"FP16": "f2", "FP32": "f4", "FP64": "f8", "BF16": "f4"}[datatype]
        found = rng.standard_normal(shape).astype(dtype)
        if datatype == "BF16":  # what survives leaving the lower half of the bits out
            found = (found.view("u4") & np.uint32(0xFFFF0000)).view("f4")
        return found
    dtype = np.dtype(datatype.lower())
    found = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    found.flat[:2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    return found
