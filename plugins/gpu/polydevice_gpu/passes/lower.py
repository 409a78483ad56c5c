"""lower: the network of core operations becomes a GpuGraph with static shapes.

Pointwise operations become `Fused` nodes of one step, their broadcasting made NumPy's; what can be
said with simpler operations is (see `decompose`); everything else stays the core operation it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.op import Op
from polydevice.ops.quantize_linear import LinearQuantization
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice_gpu.control_flow.nested import Nested
from polydevice_gpu.graph import Fate, GpuGraph, GpuNode, Value, constant_value
from polydevice_gpu.kernels.pointwise import pointwise
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import storage_type
from polydevice_gpu.ops import Fused, single
from polydevice_gpu.passes.decompose import find_decomposition
from polydevice_gpu.runtime.host import lives_on_host, why_on_host

FLOATS = (ElementType.f16, ElementType.f32)
"""Types that may be stored as one another."""

SMALL = 1 << 14
"""Most elements of constants that keep their own type where only pointwise operations read them:
scales, shifts, slopes and limits of quantisation, whose rounding would be in every result."""


@dataclass
class Builder:
    """Adds nodes to a graph while one layer of the model is lowered.

    Attributes:
        graph: what is built.
        target: the device.
        floats: the type in which f16 and f32 values are stored; None for each its own.
        layer: the layer being lowered.
    """

    graph: GpuGraph
    target: Target
    floats: ElementType | None
    layer: Node
    count: int = 0
    made: list[GpuNode] = field(default_factory=list)

    def storage(self, element_type: ElementType) -> ElementType:
        """Return the type a value is stored in; types kernels cannot hold keep their own."""
        stored = storage_type(element_type, fp64=self.target.fp64) or element_type
        return self.floats if self.floats is not None and stored in FLOATS else stored

    def holds(self, *values: Value) -> bool:
        """Whether kernels can hold all of these values (float8 and strings they cannot)."""
        return all(storage_type(v.element_type, fp64=self.target.fp64) is not None for v in values)

    def value(self, name: str, desc: TensorDesc) -> Value:
        """Make a value for a descriptor; what device memory cannot hold lives on the host."""
        kind = desc.element_type
        if lives_on_host(desc):
            value = Value(name, kind, ())
            value.on_host, value.kind = True, desc.kind
            return value
        assert desc.shape is not None
        return Value(name, kind, desc.shape.static, storage=self.storage(kind))

    def opaque(self, inputs: Sequence[Value], nested: Nested | None) -> list[Value]:
        """Add the layer as it is: its bodies run on the device, or all of it on the host."""
        layer = self.layer
        outputs = [self.value(port.name, port.desc) for port in layer.outputs]
        node = GpuNode(layer.name, layer.op, inputs, outputs, [layer.name])
        node.on_host, node.nested = nested is None, nested
        self.made.append(node)
        self.graph.nodes.append(node)
        return outputs

    def constant(self, array: Any, element_type: ElementType | None = None) -> Value:
        """Make a constant."""
        self.count += 1
        value = constant_value(f"{self.layer.name}/const{self.count}", array, element_type)
        value.storage = self.storage(value.element_type)
        return value

    def add(self, op: Op, *inputs: Value) -> list[Value]:
        """Add an operation; pointwise ones become `Fused`."""
        descs = [TensorDesc(v.element_type, Shape(v.shape), v.constant) for v in inputs]
        results = op.infer(descs)
        suffix = "" if not self.made else f"/{op.type}{len(self.made)}"
        name = f"{self.layer.name}{suffix}"
        names = [name] if len(results) == 1 else [f"{name}.{i}" for i in range(len(results))]
        outputs = [self.value(n, desc) for n, desc in zip(names, results, strict=True)]
        if pointwise.find(type(op)) is not None and self.holds(*inputs, *outputs):
            kinds = [self.storage(v.element_type) for v in inputs]
            op = Fused(single(op, kinds, outputs[0].storage))
        node = GpuNode(name, op, inputs, outputs, [self.layer.name])
        node.result_type = outputs[0].storage if outputs else ElementType.f32
        self.made.append(node)
        self.graph.nodes.append(node)
        return outputs

    def one(self, op: Op, *inputs: Value) -> Value:
        """Add an operation with one output and return that."""
        return self.add(op, *inputs)[0]


def lower(
    network: Network,
    target: Target,
    *,
    floats: ElementType | None = None,
    nested: Mapping[Node, Nested] | None = None,
) -> GpuGraph:
    """Return the graph of a network whose shapes are static and whose constants are folded.

    Args:
        network: the network.
        target: the device. Where it has no double precision, f64 is stored as f32.
        floats: the type in which f16 and f32 are stored between layers; None for each its own.
            What enters and leaves the network keeps its type: the first and last kernels convert.
        nested: the loops and Ifs whose bodies the device runs.
    """
    graph = GpuGraph(network.name)
    values: dict[Port, Value] = {}
    parameters = _parameters(network)
    for node in network.nodes():
        graph.types[node.name] = node.op.type
        if isinstance(node.op, Result):
            continue
        builder = Builder(graph, target, floats, node)
        if isinstance(node.op, Parameter):
            value = Builder(graph, target, None, node).value(node.name, node.output.desc)
            graph.inputs[node.name] = value
            values[node.output] = value
            continue
        if isinstance(node.op, Constant):
            value = constant_value(node.name, node.op.value, node.op.element_type)
            own = Builder(graph, target, None, node) if node in parameters else builder
            value.storage = own.storage(value.element_type)
            values[node.output] = value
            continue
        inputs = [values[port] for port in node.inputs]
        bodies = nested.get(node) if nested else None
        if bodies is not None or why_on_host(node):
            values.update(zip(node.outputs, builder.opaque(inputs, bodies), strict=True))
            continue
        decomposition = find_decomposition(node.op, inputs)
        if decomposition is not None:
            outputs = decomposition(builder, node.op, inputs)
        else:
            outputs = builder.add(node.op, *inputs)
        values.update(zip(node.outputs, outputs, strict=True))
        if not builder.made:
            graph.fates[node.name] = Fate("OPTIMIZED_OUT", "", "it does nothing here")
    for name, port in network.output_ports():
        value = values[port]
        graph.outputs[name] = value
        value.is_output = True
        if value.constant is not None and lives_on_host(port.desc):
            value.on_host = True  # nothing makes it, and no kernel could copy it
        if floats is not None and value.element_type in FLOATS and value.producer is not None:
            value.storage = value.element_type
    return graph


def _parameters(network: Network) -> set[Node]:
    """Return the small constants that only pointwise operations and quantisation read."""
    found: set[Node] = set()
    others: set[Node] = set()
    for node in network.nodes():
        exact = pointwise.find(type(node.op)) is not None or isinstance(node.op, LinearQuantization)
        for port in node.inputs:
            if isinstance(port.node.op, Constant):
                small = port.node.op.value.size <= SMALL
                (found if exact and small else others).add(port.node)
    return found - others
