"""What MULTI's threads cost where devices are called often: two devices that only sleep, here.

    python benchmarks/calls.py                       # four calls of 390 µs in all
    python benchmarks/calls.py --calls 330 60        # the same in two
    python benchmarks/calls.py --overlaps            # the last one without the device's lock

An inference is a number of calls that give Python's lock away, as those of a GPU's driver do, so
that the ratio of two devices to one tells what threads wait for the lock and for each other. On a
busy machine give it real-time priority (``chrt -f 10``).
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from polydevice import Core, opset
from polydevice.hookspecs import hookimpl
from polydevice.network import Network
from polydevice.options import Options
from polydevice_cpu.executable import CpuExecutableNetwork
from polydevice_cpu.options import CpuOptions
from polydevice_cpu.plugin import CpuPlugin
from polydevice_cpu.runner import CpuRunner

NAMES = ("ONE", "OTHER")
TIMER_SLACK = 29  # PR_SET_TIMERSLACK: sleeps end when they should, not 50 µs later
_C = ctypes.CDLL(None)
_locks = {name: threading.Lock() for name in NAMES}
_calls: list[int] = []
_overlaps = False


class SleepingRunner(CpuRunner):
    """Sleeps in calls of the C library, one inference of a device at a time."""

    def run(self, stream: int) -> None:
        """Call as often as was asked for, then compute next to nothing."""
        *enqueue, wait = _calls
        with _locks[self.executable.device]:
            for each in enqueue:
                _C.usleep(each)
            if not _overlaps:
                _C.usleep(wait)
        if _overlaps:
            _C.usleep(wait)
        super().run(stream)


class SleepingExecutable(CpuExecutableNetwork):
    """A network whose inferences sleep."""

    def create_runner(self) -> CpuRunner:
        """Make what runs one request."""
        return SleepingRunner(self)


class SleepingPlugin(CpuPlugin):
    """The CPU under another name, which sleeps."""

    def load_network(
        self, network: Network, options: Options, device_id: str, context: Any = None
    ) -> CpuExecutableNetwork:
        """Load a network."""
        assert isinstance(options, CpuOptions)
        made = SleepingExecutable(network, options, None)
        made.device = self.name
        return made


@hookimpl
def register_devices(register: Any) -> None:
    """Register both."""
    for name in NAMES:
        register(name, SleepingPlugin)


def measure(core: Core, network: Network, device: str, requests: int) -> tuple[float, float]:
    """Return inferences a second, and µs of processor time for one: the middle of three rounds."""
    found = []
    with core.load_network(network, device) as executable:
        queue = executable.infer_queue(requests)
        for request in queue:
            request.infer(np.ones(8, "f4"))
        for number in (300, 2000, 2000, 2000):
            start, cost = time.perf_counter(), time.process_time()
            for _ in range(number):
                queue.start_async()
            queue.wait_all()
            cost = (time.process_time() - cost) / number * 1e6
            found.append((number / (time.perf_counter() - start), cost))
    return sorted(found[1:])[1]


def main() -> int:
    """Measure and print."""
    global _calls, _overlaps
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, nargs="+", default=[65, 230, 35, 60], help="µs each")
    parser.add_argument("--overlaps", action="store_true", help="wait without the device's lock")
    options = parser.parse_args()
    _calls, _overlaps = options.calls, options.overlaps
    _C.prctl(TIMER_SLACK, 1, 0, 0, 0)
    x = opset.parameter([8], name="x")
    network = opset.network("nothing", {"y": opset.relu(x)})
    with Core() as core:
        for name in NAMES:
            core.register_plugin(__name__, name)
        one, cost = measure(core, network, "ONE", 2)
        print(
            f"one device                 2 requests {one:>8.0f} /s            {cost:>5.0f} µs CPU"
        )
        for slots, requests in ((2, 4), (2, 6), (2, 8), (1, 4)):
            rate, cost = measure(core, network, f"MULTI:ONE({slots}),OTHER({slots})", requests)
            print(
                f"MULTI, {slots} at a time on each {requests:>2} requests {rate:>8.0f} /s "
                f"{rate / one:>5.2f} times {cost:>5.0f} µs CPU"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
