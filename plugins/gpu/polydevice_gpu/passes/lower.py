"""lower: the network of core operations becomes a GpuGraph with static shapes.

Pointwise operations become `Fused` nodes of one step; everything else stays the core operation it
is. What no kernel takes whole was decomposed before (`polydevice_gpu.rewrites`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.network.kept_layers import KeptLayers
from polydevice.node import Node, Port
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.quantize_linear import LinearQuantization
from polydevice_gpu.control_flow.nested import Nested
from polydevice_gpu.graph import Fate, GpuGraph, GpuNode, Value, constant_value
from polydevice_gpu.host_layers import lives_on_host, why_on_host
from polydevice_gpu.kernels.pointwise import expression
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import FLOATS, storage_type, stored_as
from polydevice_gpu.ops import Fused, single

SMALL = 1 << 14
"""Most elements of constants that keep their own type where only pointwise operations read them:
scales, shifts, slopes and limits of quantisation, whose rounding would be in every result."""


@dataclass
class _Lowering:
    """A graph in the making.

    Attributes:
        graph: what is built.
        target: the device.
        floats: the type in which f16 and f32 values are stored; None for each its own.
        kept: layers whose results and constants are stored as f32 whatever `floats` says.
    """

    graph: GpuGraph
    target: Target
    floats: ElementType | None
    kept: KeptLayers

    def holds(self, *values: Value) -> bool:
        """Whether kernels can hold all of these values (float8 and strings they cannot)."""
        return all(storage_type(v.element_type, fp64=self.target.fp64) is not None for v in values)

    def stored(
        self, element_type: ElementType, *, own: bool = False, kept: bool = False
    ) -> ElementType:
        """Return the type in which a value is stored; `own` for one that the hint leaves alone."""
        floats = ElementType.f32 if kept else None if own else self.floats
        return stored_as(element_type, fp64=self.target.fp64, floats=floats)

    def value(self, port: Port, *, own: bool = False, kept: bool = False) -> Value:
        """Make the value of a port; what device memory cannot hold lives on the host."""
        kind = port.element_type
        if lives_on_host(port.desc):
            value = Value(port.name, kind, ())
            value.on_host, value.kind = True, port.desc.kind
            value.partial = port.desc.shape
            return value
        assert port.shape is not None
        stored = self.stored(kind, own=own, kept=kept)
        return Value(port.name, kind, port.shape.static, storage=stored)

    def constant(self, node: Node, *, own: bool, kept: bool) -> Value:
        """Make the value of a Constant node."""
        assert isinstance(node.op, Constant)
        value = constant_value(node.name, node.op.value, node.op.element_type)
        value.storage = self.stored(value.element_type, own=own, kept=kept)
        return value

    def add(self, node: Node, inputs: Sequence[Value], nested: Nested | None) -> list[Value]:
        """Add a node: its bodies run on the device, or all of it on the host, or by a kernel."""
        kept = self.kept.has(node.layers)
        outputs = [self.value(port, kept=kept) for port in node.outputs]
        op = node.op
        opaque = nested is not None or bool(why_on_host(node))
        pointwise_ = not opaque and expression.find(type(op)) is not None
        if pointwise_ and self.holds(*inputs, *outputs):
            kinds = [self.stored(value.element_type, kept=kept) for value in inputs]
            op = Fused(single(op, kinds, outputs[0].storage))
        made = GpuNode(node.name, op, inputs, outputs, node.layers)
        if opaque:
            made.on_host, made.nested = nested is None, nested
        else:
            made.result_type = outputs[0].storage if outputs else ElementType.f32
        self.graph.nodes.append(made)
        return outputs


def lower(
    network: Network,
    target: Target,
    *,
    floats: ElementType | None = None,
    kept: KeptLayers | None = None,
    nested: Mapping[Node, Nested] | None = None,
    layers: Mapping[str, str] | None = None,
    parts: Mapping[str, tuple[str, ...]] | None = None,
) -> GpuGraph:
    """Return the graph of a network whose shapes are static and whose constants are folded.

    Args:
        network: the network.
        target: the device. Where it has no double precision, f64 is stored as f32.
        floats: the type in which f16 and f32 are stored between layers; None for each its own.
            What enters and leaves the network keeps its type: the first and last kernels convert.
        kept: layers whose results and constants are stored as f32 all the same.
        nested: the loops and Ifs whose bodies the device runs.
        layers: layer of the model → type of its operation; those of the network if left out.
        parts: what was put in for other layers → these; those of the network if left out.
    """
    lowering = _Lowering(GpuGraph(network.name), target, floats, kept or KeptLayers())
    graph = lowering.graph
    graph.types = dict(layers_of(network) if layers is None else layers)
    values: dict[Port, Value] = {}
    exact = _parameters(network)
    wide = _read_by(network, lowering.kept)
    for node in network.nodes():
        if isinstance(node.op, Result):
            continue
        if isinstance(node.op, Parameter):
            values[node.output] = graph.inputs[node.name] = lowering.value(node.output, own=True)
        elif isinstance(node.op, Constant):
            value = lowering.constant(node, own=node in exact, kept=node in wide)
            values[node.output] = value
        else:
            inputs = [values[port] for port in node.inputs]
            outputs = lowering.add(node, inputs, nested.get(node) if nested else None)
            values.update(zip(node.outputs, outputs, strict=True))
    _note_idle(graph, parts_of(network) if parts is None else parts)
    for name, port in network.output_ports():
        value = values[port]
        graph.outputs[name] = value
        value.is_output = True
        if value.constant is not None and lives_on_host(port.desc):
            value.on_host = True  # nothing makes it, and no kernel could copy it
        if value.element_type in FLOATS and value.producer is not None:
            value.storage = value.element_type
    return graph


def layers_of(network: Network) -> dict[str, str]:
    """Return name → type of what a network computes with: all but its results."""
    return {n.name: n.op.type for n in network.nodes() if not isinstance(n.op, Result)}


def parts_of(network: Network) -> dict[str, tuple[str, ...]]:
    """Return name → layers for what was put in for others, such as what hides padding from them."""
    return {node.name: node.origins for node in network.nodes() if node.origins}


def _note_idle(graph: GpuGraph, parts: Mapping[str, tuple[str, ...]]) -> None:
    """Note the layers of which nothing is left, or nothing that is told with their own names."""
    done = {origin for node in graph.nodes for origin in node.origins}
    for name, kind in graph.types.items():
        if kind not in ("Const", "Parameter") and name not in done:
            others = [other for other in parts.get(name, ()) if other in done]
            why = f"part of what {' and '.join(others)} runs" if others else "it does nothing here"
            graph.fates[name] = Fate("OPTIMIZED_OUT", "", why)


def _parameters(network: Network) -> set[Node]:
    """Return the small constants that only pointwise operations and quantisation read."""
    found: set[Node] = set()
    others: set[Node] = set()
    for node in network.nodes():
        exact = expression.find(type(node.op)) is not None or isinstance(
            node.op, LinearQuantization
        )
        for port in node.inputs:
            if isinstance(port.node.op, Constant):
                small = port.node.op.value.size <= SMALL
                (found if exact and small else others).add(port.node)
    return found - others


def _read_by(network: Network, kept: KeptLayers) -> set[Node]:
    """Return the constants that layers read which are kept in f32."""
    readers = [node for node in network.nodes() if kept.has(node.layers)] if kept else []
    return {port.node for node in readers for port in node.inputs if port.node.constant is not None}
