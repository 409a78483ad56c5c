"""Other runtimes on the same model and inputs, when they are installed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from polydevice.benchmark.printing import info
from polydevice.dtype import Array
from polydevice.errors import OptionValueError
from polydevice.executable_network import ExecutableNetwork

Run = Callable[[Mapping[str, Array]], object]


def make_peer(
    name: str, model: str, shapes: Mapping[str, list[int]], threads: int | None, bf16: bool
) -> Run:
    """Load a model in another runtime on its CPU device; returns a function that runs it.

    Raises:
        OptionValueError: unknown name, not installed, or the runtime refuses the model.
    """
    makers = {"onnxruntime": _onnxruntime, "openvino": _openvino}
    if name not in makers:
        raise OptionValueError(f"--compare {name!r} is not known; legal: {', '.join(makers)}")
    try:
        return makers[name](model, shapes, threads, bf16)
    except ImportError:
        raise OptionValueError(f"--compare {name} needs it installed: pip install {name}") from None
    except OptionValueError:
        raise
    except Exception as error:
        raise OptionValueError(f"{name} does not load {model!r}: {error}") from error


def _onnxruntime(model: str, _: Mapping[str, list[int]], threads: int | None, bf16: bool) -> Run:
    import onnxruntime  # type: ignore[import-untyped,unused-ignore]

    if not model.endswith(".onnx"):
        raise OptionValueError("onnxruntime reads .onnx files only")
    if bf16:
        raise OptionValueError("onnxruntime's CPU device has no bfloat16 mode to compare with")
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    if threads:
        settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, dict(inputs))


def _openvino(model: str, shapes: Mapping[str, list[int]], threads: int | None, bf16: bool) -> Run:
    import openvino  # type: ignore[import-not-found,unused-ignore]

    core = openvino.Core()
    network = core.read_model(model)
    if shapes:
        network.reshape({name: list(sizes) for name, sizes in shapes.items()})
    config: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "bf16" if bf16 else "f32",
    }
    if threads:
        config["INFERENCE_NUM_THREADS"] = threads
    request = core.compile_model(network, "CPU", config).create_infer_request()

    def run(inputs: Mapping[str, Array]) -> object:
        return request.infer(dict(inputs), share_inputs=True, share_outputs=True)

    return run


def compare(
    names: Sequence[str],
    executable: ExecutableNetwork,
    inputs: Sequence[Mapping[str, Array]],
    options: argparse.Namespace,
) -> dict[str, float]:
    """Run the peers and ourselves in turn, so that a slow moment hits all of them.

    Returns:
        Name → median of the latency, in milliseconds; "polydevice" is ours.
    """
    shapes = {name: list(port.sizes or ()) for name, port in executable.inputs.items()}
    threads, bf16 = options.number_threads, options.enforcebf16
    runs: dict[str, Callable[[Mapping[str, Array]], object]] = {
        "polydevice": executable.requests[0].infer
    }
    for name in names:
        runs[name] = make_peer(name, options.path_to_model, shapes, threads, bf16)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(12):
        for name, run in runs.items():
            for _ in range(3):
                begin = time.perf_counter()
                run(inputs[round_ % len(inputs)])
                if round_ >= 2:  # two rounds of warm-up
                    times[name].append((time.perf_counter() - begin) * 1e3)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    info("Synchronous latency, measured in turn on this machine:")
    for name, value in medians.items():
        ratio = value / medians["polydevice"]
        info(f"  {name:<14}{value:10.3f} ms   {ratio:5.2f} of polydevice's")
    return medians
