"""ExecutedGraph: what a device runs, as a network for inspection.

Every node has the notes that the Inference Engine's execution graphs have, as texts in `rt_info`
and, in files, as attributes of the layer. Constants are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from polydevice.dataclass import dataclass
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.io import Parameter, Result
from polydevice.ops.op import Op
from polydevice.tensor import TensorDesc

NOT_EXECUTED = "not_executed"
"""The time of what has not run, or of what takes no time of its own."""


@dataclass(frozen=True)
class ExecutedLayer(Op):
    """A node of an execution graph; its attributes are the notes.

    Inputs:  those of the node that are no constants
    Outputs: those of the node
    Source:  the Inference Engine's execution graphs
    """

    domain = "runtime"

    layer_type: str
    results: tuple[TensorDesc, ...]
    notes: tuple[tuple[str, str], ...]

    @property
    def type(self) -> str:  # type: ignore[override]
        """The layer's type."""
        return self.layer_type

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return what the device produces."""
        del inputs
        return list(self.results)

    def to_ir(self) -> dict[str, str]:
        """Return the notes."""
        return dict(self.notes)


@dataclass(frozen=True)
class Execution:
    """How a device runs a layer.

    Attributes:
        kernel: name of the kernel or primitive; "undef" for none.
        original: the model's layers that it computes, the one that names it first.
        layouts: of the outputs.
        precisions: of the outputs in memory, in the Inference Engine's names.
        time_us: on the device, in microseconds; None when it has not run.
        computes: type of the operation that runs, where it is not the layer's.
        further: notes of the device's own.
    """

    kernel: str = "undef"
    original: Sequence[str] = ()
    layouts: Sequence[str] = ()
    precisions: Sequence[str] = ()
    time_us: float | None = None
    computes: str = ""
    further: Mapping[str, str] | None = None

    def notes(self, layer_type: str, order: int) -> dict[str, str]:
        """Return the texts for a node of a type that is number `order` to be executed."""
        time = NOT_EXECUTED if self.time_us is None else str(round(self.time_us))
        return {
            "originalLayersNames": ",".join(self.original),
            "primitiveType": self.kernel,
            "outputPrecisions": ",".join(self.precisions),
            "execTimeMcs": time,
            "outputLayouts": ",".join(self.layouts),
            "execOrder": str(order),
            "layerType": self.computes or layer_type,
            "runtimePrecision": self.precisions[0] if self.precisions else "",
            **(self.further or {}),
        }


def original_layers(node: Node, known: Collection[str]) -> list[str]:
    """Return the model's layers that a node of an execution graph computes, each once.

    Args:
        node: of the graph; its note joins names by commas, which names may hold too.
        known: names of the model's layers; others are left out.
    """
    parts = str(node.rt_info.get("originalLayersNames", "")).split(",")
    longest = 1 + max((name.count(",") for name in known), default=0)
    names: dict[str, None] = {}
    start = 0
    while start < len(parts):
        for end in range(min(start + longest, len(parts)), start, -1):
            name = ",".join(parts[start:end])
            if name in known:
                names[name] = None
                start = end - 1
                break
        start += 1
    return list(names)


class ExecutedGraph:
    """Collects nodes in the order in which they run."""

    def __init__(self) -> None:
        """Start without nodes."""
        self._parameters: list[Node] = []
        self._results: list[Node] = []
        self._layers: list[Node] = []
        self._count = 0

    def _numbered(self, node: Node, layer_type: str, execution: Execution) -> Node:
        node.rt_info.update(execution.notes(layer_type, self._count))
        self._count += 1
        return node

    def input(self, name: str, desc: TensorDesc, execution: Execution) -> Port:
        """Add an input of the network."""
        op = Parameter(element_type=desc.element_type, shape=desc.shape)
        node = self._numbered(Node(name, op), "Parameter", execution)
        self._parameters.append(node)
        return node.output

    def layer(
        self,
        name: str,
        layer_type: str,
        inputs: Iterable[Port],
        outputs: Iterable[TensorDesc],
        execution: Execution,
    ) -> Sequence[Port]:
        """Add what computes a layer and return its outputs."""
        notes = execution.notes(layer_type, self._count)
        op = ExecutedLayer(layer_type, tuple(outputs), tuple(notes.items()))
        self._layers.append(self._numbered(Node(name, op, inputs), layer_type, execution))
        return self._layers[-1].outputs

    def output(self, name: str, port: Port) -> None:
        """Add an output of the network."""
        precision = port.element_type.precision
        execution = Execution(original=[name], precisions=[precision])
        node = Node(f"{name}_result", Result(output_name=name), [port])
        self._results.append(self._numbered(node, "Result", execution))

    def include(
        self, part: Network, prefix: str, sources: Mapping[str, Port], further: Mapping[str, str]
    ) -> dict[str, Port]:
        """Add the execution graph of a part of the network, numbered on.

        Args:
            part: made by an `ExecutedGraph`.
            prefix: put before the names of its nodes, so that they are unique.
            sources: what its inputs are here.
            further: notes for all of its nodes.

        Returns:
            Output of the part → its port here.
        """
        ports = {node.output: sources[node.name] for node in part.parameters}
        layers = [node for node in part.nodes() if isinstance(node.op, ExecutedLayer)]
        for node in sorted(layers, key=lambda layer: int(layer.rt_info["execOrder"])):
            notes = {**node.rt_info, "execOrder": str(self._count), **further}
            op = node.op.replace(notes=tuple(notes.items()))
            made = Node(prefix + node.name, op, [ports[p] for p in node.inputs], rt_info=notes)
            self._count += 1
            self._layers.append(made)
            ports.update(zip(node.outputs, made.outputs, strict=True))
        return {name: ports[port] for name, port in part.output_ports()}

    def network(self, name: str) -> Network:
        """Return the graph as a network."""
        read = {port for node in (*self._layers, *self._results) for port in node.inputs}
        last = [node for node in self._layers if read.isdisjoint(node.outputs)]
        return Network(name, self._parameters, self._results, last)


def as_dot(network: Network) -> str:
    """Return a network in Graphviz's language: a box for each layer, with its notes."""
    lines = ["digraph {", "    node [shape=box]"]
    numbers = {node: number for number, node in enumerate(network.nodes())}
    for node, number in numbers.items():
        notes = node.op.notes if isinstance(node.op, ExecutedLayer) else ()
        texts = [node.name, node.type, *(f"{key}: {value}" for key, value in notes)]
        label = "\\n".join(text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
        lines.append(f'    n{number} [label="{label}"]')
    for node, number in numbers.items():
        ways = [(numbers[port.node], port.desc) for port in node.inputs]
        lines += [f'    n{source} -> n{number} [label="{desc}"]' for source, desc in ways]
    return "\n".join([*lines, "}", ""])
