"""What one launch takes, stage by stage: networks at batch 1 with GPU_SINGLE_LAUNCH.

    python benchmarks/one_launch.py                                  # four networks in f16
    python benchmarks/one_launch.py --models bert_base --stages 20   # and its longest stages
    python benchmarks/one_launch.py --models resnet50 --precisions f32 --json out.json

`NO`, `AUTO`, `YES`: ms of one inference, inputs on the device and the answer left there, in turn.
`wait`: a launch of all stages and the wait for it. `apart`: the sum of all stages by the device's
clock, where every two of them meet, as counters show it. `host`: what Python takes of an inference,
without the driver. `barriers`: meetings of all groups. The networks are those of
benchmarks/nvidia.py; sizes that a file leaves open are those of the input.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("POLYDEVICE_GPU_DEVICES", "all-gpus")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks.interleave import interleave
from benchmarks.nvidia import fed_on_device
from benchmarks.resnet50 import pictures, resnet50
from polydevice import Core
from polydevice_gpu.cl import LaunchList, Queue
from polydevice_gpu.one_launch.joined_launches import JoinedLaunches
from tests.models.models import MODELS

Array = np.ndarray[Any, Any]
USUAL = "efficientnet_lite0,mobilenet_v2,bert_base,resnet50"
MODES = ("NO", "AUTO", "YES")
HEADS = ("model", "type", "stages", "barriers", *MODES, "wait", "apart", "host")
_RUNS = 200


def main() -> int:
    """Measure and print one row per model and precision."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default=USUAL, help="names joined by commas")
    parser.add_argument("--precisions", default="f16", help="f32, f16 or both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stages", type=int, default=0, help="print so many kinds of stages")
    parser.add_argument("--json", type=Path, help="also write every stage's time here")
    options = parser.parse_args()
    rows = []
    with Core() as core, tempfile.TemporaryDirectory() as folder:
        print("".join(f"{head:>10}" for head in HEADS))
        for name in options.models.split(","):
            path, given = _network(name, Path(folder))
            for precision in options.precisions.split(","):
                row = _measure(core, name, path, given, precision, Path(folder), options.rounds)
                rows.append(row)
                print("".join(f"{_text(row[head]):>10}" for head in HEADS), flush=True)
                _print_stages(row["by_stage"], options.stages)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def _network(name: str, folder: Path) -> tuple[Path, dict[str, Array]]:
    """Return a file and inputs for it."""
    path = folder / f"{name}.onnx"
    if name == "resnet50":
        resnet50(path, 1)
        return path, {"image": pictures(1)}
    for model in MODELS:
        if model.name == name:
            return model.file.get(), model.inputs()
    from benchmarks.transformers import NETWORKS, export  # needs PyTorch

    export(name, 1, path)
    return path, NETWORKS[name].feed(1)


def _measure(
    core: Core,
    name: str,
    path: Path,
    given: dict[str, Array],
    precision: str,
    folder: Path,
    rounds: int,
) -> dict[str, Any]:
    network = core.read_network(path)
    network.reshape({key: array.shape for key, array in given.items()})
    config = {"INFERENCE_PRECISION_HINT": precision, "CACHE_DIR": str(folder / "cache")}
    loaded = {
        mode: core.load_network(network, "GPU", {**config, "GPU_SINGLE_LAUNCH": mode})
        for mode in reversed(MODES)  # YES builds what AUTO joins at once
    }
    fed = {mode: fed_on_device(loaded[mode], given) for mode in MODES}
    row: dict[str, Any] = {"model": name, "type": precision}
    row.update(interleave({mode: fed[mode].infer for mode in MODES}, rounds))
    joined: list[JoinedLaunches] = fed["YES"].runner.last.joined
    row["stages"] = sum(len(each.stretch.stages) for each in joined)
    row["barriers"] = sum(sum(each.stretch.meets) for each in joined)
    queue, lock = loaded["YES"].queue(0)

    def wait() -> None:
        for each in joined:
            each.enqueue(queue)
        queue.finish()

    with lock:
        row["wait"] = _median_ms(wait)
    with (
        mock.patch.multiple(Queue, finish=_nothing, _transfer=_nothing),
        mock.patch.object(LaunchList, "enqueue", _nothing),
    ):
        row["host"] = _median_ms(fed["YES"].infer)
    for executable in loaded.values():
        executable.close()
    row.update(_inside(core, network, given, {**config, "GPU_SINGLE_LAUNCH": "YES"}))
    return row


def _nothing(*_: object, **__: object) -> int:
    """Take the place of a driver's function: a mock would take longer than the rest."""
    return 0


def _median_ms(run: Callable[[], object]) -> float:
    times = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times)) * 1e3


def _inside(core: Core, network: Any, given: dict[str, Array], config: Any) -> dict[str, Any]:
    """Return the times by the device's clock: of the whole, and of each stage."""
    with core.load_network(network, "GPU", {**config, "PERF_COUNT": True}) as executable:
        request = executable.create_infer_request()
        parts = []
        for _ in range(_RUNS):
            request.infer(given)
            lists = request.runner.last.joined
            parts.append([time.duration_ns for each in lists for time in each.profile()])
        stages = [stage for each in lists for stage in each.stretch.stages]
        medians = np.median(parts, axis=0) / 1e3
        by_stage = [
            {"layer": s.name, "kernel": s.launch.kernel, "groups": s.groups, "us": round(us, 3)}
            for s, us in zip(stages, medians.tolist(), strict=True)
        ]
        whole = float(np.median([sum(each) for each in parts])) / 1e6
        return {"apart": whole, "by_stage": by_stage}


def _print_stages(by_stage: list[dict[str, Any]], most: int) -> None:
    """Print the kinds of stages that take longest together."""
    kinds: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for stage in by_stage:
        kinds[stage["kernel"], tuple(stage["groups"])].append(stage["us"])
    ordered = sorted(kinds.items(), key=lambda kind: -sum(kind[1]))
    for (kernel, groups), times in ordered[:most]:
        print(f"{len(times):>10} x {np.mean(times):6.2f} us  {kernel} of {groups} groups")


def _text(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)[:9]


if __name__ == "__main__":
    raise SystemExit(main())
