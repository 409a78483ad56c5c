"""``polydevice bench --server``: what a server of the Open Inference Protocol answers, measured."""

from __future__ import annotations

import argparse
import http.client
import json
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from polydevice.benchmark import report
from polydevice.benchmark.inputs import make_inputs
from polydevice.benchmark.measure import Statistics
from polydevice.benchmark.options.arguments import Limits, complete
from polydevice.benchmark.options.texts import parse_data_shapes
from polydevice.benchmark.printing import info
from polydevice.dtype import Array
from polydevice.errors import InferenceError, OptionValueError, PolydeviceError
from polydevice.runtime.port_info import PortInfo
from polydevice.serve.datatypes import bytes_of, datatype_of, element_type_of
from polydevice.serve.http.rest import HEADER_LENGTH
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc

REQUESTS = 4
"""Requests at a time, where nothing else is asked for."""

SECONDS = 120
"""For one answer."""


class Connection:
    """A connection to a server; of one thread."""

    def __init__(self, url: str) -> None:
        """Connect.

        Raises:
            OptionValueError: for what is no ``http://host:port``.
        """
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:  # half of an IPv6 address, or no port
            host, port = None, None
        if not host or parts.scheme not in kinds:
            raise OptionValueError(
                f"--server {url!r} is not possible; use http://host:port, with a port up to 65535"
            )
        self._url = url
        self._connection = kinds[parts.scheme](host, port, timeout=SECONDS)

    def ask(
        self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Return an answer.

        Raises:
            InferenceError: there is none, or it is a refusal.
        """
        method = "GET" if body is None else "POST"
        try:
            self._connection.request(method, path, body, dict(headers or {}))
            answer = self._connection.getresponse()
            data: bytes = answer.read()
        except (OSError, UnicodeError, http.client.HTTPException) as error:
            raise InferenceError(f"{self._url} does not answer: {error!r}") from error
        if answer.status != 200:
            text = data[:500].decode("utf-8", "replace")
            raise InferenceError(f"{self._url}{path} answers {answer.status}: {text}")
        return data

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


def request_of(inputs: Mapping[str, Array], ports: Mapping[str, PortInfo]) -> tuple[bytes, int]:
    """Return a request with binary tensors both ways, and the length of its JSON."""
    parts = [bytes_of(array, ports[name].element_type) for name, array in inputs.items()]
    tensors = [
        {
            "name": name,
            "datatype": datatype_of(ports[name].element_type),
            "shape": list(array.shape),
            "parameters": {"binary_data_size": len(part)},
        }
        for (name, array), part in zip(inputs.items(), parts, strict=True)
    ]
    header = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}}).encode()
    return b"".join([header, *parts]), len(header)


def run(options: argparse.Namespace) -> int:
    """Measure a model of a server; returns the exit status.

    Raises:
        InferenceError: the server does not answer, or refuses.
        OptionValueError: for an address that is none.
    """
    complete(options)
    path = f"/v2/models/{quote(options.path_to_model, safe='')}"
    with closing(Connection(options.server)) as connection:
        ports = _ports(connection.ask(path), options.server + path, options.batch_size or 1)
    shapes = parse_data_shapes(options.data_shape, list(ports))
    requests = 1 if options.api == "sync" else options.number_infer_requests or REQUESTS
    sets = max([2, requests, *map(len, shapes.values())])
    inputs = make_inputs(ports, options.paths_to_input, options.seed, sets, shapes)
    bodies = [request_of(each, ports) for each in inputs]
    limits = Limits.of(options, requests)
    info(f"{options.server}{path}: {requests} requests at a time, limits: {limits}")
    first = next(iter(inputs[0].values()))
    batch = len(first) if first.ndim > 1 else 1
    found = _measure(options.server, f"{path}/infer", bodies, requests, limits, batch)
    for line in report.closing_lines(found, options.latency_percentile):
        info(line)
    if options.json:
        figures: dict[str, Any] = {
            "server": options.server,
            "model": options.path_to_model,
            "requests": requests,
            "number of iterations": found.iterations,
            "throughput (FPS)": found.throughput,
            **{f"latency p{p} (ms)": found.percentile(p) for p in (50, 90, 99)},
        }
        report.write_json(Path(options.json), {"results": [figures]})
    return 0


def _ports(answer: bytes, url: str, batch: int) -> dict[str, PortInfo]:
    """Return the inputs of a model as its server describes them; the open batch is `batch`.

    Raises:
        InferenceError: it describes none.
    """
    ports = {}
    try:
        for each in json.loads(answer)["inputs"]:
            name = str(each["name"])
            sizes = [int(size) if int(size) >= 0 else None for size in each["shape"]]
            if sizes and sizes[0] is None:
                sizes[0] = batch
            desc = TensorDesc(element_type_of(each["datatype"]), Shape(sizes))
            ports[name] = PortInfo("input", name, desc, "", frozenset())
    except (PolydeviceError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise InferenceError(
            f"{url} does not describe the inputs of a model ({error!r:.200}); is it a server of "
            f"the Open Inference Protocol? It answers {answer[:80]!r}"
        ) from error
    if not ports:
        raise InferenceError(f"{url} describes a model without inputs, which cannot be measured")
    return ports


def _measure(
    url: str,
    path: str,
    bodies: Sequence[tuple[bytes, int]],
    requests: int,
    limits: Limits,
    batch: int,
) -> Statistics:
    """Keep so many connections busy until the limits are reached, or until Ctrl-C."""
    times: list[float] = []
    errors: list[BaseException] = []
    stop = threading.Event()
    begin = time.perf_counter()

    def work(number: int) -> None:
        connection = Connection(url)
        body, length = bodies[number % len(bodies)]
        headers = {HEADER_LENGTH: str(length), "Content-Type": "application/octet-stream"}
        try:
            while not stop.is_set():
                if limits.are_reached(len(times), time.perf_counter() - begin):
                    return
                start = time.perf_counter()
                connection.ask(path, body, headers)
                times.append((time.perf_counter() - start) * 1e3)
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)
            stop.set()
        finally:
            connection.close()

    # As daemons, so that a process that is interrupted need not wait for a server that hangs.
    threads = [
        threading.Thread(target=work, args=(number,), daemon=True) for number in range(requests)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stop.set()
    if errors:
        raise errors[0]
    duration = (time.perf_counter() - begin) * 1e3
    return Statistics(tuple(sorted(times)), len(times), duration, batch, True)
