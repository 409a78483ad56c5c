"""Runs on the host what `polydevice_gpu.host_layers` leaves there.

Neighbouring host layers become one network, which the CPU device computes between two stretches of
launches; or this one where only their sizes were not known (`polydevice_gpu.compiler.late_parts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from weakref import WeakValueDictionary

from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.errors import UnsupportedNetworkError
from polydevice.executable_network import ExecutableNetwork
from polydevice.infer_request import InferRequest
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.runtime.layer_times import LayerTime
from polydevice.shape import Dim, Shape
from polydevice.symbolic_size import is_formula, is_symbolic
from polydevice_gpu.graph import GpuNode, Value


@dataclass(frozen=True)
class HostGroup:
    """Neighbouring host layers as one network.

    Attributes:
        nodes: the layers.
        inputs: values from outside, in the order of the network's parameters; constants that are
            computed from symbolic sizes are among them.
        outputs: values that others read, in the order of the network's results.
        network: what the CPU device computes.
    """

    nodes: list[GpuNode]
    inputs: list[Value]
    outputs: list[Value]
    network: Network


def known_shape(value: Value) -> Shape | None:
    """Return what is known of the shape of a group's input; symbolic sizes are left open.

    So are limits of sizes that come late, which may be symbolic, too.
    """
    shape = value.partial if value.on_host else value.shape
    if shape is None:
        return None
    return Shape([Dim() if is_symbolic(n) or not isinstance(n, int) else n for n in shape])


def group(
    nodes: Sequence[GpuNode],
    read: Iterable[Value],
    shape_of: Callable[[Value], Shape | None] = known_shape,
) -> HostGroup:
    """Build the network of neighbouring host nodes.

    Args:
        nodes: in execution order.
        read: values that something outside of the group reads.
        shape_of: says what the network is to know of the shape of an input.
    """
    ports: dict[Value, Port] = {}
    inputs: list[Value] = []
    parameters: list[Node] = []
    for node in nodes:
        for value in node.inputs:
            if value in ports:
                continue
            name = f"in{len(ports)}"
            if value.constant is not None and not is_formula(value.constant):
                made = Node(name, Constant(value.constant, value.element_type))
            else:
                op = Parameter(value.element_type, shape_of(value), value.kind)
                made = Node(name, op)
                inputs.append(value)
                parameters.append(made)
            ports[value] = made.output
        made = Node(node.name, node.op, [ports[value] for value in node.inputs])
        ports.update(zip(node.outputs, made.outputs, strict=True))
    wanted = set(read)
    outputs = [value for node in nodes for value in node.outputs if value in wanted]
    results = [
        Node(f"out{index}", Result(output_name=f"out{index}"), [ports[value]])
        for index, value in enumerate(outputs)
    ]
    name = ", ".join(node.name for node in nodes)
    return HostGroup(list(nodes), inputs, outputs, Network(f"host: {name}", parameters, results))


Spare = Callable[[], ExecutableNetwork]
"""Loads a group where it runs whatever its sizes turn out to be."""


Requests = WeakValueDictionary[ExecutableNetwork, InferRequest]
"""Of groups: plans for several shapes, of one request, have the same one while any of them lives.

A new shape then finds what does not depend on it, as bodies of loops: 0.7 ms of 4.2 (PoCL).
"""


class HostRun:
    """A group on another device, or on this one."""

    def __init__(
        self,
        group_: HostGroup,
        executable: ExecutableNetwork,
        spare: Spare | None = None,
        requests: Requests | None = None,
    ) -> None:
        """Take a request: one of these if it is there, or a new one.

        Args:
            group_: what to compute.
            executable: its network.
            spare: loads it anew.
            requests: what plans for other shapes use, which never run at the same time.
        """
        self.group = group_
        self._spare = spare
        self._requests = Requests() if requests is None else requests
        self._use(executable)

    def _use(self, executable: ExecutableNetwork) -> None:
        request = self._requests.get(executable)
        if request is None:
            request = self._requests[executable] = executable.create_infer_request()
            request.runner.is_part = True
        self._request = request

    def times(self) -> dict[GpuNode, LayerTime]:
        """Return how long each layer took in the last run; needs PERF_COUNT on the CPU device.

        What that device fused takes no time of its own.
        """
        rows = self._request.get_perf_counts()
        found: dict[GpuNode, LayerTime] = {}
        for node in self.group.nodes:
            row = rows.get(node.name, {"real_time": 0, "cpu_time": 0})
            found[node] = LayerTime(row["real_time"], row["cpu_time"])
        return found

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Compute the group's outputs from its inputs."""
        names = [node.name for node in self.group.network.parameters]
        inputs = dict(zip(names, arrays, strict=True))
        try:
            results = self._request.infer(inputs)
        except UnsupportedNetworkError:
            if self._spare is None:
                raise
            spare, self._spare = self._spare, None
            self._use(spare())
            results = self._request.infer(inputs)
        return [results[f"out{index}"] for index in range(len(self.group.outputs))]
