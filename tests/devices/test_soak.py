"""Many threads, networks and requests at once: every answer right and its own, nothing grows.

Runs for POLYDEVICE_SOAK_SECONDS (continuous integration: 5). What a network answers is tested
elsewhere; here each request must give, under load, exactly what it gave alone.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add
from polydevice.ops.io import Parameter, Result
from polydevice.ops.matmul import MatMul
from polydevice.ops.softmax import SoftMax
from polydevice.shape import Shape
from tests.devices.resident import apart, needs_proc, resident_bytes

SECONDS = float(os.environ.get("POLYDEVICE_SOAK_SECONDS", "1"))
DATA = Path(__file__).parents[1] / "models/data"


def perceptron(seed: int, width: int, depth: int) -> Network:
    random = np.random.default_rng(seed)
    x = Node("x", Parameter(element_type=ElementType.f32, shape=Shape((3, width))))
    port = x.output
    for i in range(depth):
        weights = random.standard_normal((width, width)).astype(np.float32) / width**0.5
        bias = random.standard_normal(width).astype(np.float32)
        port = Node(f"product{i}", MatMul(), [port, constant(f"w{i}", weights).output]).output
        port = Node(f"sum{i}", Add(), [port, constant(f"b{i}", bias).output]).output
        port = Node(f"relu{i}", Relu(), [port]).output
    port = Node("softmax", SoftMax(axis=1), [port]).output
    return Network(f"perceptron{seed}", [x], [Node("out", Result(), [port])])


@needs_proc
@pytest.mark.timeout(SECONDS * 4 + 300)
@pytest.mark.full(but_on="CPU")
def test_64_requests_of_4_networks_from_8_threads(device: str) -> None:
    done, threads, memory = apart(soak, device)
    assert done >= 64
    assert threads <= 0
    # Allocators keep some slack; a leak of one small array per inference would show as more.
    assert memory < 32 * 2**20 + done * 16


def soak(device: str) -> tuple[int, int, int]:
    """Return the number of inferences, and by how many threads and bytes this process grew."""
    networks = [perceptron(i, 17 + 16 * i, 2 + i) for i in range(3)]
    random = np.random.default_rng(0)
    with Core() as core:
        networks.append(core.read_network(DATA / "wechat_qr_sr.xml"))
        networks[-1].reshape({name: [1, 1, 12, 12] for name in networks[-1].inputs})
        key = "GPU_THROUGHPUT_STREAMS" if device.startswith("GPU") else "CPU_THROUGHPUT_STREAMS"
        config = {key: "2"} if key in core.option_keys(device) else {}
        loaded = [core.load_network(n, device, config, num_requests=16) for n in networks]
        work = []
        for executable in loaded:
            alone = executable.create_infer_request()
            for request in executable.requests:
                given = {
                    name: random.standard_normal(port.sizes).astype(np.float32)
                    for name, port in executable.inputs.items()
                }
                wanted = {k: v.copy() for k, v in alone.infer(given).items()}
                work.append((request, given, wanted))
        assert len(work) == 64
        for request, given, _ in work:  # each has its memory then, however busy the machine is
            request.infer(given)
            request.start_async(given)
            request.wait()
        hammer(work, 1.0)  # warms up pools and threads, which then must not grow
        threads, memory = threading.active_count(), resident_bytes()
        done = hammer(work, SECONDS)
        return done, threading.active_count() - threads, resident_bytes() - memory


def hammer(work: list, seconds: float) -> int:
    """Let 8 threads run disjoint sets of requests, synchronously and not; returns the count."""
    errors: list[str] = []
    counts = [0] * 8
    end = time.monotonic() + seconds

    def client(number: int) -> None:
        mine = work[number::8]
        random = np.random.default_rng(number)
        try:
            while time.monotonic() < end:
                order = random.permutation(len(mine))
                started = []
                for i in order:
                    request, given, wanted = mine[i]
                    if random.random() < 0.3:
                        check(request.infer(given), wanted)
                        counts[number] += 1
                    else:
                        request.start_async(given)
                        started.append((request, wanted))
                for request, wanted in started:
                    request.wait()
                    check({k: b.array for k, b in request.output_blobs.items()}, wanted)
                    counts[number] += 1
        except BaseException as error:  # noqa: BLE001 - the main thread reports it
            errors.append(f"{number}: {error!r}")

    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
    return sum(counts)


def check(results: dict, wanted: dict) -> None:
    for name, array in wanted.items():
        np.testing.assert_array_equal(results[name], array, err_msg=name)


@needs_proc
def test_loading_and_closing_leaves_nothing(device: str) -> None:
    threads, memory = apart(loading_and_closing, device)
    assert threads <= 0
    assert memory < 8 * 2**20  # 0.2 MB a load; 0.04 on CPU, 0.4 with PoCL, 1 with Intel's in all


def loading_and_closing(device: str) -> tuple[int, int]:
    """Return by how many threads and bytes 40 rounds let this process grow, after 20 others."""
    network = perceptron(1, 24, 2)
    data = np.random.default_rng(0).standard_normal((3, 24)).astype(np.float32)
    sizes = []
    with Core() as core:
        for round_ in range(60):
            with core.load_network(network, device) as executable:
                executable.start_async(0, {"x": data}).wait()
            if round_ in (19, 59):
                sizes.append((threading.active_count(), resident_bytes()))
    (threads, memory), (threads_after, memory_after) = sizes
    return threads_after - threads, memory_after - memory
