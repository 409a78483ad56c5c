"""Memory that a loaded network takes on CPU, beside OpenVINO and ONNX Runtime.

    python benchmarks/memory.py                       # every real model
    python benchmarks/memory.py --models minilm,open_nsfw
    python benchmarks/memory.py --files a.onnx b.xml  # open sizes are 1

MB (2^20 bytes) of resident memory that reading and loading add to a process that has imported the
runtime and started its device, one thread, each in a process of its own; in brackets after one
inference; then the whole process after that. The model's own memory is let go where the runtime
allows it. Modules that are imported only now count, and so do pages of a library's code, for each
runtime; polydevice gives those of oneDNN back behind a load, with 11 MB that were there before,
so that its figure may be below 0.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np

from polydevice import Core
from tests.models.models import MODELS

Array = np.ndarray[Any, Any]

_HEAD = """
import gc, pickle, sys
path, inputs = sys.argv[1], pickle.load(open(sys.argv[2], "rb"))
shapes = {name: list(array.shape) for name, array in inputs.items()}
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4 / 1024
"""
_TAIL = """
loaded = resident()
infer()
print(loaded - before, resident() - before, resident())
"""
_SCRIPTS = {
    "polydevice": """
from polydevice import Core
core = Core()
core.get_metric("CPU", "ONEDNN")
before = resident()
network = core.read_network(path)
network.reshape(shapes)
request = core.load_network(network, "CPU", {"CPU_THREADS_NUM": 1}).requests[0]
del network
infer = lambda: request.infer(inputs)
""",
    "openvino": """
import openvino
core = openvino.Core()
core.get_property("CPU", "FULL_DEVICE_NAME")
before = resident()
model = core.read_model(path)
model.reshape(shapes)
compiled = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1})
del model
infer = lambda: compiled.create_infer_request().infer(inputs)
""",
    "onnxruntime": """
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
before = resident()
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
infer = lambda: session.run(None, inputs)
""",
}


def main() -> int:
    """Measure and print one row per model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="", help="names joined by commas; all if left out")
    parser.add_argument("--files", nargs="*", default=[], help="model files instead")
    options = parser.parse_args()
    if options.files:
        cases = [(Path(file).stem, Path(file), _random_inputs(file)) for file in options.files]
    else:
        wanted = options.models.split(",") if options.models else [m.name for m in MODELS]
        cases = [(m.name, m.file.get(), m.inputs()) for m in MODELS if m.name in wanted]
    print(f"{'model':<30}{'file MB':>9}" + "".join(f"{name:>20}" for name in _SCRIPTS))
    for name, path, inputs in cases:
        size = sum(
            each.stat().st_size for each in {path, path.with_suffix(".bin")} if each.exists()
        )
        cells = [_resident(script, path, inputs) for script in _SCRIPTS.values()]
        print(
            f"{name:<30}{size / 2**20:>9.1f}" + "".join(f"{each:>20}" for each in cells), flush=True
        )
    return 0


def _random_inputs(file: str) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    with Core() as core:
        made = {}
        for name, desc in core.read_network(file).inputs.items():
            sizes = [size if isinstance(size, int) else 1 for size in desc.shape]
            made[name] = rng.integers(0, 2, sizes).astype(desc.element_type.dtype)
    return made


def _resident(script: str, path: Path, inputs: dict[str, Array]) -> str:
    """What a second process takes: the first fills caches, as that of the trials of oneDNN."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder, "inputs")
        given.write_bytes(pickle.dumps(inputs))
        paths = {"PYTHONPATH": os.pathsep.join(sys.path), "POLYDEVICE_CACHE_DIR": folder}
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", _HEAD + script + _TAIL, str(path), str(given)],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, **paths},
            )
            if done.returncode:
                return "-"
    loaded, inferred, whole = map(float, done.stdout.split()[-3:])
    return f"{loaded:.1f} ({inferred:.1f}) {whole:.0f}"


if __name__ == "__main__":
    sys.exit(main())
