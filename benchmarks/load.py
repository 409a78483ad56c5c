"""Loading a network on GPU with and without the kernel cache, each time in a fresh process.

    python benchmarks/load.py                       # every real model
    python benchmarks/load.py --models open_nsfw
    python benchmarks/load.py --models resnet50 --precision f16 --processes 9

`cold` compiles every kernel and stores it; `warm` finds all of them: the
fastest process of some, and their median. Drivers keep their own caches (PoCL, NVIDIA): the folders
that they use are fresh ones here too. ResNet-50 has random weights.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("POLYDEVICE_GPU_DEVICES", "all-gpus,cpu")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.resnet50 import pictures, resnet50
from tests.models.models import MODELS

_SCRIPT = """
import json, sys, time
from polydevice import Core
model, shapes, config = json.loads(sys.argv[1])
with Core() as core:
    network = core.read_network(model)
    network.reshape(shapes)
    core.get_metric("GPU", "FULL_DEVICE_NAME")
    start = time.perf_counter()
    core.load_network(network, "GPU", config).requests
    print(time.perf_counter() - start)
"""


def main() -> int:
    """Measure and print one row per model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="", help="names joined by commas; all if left out")
    parser.add_argument("--precision", default="", help="f32 or f16; as the device does else")
    parser.add_argument("--processes", type=int, default=2, help="that find all kernels")
    options = parser.parse_args()
    hint = {"INFERENCE_PRECISION_HINT": options.precision} if options.precision else {}
    wanted = options.models.split(",") if options.models else []
    print(f"{'model':<28}{'cold s':>9}{'warm s':>9}{'median':>9}{'times':>8}")
    for name in ("resnet50", *(model.name for model in MODELS)):
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path, shapes = _model(name, Path(folder))
            config = {"CACHE_DIR": f"{folder}/kernels", **hint}
            argument = json.dumps([str(path), shapes, config])
            try:
                cold, *warm = (_seconds(argument, folder) for _ in range(1 + options.processes))
            except subprocess.CalledProcessError as error:
                print(f"{name:<28}  {error.stderr.strip().splitlines()[-1]}")
                continue
        best, median = min(warm), statistics.median(warm)
        print(f"{name:<28}{cold:>9.2f}{best:>9.2f}{median:>9.2f}{cold / best:>8.1f}", flush=True)
    return 0


def _model(name: str, folder: Path) -> tuple[Path, dict[str, list[int]]]:
    """Return a file, and the sizes of its inputs."""
    if name == "resnet50":
        path = folder / "resnet50.onnx"
        resnet50(path, 1)
        return path, {"image": list(pictures(1).shape)}
    model = next(model for model in MODELS if model.name == name)
    return model.file.get(), {name: list(x.shape) for name, x in model.inputs().items()}


def _seconds(argument: str, folder: str) -> float:
    driver = f"{folder}/driver"
    environment = {**os.environ, "POCL_CACHE_DIR": driver, "CUDA_CACHE_PATH": driver}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, argument],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return float(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
