"""The NPU sample device: runs networks of a few operations, here in NumPy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.executable_network import ExecutableNetwork
from polydevice.network import Network
from polydevice.ops.activation import HSwish, Relu
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.op import Op
from polydevice.ops.softmax import SoftMax
from polydevice.options import Flag, Options, option
from polydevice.plugin import Plugin, Version, unsupported
from polydevice.profiling import LayerCount
from polydevice.remote import RemoteContext
from polydevice.rewrites import Wishes, always, rewrite, rules
from polydevice.runtime.runner import Runner


def _softmax(op: SoftMax, x: Array) -> Array:
    powers = np.exp(x - x.max(op.axis, keepdims=True))
    return np.asarray(powers / powers.sum(op.axis, keepdims=True))


OPERATIONS: dict[type[Op], Callable[..., Array]] = {
    Add: lambda _, a, b: a + b,
    Multiply: lambda _, a, b: a * b,
    Relu: lambda _, x: np.maximum(x, 0),
    HSwish: lambda _, x: x * np.clip(x + 3, 0, 6) / 6,
    SoftMax: _softmax,
}

WISHES = Wishes(
    decompose={op: always for op in rules() if op not in OPERATIONS},
    recognise={HSwish: always},
)
"""What is made of simpler operations may be made of ours: a batch normalisation is. And steps that
we lack may be one operation that we have: Add, Clamp, Multiply and Divide are an HSwish."""


class NpuOptions(Options):
    """The device's configuration; one field per key."""

    perf_count: Flag = option("PERF_COUNT", default=False, help="Measure the time of each layer.")


class NpuPlugin(Plugin):
    """The device family; a real one would ask its driver in `device_ids`."""

    option_type: ClassVar[type[Options]] = NpuOptions

    @property
    def version(self) -> Version:
        """Description and version of this plugin."""
        return Version("NPU sample", 0, 1, "0")

    def device_ids(self, options: Options) -> list[str]:
        """One device, always there."""
        return ["0"]

    def metrics(self, options: Options, device_id: str) -> dict[str, Any]:
        """What `Core.get_metric` answers besides the metrics that every device has."""
        return {"FULL_DEVICE_NAME": "Sample NPU", "OPTIMIZATION_CAPABILITIES": ["FP32"]}

    def unsupported_nodes(self, network: Network, options: Options) -> dict[str, str]:
        """Layers of which something is outside the table of operations, with the reason."""
        network = network.clone()
        rewrite(network, WISHES, self.services.evaluate)
        runs = (*OPERATIONS, Parameter, Constant, Result)
        nodes = [node for node in network.nodes() if not isinstance(node.op, runs)]
        return {name: f"the NPU has no {node.type}" for node in nodes for name in node.layers}

    def load_network(
        self,
        network: Network,
        options: Options,
        device_id: str,
        context: RemoteContext | None = None,
    ) -> ExecutableNetwork:
        """Compile; raises UnsupportedNetworkError, naming every node that cannot run."""
        if refused := self.unsupported_nodes(network, options):
            raise unsupported(network, self.name, refused)
        rewrite(network, WISHES, self.services.evaluate)
        return NpuExecutable(network, self.name, options)


class NpuExecutable(ExecutableNetwork):
    """A loaded network: its nodes in the order in which they run."""

    def __init__(self, network: Network, device: str, options: Options) -> None:
        """Fix the order; a real device would compile here."""
        super().__init__(network, device, options)
        self.steps = [node for node in network.nodes() if type(node.op) in OPERATIONS]
        self.constants = {
            node.output: node.op.value for node in network if isinstance(node.op, Constant)
        }
        self.input_ports = network.input_ports()
        self.output_ports = network.output_ports()

    def create_runner(self) -> Runner:
        """Make what computes for one request."""
        return NpuRunner(self)


class NpuRunner(Runner):
    """Computes one inference at a time; the request does states, waiting, callbacks and checks."""

    executable: NpuExecutable
    layers: list[LayerCount] | None = None

    def run(self, stream: int) -> None:
        """Compute the steps in order; a real device would start what it compiled."""
        values = dict(self.executable.constants)
        for name, port in self.executable.input_ports:
            values[port] = self.array(name)
        self.layers = layers = list[LayerCount]()
        for index, node in enumerate(self.executable.steps):
            start = time.perf_counter()
            inputs = (values[port] for port in node.inputs)
            values[node.output] = OPERATIONS[type(node.op)](node.op, *inputs)
            us = (time.perf_counter() - start) * 1e6
            layers.append(LayerCount(node.name, "EXECUTED", node.type, "numpy", us, us, index))
        for name, port in self.executable.output_ports:
            self.array(name)[...] = values[port]

    def counts(self) -> list[LayerCount]:
        """Return the times of the last inference's layers."""
        if self.executable.get_config("PERF_COUNT") != "YES" or self.layers is None:
            raise InferenceError("no counters: load with PERF_COUNT=YES and infer first")
        return self.layers
