"""GPU speed on an NVIDIA device: wall and device time, launches, and other programs beside it.

    python benchmarks/nvidia.py                  # ResNet-50, transformers and the tests' models
    python benchmarks/nvidia.py --models bert_base,vit_b_16 --batches 1,32 --precisions f16
    python benchmarks/nvidia.py --models resnet50 --no-peers
    python benchmarks/nvidia.py --models product_4096 --precisions f16 --half-ports

`wall`: one synchronous inference from NumPy arrays to NumPy arrays, median. `there`: the same with
inputs that are on the device already, and the answer left there. `ratio`: that over the faster of
PyTorch's CUDA graph and torch.compile, which have their inputs there too, in f16 as halves; ours
stay floats, as the model says, unless `--half-ports`. `device`: the time of all
kernels, from events. `idle`: what the device waits between two kernels, in µs. `error`: largest
difference from ONNX Runtime's or OpenVINO's answer on CPU, as part of the largest element.
ResNet-50 and the networks of benchmarks/transformers.py (MobileNetV2 of torchvision, BERT-base,
ViT-B/16, a decoder, single products) have random weights: their time is that of trained ones, their
answers mean nothing. The latter need PyTorch, which exports them; their errors are from PyTorch's
answer in f64, with PyTorch's own beside them.

Peers run in this process, in turn with ours, where they are installed: PyTorch (its CUDA graph, and
in f16 torch.compile with reduce-overhead; ResNet-50 and MobileNetV2 channels last, no TF32) and
tinygrad (compiled, on OpenCL).
`recorded` is tinygrad 0.14 on OpenCL on an H100 80GB, 21 November 2026, its inputs already on the
device, so that its ratio is to `there`; it is printed on other devices too.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("DEV", "CL")  # before tinygrad is imported
os.environ.setdefault("POLYDEVICE_GPU_DEVICES", "all-gpus")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import pytest

from benchmarks.interleave import Run, interleave
from benchmarks.resnet50 import pictures, resnet50
from polydevice import Blob, Core, Shape, TensorDesc, __version__
from polydevice.errors import BlobError
from tests.models.models import MODELS, Model
from tests.models.oracles import case

Array = np.ndarray[Any, Any]
AGREEMENT = {"f32": 1e-3, "f16": 3e-2}
"""Largest error of an answer that is timed at all; a wrong answer is no answer."""
RECORDED = {("f32", 1): 15.1, ("f32", 32): 53.7, ("f16", 1): 21.4, ("f16", 32): 67.9}
"""Milliseconds of ResNet-50 in tinygrad 0.14 on OpenCL."""
_RUNS_BEFORE, _BUILD_SECONDS = 260, 60
"""Inferences before anything is timed, after which launches may become one."""
CONVOLUTIONAL = ("resnet50", "mobilenet_v2")
"""Networks that PyTorch computes with channels last."""
HEADS = (
    *(("model", 20), ("type", 5), ("batch", 6), ("wall ms", 9), ("there ms", 9), ("ratio", 7)),
    *(("device ms", 10), ("launches", 9), ("idle us", 8), ("error", 9), ("peer's", 9)),
    ("others ms", 0),
)


class WrongAnswerError(Exception):
    """An answer is off by more than `AGREEMENT`."""


def main() -> int:
    """Measure and print one row per model, precision and batch."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="", help="names joined by commas; all if left out")
    parser.add_argument("--precisions", default="f32,f16", help="f32, f16 or both")
    parser.add_argument("--batches", default="1,32", help="of ResNet-50")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument(
        "--no-compile", action="store_true", help="without torch.compile: a minute less a network"
    )
    parser.add_argument(
        "--beside", default="", metavar="KEY=VALUE", help="also time `there` with this, in turn"
    )
    parser.add_argument(
        "--half-ports", action="store_true", help="f16 inputs and outputs in f16, as PyTorch's are"
    )
    parser.add_argument("--json", type=Path, help="also write every figure here")
    options = parser.parse_args()
    wanted = options.models.split(",") if options.models else ["resnet50", *_exported(), *_names()]
    with Core() as core, tempfile.TemporaryDirectory() as folder:
        if not any(name.startswith("GPU") for name in core.available_devices):
            raise SystemExit("no GPU under OpenCL; `polydevice devices --why` says more")
        name = core.get_metric("GPU", "FULL_DEVICE_NAME")
        if "nvidia" not in name.lower():
            raise SystemExit(f"{name} is no NVIDIA device; benchmarks/gpu.py is for all of them")
        driver = core.get_default_context("GPU").device.facts.driver_version
        title = f"polydevice {__version__}, {name}, driver {driver}, {time.strftime('%Y-%m-%d')}"
        print(f"{title}\n" + "".join(_cell(head, width) for head, width in HEADS), flush=True)
        rows = []
        for precision in options.precisions.split(","):
            if "resnet50" in wanted:
                for batch in map(int, options.batches.split(",")):
                    path = Path(folder) / f"resnet50-{batch}.onnx"
                    resnet50(path, batch)
                    given = {"image": pictures(batch)}
                    right = _onnxruntime(path, given)
                    row = _measure(core, "resnet50", path, given, right, precision, options)
                    rows.append(row)
                    print(_line(row), flush=True)
                    _keep(options.json, title, rows)
            for name in (name for name in wanted if name in _exported()):
                for batch in map(int, options.batches.split(",")):
                    row = _transformer(core, name, batch, Path(folder), precision, options)
                    rows.append(row)
                    print(_line(row), flush=True)
                    _keep(options.json, title, rows)
            for model in MODELS:
                if model.name in wanted:
                    rows += _real(core, model, precision, options)
                    _keep(options.json, title, rows)
    return 0


def _keep(path: Path | None, title: str, rows: list[dict[str, Any]]) -> None:
    """Write all rows so far: a run that is cut short loses nothing."""
    if path:
        path.write_text(json.dumps({"title": title, "rows": rows}, indent=1) + "\n")


def _names() -> list[str]:
    return [model.name for model in MODELS if not model.host]


def _exported() -> list[str]:
    """Return the names of the networks that PyTorch exports, where it is installed."""
    if importlib.util.find_spec("torch") is None:
        _say_once("torch is not installed: its networks are left out")
        return []
    from benchmarks.transformers import NETWORKS

    if importlib.util.find_spec("torchvision") is None:
        _say_once("torchvision is not installed: MobileNetV2 is left out")
        return [name for name in NETWORKS if name != "mobilenet_v2"]
    return list(NETWORKS)


def _transformer(
    core: Core, name: str, batch: int, folder: Path, precision: str, options: Any
) -> dict[str, Any]:
    """Measure a network of benchmarks/transformers.py beside PyTorch."""
    import torch

    from benchmarks.transformers import NETWORKS, export, module

    path, given = folder / f"{name}-{batch}.onnx", NETWORKS[name].feed(batch)
    if not path.exists():
        export(name, batch, path)
    with torch.inference_mode():
        right = module(name).cuda().double()(*_on_device(given, torch.float64)).cpu().numpy()
    torch.cuda.empty_cache()
    return _measure(core, name, path, given, [right], precision, options)


def _real(core: Core, model: Model, precision: str, options: Any) -> list[dict[str, Any]]:
    """Measure a model of the tests at its natural input; says so if it is not at hand."""
    try:
        given, right = case(model)
    except pytest.skip.Exception as reason:
        print(f"{model.name}: skipped: {reason}")
        return []
    own = len(right) - len(model.extra_outputs)
    try:
        row = _measure(core, model.name, model.file.get(), given, right[:own], precision, options)
    except WrongAnswerError as reason:
        print(f"{model.name:<20}{precision:>5}  {reason}", flush=True)
        return []
    print(_line(row), flush=True)
    return [row]


def _measure(
    core: Core,
    name: str,
    path: Path,
    given: dict[str, Array],
    right: list[Array] | None,
    precision: str,
    options: Any,
) -> dict[str, Any]:
    config = {"INFERENCE_PRECISION_HINT": precision}
    network = core.read_network(path)
    if options.half_ports and precision == "f16":
        for port in (*network.inputs.values(), *network.outputs.values()):
            port.precision = "FP16" if port.precision == "FP32" else port.precision
    with contextlib.ExitStack() as stack, core.load_network(network, "GPU", config) as executable:
        request = executable.create_infer_request()
        answers = [np.array(array) for array in request.infer(given).values()]
        error = None if right is None else _error(answers, right)
        row: dict[str, Any] = {
            "model": name,
            "type": precision,
            "batch": next(iter(given.values())).shape[0],
            "error": error,
        }
        if error is not None and not error < AGREEMENT[precision]:
            raise WrongAnswerError(f"off by {error:.2g} of the largest element: not timed")
        fed = fed_on_device(executable, given)
        runs: dict[str, Run] = {"wall": lambda: request.infer(given), "there": fed.infer}
        if options.beside:
            more = dict([options.beside.split("=", 1)])
            other = stack.enter_context(core.load_network(network, "GPU", {**config, **more}))
            runs[f"{options.beside} there"] = fed_on_device(other, given).infer
        if not options.no_peers:
            runs.update(_peers(name, path, given, precision, options))
        row.update(interleave(runs, options.rounds))
        if right is not None and "pytorch graph" in runs and name in _exported():  # equal weights
            row["peer_error"] = _error([np.asarray(runs["pytorch graph"]().float().cpu())], right)
        fastest = min((row[peer] for peer in ON_DEVICE if peer in row), default=None)
        row["ratio"] = None if fastest is None else row["there"] / fastest
    with core.load_network(network, "GPU", {**config, "PERF_COUNT": True}) as executable:
        row.update(_device_times(executable.create_infer_request(), given))
    if name == "resnet50" and (precision, row["batch"]) in RECORDED:
        row["recorded"] = RECORDED[precision, row["batch"]]
    return row


def fed_on_device(executable: Any, given: dict[str, Array]) -> Any:
    """Return a request whose inputs are in device memory, where they can be."""
    request = executable.create_infer_request()
    context = executable.get_context()
    for name, array in given.items():
        port = executable.inputs[name]
        value = np.ascontiguousarray(array, port.element_type.dtype)
        blob = context.create_blob(TensorDesc(port.element_type, Shape(value.shape)))
        blob.copy_from(value)
        try:
            request.set_blob(name, blob)
        except BlobError:  # held in another type on the device, or read by the host
            request.set_blob(name, Blob(value, port.element_type))
    for name in executable.outputs:
        request.keep_on_device(name)
    end = time.monotonic() + _BUILD_SECONDS
    for _ in range(_RUNS_BEFORE):
        request.infer()
    while executable.latest_plan().may_join and time.monotonic() < end:  # built in the background
        time.sleep(0.05)
    request.infer()
    return request


def _error(answers: list[Array], right: list[Array]) -> float:
    errors = []
    for got, want in zip(answers, right, strict=True):
        largest = max(float(np.abs(want).max(initial=0)), 1e-6)
        difference = np.abs(got.astype(np.float64) - want.astype(np.float64))
        errors.append(float(difference.max(initial=0)) / largest)
    return max(errors) if np.isfinite(errors).all() else float("inf")


def _device_times(request: Any, given: dict[str, Array], rounds: int = 10) -> dict[str, float]:
    """Return times from events, of the inference whose kernels took least."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        request.infer(given)
        times = request.runner.last.times()
        device_ms = sum(time.duration_ns for time in times) / 1e6
        span_ms = (times[-1].ended_ns - times[0].started_ns) / 1e6
        if not best or device_ms < best["device"]:
            idle_us = 1e3 * (span_ms - device_ms) / max(len(times) - 1, 1)
            best = {"device": device_ms, "launches": len(times), "idle_us": idle_us}
    return best


def _onnxruntime(path: Path, given: dict[str, Array]) -> list[Array] | None:
    if importlib.util.find_spec("onnxruntime") is None:
        print("onnxruntime is not installed: ResNet-50's answers are not checked")
        return None
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, given)]


# -- others ----------------------------------------------------------------------------------------

_PEER_FAILS = (
    *(RuntimeError, NotImplementedError, ValueError, TypeError, KeyError, AttributeError),
    *(AssertionError, ImportError, OSError),
)
"""A peer that fails is left out and named."""


def _peers(
    name: str, path: Path, given: dict[str, Array], precision: str, options: Any
) -> dict[str, Run]:
    """Return what else can run the network here; says which cannot, once."""
    made: dict[str, Run] = {}
    makers: list[tuple[str, Callable[[], dict[str, Run]]]] = []
    if name == "resnet50" or name in _exported():
        makers.append(("torch", lambda: _torch(name, given, precision, options)))
    if precision == "f32" and path.suffix == ".onnx":
        makers.append(("tinygrad", lambda: {"tinygrad": _tinygrad(path, given)}))
    for package, maker in makers:
        if importlib.util.find_spec(package) is None:
            _say_once(f"{package} is not installed: left out")
            continue
        try:
            made.update(maker())
        except _PEER_FAILS as error:
            _say_once(f"{package} does not run {name}: {type(error).__name__}: {str(error)[:120]}")
    return made


_said: set[str] = set()


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        print(text)


ON_DEVICE = ("pytorch graph", "torch.compile")
"""Peers whose inputs are on the device and whose answers stay there."""


def _on_device(given: dict[str, Array], kind: Any) -> list[Any]:
    """Return inputs as PyTorch's tensors on the device, floats in a type."""
    import torch

    tensors = [torch.from_numpy(array).cuda() for array in given.values()]
    return [t.to(kind) if t.is_floating_point() else t for t in tensors]


def _torch(name: str, given: dict[str, Array], precision: str, options: Any) -> dict[str, Run]:
    """Return PyTorch's replayed CUDA graph and, in f16, its compiled network."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    kind = torch.float16 if precision == "f16" else torch.float32
    fixed = _on_device(given, kind)

    def make() -> Any:
        if name == "resnet50":
            from torchvision.models import resnet50 as architecture

            made = architecture(weights=None).eval().cuda()
            return made.to(kind, memory_format=torch.channels_last)
        from benchmarks.transformers import module

        made = module(name).cuda().to(kind)
        return made.to(memory_format=torch.channels_last) if name in CONVOLUTIONAL else made

    if name in CONVOLUTIONAL:
        fixed = [tensor.to(memory_format=torch.channels_last) for tensor in fixed]
    runs: dict[str, Run] = {}
    if precision == "f16" and not options.no_compile:  # first: it frees the graph's workspace
        compiled = torch.compile(make(), mode="reduce-overhead")

        def run() -> Any:
            with torch.inference_mode():
                answer = compiled(*fixed)
            torch.cuda.synchronize()
            return answer

        for _ in range(3):
            run()
        runs["torch.compile"] = run
    model = make()
    stream = torch.cuda.Stream()
    with torch.inference_mode(), torch.cuda.stream(stream):
        for _ in range(3):
            model(*fixed)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            result = model(*fixed)
    torch.cuda.synchronize()

    def replay(_keep: Any = (model, fixed)) -> Any:  # the graph itself keeps no weights
        graph.replay()
        torch.cuda.synchronize()
        return result

    runs["pytorch graph"] = replay
    return runs


def _tinygrad(path: Path, given: dict[str, Array]) -> Run:
    """Return an inference by tinygrad, compiled and warmed up."""
    from tinygrad import Tensor, TinyJit
    from tinygrad.nn.onnx import OnnxRunner

    runner = OnnxRunner(path)

    @TinyJit
    def compiled(**tensors: Any) -> list[Any]:
        return [tensor.contiguous().realize() for tensor in runner(tensors).values()]

    def run() -> list[Array]:
        tensors = {name: Tensor(array).realize() for name, array in given.items()}
        return [tensor.numpy() for tensor in compiled(**tensors)]

    for _ in range(4):
        run()
    return run


# -- the table -------------------------------------------------------------------------------------


def _cell(text: str, width: int) -> str:
    return (
        f"{text:<{width}}" if text == HEADS[0][0] else f"{text:>{width}}" if width else "  " + text
    )


def _line(row: dict[str, Any]) -> str:
    known = (
        *("wall", "there", "device", "launches", "idle_us", "error", "model", "type", "batch"),
        *("ratio", "peer_error"),
    )
    others = [f"{name} {value:.3f}" for name, value in row.items() if name not in known]
    ratio = "-" if row.get("ratio") is None else f"{row['ratio']:.2f}"
    errors = [row.get(name) for name in ("error", "peer_error")]
    own, peer = ("-" if error is None else f"{error:.1e}" for error in errors)
    return (
        f"{row['model']:<20}{row['type']:>5}{row['batch']:>6}{row['wall']:>9.3f}"
        f"{row['there']:>9.3f}{ratio:>7}{row['device']:>10.3f}{row['launches']:>9}"
        f"{row['idle_us']:>8.1f}{own:>9}{peer:>9}  " + ", ".join(others)
    )


if __name__ == "__main__":
    sys.exit(main())
