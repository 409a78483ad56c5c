"""A device for testing the core alone: every output is its first input plus the request's bias."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import numpy as np

from polydevice.executable_network import ExecutableNetwork
from polydevice.hookspecs import hookimpl
from polydevice.network import Network
from polydevice.options import Flag, Options, option
from polydevice.plugin import Plugin, Services, Version
from polydevice.runtime.runner import Runner


class EchoOptions(Options):
    streams: int = option("ECHO_STREAMS", 1, ge=1, le=8, help="Threads.")
    delay_ms: int = option("ECHO_DELAY", 0, ge=0, help="Time of one inference.")
    loud: Flag = option("ECHO_LOUD", False, help="A flag.", aliases=("ECHO_NOISY",))
    device: str = option("DEVICE_ID", "", help="Device.")
    ids: str = option("ECHO_IDS", "0", help="Ids of the devices, joined by commas.")


class EchoRunner(Runner):
    def run(self, stream: int) -> None:
        network = self.executable
        assert isinstance(network, EchoNetwork)
        network.streams_seen.add((stream, threading.current_thread().name))
        if network.gate is not None:
            network.gate.wait()
        time.sleep(network.options.delay_ms / 1e3 + next(network.delays))
        for name in network.inputs:
            self.blob(name)
        source = self.array(next(iter(network.inputs)))
        if np.isnan(source).any():
            raise RuntimeError("the device caught fire")
        for name in network.output_keys:
            port = network.ports[name]
            blob = self.blobs.get(name)
            if blob is None or blob.shape != source.shape:
                self.give(name, np.empty(source.shape, port.dtype))
            np.add(source, 1, out=self.blobs[name].array, casting="unsafe")


class EchoNetwork(ExecutableNetwork):
    survives_fork = True

    def __init__(self, network: Network, options: EchoOptions, device: str) -> None:
        super().__init__(network, device, options, streams=options.streams)
        self.options: EchoOptions = options
        self.streams_seen: set[tuple[int, str]] = set()
        self.gate: threading.Event | None = None
        self.closed = False
        self.delays = itertools.repeat(0.0)  # s, of the next inferences

    def create_runner(self) -> Runner:
        return EchoRunner(self)

    def release(self) -> None:
        self.closed = True


class EchoPlugin(Plugin):
    option_type = EchoOptions
    closed = False

    @property
    def version(self) -> Version:
        return Version("echo", 1, 2, "build")

    def device_ids(self, options: Options) -> list[str]:
        assert isinstance(options, EchoOptions)
        return [i for i in options.ids.split(",") if i]

    def unsupported_nodes(self, network: Network, options: Options) -> dict[str, str]:
        return {n.name: "it is a SoftMax" for n in network.nodes() if n.type == "SoftMax"}

    def load_network(
        self, network: Network, options: Options, device_id: str, context: Any = None
    ) -> EchoNetwork:
        assert isinstance(options, EchoOptions)
        return EchoNetwork(network, options, f"{self.name}.{device_id or '0'}")

    def metrics(self, options: Options, device_id: str) -> dict[str, Any]:
        return {"FULL_DEVICE_NAME": lambda: f"Echo {device_id or '0'}"}

    def close(self) -> None:
        self.closed = True


def make(name: str, services: Services) -> EchoPlugin:
    return EchoPlugin(name, services)


heard: list[str] = []


@hookimpl
def register_devices(register: Any) -> None:
    register("ECHO", make)


@hookimpl
def will_load_network() -> None:
    heard.append("a network")
