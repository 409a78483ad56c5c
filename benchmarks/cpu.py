"""CPU speed of the real models against OpenVINO and ONNX Runtime, in one run on this machine.

    python benchmarks/cpu.py                      # every model, 1 and 2 threads, f32, bf16, int8
    python benchmarks/cpu.py --models open_nsfw --threads 1 --precisions f32
    python benchmarks/cpu.py --threads 1,2,2busy  # also while another process keeps a core busy
    python benchmarks/cpu.py --threads 1 --clock cpu  # on a machine that does other work too

Each row: milliseconds per inference, and our time over the faster peer's (below 1: we are faster).
Answers are compared before anything is timed. Models come from the table of the model tests; for
int8 all three read a copy that ONNX Runtime's tools quantised (`quantise.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.interleave import Run, geometric_mean, interleave
from polydevice import Core, __version__
from polydevice.benchmark.peers import make_peer
from polydevice.errors import PolydeviceError
from tests.models.models import MODELS, Model

Array = np.ndarray[Any, Any]

BUSY = "busy"
"""Behind a number of threads: beside a process that keeps a core busy."""

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


def main() -> int:
    """Measure, print one row per case and the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="", help="names joined by commas; all if left out")
    parser.add_argument("--threads", default="1,2", help="numbers; 2busy: beside a busy process")
    parser.add_argument(
        "--clock",
        choices=list(CLOCKS),
        default="wall",
        help="cpu: the process's CPU time, which means something for one thread alone",
    )
    parser.add_argument("--precisions", default="f32,bf16,int8")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="also write every figure here")
    options = parser.parse_args()
    wanted = options.models.split(",") if options.models else [m.name for m in MODELS]
    print(_title())
    print(
        f"{'model':<26}{'threads':>8}{'type':>6}{'polydevice':>12}{'openvino':>12}"
        f"{'onnxruntime':>13}{'ratio':>8}"
    )
    rows: list[dict[str, Any]] = []
    folder = tempfile.TemporaryDirectory()
    for precision in _possible(options.precisions.split(",")):
        for threads in options.threads.split(","):
            for model in MODELS:
                if model.name not in wanted:
                    continue
                path = _file(model, precision, Path(folder.name))
                if path is not None:
                    timing = partial(interleave, rounds=options.rounds, clock=CLOCKS[options.clock])
                    rows.append(_measure(model, path, threads, precision, timing))
                    print(_line(rows[-1]), flush=True)
    for line in _means(rows):
        print(line)
    if options.json:
        options.json.write_text(json.dumps({"title": _title(), "rows": rows}, indent=1) + "\n")
    return 0


def _possible(precisions: Sequence[str]) -> list[str]:
    """Precisions that this processor computes in; say which it does not."""
    with Core() as core:
        has_bfloat16 = "BF16" in core.get_metric("CPU", "OPTIMIZATION_CAPABILITIES")
    if "bf16" in precisions and not has_bfloat16:
        print("bf16 is left out: this processor has no instructions for it")
    return [each for each in precisions if each != "bf16" or has_bfloat16]


def _title() -> str:
    import onnxruntime
    import openvino

    names = [
        f"polydevice {__version__}",
        f"openvino {openvino.__version__}",
        f"onnxruntime {onnxruntime.__version__}",
    ]
    with Core() as core:
        cpu = core.get_metric("CPU", "FULL_DEVICE_NAME")
    return f"{cpu}, {os.cpu_count()} cores, Python {platform.python_version()}, {', '.join(names)}"


def _file(model: Model, precision: str, folder: Path) -> str | None:
    """The file to read for a precision; None where there is none."""
    path = model.file.get()
    if precision == "int8":
        from benchmarks.quantise import quantised

        place = folder / model.name
        place.mkdir(exist_ok=True)
        made = place / f"{path.stem}_int8.onnx"
        return str(made) if made.exists() else _named(quantised(path, model.inputs(), place))
    return str(path)


def _named(path: Path | None) -> str | None:
    return None if path is None else str(path)


@contextmanager
def _busy_core() -> Iterator[None]:
    """Let another process compute without end."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def _measure(
    model: Model,
    path: str,
    column: str,
    precision: str,
    timing: Callable[[Mapping[str, Run]], dict[str, float]],
) -> dict[str, Any]:
    inputs = model.inputs()
    shapes = {name: list(array.shape) for name, array in inputs.items()}
    threads = int(column.removesuffix(BUSY))
    row: dict[str, Any] = {"model": model.name, "type": precision}
    row["threads"] = column if column.endswith(BUSY) else threads
    with Core() as core:
        config = {"CPU_THREADS_NUM": threads, "ENFORCE_BF16": precision == "bf16"}
        try:
            network = core.read_network(path)
            network.reshape(shapes)
            request = core.load_network(network, "CPU", config).requests[0]
        except PolydeviceError as error:
            row["error"] = str(error).splitlines()[0]
            return row
        ours = {name: array.copy() for name, array in request.infer(inputs).items()}
        runs: dict[str, Run] = {"polydevice": request.infer}
        for name in ("openvino", "onnxruntime"):
            run = _peer(name, path, shapes, threads, precision, inputs)
            if run is not None:
                runs[name] = run
        row["disagreement"] = _disagreement(list(ours.values()), runs)
        with _busy_core() if column.endswith(BUSY) else nullcontext():
            row["ms"] = timing(runs)
    others = [ms for name, ms in row["ms"].items() if name != "polydevice"]
    if others:
        row["ratio"] = row["ms"]["polydevice"] / min(others)
    return row


def _peer(
    name: str,
    path: str,
    shapes: Mapping[str, list[int]],
    threads: int,
    precision: str,
    inputs: Mapping[str, Array],
) -> Run | None:
    try:
        run = make_peer(name, path, shapes, threads, precision == "bf16")
    except PolydeviceError:
        return None  # the peer does not read this file, or has no such mode
    return lambda: run(inputs)


def _disagreement(ours: list[Array], runs: Mapping[str, Run]) -> float | None:
    """Return the largest difference from a peer, over the largest value of the output."""
    worst: float | None = None
    for name, run in runs.items():
        if name == "polydevice":
            continue
        result: Any = run()
        theirs = list(result.values()) if hasattr(result, "values") else list(result)
        for mine, other in zip(ours, theirs):
            scale = float(np.abs(other).max()) or 1.0
            difference = float(np.abs(np.asarray(mine, np.float64) - other).max()) / scale
            worst = max(worst or 0.0, difference)
    return worst


def _line(row: Mapping[str, Any]) -> str:
    head = f"{row['model']:<26}{row['threads']:>8}{row['type']:>6}"
    if "error" in row:
        return f"{head}  {row['error']}"
    cells = [
        f"{row['ms'][name]:>{width}.3f}" if name in row["ms"] else f"{'-':>{width}}"
        for name, width in (("polydevice", 12), ("openvino", 12), ("onnxruntime", 13))
    ]
    ratio = f"{row['ratio']:>8.2f}" if "ratio" in row else f"{'-':>8}"
    note = ""
    if row["disagreement"] is not None and row["disagreement"] > (
        1e-2 if row["type"] == "f32" else 0.1
    ):
        note = f"  answers differ by {row['disagreement']:.1e}"
    return head + "".join(cells) + ratio + note


def _means(rows: list[dict[str, Any]]) -> list[str]:
    lines = []
    for key in dict.fromkeys((row["type"], row["threads"]) for row in rows):
        ratios = [r["ratio"] for r in rows if (r["type"], r["threads"]) == key and "ratio" in r]
        if ratios:
            lines.append(
                f"geometric mean, {key[0]}, {key[1]} threads: {geometric_mean(ratios):.3f} of the "
                f"faster peer over {len(ratios)} models"
            )
    return lines


if __name__ == "__main__":
    sys.exit(main())
