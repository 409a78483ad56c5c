"""What a request costs, in processor time: by batch, resolution, streams, and way into a server.

    python benchmarks/scaling.py                    # everything; minutes
    python benchmarks/scaling.py --only serve

Processor time, unlike time, hardly changes with what else the machine does, so that these figures
can be repeated on any machine that is in use. `docs/scaling.md` says what follows from them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from polydevice import Core
from polydevice.serve.http.rest import HEADER_LENGTH
from polydevice.serve.measure import Connection, request_of

MODEL = ROOT / "samples/models/efficientnet_lite0/efficientnet_lite0.xml"
SECONDS = 3.0


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=("infer", "serve"))
    parser.add_argument("--model", default=str(MODEL), help="for the first part")
    options = parser.parse_args()
    if options.only != "serve":
        infer(options.model)
    if options.only != "infer":
        serve()
    return 0


def infer(path: str) -> None:
    """Print processor milliseconds for an item, on one thread of the CPU."""
    print(f"{'batch':>6}{'height':>8}{'streams':>9}{'CPU ms an item':>16}{'MB in':>8}")
    with Core() as core:
        for batch, side, streams in (
            *((batch, 224, 1) for batch in (1, 2, 4, 8, 16, 32)),
            *((1, side, 1) for side in (128, 160, 320)),
            *((1, 224, streams) for streams in (2, 4)),
        ):
            network = core.read_network(path)
            (name,) = network.inputs
            network.reshape({name: [batch, 3, side, side]})
            config = {"CPU_THREADS_NUM": str(streams), "CPU_THROUGHPUT_STREAMS": str(streams)}
            with core.load_network(network, "CPU", config) as executable:
                size = batch * 3 * side * side * 4
                x = np.random.default_rng(0).random((batch, 3, side, side), np.float32)
                queue = executable.infer_queue(streams)
                for _ in range(streams * 2):
                    queue.start_async({name: x})
                queue.wait_all()
                number, begin, end = 0, time.process_time(), time.perf_counter() + SECONDS
                while time.perf_counter() < end:
                    queue.start_async({name: x})
                    number += 1
                queue.wait_all()
                cost = (time.process_time() - begin) * 1e3 / number / batch
            print(f"{batch:>6}{side:>8}{streams:>9}{cost:>16.2f}{size / 1e6:>8.2f}", flush=True)


def serve() -> None:
    """Print processor milliseconds that a server takes for a request whose network does nothing."""
    print(f"{'way':<14}{'KB in':>8}{'max batch':>11}{'CPU ms a request':>18}{'of it client':>14}")
    for elements, most in ((16, 1), (16, 16), (150528, 1), (150528, 16), (1505280, 1)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "none.onnx"
            path.write_bytes(_nothing(elements))
            for way in ("REST binary", "gRPC", "REST JSON"):
                if way == "REST JSON" and elements > 200_000:
                    continue
                row = f"{way:<14}{elements * 4 / 1e3:>8.1f}{most:>11}"
                server, client = _cost(path, elements, most, way)
                print(f"{row}{server:>18.3f}{client:>14.3f}", flush=True)


def _nothing(elements: int) -> bytes:
    """A network that reads a row and returns its first number."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", elements])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])
    constants = [
        helper.make_tensor(name, TensorProto.INT64, [1], [value])
        for name, value in (("begin", 0), ("end", 1), ("axis", 1))
    ]
    node = helper.make_node("Slice", ["x", "begin", "end", "axis"], ["y"])
    graph = helper.make_graph([node], "none", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def _cost(path: Path, elements: int, most: int, way: str) -> tuple[float, float]:
    """Return processor milliseconds of the server, and of the client, for a request."""
    command = [
        sys.executable, "-m", "polydevice", "serve", str(path), "-d", "CPU",
        "--port", "0", "--grpc-port", "0", "--max-batch", str(most), "-c", "CPU_THREADS_NUM=1",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            rest = process.stdout.readline().split()[1]
            grpc_address = process.stdout.readline().split()[1]
            ask = _asking(rest, grpc_address, elements, way)
            _keep_asking(ask, 0.5)
            begin, own = _process_seconds(process.pid), time.process_time()
            number = _keep_asking(ask, SECONDS)
            server = _process_seconds(process.pid) - begin
            return server * 1e3 / number, (time.process_time() - own) * 1e3 / number
        finally:
            process.terminate()


def _asking(rest: str, grpc_address: str, elements: int, way: str):
    """Return what makes a connection of a thread's own, and a function that asks once."""
    x = np.random.default_rng(0).random((1, elements), np.float32)
    if way == "gRPC":
        import grpc

        from polydevice.serve.grpc.rpc_messages import message

        request = message("ModelInferRequest")(model_name="none", raw_input_contents=[x.tobytes()])
        request.inputs.add(name="x", datatype="FP32", shape=x.shape)
        text = request.SerializeToString()

        def connect():
            options = [("grpc.max_send_message_length", -1)]
            channel = grpc.insecure_channel(grpc_address, options)
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            return channel, lambda: call(text, timeout=60)

        return connect
    with Core() as core:
        ports = core.load_network(core.read_network(_nothing(elements)), "CPU").inputs
    if way == "REST binary":
        body, length = request_of({"x": x}, ports)
        headers = {HEADER_LENGTH: str(length)}
    else:
        tensor = {"name": "x", "datatype": "FP32", "shape": list(x.shape), "data": x[0].tolist()}
        body, headers = json.dumps({"inputs": [tensor]}).encode(), {}

    def connect():
        connection = Connection(rest)
        return connection, lambda: connection.ask("/v2/models/none/infer", body, headers)

    return connect


def _keep_asking(connect, seconds: float, threads: int = 4) -> int:
    """Ask over several connections for a while; return how often."""
    counts = [0] * threads
    end = time.perf_counter() + seconds

    def work(index: int) -> None:
        connection, ask = connect()
        with closing(connection):
            while time.perf_counter() < end:
                ask()
                counts[index] += 1

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts)


def _process_seconds(pid: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    raise SystemExit(main())
