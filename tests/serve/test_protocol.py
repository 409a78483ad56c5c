"""The Open Inference Protocol, asked by another project's client and by plain HTTP."""

from __future__ import annotations

import asyncio
import http.server
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import grpc
import numpy as np
import pytest

from polydevice.cli import main
from polydevice.serve.grpc import rpc
from polydevice.serve.grpc.rpc_messages import message
from polydevice.serve.http.connections import BoundedProtocol
from polydevice.serve.models.model import ModelSpec
from polydevice.serve.server import Server
from tests.cpu.models import build

from .running import KINDS, SECONDS, ask, running, typed_model, values

WEIGHT = np.random.default_rng(5).standard_normal((4, 3)).astype("f4")


def product(scale: float = 1.0) -> bytes:
    """y = relu(x w), and z = x + x."""
    nodes = [
        ("MatMul", ["x", "w"], ["m"], {}),
        ("Relu", ["m"], ["y"], {}),
        ("Add", ["x", "x"], ["z"], {}),
    ]
    return build(nodes, {"x": ("N", 4)}, ("y", "z"), {"w": WEIGHT * np.float32(scale)})


def right(x: np.ndarray, scale: float = 1.0) -> np.ndarray:
    return np.maximum(x @ (WEIGHT * np.float32(scale)), 0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("models")
    (folder / "product.onnx").write_bytes(product())
    (folder / "double.onnx").write_bytes(product(2))
    specs = [
        ModelSpec(folder / "product.onnx", device="CPU"),
        ModelSpec(folder / "double.onnx", name="product", version="10", device="CPU"),
        ModelSpec(folder / "product.onnx", name="product", version="9", device="CPU"),
    ]
    for datatype, kind in KINDS.items():
        (folder / f"{datatype}.onnx").write_bytes(typed_model(kind))
        specs.append(ModelSpec(folder / f"{datatype}.onnx", device="CPU"))
    with running(specs) as found:
        yield found


def clients(server: Server) -> Iterator[tuple[object, object]]:
    """Yield module and client, for REST and gRPC."""
    import tritonclient.grpc
    import tritonclient.http

    for module, port in (
        (tritonclient.http, server.http_port),
        (tritonclient.grpc, server.grpc_port),
    ):
        with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
            yield module, client


def test_the_parts_of_an_answer_go_at_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the body of an answer waits some 40 ms until the client has said that the head came."""
    found = []
    made = BoundedProtocol.connection_made

    def note(self: BoundedProtocol, transport: asyncio.Transport) -> None:
        of_client = transport.get_extra_info("socket")
        found.append(of_client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        made(self, transport)

    monkeypatch.setattr(BoundedProtocol, "connection_made", note)
    ask(server, "GET", "/v2/health/live")
    assert found and all(found)


def test_a_short_answer_comes_in_one_piece(server: Server) -> None:
    """So that its client wakes up once; two in a row on a connection, and errors too."""
    with socket.create_connection(("127.0.0.1", server.http_port), SECONDS) as client:
        for path, end in (("/v2/health/live", b'{"live": true}'), ("/v2/none", b'/metrics"}')) * 3:
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            answer = client.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 ") and answer.endswith(end), answer


@pytest.mark.filterwarnings("ignore")  # the client's own
def test_another_projects_client(server: Server, rng: np.random.Generator) -> None:
    for module, client in clients(server):
        over_grpc = module.__name__.endswith("grpc")
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("product")
        settings = {"as_json": True} if over_grpc else {}
        found = client.get_model_metadata("product", **settings)
        assert found["versions"] == ["1", "9", "10"]
        (described,) = found["inputs"]
        assert described["name"] == "x"
        assert described["datatype"] == "FP32"
        assert [int(size) for size in described["shape"]] == [-1, 4]
        for version, scale in (("", 2), ("1", 1), ("10", 2)):
            x = rng.standard_normal((rng.integers(1, 5), 4)).astype("f4")
            given = module.InferInput("x", x.shape, "FP32")
            given.set_data_from_numpy(x)
            result = client.infer("product", [given], version, request_id="the one")
            np.testing.assert_allclose(result.as_numpy("y"), right(x, scale), rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(result.as_numpy("z"), x + x)
            one = client.infer(
                "product", [given], outputs=[module.InferRequestedOutput("z")], timeout=9_000_000
            )
            np.testing.assert_array_equal(one.as_numpy("z"), x + x)
            assert one.as_numpy("y") is None
        for wrong in ("prodduct", "product/versions/7"):
            name, _, version = wrong.partition("/versions/")
            with pytest.raises(Exception, match=r"no model|no version"):
                client.infer(name, [given], version)
        with pytest.raises(Exception, match="fixed when it starts|not implemented|not found"):
            client.load_model("product")


@pytest.mark.filterwarnings("ignore")
def test_every_datatype(server: Server, rng: np.random.Generator) -> None:
    for module, client in clients(server):
        for datatype in KINDS.keys() - {"BF16"}:  # whose NumPy type is another in each version
            x = values(datatype, rng, (2, 3))
            sent = (
                np.array([v.encode() for v in x.flat], object).reshape(2, 3)
                if (datatype == "BYTES")
                else x
            )
            given = module.InferInput("x", x.shape, datatype)
            given.set_data_from_numpy(sent)
            got = client.infer(datatype, [given]).as_numpy("y")
            if datatype == "BYTES":
                got = np.array([each.decode() for each in got.flat], object).reshape(got.shape)
            np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize(
    ("datatype", "field", "numbers"),
    [
        ("UINT64", "uint64_contents", [1, 2**63 + 1, 2**53 + 1, 0, 2**64 - 1, 7]),
        ("INT64", "int64_contents", [1, 2**53 + 1, -(2**63), 2**63 - 1, 0, -1]),
        ("UINT32", "uint_contents", [0, 2**32 - 1, 1, 2, 3, 4]),
        ("FP64", "fp64_contents", [0.1, -1e300, 5e-324, 1.0, 2.0, 3.0]),
        ("BOOL", "bool_contents", [True, False, True, False, False, True]),
    ],
)
def test_contents_of_grpc_are_exact(
    server: Server, datatype: str, field: str, numbers: list[float]
) -> None:
    request = message("ModelInferRequest")(model_name=datatype)
    tensor = request.inputs.add(name="x", datatype=datatype, shape=[2, 3])
    getattr(tensor.contents, field).extend(numbers)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        answer = call(request.SerializeToString(), timeout=SECONDS)
    (raw,) = message("ModelInferResponse").FromString(answer).raw_output_contents
    dtype = {"FP64": "<f8", "BOOL": "?"}.get(datatype) or np.dtype(datatype.lower())
    assert np.frombuffer(raw, dtype).tolist() == numbers


def test_large_messages_of_grpc_are_read_and_written_apart(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def told(name: str) -> None:
        work = getattr(rpc, name)

        def tell(*arguments: object) -> object:
            threads.append(threading.get_ident())
            return work(*arguments)

        monkeypatch.setattr(rpc, name, tell)

    told("read_call")
    told("bytes_of")
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for rows, raw in ((1, True), (400_000, True), (50_000, False)):
            x = np.arange(rows * 3, dtype="f4").reshape(rows, 3)
            request = message("ModelInferRequest")(model_name="FP32", id=str(rows))
            tensor = request.inputs.add(name="x", datatype="FP32", shape=x.shape)
            if raw:
                request.raw_input_contents.append(x.tobytes())
            else:
                tensor.contents.fp32_contents.extend(x.reshape(-1).tolist())
            data = infer(request.SerializeToString(), timeout=SECONDS)
            answer = message("ModelInferResponse").FromString(data)
            assert (answer.id, list(answer.outputs[0].shape)) == (str(rows), [rows, 3])
            assert answer.raw_output_contents[0] == x.tobytes()
        (read, written), others = threads[:2], threads[2:]
        assert read == written  # the event loop's
        assert len(others) == 4
        assert read not in others[:3]
        assert others[3] == read  # copying half a megabyte takes less than going there and back
        with pytest.raises(grpc.RpcError) as refused:
            infer(b"\xff" * 20, timeout=SECONDS)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_json_as_curl_sends_it(server: Server, rng: np.random.Generator) -> None:
    for datatype in KINDS:
        x = values(datatype, rng, (2, 3))
        for data in (x.tolist(), x.reshape(-1).tolist()):  # nested or flat
            tensor = {"name": "x", "datatype": datatype, "shape": [2, 3], "data": data}
            status, found, _ = ask(
                server, "POST", f"/v2/models/{datatype}/infer", {"id": "7", "inputs": [tensor]}
            )
            assert status == 200, found
            assert found["model_name"] == datatype
            assert found["model_version"] == "1"
            assert found["id"] == "7"
            (output,) = found["outputs"]
            assert output["name"] == "y"
            assert output["datatype"] == datatype
            assert output["shape"] == [2, 3]
            assert output["data"] == x.reshape(-1).tolist()


def test_json_and_binary_mixed(server: Server, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 4)).astype("f4")
    tensor = {
        "name": "x", "datatype": "FP32", "shape": [2, 4],
        "parameters": {"binary_data_size": x.nbytes},
    }  # fmt: skip
    wanted = [{"name": "z", "parameters": {"binary_data": True}}, {"name": "y"}]
    header = json.dumps({"inputs": [tensor], "outputs": wanted}).encode()
    status, found, headers = ask(
        server, "POST", "/v2/models/product/versions/1/infer", header + x.tobytes(),
        {"Inference-Header-Content-Length": str(len(header))},
    )  # fmt: skip
    assert status == 200, found
    length = int(headers["inference-header-content-length"])
    answer = json.loads(found[:length])
    assert [each["name"] for each in answer["outputs"]] == ["z", "y"]
    np.testing.assert_array_equal(np.frombuffer(found[length:], "f4").reshape(2, 4), x + x)
    got = np.array(answer["outputs"][1]["data"]).reshape(2, 3)
    np.testing.assert_allclose(got, right(x), rtol=1e-4, atol=1e-5)


def test_numbers_that_json_has_not(server: Server) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [3e38, 0, 0, 0]}
    path = "/v2/models/product/infer"
    status, found, _ = ask(server, "POST", path, {"inputs": [tensor]})
    assert (status, "binary_data" in found["error"]) == (400, True)
    document = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    status, found, _ = ask(server, "POST", path, document)
    assert status == 200
    z = np.frombuffer(found, "f4", offset=len(found) - 16)
    np.testing.assert_array_equal(z, np.array([np.inf, 0, 0, 0], "f4"))


def test_health_index_statistics_and_metrics(server: Server) -> None:
    assert ask(server, "GET", "/v2/health/live")[0] == 200
    assert ask(server, "GET", "/v2/health/ready")[0] == 200
    assert ask(server, "GET", "/v2/models/product/versions/9/ready")[0] == 200
    status, found, _ = ask(server, "GET", "/v2")
    assert (status, found["name"]) == (200, "polydevice")
    status, found, _ = ask(server, "POST", "/v2/repository/index", {})
    assert {"name": "product", "version": "10", "state": "READY", "reason": ""} in found
    status, found, _ = ask(server, "POST", "/v2/repository/models/product/load", {})
    assert (status, "fixed when it starts" in found["error"]) == (403, True)
    _, before, _ = ask(server, "GET", "/v2/models/product/versions/9/stats")
    tensor = {"name": "x", "datatype": "FP32", "shape": [3, 4], "data": [0] * 12}
    for _ in range(2):
        status, *_ = ask(
            server, "POST", "/v2/models/product/versions/9/infer", {"inputs": [tensor]}
        )
        assert status == 200
    _, after, _ = ask(server, "GET", "/v2/models/product/versions/9/stats")
    (one,), (two,) = before["model_stats"], after["model_stats"]
    assert two["execution_count"] - one["execution_count"] == 2
    assert two["inference_stats"]["success"]["count"] == 2
    assert two["inference_stats"]["compute_infer"]["ns"] > 0
    status, text, headers = ask(server, "GET", "/metrics")
    assert (status, headers["content-type"].startswith("text/plain")) == (200, True)
    line = 'polydevice_requests_total{model="product",outcome="success",version="9"} 2.0'
    assert line in text.decode().splitlines()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v2/models/none", 404),
        ("GET", "/v2/models/product/versions/3", 404),
        ("GET", "/v2/models/product/infer", 405),
        ("GET", "/v2/models/..%2f..%2fetc%2fpasswd", 404),
        ("POST", "/v2/models//srv/x.onnx/infer", 404),
    ],
)
def test_addresses_that_do_not_exist(server: Server, method: str, path: str, status: int) -> None:
    found, answer, _ = ask(server, method, path)
    assert found == status
    assert answer["error"]


def test_bench_measures_a_server(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    url = f"http://127.0.0.1:{server.http_port}"
    command = ["bench", "--server", url, "-niter", "20", "-nireq", "2", "-json", str(file)]
    assert main([*command, "-m", "product", "-b", "3"]) == 0
    assert "Throughput:" in capsys.readouterr().out
    (figures,) = json.loads(file.read_text())["results"]
    assert figures["number of iterations"] >= 20
    assert 0 < figures["latency p50 (ms)"] <= figures["latency p99 (ms)"]
    for wrong, words in (
        (["--server", "localhost:1", "-m", "x"], "use http://host:port"),
        (["--server", "http://127.0.0.1:99999", "-m", "x"], "use http://host:port"),
        (["--server", "http://[", "-m", "x"], "use http://host:port"),
        (["--server", f"http://{'a' * 64}.b", "-m", "x"], "does not answer"),
        (["--server", url, "-m", "none"], "no model 'none' is served"),
        (["--server", "http://127.0.0.1:1", "-m", "x"], "does not answer"),
        (["--server", url, "-m", "product", "-data_shape", "[3,5]", "-niter", "1"], "has shape"),
    ):
        assert main(["bench", *wrong]) == 1
        assert words in capsys.readouterr().err


class _Strange(http.server.BaseHTTPRequestHandler):
    """Describes models by their names, and takes every request."""

    def do_GET(self) -> None:
        self._answer(unquote(self.path.removeprefix("/v2/models/")).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.set()
        self._answer(b"{}")

    def _answer(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def strange() -> Iterator[http.server.ThreadingHTTPServer]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Strange) as found:
        found.asked = threading.Event()
        thread = threading.Thread(target=found.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield found
        found.shutdown()
        thread.join(SECONDS)


def test_bench_tells_what_is_no_server_of_the_protocol(
    strange: http.server.ThreadingHTTPServer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{strange.server_port}"
    x = {"name": "x", "datatype": "FP32", "shape": [1]}
    for described, words in (
        ("<html>", "does not describe"),
        ("{}", "does not describe"),
        ("[]", "does not describe"),
        ('{"inputs": 3}', "does not describe"),
        ('{"inputs": [3]}', "does not describe"),
        (json.dumps({"inputs": [{**x, "datatype": "FP1"}]}), "does not describe"),
        (json.dumps({"inputs": [{**x, "datatype": []}]}), "does not describe"),
        (json.dumps({"inputs": [{**x, "shape": [None]}]}), "does not describe"),
        ('{"inputs": []}', "without inputs"),
    ):
        assert main(["bench", "--server", url, "-m", described]) == 1
        assert words in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise")
def test_bench_of_a_server_stops_when_interrupted(
    strange: http.server.ThreadingHTTPServer,
) -> None:
    url = f"http://127.0.0.1:{strange.server_port}"
    model = '{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1]}]}'
    command = ["bench", "--server", url, "-m", model, "-t", "9999"]
    program = (  # a shell's jobs in the background ignore this signal, and hand that on
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from polydevice.cli import main; sys.exit(main())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        assert strange.asked.wait(SECONDS)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)
        assert process.returncode != 0
    finally:
        process.kill()
        process.communicate()
