"""Shapes that take turns: what an inference costs when every one has another shape, on CPU.

    python benchmarks/shapes.py                     # 30 shapes of each model, one thread
    python benchmarks/shapes.py --shapes 16 --threads 2 --models minilm

`new` is the first inference with a shape, `more` what it takes beyond later ones, `in turn` any
later one while all shapes take turns, and `same` an inference with the shape of the one before; all
are medians over the shapes, later ones the least of five turns. The runtimes take turns too, each
over all shapes, so that a busy machine is one for all of them; `--clock cpu` counts the processor's
time instead. All compute in f32: OpenVINO takes bfloat16 where the processor has it, if nobody says
otherwise.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import numpy.typing as npt
import onnxruntime
import openvino

from polydevice import Core
from tests.models.models import MODELS

Arrays = dict[str, npt.NDArray[np.generic]]
Infer = Callable[[Arrays], object]

AXES = {"minilm": (1, 4), "ppocr_det": (3, 32), "ppocr_rec": (3, 16), "mtcnn_pnet": (2, 8)}
"""Model → the axis of its inputs that changes, and by how much from one shape to the next."""


def inputs_of(name: str, given: Arrays, count: int) -> list[Arrays]:
    """Return inputs of so many shapes: the model's own, with one axis of other lengths."""
    axis, step = AXES[name]
    lengths = [step * (4 + number) for number in range(count)]
    return [
        {key: np.resize(x, (*x.shape[:axis], n, *x.shape[axis + 1 :])) for key, x in given.items()}
        for n in lengths
    ]


def runtimes(path: str, threads: int) -> dict[str, Infer]:
    """Return what infers with each runtime."""
    request = Core().load_network(path, "CPU", {"CPU_THREADS_NUM": threads}).requests[0]
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    compiled = openvino.Core().compile_model(
        path, "CPU", {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    )
    other = compiled.create_infer_request()
    return {
        "polydevice": request.infer,
        "onnxruntime": lambda x: session.run(None, x),
        "openvino": other.infer,
    }


def measure(
    runtimes: dict[str, Infer],
    inputs: list[Arrays],
    clock: Callable[[], float] = time.perf_counter,
    turns: int = 5,
) -> dict[str, tuple[float, ...]]:
    """Return milliseconds of an inference, by what it is: new, more, in turn, same."""

    def milliseconds(infer: Infer, x: Arrays) -> float:
        start = clock()
        infer(x)
        return (clock() - start) * 1e3

    def again(infer: Infer, x: Arrays) -> float:
        infer(x)
        return milliseconds(infer, x)

    new = {name: [milliseconds(infer, x) for x in inputs] for name, infer in runtimes.items()}
    found: dict[str, list[tuple[list[float], list[float]]]] = {name: [] for name in runtimes}
    for _ in range(turns):
        for name, infer in runtimes.items():
            in_turn = [milliseconds(infer, x) for x in inputs]
            found[name].append((in_turn, [again(infer, x) for x in inputs]))
    measured = {}
    for name, each in found.items():
        in_turn, same = np.min(np.array(each), axis=0)
        rows = new[name], np.subtract(new[name], in_turn), in_turn, same
        measured[name] = tuple(float(np.median(row)) for row in rows)
    return measured


def main() -> int:
    """Measure and print one row per model and runtime."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default=",".join(AXES), help="names joined by commas")
    parser.add_argument("--shapes", type=int, default=30, help="how many take turns")
    parser.add_argument("--threads", type=int, default=1, help="of each runtime")
    clocks = {"wall": time.perf_counter, "cpu": time.process_time}
    parser.add_argument("--clock", choices=clocks, default="wall", help="cpu: of all threads")
    arguments = parser.parse_args()
    names = "".join(f"{name:>12}" for name in ("new ms", "more ms", "in turn ms", "same ms"))
    print(f"{'model':<12}{'runtime':<14}{names}")
    for model in MODELS:
        if model.name not in arguments.models.split(","):
            continue
        inputs = inputs_of(model.name, model.inputs(), arguments.shapes)
        each = runtimes(str(model.file.get()), arguments.threads)
        for name, figures in measure(each, inputs, clocks[arguments.clock]).items():
            row = "".join(f"{figure:>12.2f}" for figure in figures)
            print(f"{model.name:<12}{name:<14}{row}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
