"""What following costs: one model with a trace, with figures, and without, in turn.

    python benchmarks/following.py [DEVICE] [MODEL]

Every variant is a network of its own, so that nothing has to be switched between the blocks. The
network that nobody follows is there twice: how far these two differ is what the figures are worth.
On CPU the clock is the thread's processor time, with one thread, which other programs disturb less.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.interleave import interleave
from polydevice import Core, Follower, Trace, __version__
from polydevice.benchmark.inputs import make_inputs

MODEL = ROOT / "samples/models/efficientnet_lite0/efficientnet_lite0.xml"


def main(device: str = "CPU", model: str = str(MODEL)) -> None:
    """Print the medians, and what each is of the network that nobody follows."""
    followers: dict[str, Follower | None] = {"alone": None, "again alone": None}
    followers |= {"follower": Follower(), "trace": Trace()}
    with Core() as core:
        network = core.read_network(model)
        network.batch_size = 1
        runs = {}
        for name, follower in followers.items():
            config = {"CPU_THREADS_NUM": "1"} if device == "CPU" else {}
            loaded = core.load_network(network, device, config)
            if follower is not None:
                loaded.follow(follower)
            request = loaded.create_infer_request()
            request.infer(make_inputs(loaded.inputs, [], 0, 1)[0])
            runs[name] = request.infer
        clock = time.thread_time if device == "CPU" else time.perf_counter
        found = interleave(runs, rounds=31, clock=clock)
    print(f"polydevice {__version__}, {Path(model).name} on {device}, ms")
    for name, value in found.items():
        print(f"{name:<12}{value:10.3f}{value / found['alone']:10.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
