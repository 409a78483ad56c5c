"""FAKE: a device that accepts every network and computes nothing; all outputs are zero.

For tests of what surrounds a device::

    core.register_plugin("polydevice.testing.fake_device", "FAKE")

It runs for as long as ``FAKE_MILLISECONDS`` says and fails when ``FAKE_FAILURE`` says so, which
makes slow and failing inferences testable without either.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.errors import DeviceLostError, InferenceError
from polydevice.executable_network import ExecutableNetwork
from polydevice.hookspecs import hookimpl
from polydevice.network import Network
from polydevice.options import Flag, Options, option
from polydevice.plugin import Plugin, Services, Version
from polydevice.profiling import LayerCount
from polydevice.remote import RemoteContext
from polydevice.runtime.runner import Runner

polydevice_api = 2


@hookimpl
def register_devices(register: Callable[[str, Callable[[str, Services], Plugin]], None]) -> None:
    """Register FAKE."""
    register("FAKE", FakePlugin)


class FakeOptions(Options):
    """Configuration keys of FAKE."""

    milliseconds: int = option("FAKE_MILLISECONDS", 0, ge=0, help="How long one inference takes.")
    failure: Flag = option("FAKE_FAILURE", default=False, help="Fail every inference.")
    streams: int = option("FAKE_STREAMS", 1, ge=1, help="How many inferences run at a time.")
    perf_count: Flag = option("PERF_COUNT", default=False, help="Collect times per layer.")


class FakePlugin(Plugin):
    """One device that accepts everything."""

    option_type: ClassVar[type[Options]] = FakeOptions

    @property
    def version(self) -> Version:
        """Description and version."""
        return Version("a device that computes nothing", 1, 0, "0")

    def device_ids(self, options: Options) -> list[str]:
        """Return the one id."""
        return ["0"]

    def metrics(self, options: Options, device_id: str) -> dict[str, Any]:
        """Return the device's name."""
        return {"FULL_DEVICE_NAME": "Fake device"}

    def unsupported_nodes(self, network: Network, options: Options) -> dict[str, str]:
        """Refuse nothing."""
        return {}

    def load_network(
        self,
        network: Network,
        options: Options,
        device_id: str,
        context: RemoteContext | None = None,
    ) -> ExecutableNetwork:
        """Load any network."""
        return FakeExecutable(network, self.name, options)


class FakeExecutable(ExecutableNetwork):
    """A network of which only inputs and outputs matter."""

    survives_fork = True

    def __init__(self, network: Network, device: str, options: Options) -> None:
        """Nothing is compiled."""
        super().__init__(network, device, options, streams=getattr(options, "streams", 1))

    def create_runner(self) -> Runner:
        """Make what does as if it computed."""
        return FakeRunner(self)


class FakeRunner(Runner):
    """Waits, fails or zeroes the outputs."""

    def run(self, stream: int) -> None:
        """Zero the outputs, after the time that the configuration says."""
        options = self.executable.options
        end = time.perf_counter() + getattr(options, "milliseconds", 0) / 1e3
        while (left := end - time.perf_counter()) > 0:
            current_bounds().check()
            time.sleep(min(left, 0.01))
        if getattr(options, "failure", False):
            raise DeviceLostError("FAKE_FAILURE=YES: every inference fails")
        for port in self.executable.outputs.values():
            if port.sizes is None:
                # Sizes unknown: as small as the shape allows.
                sizes = tuple(d if isinstance(d, int) else d.min for d in port.shape or ())
                self.give(port.key, np.zeros(sizes, port.dtype))
            else:
                self.array(port.key)[...] = 0

    def counts(self) -> list[LayerCount]:
        """Return rows without times."""
        if not getattr(self.executable.options, "perf_count", False):
            raise InferenceError("no counters: load the network with PERF_COUNT=YES")
        return [
            LayerCount(name, "EXECUTED", kind, "fake", 0.0, 0.0, index)
            for index, (name, kind) in enumerate(self.executable.layers.items())
        ]
