"""New shapes: what the first inference costs beyond a later one, and what is built for it.

    python benchmarks/new_shapes.py                          # networks made here, on GPU
    python benchmarks/new_shapes.py --models minilm,ppocr_det --clock thread
    python benchmarks/new_shapes.py --device CPU --models minilm --clock cpu --pause 0

`first` and `later` are milliseconds of the first and third inference with a shape (the second one
records launches for replays, where the device has them), `built` programs of a GPU
that were compiled since the shape before, by whichever thread, and `filled` says whether the
plan was filled in from one with formulas. A pause lets what runs in the background end, unless it
is 0. The last line of a network has medians, and how often the first one took 5 ms more. On CPU run
it twice: code that was never tried on the machine is tried in the first run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("POLYDEVICE_GPU_DEVICES", "all-gpus,cpu")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import numpy.typing as npt

from polydevice import Core
from polydevice.runtime.templates import Templates
from polydevice_cpu.executable import CpuExecutableNetwork
from polydevice_gpu.cl.programs.program import ProgramBuilder
from polydevice_gpu.executable import GpuExecutable
from tests.cpu import models
from tests.models.models import MODELS

Arrays = dict[str, npt.NDArray[Any]]

RANDOM = np.random.default_rng(16)
AXES = {"minilm": (1, 4), "ppocr_det": (3, 32), "ppocr_rec": (3, 16), "mtcnn_pnet": (2, 8)}
"""Trained model → the axis of its inputs that changes, and the step of its sizes."""

CLOCKS: dict[str, Callable[[], float]] = {
    "wall": time.perf_counter,
    "thread": time.thread_time,
    "cpu": time.process_time,
}


def normal(*shape: int, scale: float = 0.1) -> npt.NDArray[Any]:
    """Return random weights."""
    return (RANDOM.standard_normal(shape) * scale).astype(np.float32)


def blocks(channels: int = 64, count: int = 12) -> bytes:
    """Return residual blocks of two convolutions, and a classifier, for pictures of any size."""
    weights = {"stem": normal(channels, 3, 7, 7), "fc": normal(channels, 100)}
    nodes: list[Any] = [("Conv", ["x", "stem"], ["v0"], {"strides": [2, 2], "pads": [3] * 4})]
    for k in range(count):
        for part in "ab":
            weights[f"{part}{k}"] = normal(channels, channels, 3, 3, scale=0.04)
        nodes += [
            ("Conv", [f"v{k}", f"a{k}"], [f"c{k}"], {"pads": [1] * 4}),
            ("Relu", [f"c{k}"], [f"r{k}"], {}),
            ("Conv", [f"r{k}", f"b{k}"], [f"d{k}"], {"pads": [1] * 4}),
            ("Add", [f"d{k}", f"v{k}"], [f"s{k}"], {}),
            ("Relu", [f"s{k}"], [f"v{k + 1}"], {}),
        ]
    nodes += [
        ("GlobalAveragePool", [f"v{count}"], ["pooled"], {}),
        ("Flatten", ["pooled"], ["flat"], {}),
        ("MatMul", ["flat", "fc"], ["y"], {}),
    ]
    return models.build(nodes, {"x": [1, 3, "height", "width"]}, ["y"], weights)


def attention(width: int = 256, layers: int = 6) -> bytes:
    """Return layers of attention and of two products with sums of rows, for texts of any length."""
    weights, nodes, before = {}, [], "x"
    for k in range(layers):
        for name in "qkvo":
            weights[f"{name}{k}w"] = normal(width, width, scale=0.05)
        weights[f"wide{k}"] = normal(width, 4 * width, scale=0.05)
        weights[f"narrow{k}"] = normal(4 * width, width, scale=0.05)
        weights[f"scale{k}"] = np.ones(width, np.float32)
        weights[f"shift{k}"] = np.zeros(width, np.float32)
        nodes += [("MatMul", [before, f"{n}{k}w"], [f"{n}{k}"], {}) for n in "qkv"]
        norm = [f"r{k}", f"scale{k}", f"shift{k}"]
        nodes += [
            ("Transpose", [f"k{k}"], [f"kt{k}"], {"perm": [0, 2, 1]}),
            ("MatMul", [f"q{k}", f"kt{k}"], [f"s{k}"], {}),
            ("Softmax", [f"s{k}"], [f"p{k}"], {"axis": -1}),
            ("MatMul", [f"p{k}", f"v{k}"], [f"a{k}"], {}),
            ("MatMul", [f"a{k}", f"o{k}w"], [f"ao{k}"], {}),
            ("Add", [f"ao{k}", before], [f"r{k}"], {}),
            ("LayerNormalization", norm, [f"n{k}"], {"axis": -1}),
            ("MatMul", [f"n{k}", f"wide{k}"], [f"h{k}"], {}),
            ("Relu", [f"h{k}"], [f"hr{k}"], {}),
            ("MatMul", [f"hr{k}", f"narrow{k}"], [f"hn{k}"], {}),
            ("Add", [f"hn{k}", f"n{k}"], [f"y{k}"], {}),
        ]
        before = f"y{k}"
    return models.build(nodes, {"x": [1, "length", width]}, [before], weights)


def residual() -> bytes:
    """Return a small residual network, depthwise convolution and all."""
    return models.residual(16, 1, "n")


def chosen(width: int = 512, layers: int = 6) -> bytes:
    """Return products of those rows whose first element is above 0, as many as there are."""
    weights: dict[str, Any] = {"zero": np.zeros(1, np.int64), "one": np.ones(1, np.int64)}
    weights["limit"] = np.zeros(1, np.float32)
    nodes: list[Any] = [
        ("Slice", ["x", "zero", "one", "one"], ["first"], {}),
        ("Greater", ["first", "limit"], ["above"], {}),
        ("NonZero", ["above"], ["places"], {}),
        ("Gather", ["places", "zero"], ["which"], {"axis": 0}),
        ("Squeeze", ["which", "zero"], ["flat"], {}),
        ("Gather", ["x", "flat"], ["y0"], {"axis": 0}),
    ]
    for k in range(layers):
        weights[f"wide{k}"] = normal(width, 4 * width, scale=0.05)
        weights[f"narrow{k}"] = normal(4 * width, width, scale=0.05)
        nodes += [
            ("MatMul", [f"y{k}", f"wide{k}"], [f"h{k}"], {}),
            ("Relu", [f"h{k}"], [f"r{k}"], {}),
            ("MatMul", [f"r{k}", f"narrow{k}"], [f"y{k + 1}"], {}),
        ]
    return models.build(nodes, {"x": [1024, width]}, [f"y{layers}"], weights)


def rows(count: int) -> Iterator[Arrays]:
    """Yield rows of which other numbers are taken."""
    for taken in RANDOM.choice(np.arange(5, 1024), count, replace=False).tolist():
        x = normal(1024, 512)
        x[:, 0] = np.where(RANDOM.permutation(1024) < taken, 1, -1)
        yield {"x": x}


def pictures(count: int) -> Iterator[Arrays]:
    """Yield pictures of other sizes."""
    for height, width in RANDOM.integers(65, 400, (count, 2)).tolist():
        yield {"x": normal(1, 3, height, width)}


def squares(count: int) -> Iterator[Arrays]:
    """Yield square pictures of other sizes."""
    for size in RANDOM.choice(np.arange(65, 400), count, replace=False).tolist():
        yield {"x": normal(1, 3, size, size)}


def texts(count: int) -> Iterator[Arrays]:
    """Yield features of texts of other lengths."""
    for length in RANDOM.choice(np.arange(5, 257), count, replace=False).tolist():
        yield {"x": normal(1, length, 256)}


MADE: dict[str, tuple[Callable[[], bytes], Callable[[int], Iterator[Arrays]]]] = {
    "residual": (residual, squares),
    "blocks": (blocks, pictures),
    "attention": (attention, texts),
    "chosen": (chosen, rows),
}


def trained(name: str, count: int) -> tuple[str, Iterator[Arrays]]:
    """Return the file of a model of the tests, and inputs of other sizes, in no order."""
    model = next(model for model in MODELS if model.name == name)
    axis, step = AXES[name]
    given = model.inputs()
    sizes = RANDOM.choice(np.arange(4, 4 + 2 * count), count, replace=False) * step
    return str(model.file.get()), (
        {key: np.resize(x, (*x.shape[:axis], n, *x.shape[axis + 1 :])) for key, x in given.items()}
        for n in sizes.tolist()
    )


class Built:
    """Counts the programs that are compiled."""

    def __init__(self) -> None:
        self.count = 0
        compile_ = ProgramBuilder._compile

        def counted(builder: ProgramBuilder, *given: Any) -> Any:
            self.count += 1
            return compile_(builder, *given)

        ProgramBuilder._compile = counted  # type: ignore[method-assign]


def measure(
    name: str, arguments: argparse.Namespace, clock: Callable[[], float], built: Built
) -> None:
    """Print what shapes of a network cost."""
    if name in MADE:
        make, feed = MADE[name]
        model: Any = make()
        inputs = feed(arguments.shapes)
    else:
        model, inputs = trained(name, arguments.shapes)
    config = dict(pair.split("=", 1) for pair in arguments.config)
    with Core() as core:
        start, count = time.perf_counter(), built.count
        executable = core.load_network(core.read_network(model), arguments.device, config)
        loading = (time.perf_counter() - start) * 1e3
        print(f"{name}: loading {loading:.0f} ms, {built.count - count} programs", flush=True)
        if isinstance(executable, GpuExecutable):
            templates: Templates[Any] = executable._prepared.templates
        else:
            assert isinstance(executable, CpuExecutableNetwork)
            templates = executable.compiled.templates
        request, rows = executable.create_infer_request(), []
        time.sleep(arguments.pause)
        for number, x in enumerate(inputs):
            count, filled = built.count, templates.filled
            times = []
            for _ in range(3):
                start = clock()
                request.infer(x)
                times.append((clock() - start) * 1e3)
            time.sleep(arguments.pause)
            shape = "x".join(map(str, next(iter(x.values())).shape))
            how = "yes" if templates.filled > filled else "no"
            first, _, last = times
            rows.append((first, last, built.count - count, how))
            if arguments.all or not number:
                print(
                    f"  {shape:<16}{first:9.2f}{last:9.2f}{first - last:9.2f} ms more, "
                    f"{built.count - count} built, filled in: {how}",
                    flush=True,
                )
        later = rows[1:]
        more = [first - last for first, last, *_ in later]
        print(
            f"  {len(later)} later shapes: first {statistics.median(r[0] for r in later):.2f}, "
            f"third {statistics.median(r[1] for r in later):.2f}, more: median "
            f"{statistics.median(more):.2f}, most {max(more):.2f} ms; over 5 ms: "
            f"{sum(m > 5 for m in more)}; built {sum(r[2] for r in later)}, after the second shape "
            f"{sum(r[2] for r in later[1:])}; filled in {sum(r[3] == 'yes' for r in later)}",
            flush=True,
        )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default=",".join(MADE), help="names joined by commas")
    parser.add_argument("--shapes", type=int, default=12, help="of each network")
    parser.add_argument("--device", default="GPU", help="an OpenCL device, or CPU")
    parser.add_argument(
        "--clock",
        default="wall",
        choices=CLOCKS,
        help="thread: the processor's time for the caller; cpu: for all threads",
    )
    parser.add_argument("--pause", type=float, default=0.3, help="seconds between shapes")
    parser.add_argument("--all", action="store_true", help="a line for every shape")
    parser.add_argument("--config", nargs="*", default=[], help="KEY=VALUE")
    arguments = parser.parse_args()
    built = Built()
    for name in arguments.models.split(","):
        measure(name, arguments, CLOCKS[arguments.clock], built)
    return 0


if __name__ == "__main__":
    sys.exit(main())
