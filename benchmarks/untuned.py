"""How good choices without tuning are: each distinct layer's default against its best candidate.

    python benchmarks/untuned.py                          # every convolutional model of the tests
    python benchmarks/untuned.py --models efficientnet_lite0,open_nsfw --precisions f32,f16

Every layer that can be computed in several ways (convolutions, products, attention, recurrent
sequences, reductions, softmax, normalisations, TopK, pooling, pointwise layers, copies) is timed in
all ways that leave the layouts as they are, as tuning does; then the default and the fastest take
turns, so that a slow moment of the machine meets both. Prints the worst layers, how the ratios are
distributed, for each operation too, and what tuning would gain in all.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("POLYDEVICE_GPU_DEVICES", "all-gpus,cpu")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from polydevice import Core, __version__
from polydevice_gpu.tuning import tuner as tuning
from tests.models.models import MODELS, Model

BOUNDS = (1.05, 1.25, 1.5, 2.0)


@dataclass(frozen=True)
class Row:
    """One layer: median times of its default and of its best candidate, in nanoseconds."""

    layer: str
    operation: str
    default: str
    best: str
    default_ns: float
    best_ns: float

    @property
    def ratio(self) -> float:
        """How much longer the default takes."""
        return self.default_ns / max(self.best_ns, 1.0)


def main() -> int:
    """Time all layers of the chosen models and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="", help="names joined by commas; all if left out")
    parser.add_argument("--precisions", default="f32", help="f32, f16 or both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cache", default="", help="a folder that keeps compiled kernels")
    parser.add_argument("--worst", type=int, default=10, help="how many layers to list")
    options = parser.parse_args()
    wanted = options.models.split(",") if options.models else [model.name for model in MODELS]
    rows: list[Row] = []
    with Core() as core, tempfile.TemporaryDirectory() as folder:
        print(f"polydevice {__version__} on {core.get_metric('GPU', 'FULL_DEVICE_NAME')}")
        for precision in options.precisions.split(","):
            config = {
                "INFERENCE_PRECISION_HINT": precision,
                "TUNING_MODE": "TUNING_CREATE",
                "TUNING_FILE": str(Path(folder) / "tuning.json"),  # one file: each layer once
                **({"CACHE_DIR": options.cache} if options.cache else {}),
            }
            for model in (model for model in MODELS if model.name in wanted):
                found = _survey(core, model, config, options)
                print(f"{model.name} {precision}: {_summary(found)}", flush=True)
                rows += found
    for row in sorted(rows, key=lambda row: -row.ratio)[: options.worst]:
        times = f"{row.default_ns / 1e3:9.1f} µs {row.best_ns / 1e3:9.1f} µs"
        print(f"{row.ratio:5.2f} {times}  {row.default} → {row.best}  {row.layer}")
    for kind in sorted({row.operation for row in rows}):
        print(f"{kind}: {_summary([row for row in rows if row.operation == kind])}")
    print(f"all: {_summary(rows)}")
    return 0


def _survey(core: Core, model: Model, config: dict[str, str], options: Any) -> list[Row]:
    rows: list[Row] = []
    original = tuning.Tuner._time

    def timed(self: Any, node: Any, target: Any, runner: Any) -> dict[str, Any]:
        default = node.choice
        result = original(self, node, target, runner)
        best = node.choice
        times: dict[Any, list[int]] = {default: [], best: []}
        for _ in range(options.rounds if best != default else 0):
            for choice, measured in times.items():
                outcome = runner.run(choice)
                if outcome is not None:
                    measured.append(outcome.time_ns)
        own, other = (float(np.median(times[c] or [1])) for c in (default, best))
        title = f"{model.name} {config['INFERENCE_PRECISION_HINT']}"
        name = f"{title} {node.name} {node.inputs[0].shape} → {node.output.shape}"
        # The best was chosen among many noisy times: slower in the second try, it is no better.
        kind = type(node.op).__name__
        rows.append(Row(name, kind, str(default), str(best), max(own, other), other))
        return result

    with mock.patch.object(tuning.Tuner, "_time", timed):
        executable = core.load_network(core.read_network(model.file.get()), "GPU", config)
        executable.create_infer_request().infer(model.inputs())  # shapes may be known only now
        executable.close()
    return rows


def _summary(rows: list[Row]) -> str:
    if not rows:
        return "no layer to tune"
    ratios = np.array([row.ratio for row in rows])
    parts = [f"{np.mean(ratios <= bound):.0%} within {bound}" for bound in BOUNDS]
    timed = [row for row in rows if row.ratio > 1]
    total = sum(row.default_ns for row in timed) / max(sum(row.best_ns for row in timed), 1.0)
    return f"{len(rows)} layers: {', '.join(parts)}; changed ones together {total:.2f}"


if __name__ == "__main__":
    sys.exit(main())
