"""Throughput of several devices of one machine beside one of them, by turns, in one process.

    python benchmarks/several.py GPU.0 GPU.1
    python benchmarks/several.py CPU GPU --models efficientnet_lite0 -c MULTI_DEVICE_TIMEOUT_MS=0

Each network runs on every device alone and on `MULTI` of all, from an `InferQueue` with the
device's optimal number of requests (or `--requests`), whose inputs lie in host memory and are read
at every inference. `CPU` is the time that an inference takes of the process's own cores. `apart` is
what the devices do side by side without MULTI, each with a queue and a thread that feeds it.
`parts` is `HETERO` of all devices where none holds all weights (`HETERO_MEMORY`), so that requests
follow each other through them. BERT needs PyTorch, which exports it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("POLYDEVICE_GPU_DEVICES", "all-gpus,cpu")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.resnet50 import pictures, resnet50
from polydevice import Core
from polydevice.errors import PolydeviceError
from polydevice.executable_network import ExecutableNetwork
from polydevice.network import Network

MODELS = ("efficientnet_lite0", "resnet50:1", "resnet50:32", "bert_base:1", "bert_base:8")


def read(core: Core, name: str, folder: Path) -> tuple[Network, dict[str, Any]]:
    """Return a network, and inputs for it."""
    kind, _, number = name.partition(":")
    batch = int(number or 1)
    path = folder / "model.onnx"
    if kind == "efficientnet_lite0":
        network = core.read_network(
            ROOT / "samples/models/efficientnet_lite0/efficientnet_lite0.xml"
        )
        network.batch_size = batch
        return network, {next(iter(network.inputs)): pictures(batch)}
    if kind == "resnet50":
        resnet50(path, batch)
        return core.read_network(path), {"image": pictures(batch)}
    from benchmarks.transformers import NETWORKS, export

    export(kind, batch, path)
    return core.read_network(path), NETWORKS[kind].feed(batch)


class Load:
    """A network on a device, and how many inferences it ends in a second."""

    def __init__(
        self, executable: ExecutableNetwork, given: dict[str, Any], requests: int = 0
    ) -> None:
        self.executable = executable
        self.queue = executable.infer_queue(requests)
        for request in self.queue:
            self.answer = {n: a.copy() for n, a in request.infer(given).items()}
        self.rates: list[float] = []
        self.costs: list[float] = []

    def measure(self, seconds: float) -> None:
        """Run for a while, and note the rate and the processor time."""
        ended, start, cost = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - start < seconds:
            self.queue.start_async()
            ended += 1
        self.queue.wait_all()
        self.rates.append(ended / (time.perf_counter() - start))
        self.costs.append((time.process_time() - cost) / ended * 1e3)

    def close(self) -> None:
        """Let go of the network."""
        self.executable.close()

    @property
    def rate(self) -> float:
        """Inferences per second: the median of rounds."""
        return float(np.median(self.rates))

    def differs(self, other: Load) -> float:
        """How far answers are from another's, as a part of the largest."""
        pairs = zip(self.answer.values(), other.answer.values(), strict=True)
        return max(float(np.abs(a - b).max() / (np.abs(b).max() or 1)) for a, b in pairs)


class Apart(Load):
    """What several loads do at the same time, each fed by a thread of its own."""

    def __init__(self, loads: list[Load]) -> None:
        self.loads = loads
        self.answer = loads[-1].answer
        self.queue = [request for load in loads for request in load.queue]
        self.rates, self.costs = [], []

    def measure(self, seconds: float) -> None:
        """Run all for a while, and note the sum of their rates."""
        threads = [threading.Thread(target=load.measure, args=(seconds,)) for load in self.loads]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.rates.append(sum(load.rates.pop() for load in self.loads))
        self.costs.append(float(np.mean([load.costs.pop() for load in self.loads])) / len(threads))

    def close(self) -> None:
        """Leave the networks to the loads."""


def measure(core: Core, options: argparse.Namespace, name: str, folder: Path) -> dict[str, Any]:
    """Measure one network on all that is asked for, and print it."""
    config = dict(pair.split("=", 1) for pair in options.config)
    network, given = read(core, name, folder)
    # HETERO counts in f32, whatever the file has.
    weights = sum(4 * node.op.value.size for node in network.nodes() if node.type == "Const")
    share = int(weights * 1.5 / len(options.devices))
    own = {k: v for k, v in config.items() if not k.startswith(("MULTI_", "HETERO_"))}
    several = ",".join(options.devices)
    asked: dict[str, tuple[str, dict[str, str]]] = {d: (d, own) for d in options.devices}
    numbers = options.requests
    slots = f"({options.slots})" if options.slots else ""
    members = ",".join(f"{device}{slots}" for device in options.devices)
    asked.update({_multi(number): (f"MULTI:{members}", config) for number in numbers})
    if options.parts:
        memory = ",".join(f"{device}:{share}" for device in options.devices)
        asked["parts"] = (f"HETERO:{several}", {**own, "HETERO_MEMORY": memory})
    loads: dict[str, Load] = {}
    for key, (device, settings) in asked.items():
        try:
            executable = core.load_network(network, device, settings)
            loads[key] = Load(
                executable, given, dict(zip(map(_multi, numbers), numbers)).get(key, 0)
            )
        except PolydeviceError as error:
            print(f"{name:<20}{key:<8}{type(error).__name__}: {str(error).splitlines()[0][:110]}")
    if options.apart:
        loads["apart"] = Apart([loads[device] for device in options.devices])
    for number in range(options.rounds):
        for load in list(loads.values())[:: -1 if number % 2 else 1]:
            load.measure(options.seconds)
    first = loads[options.devices[0]]
    found: dict[str, Any] = {}
    for key, load in loads.items():
        found[key] = {
            "rate": load.rate,
            "times": load.rate / first.rate,
            "cpu_ms": float(np.median(load.costs)),
            "requests": len(load.queue),
            "differs": load.differs(first),
        }
        print(
            f"{name:<20}{key:<8}{load.rate:>10.1f} /s {load.rate / first.rate:>6.2f} times"
            f"{found[key]['cpu_ms']:>9.3f} ms CPU {len(load.queue):>3} requests"
            f"   differs {found[key]['differs']:.0e}",
            flush=True,
        )
        if key.startswith("MULTI"):
            print(f"{'':<28}{load.executable.get_metric('INFERENCES')}")
    for load in loads.values():
        load.close()
    return found


def _multi(requests: int) -> str:
    """Return how MULTI with so many requests is called."""
    return f"MULTI-{requests}" if requests else "MULTI"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("devices", nargs="+", help="such as GPU.0 GPU.1")
    parser.add_argument("--models", default=",".join(MODELS), help="NAME[:BATCH], joined by commas")
    parser.add_argument("-c", dest="config", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--no-parts", dest="parts", action="store_false", help="without HETERO")
    parser.add_argument(
        "--requests", type=int, nargs="+", default=[0], help="of MULTI, each; 0 for its optimum"
    )
    parser.add_argument("--slots", type=int, default=0, help="of each of MULTI's devices")
    parser.add_argument("--apart", action="store_true", help="also without MULTI, side by side")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round")
    parser.add_argument("--json", type=Path, help="also write every figure here")
    options = parser.parse_args()
    found = {}
    with Core() as core, tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            try:
                found[name] = measure(core, options, name, Path(folder))
            except ImportError as error:
                print(f"{name:<20}{error}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
