"""Attention on GPU: one launch against its parts (two products, scale, mask, softmax), in one run.

    python benchmarks/attention.py
    python benchmarks/attention.py --shapes 12x128x128x64,12x1x512x64 --precisions f32,f16

A shape is heads × queries × keys × size of a head. Heads are taken apart and joined by transposes,
as in exported encoders. Each row: device time of all launches in microseconds, medians of runs by
turns, and the ratio (above 1: one launch is faster). Answers are compared first.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("POLYDEVICE_GPU_DEVICES", "all-gpus,cpu")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from polydevice import Core, __version__, rewrites
from polydevice.network import Network
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.matmul import MatMul
from polydevice.ops.reshape import Reshape
from polydevice.ops.softmax import SoftMax
from polydevice.ops.transpose import Transpose
from tests.gpu.graphs import Sketch, random_inputs

SHAPES = "12x128x128x64,12x384x384x64,12x1x512x64,8x1024x1024x40"
AGREEMENT = {"f32": 1e-4, "f16": 1e-2}
"""Largest difference between the two answers."""


def main() -> int:
    """Measure every shape and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--precisions", default="f32,f16")
    parser.add_argument("--runs", type=int, default=30)
    options = parser.parse_args()
    with Core() as core:
        print(f"polydevice {__version__} on {core.get_metric('GPU', 'FULL_DEVICE_NAME')}")
        for shape in options.shapes.split(","):
            for precision in options.precisions.split(","):
                sizes = [int(size) for size in shape.split("x")]
                one, parts = _measure(core, sizes, precision, options.runs)
                print(f"{shape:>18} {precision} {one:9.1f} {parts:9.1f} µs  {parts / one:.2f}")
    return 0


def _network(heads: int, queries: int, keys: int, size: int) -> Network:
    s = Sketch()

    def taken_apart(name: str, length: int) -> Port:
        x = s.input(name, 1, length, heads * size)
        shape = s.const(f"{name}/shape", np.array([1, length, heads, size]))
        x = s.add(f"{name}/heads", Reshape(special_zero=False), x, shape)
        return s.add(
            f"{name}/turn", Transpose(), x, s.const(f"{name}/order", np.array([0, 2, 1, 3]))
        )

    q, k, v = taken_apart("q", queries), taken_apart("k", keys), taken_apart("v", keys)
    y = s.add("scores", MatMul(transpose_b=True), q, k)
    y = s.add("scale", Multiply(), y, s.const("factor", np.float32(size**-0.5)))
    y = s.add("mask", Add(), y, s.input("m", 1, 1, 1, keys))
    y = s.add("sum", MatMul(), s.add("weights", SoftMax(axis=-1), y), v)
    y = s.add("back", Transpose(), y, s.const("order", np.array([0, 2, 1, 3])))
    flat = s.const("flat/shape", np.array([1, queries, heads * size]))
    return s.network(y=s.add("flat", Reshape(special_zero=False), y, flat))


@contextmanager
def _in_parts() -> Iterator[None]:
    """Let networks be loaded without recognising attention."""
    whole = rewrites.ORDER
    rewrites.ORDER = tuple(stage for stage in whole if stage[0] != "recognise attention")
    try:
        yield
    finally:
        rewrites.ORDER = whole


def _measure(core: Core, sizes: list[int], precision: str, runs: int) -> tuple[float, float]:
    network = _network(*sizes)
    config = {"INFERENCE_PRECISION_HINT": precision, "PERF_COUNT": "YES"}
    given = random_inputs(network)
    fused = core.load_network(network.clone(), "GPU", config).create_infer_request()
    with _in_parts():
        plain = core.load_network(network.clone(), "GPU", config).create_infer_request()
        difference = np.abs(plain.infer(given)["y"] - fused.infer(given)["y"]).max()
    if difference > AGREEMENT[precision]:
        raise SystemExit(f"{sizes} {precision}: the answers differ by {difference}")
    times: dict[Any, list[float]] = {fused: [], plain: []}
    for _ in range(runs):
        for request, measured in times.items():
            request.infer(given)
            rows = request.get_perf_counts().values()
            measured.append(sum(row["real_time"] for row in rows if row["status"] == "EXECUTED"))
    return float(np.median(times[fused])), float(np.median(times[plain]))


if __name__ == "__main__":
    sys.exit(main())
