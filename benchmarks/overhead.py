"""What one call costs in Python: a network of one tiny operation, against the peers, in one run.

    python benchmarks/overhead.py

The operation (an addition of four numbers) takes next to no time, so the figures are what a
runtime's own code costs per inference: `prepared` with inputs already in place, `dict` handing
over a dictionary of arrays each time, two dictionaries by turns so that nothing can be kept. `as
onnxruntime`, `as openvino` and `as inference_engine` are polydevice through the packages of
`polydevice.compat`, which copy the results out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import onnx
import onnxruntime
import openvino

import polydevice.compat.inference_engine
import polydevice.compat.onnxruntime
import polydevice.compat.openvino
from benchmarks.interleave import Run, interleave
from polydevice import Core, __version__


def model() -> bytes:
    """Return an ONNX model that adds two vectors of four numbers."""
    node = onnx.helper.make_node("Add", ["a", "b"], ["c"])
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [node],
        "add",
        [onnx.helper.make_tensor_value_info(name, kind, [4]) for name in "ab"],
        [onnx.helper.make_tensor_value_info("c", kind, [4])],
    )
    opset = onnx.helper.make_opsetid("", 17)
    made: bytes = onnx.helper.make_model(
        graph, opset_imports=[opset], ir_version=8
    ).SerializeToString()
    return made


def many(run: Run, times: int = 200) -> Run:
    """Repeat a call, so that the clock's own cost does not count."""

    def repeat() -> None:
        for _ in range(times):
            run()

    return repeat


def main() -> int:
    """Measure and print microseconds per call."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="also write every figure here")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    sets = [{n: random.standard_normal(4).astype(np.float32) for n in "ab"} for _ in range(2)]
    inputs, turns = sets[0], itertools.cycle(sets)
    content = model()
    with Core() as core:
        request = core.load_network(
            core.read_network(content), "CPU", {"CPU_THREADS_NUM": 1}
        ).requests[0]
        request.infer(inputs)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            content, settings, providers=["CPUExecutionProvider"]
        )
        wanted = polydevice.compat.onnxruntime.SessionOptions()
        wanted.intra_op_num_threads = 1
        facade = polydevice.compat.onnxruntime.InferenceSession(content, wanted)
        compiled = openvino.Core().compile_model(
            openvino.Core().read_model(content), "CPU", {"INFERENCE_NUM_THREADS": 1}
        )
        ours = polydevice.compat.openvino.Core()
        called = ours.compile_model(ours.read_model(content), "CPU", {"INFERENCE_NUM_THREADS": 1})
        asked = called.create_infer_request()
        former = polydevice.compat.inference_engine.IECore()
        loaded = former.load_network(
            former.read_network(content, b"", init_from_buffer=True),
            "CPU",
            {"CPU_THREADS_NUM": "1"},
        )
        theirs = compiled.create_infer_request()
        theirs.infer(inputs)
        runs: dict[str, Run] = {
            "polydevice, prepared": request.infer,
            "polydevice, dict": lambda: request.infer(next(turns)),
            "as onnxruntime, dict": lambda: facade.run(None, next(turns)),
            "as openvino, called": lambda: called(next(turns)),
            "as openvino, dict": lambda: asked.infer(next(turns)),
            "as inference_engine": lambda: loaded.infer(next(turns)),
            "onnxruntime, dict": lambda: session.run(None, next(turns)),
            "openvino, prepared": theirs.infer,
            "openvino, called": lambda: compiled(next(turns)),
            "openvino, dict": lambda: theirs.infer(next(turns)),
        }
        for name, run in runs.items():
            result = run()
            value = result[0] if isinstance(result, list) else next(iter(dict(result).values()))
            right = [np.allclose(value, one["a"] + one["b"]) for one in sets]
            assert any(right), f"{name} gives a wrong answer"
        times = interleave({name: many(run) for name, run in runs.items()}, rounds=15, block_ms=20)
    title = (
        f"polydevice {__version__}, onnxruntime {onnxruntime.__version__}, openvino "
        f"{openvino.__version__}, Python {sys.version.split()[0]}, {os.cpu_count()} cores"
    )
    print(title)
    found = {name: milliseconds * 1e3 / 200 for name, milliseconds in times.items()}
    for name, microseconds in found.items():
        print(f"{name:<24}{microseconds:>8.2f} µs per call")
    if options.json:
        options.json.write_text(json.dumps({"title": title, "us": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
