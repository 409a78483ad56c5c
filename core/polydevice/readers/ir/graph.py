"""Records of the topology → nodes of a network."""

from __future__ import annotations

import math
from dataclasses import field
from typing import NoReturn

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.errors import (
    ElementTypeError,
    ModelFormatError,
    ModelLimitError,
    PolydeviceError,
)
from polydevice.network import Network
from polydevice.node import Evaluate, Node, Port
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.op import Op, parse_shape
from polydevice.ops.split import Split
from polydevice.ops.unknown import UnknownOperation
from polydevice.readers.ir.control_flow import is_control_flow, read_operation
from polydevice.readers.ir.layers import GraphRecord, LayerRecord, PortRecord
from polydevice.readers.ir.operations import operation_of
from polydevice.readers.ir.order import needed, producers_first
from polydevice.readers.ir.weights import WeightsFile
from polydevice.readers.limits import ReadLimits
from polydevice.tensor import TensorDesc


@dataclass
class BuiltGraph:
    """A network made of a graph record, and its nodes by layer id."""

    network: Network
    nodes: dict[int, Node] = field(default_factory=dict)


class GraphBuilder:
    """Makes networks of graph records, with the constants of one weights file."""

    def __init__(
        self, weights: WeightsFile, limits: ReadLimits, ir_version: int, evaluate: Evaluate | None
    ) -> None:
        self.weights = weights
        self.limits = limits
        self.ir_version = ir_version
        self.evaluate = evaluate

    def build(self, graph: GraphRecord, name: str) -> BuiltGraph:
        """Make a node of every needed layer, and a network of them.

        Raises:
            ModelError, NetworkError: (subclasses) naming the layer and the reason.
        """
        order = producers_first(graph)
        wanted = needed(graph)
        nodes: dict[int, Node] = {}
        for layer in order:
            if layer.id in wanted:
                inputs = [
                    _output(nodes[n], graph.layers[n], port) for n, port in graph.feeds(layer)
                ]
                if any(isinstance(port.node.op, Result) for port in inputs):
                    raise ModelFormatError(f"{layer.title} reads a Result, which has no output")
                nodes[layer.id] = self._node(layer, inputs)
        listed = [nodes[number] for number in graph.layers if number in nodes]
        network = Network(
            name,
            [node for node in listed if isinstance(node.op, Parameter)],
            [node for node in listed if isinstance(node.op, Result)],
            [node for node in listed if node.op.has_side_effect],
            evaluate=self.evaluate,
        )
        return BuiltGraph(network, nodes)

    def _node(self, layer: LayerRecord, inputs: list[Port]) -> Node:
        try:
            node = Node(layer.name, self._operation(layer, inputs), inputs, rt_info=layer.rt_info)
            if self.evaluate is not None and any(port.desc.value is not None for port in inputs):
                node.infer(self.evaluate)
        except PolydeviceError as error:
            where = "" if repr(layer.name) in str(error) else f"{layer.title}: "
            raise type(error)(f"{where}{error}{_stated(layer)}") from error
        except Exception as error:
            # The file is untrusted: whatever an operation's rules stumble over is the file's
            # fault to the caller; the cause stays chained for the rule's author.
            raise ModelFormatError(
                f"{layer.title} is not valid: {type(error).__name__}: {error}{_stated(layer)}"
            ) from error
        self._check_outputs(layer, node)
        for port, record in zip(node.outputs, layer.outputs):
            port.names.update(record.names)
            if port.element_type is ElementType.dynamic and record.element_type is not None:
                port.desc = port.desc.with_type(record.element_type)
        return node

    def _operation(self, layer: LayerRecord, inputs: list[Port]) -> Op:
        kind, opset = operation_of(layer)
        if kind is Constant:
            return self._constant(layer)
        if kind is UnknownOperation:
            return _unknown(layer, inputs)
        if is_control_flow(kind):
            return read_operation(kind, layer, self)
        op = kind.from_ir(_typed(layer) if kind is Parameter else layer.data, opset)
        if isinstance(op, Split) and op.num_splits > self.limits.layer_outputs:
            self._refuse_outputs(layer, op.num_splits)  # before their descriptions fill memory
        if isinstance(op, Parameter):
            self._check_parameter(layer, op)
        if isinstance(op, Result) and layer.output_names:
            return op.replace(output_name=layer.output_names[0])
        return op

    def _constant(self, layer: LayerRecord) -> Constant:
        data = _typed(layer)
        missing = [key for key in ("element_type", "offset", "size") if key not in data]
        if missing:
            raise ModelFormatError(f"{layer.title} has no attribute {missing[0]!r}")
        # Only compressed weights are of nf4, and whatever reads them makes floats of them first.
        is_nf4 = data["element_type"] == "nf4"
        try:
            element_type = ElementType.f32 if is_nf4 else ElementType.parse(data["element_type"])
        except ElementTypeError as error:
            raise ModelFormatError(f"{layer.title} cannot be read: {error}") from None
        if element_type is ElementType.dynamic:
            raise ModelFormatError(f"{layer.title} has no element type")
        try:
            shape = parse_shape(data.get("shape", "")).static
            offset, size = int(data["offset"]), int(data["size"])
        except (ValueError, PolydeviceError) as error:
            raise ModelFormatError(
                f"{layer.title} has illegal numbers in shape, offset or size: {error}"
            ) from None
        self._check_size(layer, shape)
        if is_nf4:
            value = self.weights.normal_floats(shape, offset, size, layer.title)
        else:
            value = self.weights.constant(element_type, shape, offset, size, layer.title)
        return Constant(value, element_type)

    def _check_parameter(self, layer: LayerRecord, op: Parameter) -> None:
        shape = op.shape
        if self.ir_version < 11 and (
            shape is None or not all(isinstance(size, int) and size > 0 for size in shape)
        ):
            raise ModelFormatError(
                f"{layer.title} has shape {shape}; IR v{self.ir_version} knows only positive sizes"
            )

    def _check_outputs(self, layer: LayerRecord, node: Node) -> None:
        if len(node.outputs) > self.limits.layer_outputs:
            self._refuse_outputs(layer, len(node.outputs))
        for port in node.outputs:
            if port.shape is not None and port.desc.is_static:
                self._check_size(layer, port.shape.static)

    def _refuse_outputs(self, layer: LayerRecord, count: int) -> NoReturn:
        raise ModelLimitError(
            f"{layer.title} has {count} outputs, more than ReadLimits.layer_outputs = "
            f"{self.limits.layer_outputs}"
        )

    def _check_size(self, layer: LayerRecord, shape: tuple[int, ...]) -> None:
        if len(shape) > self.limits.rank:
            raise ModelLimitError(
                f"{layer.title} has {len(shape)} dimensions, more than ReadLimits.rank = "
                f"{self.limits.rank}"
            )
        if math.prod(shape) > self.limits.tensor_elements:
            raise ModelLimitError(
                f"{layer.title} makes a tensor of shape {list(shape)}, more than "
                f"ReadLimits.tensor_elements = {self.limits.tensor_elements}"
            )


def _unknown(layer: LayerRecord, inputs: list[Port]) -> UnknownOperation:
    """Make the operation of a type that nothing here defines."""
    outputs = []
    for port in layer.outputs:
        if port.element_type in (None, ElementType.dynamic):
            raise ModelFormatError(
                f"{layer.title}: output port {port.id} has no precision, and nothing here knows "
                "the operation; the file must say what it gives"
            )
        outputs.append(TensorDesc(port.element_type, port.shape))
    given = [
        TensorDesc(port.element_type, record.shape)
        for port, record in zip(inputs, layer.inputs, strict=True)
    ]
    texts = tuple(layer.data.items())
    return UnknownOperation(layer.type, layer.version, texts, tuple(given), tuple(outputs))


def _typed(layer: LayerRecord) -> dict[str, str]:
    """Return the attributes of a Parameter or Const with type and shape.

    The first files of version 10 state these on the output port only.
    """
    if "element_type" in layer.data or not layer.outputs:
        return layer.data
    port = layer.outputs[0]
    stated = {"shape": ",".join(map(str, port.shape)), **layer.data}
    if port.element_type is not None:
        stated["element_type"] = port.element_type.value
    return stated


def _output(node: Node, layer: LayerRecord, port: int) -> Port:
    index = layer.output_index(port)
    if index >= len(node.outputs):
        raise ModelFormatError(
            f"{layer.title} has {len(node.outputs)} outputs; the file uses its output number "
            f"{index + 1} (port {port})"
        )
    return node.outputs[index]


def _stated(layer: LayerRecord) -> str:
    """Say what the file notes about the layer's ends; it helps to see where shapes diverge."""

    def listed(ports: list[PortRecord]) -> str:
        return ", ".join(map(str, ports[:8])) + (", …" if len(ports) > 8 else "")

    if not layer.inputs and not layer.outputs:
        return ""
    return f"\nThe file states inputs ({listed(layer.inputs)}), outputs ({listed(layer.outputs)})."
