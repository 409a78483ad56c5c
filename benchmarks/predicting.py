"""Throughput of `polydevice.ray.predict` beside requests to the same network without Ray.

    python benchmarks/predicting.py                     # EfficientNet-Lite0, one thread of the CPU
    python benchmarks/predicting.py -d GPU --num-gpus 1 --images 20000
    python benchmarks/predicting.py --nodes 2           # of this machine, an actor on each

Images lie in the object store before anything is measured. `bench` is an `InferQueue` in this
process, before and after each. `predict` counts from the end of the first blocks to that of the
last, so that starting an actor is left out. Ray's workers get the priority of this process; Ray's
own default is lower. `CPU` is the processor time of all of Ray's processes for an image, meanwhile.
With several nodes every one has a core for an actor, and the images lie on the first.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import ray

from polydevice import Core
from polydevice.ray import predict
from polydevice.ray.predict import CALLS

TICKS = os.sysconf("SC_CLK_TCK")
MODEL = ROOT / "samples/models/efficientnet_lite0/efficientnet_lite0.xml"


def bench(options: argparse.Namespace, config: dict[str, Any], images: np.ndarray) -> float:
    """Return images a second without Ray, and print what they cost."""
    with Core() as core:
        network = core.read_network(options.model)
        name = next(iter(network.inputs))
        network.reshape({name: [options.batch, *images.shape[1:]]})
        with core.load_network(network, options.device, config) as executable:
            queue = executable.infer_queue()
            batches = [images[at : at + options.batch] for at in range(0, 64, options.batch)]
            for request in queue:
                request.infer({name: batches[0]})
            number, cost, begin = 0, time.process_time(), time.perf_counter()
            while time.perf_counter() - begin < options.seconds:
                queue.start_async({name: batches[number % len(batches)]})
                number += 1
            queue.wait_all()
            taken = time.perf_counter() - begin
            cost = (time.process_time() - cost) / number * 1e3
    print(f"bench    {number * options.batch / taken:>9.1f} /s {cost:>8.1f} ms CPU a batch")
    return number * options.batch / taken


def through_ray(options: argparse.Namespace, config: dict[str, Any], dataset: Any) -> float:
    """Return images a second through `predict`, and print them."""
    resources = {"num_gpus": options.num_gpus} if options.num_gpus else {"num_cpus": 1}
    made = predict(
        dataset, options.model, options.device, batch_size=options.batch, config=config,
        concurrency=options.nodes,
        columns={next(iter(Core().read_network(options.model).inputs)): "data"}, **resources,
    )  # fmt: skip
    blocks = made.iter_batches(batch_size=None, prefetch_batches=0)
    first = CALLS * options.nodes - 1  # those that actors begin with end at about the same time
    seen: list[tuple[float, int]] = []
    cost = 0.0
    for block in blocks:
        seen.append((time.perf_counter(), len(next(iter(block.values())))))
        if len(seen) == first + 1:
            cost = processor_seconds()
    cost = processor_seconds() - cost
    rows, taken = sum(rows for _, rows in seen[first + 1 :]), seen[-1][0] - seen[first][0]
    print(
        f"predict  {rows / taken:>9.1f} /s, {rows} rows in {taken:.1f} s, "
        f"{cost / rows * 1e3:.2f} ms CPU an image"
    )
    return rows / taken


def processor_seconds() -> float:
    """Return the processor time that this process and all that it started took so far (Linux)."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            seconds[int(folder.name)] = (int(fields[11]) + int(fields[12])) / TICKS

    def is_ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and is_ours(parents[pid]))

    return sum(spent for pid, spent in seconds.items() if is_ours(pid))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-m", "--model", default=str(MODEL), help="of one input, of images")
    parser.add_argument("-d", "--device", default="CPU")
    parser.add_argument("-c", dest="config", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--images", type=int, default=1024, help="64 a block; 512 or more")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a round without Ray")
    parser.add_argument("--nodes", type=int, default=1, help="of this machine, an actor on each")
    parser.add_argument("--num-gpus", type=float, default=0, help="for Ray to give to the actor")
    options = parser.parse_args()
    config = dict(pair.split("=", 1) for pair in options.config)
    if options.device == "CPU":
        config.setdefault("CPU_THREADS_NUM", "1")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # as this process; Ray's own is 15
    images = np.random.default_rng(0).random((options.images, 3, 224, 224), np.float32)
    store = max(4 * images.nbytes, 1 << 30)
    cluster: Any = None
    if options.nodes > 1:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 1, "object_store_memory": store}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(options.nodes - 1):
            cluster.add_node(num_cpus=1, object_store_memory=store)
        ray.init(address=cluster.address, include_dashboard=False, log_to_driver=False)
    else:
        settings = {"address": "local", "object_store_memory": store}
        ray.init(include_dashboard=False, log_to_driver=False, **settings)
    ray.data.DataContext.get_current().enable_progress_bars = False
    dataset = ray.data.from_numpy(np.array_split(images, options.images // 64)).materialize()
    rates = [bench(options, config, images)]
    shares = []
    for _ in range(options.rounds):
        rate = through_ray(options, config, dataset)
        rates.append(bench(options, config, images))
        shares.append(rate / np.mean(rates[-2:]))
        print(f"         {shares[-1]:.2f} of bench before and after", flush=True)
    print(f"median {np.median(shares):.2f}")
    ray.shutdown()
    if cluster is not None:
        cluster.shutdown()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
