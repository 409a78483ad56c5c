"""Latency of `polydevice serve` at half load, beside requests to the same network without a server.

    python benchmarks/serving.py                      # EfficientNet-Lite0 on CPU
    python benchmarks/serving.py -m MODEL -d GPU --load 0.5 --way REST gRPC

Requests come at times that are fixed beforehand, whether the ones before have been answered or not:
evenly (`even`), and by chance (`poisson`: the same number a second, exponential gaps). A latency
counts from the time at which a request was to be sent. `bare` meets the same times with an
`InferQueue` in this process. The load is a part of what one device does with one request after the
other. The server is a process of its own, the client another.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from polydevice import Core
from polydevice.benchmark.inputs import make_inputs
from polydevice.benchmark.options.texts import parse_shapes
from polydevice.dtype import ElementType
from polydevice.serve.datatypes import datatype_of
from polydevice.serve.http.rest import HEADER_LENGTH
from polydevice.serve.measure import Connection, request_of

MODEL = ROOT / "samples/models/efficientnet_lite0/efficientnet_lite0.xml"
CLIENTS = 16
Ask = Callable[[], object]
Array = np.ndarray


def arrivals(kind: str, rate: float, seconds: float) -> Array:
    """Return when requests are sent, in seconds from the beginning."""
    number = int(rate * seconds)
    random = np.random.default_rng(0)
    gaps = random.exponential(1 / rate, number) if kind == "poisson" else np.full(number, 1 / rate)
    return np.cumsum(gaps)


def meet(times: Array, asks: list[Ask]) -> Array:
    """Send requests at these times, each by an idle client; return their latencies in ms.

    What this process made before is kept out of collections of garbage, as the server keeps its
    own: one that looks at a whole network holds up several requests.
    """
    gc.collect()
    gc.freeze()
    due: queue.SimpleQueue[float | None] = queue.SimpleQueue()
    found: list[float] = []

    def work(ask: Ask) -> None:
        while (at := due.get()) is not None:
            ask()
            found.append((time.perf_counter() - at) * 1e3)

    threads = [threading.Thread(target=work, args=(ask,)) for ask in asks]
    for thread in threads:
        thread.start()
    begin = time.perf_counter() + 0.05
    for at in times + begin:
        wait = at - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        due.put(at)
    for _ in threads:
        due.put(None)
    for thread in threads:
        thread.join()
    return np.array(found)


@contextmanager
def serving(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Run a server; gives its addresses."""
    command = [
        sys.executable, "-m", "polydevice", "serve", f"m={options.model}", "-d", options.device,
        "--port", "0", "--grpc-port", "0", "--shape", options.shape, "--body-bytes", str(256 << 20),
        *(part for pair in options.config for part in ("-c", pair)),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[1], process.stdout.readline().split()[1]
        finally:
            process.terminate()


def over_rest(stack: ExitStack, url: str, body: bytes, length: int) -> Ask:
    """Return what asks once over a connection of its own."""
    connection = stack.enter_context(closing(Connection(url)))
    headers = {HEADER_LENGTH: str(length), "Content-Type": "application/octet-stream"}
    return lambda: connection.ask("/v2/models/m/infer", body, headers)


def over_grpc(stack: ExitStack, address: str, inputs: dict[str, Array]) -> Ask:
    """Return what asks once over a channel of its own."""
    import grpc

    from polydevice.serve.grpc.rpc_messages import message

    contents = [array.tobytes() for array in inputs.values()]
    request = message("ModelInferRequest")(model_name="m", raw_input_contents=contents)
    for name, array in inputs.items():
        kind = datatype_of(ElementType.of(array.dtype))
        request.inputs.add(name=name, datatype=kind, shape=array.shape)
    text = request.SerializeToString()
    local = [("grpc.use_local_subchannel_pool", 1)]
    channel = stack.enter_context(grpc.insecure_channel(address, local))
    call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    return lambda: call(text, timeout=60)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-m", "--model", default=str(MODEL), help="of sizes that are known")
    parser.add_argument("-d", "--device", default="CPU")
    parser.add_argument("-c", dest="config", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--shape", default="[1,3,224,224]", help="[SIZE,…] or NAME[SIZE,…]")
    parser.add_argument("--load", type=float, default=0.5, help="part of what the device can do")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--way", nargs="+", choices=("REST", "gRPC"), default=["REST", "gRPC"])
    parser.add_argument("--json", type=Path, help="also write every figure here")
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with ExitStack() as stack:
        core = stack.enter_context(Core())
        network = core.read_network(options.model)
        if options.shape:
            network.reshape(parse_shapes(options.shape, list(network.inputs)))
        config = dict(pair.split("=", 1) for pair in options.config)
        executable = core.load_network(network, options.device, config)
        (inputs,) = make_inputs(executable.inputs, [], 0, 1, {})
        body, length = request_of(inputs, executable.inputs)
        request = executable.create_infer_request()
        alone = np.array([_milliseconds(lambda: request.infer(inputs)) for _ in range(200)][20:])
        print(f"one after the other: median {np.median(alone):.2f} ms, {os.cpu_count()} cores")
        rate = options.load * 1e3 / float(np.median(alone))
        requests = [executable.create_infer_request() for _ in range(CLIENTS)]

        def bare(index: int) -> Ask:
            def ask() -> None:
                requests[index].start_async(inputs)
                requests[index].wait()

            return ask

        for kind in ("even", "poisson"):
            times = arrivals(kind, rate, options.seconds)
            _note(found, f"bare, {kind}", meet(times, [bare(i) for i in range(CLIENTS)]))
        executable.close()
        rest, rpc = stack.enter_context(serving(options))
        for way in options.way:
            asks = [
                over_rest(stack, rest, body, length)
                if way == "REST"
                else over_grpc(stack, rpc, inputs)
                for _ in range(CLIENTS)
            ]
            for ask in asks * 3:
                ask()
            for kind in ("even", "poisson"):
                times = arrivals(kind, rate, options.seconds)
                _note(found, f"{way}, {kind}", meet(times, asks), found[f"bare, {kind}"])
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _milliseconds(call: Ask) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def _note(
    found: dict[str, dict[str, float]],
    name: str,
    latencies: Array,
    bare: dict[str, float] | None = None,
) -> None:
    """Keep and print percentiles, and how much more they are than those without a server."""
    row = {f"p{p}": float(np.percentile(latencies, p)) for p in (50, 90, 99)}
    found[name] = row
    more = "".join(f"  {p} +{row[p] - bare[p]:.2f}" for p in row) if bare else ""
    values = "".join(f"{p:>5}{value:>8.2f}" for p, value in row.items())
    print(f"{name:<16}{values} ms of {len(latencies)}{more}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
