"""What the server refuses, gives up, and survives; and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import grpc
import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.runtime.port_info import PortInfo
from polydevice.serve.call import Call
from polydevice.serve.grpc.rpc import read_call
from polydevice.serve.grpc.rpc_messages import message
from polydevice.serve.http.rest import RestCall
from polydevice.serve.models.limits import Limits
from polydevice.serve.models.model import ModelSpec
from polydevice.serve.refusal import Reason, RefusedError
from polydevice.serve.server import Server
from polydevice.tensor import TensorDesc

from .messages import LIVE, WHOLE
from .running import KINDS, SECONDS, ask, running, typed_model

INFER = "/v2/models/FP32/infer"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    for name in ("FP32", "INT8", "BYTES"):
        (made / f"{name}.onnx").write_bytes(typed_model(KINDS[name]))
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    specs = [ModelSpec(folder / f"{n}.onnx", device="CPU") for n in ("FP32", "INT8", "BYTES")]
    with running(specs, body_bytes=50_000, json_bytes=20_000) as found:
        yield found


def request(**changes: object) -> dict[str, object]:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3], **changes}
    return {"inputs": [{name: value for name, value in tensor.items() if value is not ...}]}


def works(server: Server) -> None:
    status, found, _ = ask(server, "POST", INFER, request())
    assert (status, found["outputs"][0]["data"]) == (200, [1, 2, 3])


HUGE = 1 << 62
DEEP = b"[" * 9000
BAD: list[tuple[object, str]] = [
    (b"", "no JSON"),
    (b"{", "no JSON"),
    (b"\xff\xfe{}", "not UTF-8"),
    (b"[]", "must be an object"),
    (b'{"inputs": ' + DEEP, "JSON|deep"),
    (b'{"id": ' + b"9" * 9000 + b"}", "JSON|text"),
    ({}, "inputs must be a list"),
    ({"inputs": []}, "inputs lack: x"),
    ({"inputs": [3]}, "must be an object"),
    ({"id": 3, **request()}, "'id' must be a text"),
    ({"parameters": 3, **request()}, "must be an object"),
    ({"parameters": {"timeout": "soon"}, **request()}, "microseconds"),
    ({"parameters": {"sequence_id": 1}, **request()}, "'sequence_id' is not supported"),
    ({"inputs": request()["inputs"] * 2}, "given twice"),
    ({"outputs": [{"name": "z"}], **request()}, "no output 'z'"),
    ({"outputs": [{"name": "y"}] * 2, **request()}, "asked for twice"),
    ({"outputs": [{"name": ["y"]}], **request()}, "no output"),
    ({"outputs": [{"name": "y", "parameters": {"classification": 2}}], **request()}, "supported"),
    (request(name="z"), "no input 'z'"),
    (request(name=...), "no input"),
    (request(name=["x"]), "no input"),
    (request(datatype="FP64"), "has datatype FP32"),
    (request(datatype=["FP32"]), "has datatype FP32"),
    (request(shape=...), "needs a shape"),
    (request(shape=3), "needs a shape"),
    (request(shape="13"), "needs a shape"),
    (request(shape=[1, 3.0]), "needs a shape"),
    (request(shape=[True, 3]), "needs a shape"),
    (request(shape=[-1, 3]), "needs a shape"),
    (request(shape=[HUGE, 3]), "needs a shape"),
    (request(shape=[2147483647, 3]), "3 numbers are given"),
    (request(shape=[1] * 99), "dimensions|has shape"),
    (request(shape=[2**31 - 1] * 4 + [0, 2**31 - 1], data=[]), "too large a shape|has shape"),
    (request(shape=[3]), "has shape"),
    (request(shape=[1, 4]), "has shape"),
    (request(shape=[2, 3]), "3 numbers are given"),
    (request(data=...), "data must be a list"),
    (request(data=3), "data must be a list"),
    (request(data=[1, 2]), "2 numbers are given"),
    (request(data=[1, 2, "3"]), "must be of type FP32"),
    (request(data=[1, 2, True]), "must be of type FP32"),
    (request(data=[1, 2, None]), "must be of type FP32"),
    (request(data=[1, 2, 1e300]), "out of the datatype's range"),
    (request(data=[1, 2, 10**400]), "range"),
    (request(data=[[1, 2], [3]]), "nested otherwise"),
    (request(data=[[1, 2, 3], 4]), "nested otherwise"),
    (request(data=[[[1, 2, 3]]]), "nested otherwise"),
    (request(data=[[1], [2], [3]]), "nested otherwise"),
    (request(parameters={"binary_data_size": 12}), "0 bytes are left"),
    (request(parameters={"binary_data_size": -1}), "is not possible"),
    (request(parameters={"binary_data_size": "x"}), "is not possible"),
    (request(parameters={"shared_memory_region": "x"}), "not supported"),
]


def test_requests_that_are_wrong(server: Server) -> None:
    for body, words in BAD:
        status, found, _ = ask(server, "POST", INFER, body)
        assert (status, bool(re.search(words, found["error"]))) == (400, True), (body, found)
    for name, data in (
        ("INT8", [1, 2, 128]),
        ("INT8", [1, 2, 1.5]),
        ("BYTES", [1, "a", "b"]),
        ("BYTES", ["\ud83d", "\ude00", "b"]),
    ):
        document = request(datatype=name, data=data)
        status, found, _ = ask(server, "POST", f"/v2/models/{name}/infer", document)
        assert status == 400, found
    for length in ("-1", "1e3", "9" * 99, "10", "x"):
        headers = {"Inference-Header-Content-Length": length}
        assert ask(server, "POST", INFER, request(), headers)[0] == 400, length
    text = json.dumps(request(datatype="BYTES", data=..., parameters={"binary_data_size": 15}))
    for tail in (
        b"\xff\xff\xff\xff" * 4,
        b"\x01\0\0\0a" * 2 + b"\x02\0\0\0a",
        b"\x01\0\0\0\xff" * 3,
    ):
        headers = {"Inference-Header-Content-Length": str(len(text))}
        status, *_ = ask(server, "POST", "/v2/models/BYTES/infer", text.encode() + tail, headers)
        assert status == 400
    status, found, _ = ask(server, "POST", INFER, request(), {"Content-Encoding": "gzip"})
    assert (status, "compressed" in found["error"]) == (415, True)
    works(server)


def test_requests_that_are_too_large(server: Server) -> None:
    status, found, _ = ask(server, "POST", INFER, b" " * 20_001)
    assert (status, "binary tensors" in found["error"]) == (413, True)
    with contextlib.suppress(ConnectionError):  # or it ends before all is sent
        status, found, _ = ask(server, "POST", INFER, b" " * 50_001)
        assert (status, "50000 bytes" in found["error"]) == (413, True)

    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 1000

    with contextlib.suppress(ConnectionError):
        body = b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in endless())
        status, *_ = ask(server, "POST", INFER, body, {"Transfer-Encoding": "chunked"})
        assert status == 413
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError) as info:
            call(b"\x0a" + bytes([200, 200, 3]) + b"x" * 58_440, timeout=SECONDS)
        assert info.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    works(server)


SERVICE = "/inference.GRPCInferenceService"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="all of 127/8 are this machine")
def test_it_listens_where_it_was_told_alone(server: Server) -> None:
    for port in (server.http_port, server.grpc_port):
        socket.create_connection(("127.0.0.1", port), SECONDS).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), SECONDS)


def test_no_model_is_loaded_by_its_name(server: Server, folder: Path) -> None:
    """Not even one that is there: `folder` has it."""
    path = str(folder / "INT8.onnx")
    for name in (path, path.removesuffix(".onnx"), "../INT8", "INT8.onnx"):
        quoted = urllib.parse.quote(name, safe="")
        assert ask(server, "POST", f"/v2/models/{quoted}/infer", request())[0] == 404
        asked = message("ModelInferRequest")(model_name=name).SerializeToString()
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            for method, code in (
                ("ModelInfer", grpc.StatusCode.NOT_FOUND),
                ("RepositoryModelLoad", grpc.StatusCode.UNIMPLEMENTED),
            ):
                with pytest.raises(grpc.RpcError) as info:
                    channel.unary_unary(f"{SERVICE}/{method}")(asked, timeout=SECONDS)
                assert info.value.code() is code


def test_garbage_over_the_wire(server: Server) -> None:
    rng = random.Random(3)
    for port in (server.http_port, server.grpc_port):
        for _ in range(30):
            whole = rng.choice([*WHOLE.values()]) + LIVE
            text = bytearray(whole if port == server.http_port else rng.randbytes(200))
            for _ in range(rng.randrange(1, 8)):
                text[rng.randrange(len(text))] = rng.randrange(256)
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", port), SECONDS) as client,
            ):
                client.sendall(text)
                client.shutdown(socket.SHUT_WR)
                while client.recv(4096):
                    pass
    works(server)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        assert call(b"", timeout=SECONDS) == b"\x08\x01"


class _Model:
    """What reading a request asks of a model, without a server."""

    def __init__(self, folder: Path, name: str) -> None:
        from polydevice import Core

        with Core() as core:
            executable = core.load_network(core.read_network(folder / f"{name}.onnx"), "CPU")
            self.name, self.version = name, "1"
            self.inputs, self.outputs = executable.inputs, executable.outputs

    def check_items(self, inputs: object) -> None:
        pass


def _mutated(rng: random.Random, value: object, depth: int = 0) -> object:
    """Change one place of a document, or none."""
    strange = [None, True, -1, 0, 1.5, HUGE, 1e308, "", "x", "FP32", [], {}, [[]], [1], {"a": 1}]
    if rng.random() < 0.15:
        return rng.choice(strange)
    if isinstance(value, dict) and value:
        made = dict(value)
        key = rng.choice(list(made))
        if rng.random() < 0.1:
            del made[key]
        else:
            made[key] = _mutated(rng, made[key], depth + 1)
        return made
    if isinstance(value, list) and value:
        made = list(value)
        index = rng.randrange(len(made))
        made[index] = _mutated(rng, made[index], depth + 1)
        return made * rng.choice([1, 1, 1, 2])
    return rng.choice(strange)


def test_answers_that_are_too_long_for_json(server: Server) -> None:
    for datatype, rows, data in (
        ("FP32", 1500, np.full(4500, 0.1, "<f4").tobytes()),  # 20 characters each
        ("FP32", 3500, bytes(3500 * 12)),  # too many, however short
        ("BYTES", 2, b"".join((5000).to_bytes(4, "little") + b"a" * 5000 for _ in range(6))),
        ("BYTES", 2, b"".join((1000).to_bytes(4, "little") + b"\0" * 1000 for _ in range(6))),
    ):
        wanted = request(
            datatype=datatype, shape=[rows, 3], data=..., parameters={"binary_data_size": len(data)}
        )
        for binary in (True, False):
            wanted["outputs"] = [{"name": "y", "parameters": {"binary_data": binary}}]
            header = json.dumps(wanted).encode()
            headers = {"Inference-Header-Content-Length": str(len(header))}
            path = f"/v2/models/{datatype}/infer"
            status, found, got = ask(server, "POST", path, header + data, headers)
            if binary:
                assert status == 200
                assert found[int(got["inference-header-content-length"]) :] == data
            else:
                assert status == 400
                assert re.search("JSON .*binary_data", found["error"])
    works(server)


def test_answers_count_until_they_are_taken(tmp_path: Path) -> None:
    (tmp_path / "wide.onnx").write_bytes(typed_model(KINDS["FP32"]))
    size, bytes_each = 50 << 20, 16 << 20  # a request and its answer, and one that waits
    rows = bytes_each // 12
    tensor = {
        "name": "x", "datatype": "FP32", "shape": [rows, 3],
        "parameters": {"binary_data_size": rows * 12},
    }  # fmt: skip
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    headers = {"Inference-Header-Content-Length": str(len(header))}
    path, body = "/v2/models/wide/infer", header + bytes(rows * 12)
    specs = [ModelSpec(tmp_path / "wide.onnx", device="CPU")]
    with running(specs, pending_bytes=size) as server, contextlib.ExitStack() as stack:
        slow = []
        for _ in range(2):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(SECONDS)
            client.connect(("127.0.0.1", server.http_port))
            text = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            client.sendall(
                f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
                f"{text}\r\n".encode()
                + body
            )
            assert client.recv(9) == b"HTTP/1.1 "
            slow.append(client)
        status, found, _ = ask(server, "POST", path, body, headers)
        assert status == 503
        assert "already; try again later" in found["error"]
        for client in slow:
            client.close()
        end = time.monotonic() + SECONDS
        while (status := ask(server, "POST", path, body, headers)[0]) == 503:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert status == 200


def test_shapes_that_numpy_has_not() -> None:
    model = SimpleNamespace(
        name="open",
        inputs={"x": PortInfo("input", "x", TensorDesc(ElementType.f32, None), "", frozenset())},
        outputs={},
    )
    wrong = [2**31 - 1] * 4 + [0, 2**31 - 1]
    with pytest.raises(RefusedError, match="too large a shape") as refused:
        RestCall(model, json.dumps(request(shape=wrong, data=[])).encode(), None, Limits())
    assert refused.value.reason is Reason.INVALID
    call = message("ModelInferRequest")()
    call.inputs.add(name="x", datatype="FP32", shape=wrong)
    with pytest.raises(RefusedError, match="too large a shape"):
        read_call(call, Call(model))


@pytest.mark.parametrize("name", ["FP32", "INT8", "BYTES"])
def test_the_parsers_refuse_or_read_whatever_comes(folder: Path, name: str) -> None:
    """Nothing but `RefusedError` is raised, and what is read is what the network takes."""
    rng, model, limits = random.Random(7), _Model(folder, name), Limits()
    data = ["a", "b", "c"] if name == "BYTES" else [1, 2, 3]
    seed = {
        "id": "a", "parameters": {"binary_data_output": True}, "outputs": [{"name": "y"}],
        **request(datatype=name, data=data, parameters={}),
    }  # fmt: skip
    read = 0
    for _ in range(3000):
        document = seed
        for _ in range(rng.randrange(1, 3)):
            document = _mutated(rng, document)
        body = json.dumps(document).encode()
        if rng.random() < 0.2:
            at = rng.randrange(len(body) + 1)
            body = body[:at] + rng.randbytes(rng.randrange(4)) + body[at + rng.randrange(4) :]
        try:
            made = RestCall(model, body, None, limits)
        except RefusedError:
            continue
        read += 1
        array = made.call.inputs["x"]
        model.inputs["x"].check(model.inputs["x"].element_type, array.shape)
        made.write({"y": array})
    assert read > 50
    kind = message("ModelInferRequest")
    good = kind(model_name=name, id="a", outputs=[{"name": "y"}])
    tensor = good.inputs.add(name="x", datatype=name, shape=[1, 3])
    if name == "INT8":
        tensor.contents.int_contents.extend([1, 2, 3])
    else:
        raw = b"\x01\0\0\0a" * 3 if name == "BYTES" else bytes(12)
        good.raw_input_contents.append(raw)
    text = good.SerializeToString()
    read = 0
    for _ in range(3000):
        made = bytearray(text)
        for _ in range(rng.randrange(1, 4)):
            made[rng.randrange(len(made))] = rng.choice(
                [0, 1, 2, 127, 128, 255, rng.randrange(256)]
            )
        with contextlib.suppress(Exception):  # protobuf's own refusal
            parsed = kind.FromString(bytes(made))
            try:
                call = read_call(parsed, Call(model))
            except RefusedError:
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is
                pytest.fail(f"{bytes(made)!r}: {error!r}")
            read += 1
            assert call.inputs["x"].shape[1:] == (3,)
    assert read > 10


def _rss(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) << 10


@pytest.mark.full
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_process_of_its_own_does_not_grow_and_ends_gracefully(folder: Path) -> None:
    command = [
        sys.executable, "-m", "polydevice", "serve", f"FP32={folder / 'FP32.onnx'}", "-d", "CPU",
        "--port", "0", "--grpc-port", "0", "--max-batch", "4", "--max-delay-ms", "1e8",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("REST: http://127.0.0.1:"), line
            server = type("Address", (), {"http_port": int(line.rpartition(":")[2])})
            bad = [body for body, _ in BAD]
            sizes = []
            for _ in range(3):
                for _ in range(4):
                    for body in bad:
                        assert ask(server, "POST", INFER, body)[0] == 400
                sizes.append(_rss(process.pid))
            assert sizes[2] - sizes[0] < 16 << 20, sizes
            # A request that has come, and waits to be batched, is answered though the end has come.
            text = json.dumps(request()).encode()
            with socket.create_connection(("127.0.0.1", server.http_port), SECONDS) as client:
                head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n"
                client.sendall(head.encode() + text)
                while (
                    b'polydevice_queue{model="FP32",version="1"} 1.0'
                    not in ask(server, "GET", "/metrics")[1]
                ):
                    time.sleep(0.01)
                process.send_signal(signal.SIGTERM)
                answer = b""
                while chunk := client.recv(4096):
                    answer += chunk
            assert answer.startswith(b"HTTP/1.1 200"), answer
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
