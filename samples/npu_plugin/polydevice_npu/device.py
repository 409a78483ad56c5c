"""The NPU sample device: runs networks of a few operations, here in NumPy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from polydevice.errors import InferenceError, UnsupportedNetworkError
from polydevice.executable_network import ExecutableNetwork
from polydevice.infer_request import InferRequest
from polydevice.network import Network
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.op import Op
from polydevice.ops.softmax import SoftMax
from polydevice.options import Flag, Options, option
from polydevice.plugin import Plugin, Version
from polydevice.profiling import LayerCount

Array = npt.NDArray[Any]


def _softmax(op: SoftMax, x: Array) -> Array:
    powers = np.exp(x - x.max(op.axis, keepdims=True))
    return np.asarray(powers / powers.sum(op.axis, keepdims=True))


OPERATIONS: dict[type[Op], Callable[..., Array]] = {
    Add: lambda _, a, b: a + b,
    Multiply: lambda _, a, b: a * b,
    Relu: lambda _, x: np.maximum(x, 0),
    SoftMax: _softmax,
}


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
        """Everything outside the table of operations, with the reason."""
        runs = (*OPERATIONS, Parameter, Constant, Result)
        nodes = [node for node in network.nodes() if not isinstance(node.op, runs)]
        return {node.name: f"the NPU has no operation {node.type}" for node in nodes}

    def load_network(self, network: Network, options: Options, device_id: str) -> ExecutableNetwork:
        """Compile; raises UnsupportedNetworkError, naming every node that cannot run."""
        if refused := self.unsupported_nodes(network, options):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
            raise UnsupportedNetworkError(f"{self.name} cannot run {network.name!r}: {reasons}")
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

    def _create_request(self) -> InferRequest:
        return NpuRequest(self)


class NpuRequest(InferRequest):
    """One inference at a time; the base class does states, waiting, callbacks and checks."""

    executable: NpuExecutable
    counts: list[LayerCount] | None = None

    def _run(self, stream: int) -> None:
        values = dict(self.executable.constants)
        for name, port in self.executable.input_ports:
            values[port] = self._blob(self._port(name)).array
        counts = []
        for index, node in enumerate(self.executable.steps):
            start = time.perf_counter()
            result = OPERATIONS[type(node.op)](node.op, *(values[port] for port in node.inputs))
            values[node.output] = result
            spent_us = (time.perf_counter() - start) * 1e6
            counts.append(
                LayerCount(node.name, "EXECUTED", node.type, "numpy", spent_us, spent_us, index)
            )
        for name, port in self.executable.output_ports:
            self._blob(self._port(name)).array[...] = values[port]
        self.counts = counts

    def _perf_counts(self) -> list[LayerCount]:
        if self.executable.get_config("PERF_COUNT") != "YES" or self.counts is None:
            raise InferenceError("no counters: load with PERF_COUNT=YES and infer first")
        return self.counts
