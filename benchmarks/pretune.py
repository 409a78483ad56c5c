"""Tune typical networks on a GPU and write the files to ship, of what was faster by turns alone.

    python benchmarks/pretune.py FOLDER [--tune SECONDS] [--seconds SECONDS] [-d GPU]

Networks are tuned in processes side by side, each into a file of its own, until --tune is over.
Then, alone on the device: every choice is timed beside the one without tuning, in turn
(TUNING_CHECK), and dropped where it is not faster; and each network with what is left of its
choices is timed beside itself without them. Those of a network that is not faster as a whole, or
was not reached before --seconds are over, are dropped too. What is left goes to FOLDER.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.resnet50 import resnet50
from polydevice import Core
from polydevice.accuracy.calibration import random_samples
from polydevice.dtype import Array
from polydevice.network import Network
from polydevice_gpu.cl.discovery import discover
from polydevice_gpu.tuning.pretuned import ship
from polydevice_gpu.tuning.tuning_file import TuningFile

JOBS = ("resnet50:f16:1", "bert_base:f16:1", "resnet50:f16:8", "bert_base:f16:8", "resnet50:f32:1")
"""Network, precision and batch, the most wanted first."""

TURNS, IN_A_ROW = 40, 6
"""How often a network is timed with and without its choices; the first inference of a row is not
counted."""


def make(core: Core, folder: Path, job: str) -> tuple[Network, dict[str, Array]]:
    """Return the network of a job and inputs for it."""
    name, _, batch = job.split(":")
    path = folder / f"{job.replace(':', '-')}.onnx"
    if name == "resnet50":
        if not path.exists():
            resnet50(path, int(batch))
        network = core.read_network(path)
        return network, random_samples(network)[0]
    from benchmarks.transformers import NETWORKS, export  # needs PyTorch

    if not path.exists():
        export(name, int(batch), path)
    return core.read_network(path), NETWORKS[name].feed(int(batch))


def config(job: str, file: Path | None, mode: str = "") -> dict[str, str]:
    """Return the configuration of a job, with its tuning file or with no choices at all."""
    made = {"INFERENCE_PRECISION_HINT": job.split(":")[1], "TUNING_PRETUNED": "NO", "CACHE_DIR": ""}
    return {**made, "TUNING_MODE": mode, "TUNING_FILE": str(file)} if file else made


def tune(device: str, folder: Path, job: str, until: float) -> None:
    """Tune one network into its file, until a time of `time.time`."""
    with Core() as core:
        network, _ = make(core, folder, job)
        wanted = config(job, folder / f"{job.replace(':', '-')}.json", "TUNING_CREATE")
        wanted["TUNING_BUDGET_S"] = str(max(1, int(until - time.time())))
        core.load_network(network, device, wanted).close()


def measure(core: Core, device: str, folder: Path, job: str, file: Path) -> tuple[float, float]:
    """Return medians and tenth percentiles with the choices, as parts of those without."""
    network, feed = make(core, folder, job)
    ways = {
        "without": config(job, None),
        "with": config(job, file, "TUNING_USE_EXISTING"),
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    with contextlib.ExitStack() as loaded:
        requests = {}
        for way, settings in ways.items():
            executable = loaded.enter_context(core.load_network(network, device, settings))
            requests[way] = executable.create_infer_request()
        for turn in range(TURNS):
            for way in list(ways)[:: 1 if turn % 2 else -1]:
                for number in range(IN_A_ROW):
                    begin = time.perf_counter()
                    requests[way].infer(feed)
                    if number:
                        times[way].append(time.perf_counter() - begin)
    middle = {way: float(np.median(them)) * 1e3 for way, them in times.items()}
    low = {way: float(np.percentile(them, 10)) for way, them in times.items()}
    print(f"{job}: {middle['without']:.3f} ms without, {middle['with']:.3f} with", flush=True)
    return middle["with"] / middle["without"], low["with"] / low["without"]


def check(core: Core, device: str, folder: Path, job: str, file: Path) -> int:
    """Drop a network's choices that are not faster in turn; return how many are left."""
    network, _ = make(core, folder, job)
    core.load_network(network, device, config(job, file, "TUNING_CHECK")).close()
    return len(TuningFile.open(file, must_exist=True))


def main() -> int:
    """Tune, check, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tune", type=float, default=600)
    parser.add_argument("--seconds", type=float, default=1200, help="of all")
    parser.add_argument("-d", "--device", default="GPU")
    parser.add_argument("--jobs", nargs="+", default=JOBS)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        folder, job, until = options.one
        tune(options.device, Path(folder), job, float(until))
        return 0
    begin = time.time()
    ends = begin + options.seconds
    with tempfile.TemporaryDirectory() as made, Core() as core:
        folder, good = Path(made), []
        tune_all(options.device, folder, options.jobs, begin + options.tune)
        print(f"tuned in {time.time() - begin:.0f} s", flush=True)
        for job in options.jobs:
            file = folder / f"{job.replace(':', '-')}.json"
            if not file.exists() or time.time() > ends:
                print(f"{job}: {'the time is over' if file.exists() else 'nothing was tuned'}")
                continue
            found = len(TuningFile.open(file, must_exist=True))
            left = check(core, options.device, folder, job, file)
            print(f"{job}: {left} of {found} choices are faster in turn", flush=True)
            if left:
                ratios = measure(core, options.device, folder, job, file)
                ships = max(ratios) < 1
                good += [file] * ships
                said = f"{ratios[0]:.3f} by medians, {ratios[1]:.3f} by tenth percentiles"
                print(f"{job}: {said}: {'ships' if ships else 'dropped'}", flush=True)
        return write(core, options.device, good, folder / "all.json", options.folder)


def tune_all(device: str, folder: Path, jobs: list[str], until: float) -> None:
    """Tune networks side by side; who does not end in time is ended, and its file is kept."""
    logging.disable(logging.WARNING)
    with Core() as core:
        for job in jobs:
            make(core, folder, job)
    command = [sys.executable, "-W", "ignore", __file__, "-d", device, str(folder)]
    children = [
        subprocess.Popen(
            [*command, "--one", str(folder), job, str(until)], stderr=subprocess.DEVNULL
        )
        for job in jobs
    ]
    for child in children:
        try:
            child.wait(max(1, until + 8 - time.time()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def write(core: Core, device: str, good: list[Path], merged: Path, folder: Path) -> int:
    """Write the files to ship, and say what they hold; 1 where there is nothing."""
    if not good:
        print("VERDICT: nothing to ship")
        return 1
    core.merge_tuning(device, [str(file) for file in good], str(merged))
    folder.mkdir(parents=True, exist_ok=True)
    number = device.partition(".")[2] or "0"
    for path in ship(merged, discover().device(number).facts, folder):
        print(f"{path.name}: {len(TuningFile.open(path, must_exist=True))} choices")
    print(f"VERDICT: ship, {len(good)} networks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
