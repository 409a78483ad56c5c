"""Loading a network on GPU with and without the kernel cache, each time in a fresh process.

    python benchmarks/load.py                       # every real model
    python benchmarks/load.py --models open_nsfw

`cold` compiles every kernel and stores it; `warm` finds all of them. Drivers keep their own caches
(PoCL, NVIDIA): the folders that they use are fresh ones here too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("POLYDEVICE_GPU_DEVICES", "all-gpus,cpu")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.models.models import MODELS

_SCRIPT = """
import json, sys, time
from polydevice import Core
model, shapes, folder = json.loads(sys.argv[1])
with Core() as core:
    network = core.read_network(model)
    network.reshape(shapes)
    core.get_metric("GPU", "FULL_DEVICE_NAME")
    start = time.perf_counter()
    core.load_network(network, "GPU", {"CACHE_DIR": folder}).requests
    print(time.perf_counter() - start)
"""


def main() -> int:
    """Measure and print one row per model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="", help="names joined by commas; all if left out")
    wanted = parser.parse_args().models
    print(f"{'model':<28}{'cold s':>9}{'warm s':>9}{'times':>8}")
    for model in MODELS:
        if wanted and model.name not in wanted.split(","):
            continue
        shapes = {name: list(array.shape) for name, array in model.inputs().items()}
        with tempfile.TemporaryDirectory() as folder:
            argument = json.dumps([str(model.file.get()), shapes, folder])
            try:
                cold, *warm = (_seconds(argument, folder) for _ in range(3))
            except subprocess.CalledProcessError as error:
                print(f"{model.name:<28}  {error.stderr.strip().splitlines()[-1]}")
                continue
        best = min(warm)
        print(f"{model.name:<28}{cold:>9.2f}{best:>9.2f}{cold / best:>8.1f}", flush=True)
    return 0


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
