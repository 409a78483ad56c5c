"""The CPU under other names, with the troubles that devices have: slow, failing, slow to load."""

from __future__ import annotations

import threading
import time
from typing import Any

from polydevice.errors import DeviceLostError, KernelBuildError
from polydevice.hookspecs import hookimpl
from polydevice.network import Network
from polydevice.options import Options
from polydevice.plugin import unsupported
from polydevice_cpu.executable import CpuExecutableNetwork
from polydevice_cpu.options import CpuOptions
from polydevice_cpu.plugin import CpuPlugin
from polydevice_cpu.runner import CpuRunner


class Trouble:
    """What one device does; a test sets it before or while it runs."""

    def __init__(self) -> None:
        self.seconds = 0.0  # of an inference, on top
        self.beside = 0.0  # longer for each other that runs
        self.optimal = 0  # requests at a time, where the device is to say how many
        self.running = 0
        self.lives = -1  # inferences that end well before all fail; -1 for any number
        self.hangs: threading.Event | None = None  # instead of failing: until this is set
        self.error: type[Exception] = DeviceLostError
        self.gate: threading.Event | None = None  # loading waits for it
        self.refuses = False
        self.crash: BaseException | None = None  # of the plugin, while it loads
        self.memory: int | None = None  # bytes, where the device is to say how much it has
        self.loads = 0
        self.closed = 0
        self.calls = 0
        self.runs: list[int] = []  # threads of those that ended well
        self.lock = threading.Lock()

    def live(self) -> None:
        with self.lock:
            self.calls += 1
            if self.lives != 0:
                self.lives -= self.lives > 0
                self.runs.append(threading.get_ident())
                return
        if self.hangs is None:
            raise self.error("the device fell off the bus")
        self.hangs.wait(60)


TROUBLES: dict[str, Trouble] = {}


class ShakyRunner(CpuRunner):
    def run(self, stream: int) -> None:
        trouble = TROUBLES[self.executable.device]
        with trouble.lock:
            others, trouble.running = trouble.running, trouble.running + 1
        time.sleep(trouble.seconds + trouble.beside * others)
        with trouble.lock:
            trouble.running -= 1
        trouble.live()
        super().run(stream)


class ShakyExecutable(CpuExecutableNetwork):
    def create_runner(self) -> CpuRunner:
        return ShakyRunner(self)

    def metrics(self) -> dict[str, Any]:
        optimal = TROUBLES[self.device].optimal
        more = {"OPTIMAL_NUMBER_OF_INFER_REQUESTS": optimal} if optimal else {}
        return {**super().metrics(), **more}

    def release(self) -> None:
        TROUBLES[self.device].closed += 1
        super().release()


class ShakyPlugin(CpuPlugin):
    def load_network(
        self, network: Network, options: Options, device_id: str, context: Any = None
    ) -> CpuExecutableNetwork:
        trouble = TROUBLES[self.name]
        if trouble.gate is not None:
            trouble.gate.wait(60)
        trouble.loads += 1
        if trouble.crash is not None:
            raise trouble.crash
        if trouble.refuses:
            raise KernelBuildError(f"{self.name} cannot compile it")
        if refused := self.unsupported_nodes(network, options):
            raise unsupported(network, self.name, refused)
        assert isinstance(options, CpuOptions)
        made = ShakyExecutable(network, options, None)
        made.device = self.name
        return made

    def metrics(self, options: Options, device_id: str) -> dict[str, Any]:
        found = {**super().metrics(options, device_id), "DEVICE_TYPE": "discrete"}
        memory = TROUBLES[self.name].memory if self.name in TROUBLES else None
        return found if memory is None else {**found, "GPU_DEVICE_TOTAL_MEM_SIZE": memory}


@hookimpl
def register_devices(register: Any) -> None:
    for name in ("SHAKY", "SHAKY2"):
        register(name, ShakyPlugin)
