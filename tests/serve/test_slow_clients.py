"""Clients that are slow, or too many, take nothing from others for long."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from polydevice.serve.grpc import rpc
from polydevice.serve.grpc.rpc_messages import message
from polydevice.serve.models.model import ModelSpec
from polydevice.serve.server import Server

from .running import KINDS, SECONDS, ask, running, typed_model

INFER = "/v2/models/FP32/infer"
SERVICE = "/inference.GRPCInferenceService"
OWN = [("grpc.use_local_subchannel_pool", 1)]
"""Lets a channel have a connection that no other one uses."""


@pytest.fixture
def spec(tmp_path: Path) -> ModelSpec:
    (tmp_path / "FP32.onnx").write_bytes(typed_model(KINDS["FP32"]))
    return ModelSpec(tmp_path / "FP32.onnx", device="CPU")


def works(server: Server) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
    status, found, _ = ask(server, "POST", INFER, {"inputs": [tensor]})
    assert (status, found["outputs"][0]["data"]) == (200, [1, 2, 3])


def test_clients_that_are_slow_are_given_up(spec: ModelSpec) -> None:
    head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
    texts = ("", "POST", head, f"{head}\r\n", f"{head}\r\n{{")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running([spec], header_seconds=2, body_seconds=2))
        clients = []
        for text in texts:
            address = ("127.0.0.1", server.http_port)
            client = stack.enter_context(socket.create_connection(address, SECONDS))
            client.sendall(text.encode())
            clients.append(client)
        answered = stack.enter_context(socket.create_connection(address, SECONDS))
        answered.sendall(f"{head.replace('FP32', 'other')}\r\n{{".encode())
        assert answered.recv(12) == b"HTTP/1.1 404"
        answered.sendall(b"{")  # of a body that nobody waits for
        for text, client in zip(texts, clients, strict=True):
            answer = b""
            while chunk := client.recv(4096):  # until the server ends the connection
                answer += chunk
            if text.endswith(("\r\n\r\n", "{")):
                assert answer.startswith(b"HTTP/1.1 408"), text
            else:
                assert not answer, text
        with contextlib.suppress(ConnectionError):
            while answered.recv(4096):
                pass
        works(server)


def live(server: Server) -> bytes | grpc.StatusCode:
    """What a client of gRPC gets that has done nothing yet."""
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", OWN) as channel:
        try:
            return channel.unary_unary(f"{SERVICE}/ServerLive")(b"", timeout=SECONDS)
        except grpc.RpcError as error:
            return error.code()


def test_clients_of_grpc_that_are_slow_are_given_up(spec: ModelSpec) -> None:
    """Calls without a message would keep all others out, and connections that say nothing stay."""
    asked = threading.Event()

    def nothing() -> Iterator[bytes]:
        asked.wait(SECONDS)
        yield from ()

    with running([spec], connections=3, header_seconds=1, body_seconds=1) as server:
        address = f"127.0.0.1:{server.grpc_port}"
        silent = socket.create_connection(("127.0.0.1", server.grpc_port), SECONDS)
        with grpc.insecure_channel(address, OWN) as channel:
            for name in ("ModelInfer", "ServerReady", "RepositoryIndex"):
                call = channel.stream_unary(f"{SERVICE}/{name}")
                call.future(nothing()).add_done_callback(lambda each: codes.append(each.code()))
            codes: list[grpc.StatusCode] = []
            end = time.monotonic() + SECONDS
            while len(codes) < 3 and time.monotonic() < end:
                time.sleep(0.05)
            asked.set()
            assert codes == [grpc.StatusCode.DEADLINE_EXCEEDED] * 3
            ended = channel.stream_unary(f"{SERVICE}/ServerLive").future(iter(()))
            assert ended.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert live(server) == b"\x08\x01"
        with silent:
            while silent.recv(4096):  # until the server ends the connection
                pass


@pytest.mark.full
def test_a_client_of_grpc_that_does_not_take_its_answer_is_given_up(
    spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "CONNECTION_SECONDS", 1)
    rows = 1 << 20
    request = message("ModelInferRequest")(model_name="FP32", raw_input_contents=[bytes(rows * 12)])
    request.inputs.add(name="x", datatype="FP32", shape=[rows, 3])
    limits = {"body_seconds": 1, "request_seconds": 3, "response_seconds": 1, "connections": 1}
    with (
        running([spec], **limits) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", OWN) as channel,
    ):
        infer = channel.stream_stream(f"{SERVICE}/ModelInfer")
        call = infer(iter([request.SerializeToString()]))  # whose answer nobody reads
        end = time.monotonic() + SECONDS
        while live(server) is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            assert time.monotonic() < end
        while live(server) != b"\x08\x01":
            assert time.monotonic() < end
            time.sleep(0.1)
        call.cancel()


def test_too_many_connections_and_too_long_a_head(spec: ModelSpec) -> None:
    with running([spec], connections=3) as server, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", server.http_port)
        for _ in range(2):
            stack.enter_context(socket.create_connection(address, SECONDS))
        end = time.monotonic() + SECONDS
        while (status := _status(server)) == 200:  # until the server has taken them
            assert time.monotonic() < end
        assert status == 503
        stack.close()
        while _status(server) != 200:
            assert time.monotonic() < end
        with socket.create_connection(address, SECONDS) as client:
            client.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n")
            with contextlib.suppress(OSError):  # it ends before all is sent
                for number in range(10_000):
                    client.sendall(b"X-%d: %s\r\n" % (number, b"a" * 200))
                assert client.recv(12) == b"HTTP/1.1 400"
        works(server)


def _status(server: Server) -> int:
    status, *_ = ask(server, "GET", "/metrics")
    return status


def test_a_client_that_does_not_take_its_answer_is_given_up(spec: ModelSpec) -> None:
    """It would hold megabytes of the server's for as long as it likes."""
    rows = 1 << 20
    tensor = {
        "name": "x", "datatype": "FP32", "shape": [rows, 3],
        "parameters": {"binary_data_size": rows * 12},
    }  # fmt: skip
    wanted = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    header = json.dumps(wanted).encode()
    head = (
        f"POST /v2/models/FP32/infer HTTP/1.1\r\nHost: x\r\n"
        f"Inference-Header-Content-Length: {len(header)}\r\n"
        f"Content-Length: {len(header) + rows * 12}\r\n\r\n"
    )
    limits = {"response_seconds": 1, "header_seconds": 10_000}
    with running([spec], **limits) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(SECONDS)
        client.connect(("127.0.0.1", server.http_port))
        client.sendall(head.encode() + header + bytes(rows * 12))
        assert client.recv(9) == b"HTTP/1.1 "
        end = time.monotonic() + SECONDS
        with pytest.raises(ConnectionError):
            while time.monotonic() < end:  # the rest is never read; it is asked what became
                time.sleep(0.1)
                client.send(b"x")
