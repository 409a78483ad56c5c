"""GPU speed: fused against unfused, and against tinygrad on the same OpenCL device, in one run.

    python benchmarks/gpu.py                          # every model of the tests
    python benchmarks/gpu.py --models open_nsfw --precisions f32,f16 --no-tinygrad

Each row: milliseconds per inference, host arrays in and out, and the ratios of the others to ours
(above 1: we are faster). Answers are compared before anything is timed. tinygrad is not a
dependency (``pip install tinygrad``); it runs the ONNX models, compiled (TinyJit), on OpenCL, in
this process, with the sizes of the inputs written into the model.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Before tinygrad is imported: its OpenCL back end, whatever else it would find.
os.environ.setdefault("DEV", "CL")
os.environ.setdefault("POLYDEVICE_GPU_DEVICES", "all-gpus,cpu")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import onnx

from benchmarks.interleave import Run, geometric_mean, interleave
from polydevice import Core, __version__, rewrites
from tests.models.models import MODELS, Model

Array = np.ndarray[Any, Any]
AGREEMENT = 5e-3
"""Largest difference between two programs' answers, as part of the largest element."""


def main() -> int:
    """Measure, print one row per case and the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="", help="names joined by commas; all if left out")
    parser.add_argument("--precisions", default="f32", help="f32, f16 or both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-tinygrad", action="store_true")
    parser.add_argument("--json", type=Path, help="also write every figure here")
    options = parser.parse_args()
    with Core() as core:
        title = f"polydevice {__version__} on {core.get_metric('GPU', 'FULL_DEVICE_NAME')}"
        print(title)
        print(f"{'model':<22}{'type':>5}{'polydevice':>12}{'unfused':>10}{'tinygrad':>10}  ratios")
        rows = []
        for precision in options.precisions.split(","):
            for model in _chosen(options.models):
                rows.append(_measure(core, model, precision, options))
                print(_line(rows[-1]), flush=True)
    for name in ("unfused", "tinygrad"):
        ratios = [row[name] / row["polydevice"] for row in rows if name in row]
        if ratios:
            print(f"{name}: {geometric_mean(ratios):.2f} times our time (geometric mean)")
    if options.json:
        options.json.write_text(json.dumps({"title": title, "rows": rows}, indent=1) + "\n")
    return 0


def _chosen(names: str) -> list[Model]:
    wanted = names.split(",") if names else [model.name for model in MODELS]
    return [model for model in MODELS if model.name in wanted]


@contextlib.contextmanager
def _unfused() -> Iterator[None]:
    """Let networks be loaded without the passes that fuse."""
    stages = importlib.import_module("polydevice_gpu.compiler.stages")
    whole, order = stages.GRAPH, rewrites.ORDER
    stages.GRAPH = tuple(p for p in whole if not p.__name__.startswith("fuse"))
    rewrites.ORDER = tuple(s for s in order if not s[0].startswith("recognise"))
    try:
        yield
    finally:
        stages.GRAPH, rewrites.ORDER = whole, order


def _measure(core: Core, model: Model, precision: str, options: Any) -> dict[str, Any]:
    path, inputs = model.file.get(), model.inputs()
    config = {"INFERENCE_PRECISION_HINT": precision}
    network = core.read_network(path)
    runs: dict[str, Run] = {}
    fused = core.load_network(network, "GPU", config).create_infer_request()
    fused.infer(inputs)
    runs["polydevice"] = lambda: fused.infer(inputs)
    with _unfused():
        plain = core.load_network(network, "GPU", config).create_infer_request()
        plain.infer(inputs)
    runs["unfused"] = lambda: plain.infer(inputs)
    if not options.no_tinygrad and str(path).endswith(".onnx") and precision == "f32":
        try:
            runs["tinygrad"] = _tinygrad(path, inputs)
        except Exception as error:  # noqa: BLE001 - whatever it raises, it does not run
            print(f"{model.name}: tinygrad does not run it: {str(error).splitlines()[0]}")
    for request in (fused, plain):
        for variable in request.query_state():
            variable.reset()
    ours = [np.array(v) for v in fused.infer(inputs).values()]
    for variable in fused.query_state():
        variable.reset()
    for name, run in runs.items():
        theirs = run()
        arrays = list(theirs.values()) if isinstance(theirs, dict) else list(theirs)  # type: ignore[call-overload]
        for a, b in zip(ours, arrays, strict=True):
            limit = AGREEMENT * max(float(np.abs(a).max()), 1e-6)
            if float(np.abs(a - np.asarray(b)).max()) > limit:
                raise SystemExit(f"{model.name}: {name} gives another answer")
    return {"model": model.name, "type": precision, **interleave(runs, options.rounds)}


def _tinygrad(path: Path, inputs: dict[str, Array]) -> Run:
    """Return an inference of the ONNX file by tinygrad, compiled and warmed up."""
    from tinygrad import Tensor, TinyJit
    from tinygrad.nn.onnx import OnnxRunner

    runner = OnnxRunner(_with_sizes(path, inputs))

    @TinyJit
    def compiled(**given: Any) -> list[Any]:
        return [tensor.contiguous().realize() for tensor in runner(given).values()]

    def run() -> list[Array]:
        given = {name: Tensor(array).realize() for name, array in inputs.items()}
        return [tensor.numpy() for tensor in compiled(**given)]

    for _ in range(4):
        run()
    return run


def _with_sizes(path: Path, inputs: dict[str, Array]) -> Path:
    """Write the model with the inputs' sizes instead of open ones, for tinygrad to read."""
    model = onnx.load(path)
    for given in model.graph.input:
        if given.name in inputs:
            sizes = inputs[given.name].shape
            for dim, size in zip(given.type.tensor_type.shape.dim, sizes, strict=True):
                dim.dim_value = size
    del model.graph.value_info[:]
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = Path(folder) / "model.onnx"
    onnx.save(model, target)
    return target


def _line(row: dict[str, Any]) -> str:
    cells = f"{row['model']:<22}{row['type']:>5}{row['polydevice']:>12.2f}{row['unfused']:>10.2f}"
    peer = f"{row['tinygrad']:>10.2f}" if "tinygrad" in row else f"{'-':>10}"
    ratios = [f"{row[n] / row['polydevice']:.2f}" for n in ("unfused", "tinygrad") if n in row]
    return f"{cells}{peer}  {' '.join(ratios)}"


if __name__ == "__main__":
    sys.exit(main())
