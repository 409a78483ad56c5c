"""GraphProto → Network: scopes, initializers, nodes, bodies and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from polydevice.dataclass import dataclass
from polydevice.errors import ModelFormatError, PolydeviceError, UnsupportedOperationError
from polydevice.network import Network
from polydevice.node import Evaluate, Node, Port
from polydevice.ops.io import Constant, Result
from polydevice.ops.python_operation import PythonOperation
from polydevice.ops.reshape import Reshape
from polydevice.readers.onnx import catalog
from polydevice.readers.onnx.budget import Budget
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.order import in_order
from polydevice.readers.onnx.protos.attributes import AttributeReader, Subgraph, resolved
from polydevice.readers.onnx.protos.element_types import supported
from polydevice.readers.onnx.protos.messages import (
    FunctionProto,
    GraphProto,
    NodeProto,
    ValueInfoProto,
)
from polydevice.readers.onnx.protos.protobuf import default_domain, opsets_of
from polydevice.readers.onnx.protos.tensors import TensorReader
from polydevice.readers.onnx.protos.types import desc_of_type, type_of_desc
from polydevice.readers.onnx.scope import Draft, Scope
from polydevice.readers.onnx.signatures import find_schema, find_signature
from polydevice.tensor import TensorDesc

T = TypeVar("T")

FunctionKey = tuple[str, str, str]
"""Domain, name and overload of a model's own function."""

_UNEXPECTED = (
    ArithmeticError,
    AttributeError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
)


@dataclass
class ReadBody:
    """A graph attribute as a network.

    The network's parameters are the graph's own inputs, then one per entry of `captures`: the
    ports outside whose values it reads.
    """

    network: Network
    captures: list[Port]


class GraphReader:
    """Reads the graphs of one model."""

    def __init__(
        self,
        functions: Mapping[FunctionKey, FunctionProto],
        tensors: TensorReader,
        budget: Budget,
        evaluate: Evaluate | None,
    ) -> None:
        self.functions = functions
        self.tensors = tensors
        self.budget = budget
        self.evaluate = evaluate
        self._graph = GraphProto()
        self._found: dict[Callable[[GraphProto], Any], Any] = {}
        self._attributes = AttributeReader(tensors)

    def model_graph(self, graph: GraphProto, opsets: Mapping[str, int]) -> Network:
        """Read a model's graph."""
        self._graph = graph
        for value in _formal_inputs(graph):
            kind = value.type.WhichOneof("value")
            if kind == "tensor_type" and not value.type.tensor_type.elem_type:
                raise ModelFormatError(
                    f"the model's input {value.name!r} has no element type; set its elem_type "
                    f"to one of {supported()}, or export the model again"
                )
        return self._network(graph, Scope(Draft(), opsets), None)

    def of_model(self, find: Callable[[GraphProto], T]) -> T:
        """Return what a function finds in the model's graph; it is asked once."""
        if find not in self._found:
            self._found[find] = find(self._graph)
        found: T = self._found[find]
        return found

    def body(self, graph: Subgraph, inputs: Sequence[TensorDesc] | None = None) -> ReadBody:
        """Read a graph attribute.

        Args:
            graph: the attribute.
            inputs: what is known of the body's inputs, where that is more than it declares.
        """
        outer: Scope = graph.scope
        scope = Scope(
            Draft(),
            outer.opsets,
            outer=outer,
            bindings=outer.bindings,
            depth=outer.depth + 1,
            calls=outer.calls,
        )
        self.budget.check_bodies(scope.depth)
        network = self._network(graph.proto, scope, inputs)
        return ReadBody(network, list(scope.draft.captures))

    def inline(self, graph: Subgraph) -> list[Port]:
        """Read a graph attribute without inputs into the network around it."""
        outer: Scope = graph.scope
        scope = Scope(
            outer.draft,
            outer.opsets,
            outer=outer,
            bindings=outer.bindings,
            depth=outer.depth + 1,
            calls=outer.calls,
            prefix=outer.prefix,
        )
        self.budget.check_bodies(scope.depth)
        if graph.proto.input:
            raise ModelFormatError(f"graph {graph.proto.name!r} must not have inputs")
        scope.ranks = declared_ranks(graph.proto)
        self._initializers(graph.proto, scope)
        for proto in in_order(graph.proto.node):
            self.node(proto, scope)
        return [self._output(value.name, graph.proto, scope) for value in graph.proto.output]

    def _output(self, name: str, graph: GraphProto, scope: Scope) -> Port:
        port = scope.find(name)
        if port is None:
            raise ModelFormatError(f"output {name!r} of graph {graph.name!r} is missing")
        return port

    def _network(
        self, graph: GraphProto, scope: Scope, inputs: Sequence[TensorDesc] | None
    ) -> Network:
        draft = scope.draft
        # Names of inputs and outputs are for the outside; inner nodes give way to them.
        formal = _formal_inputs(graph)
        if inputs is not None and len(inputs) != len(formal):
            raise ModelFormatError(
                f"graph {graph.name!r} has {len(formal)} inputs; {len(inputs)} are given"
            )
        for position, value in enumerate(formal):
            if not value.name:
                raise ModelFormatError(f"graph {graph.name!r}: input {position} has no name")
            desc = desc_of_type(value.type, value.name) if inputs is None else inputs[position]
            scope.define(value.name, draft.parameter(value.name, desc))
        scope.ranks = declared_ranks(graph)
        self._initializers(graph, scope)
        for proto in in_order(graph.node):
            self.node(proto, scope)
        results = []
        for value in graph.output:
            port = self._output(value.name, graph, scope)
            name = draft.unique(f"{value.name}/result")
            results.append(Node(name, Result(output_name=value.name), [port]))
        return Network(graph.name, draft.parameters, results, evaluate=self.evaluate)

    def _initializers(self, graph: GraphProto, scope: Scope) -> None:
        for tensor in graph.initializer:
            self._constant(tensor.name, Constant(*self.tensors.dense(tensor)), scope)
        for sparse in graph.sparse_initializer:
            self._constant(sparse.values.name, Constant(*self.tensors.sparse(sparse)), scope)

    def _constant(self, name: str, op: Constant, scope: Scope) -> None:
        port = Node(scope.draft.unique(name), op).output
        port.names.add(name)
        scope.define(name, port)

    # -- nodes --------------------------------------------------------------------------------

    def node(self, proto: NodeProto, scope: Scope) -> None:
        """Translate one node and define its outputs."""
        self.budget.take_node()
        domain = default_domain(proto.domain)
        version = scope.opsets.get(domain, 1)
        name = proto.name or next((n for n in proto.output if n), proto.op_type)
        title = f"node {name!r} ({proto.domain and proto.domain + '.'}{proto.op_type})"
        try:
            node = self._resolved(proto, scope, domain, version, name)
            title = node.title
            ports = self._translate(node)
            self._define(node, scope, ports)
        except PolydeviceError as error:
            raise type(error)(f"{title}: {error}") from error
        except _UNEXPECTED as error:
            raise ModelFormatError(
                f"{title} is not well-formed: {type(error).__name__}: {error}"
            ) from error

    def _resolved(
        self, proto: NodeProto, scope: Scope, domain: str, version: int, name: str
    ) -> OnnxNode:
        signature = find_signature(domain, proto.op_type, version)
        if signature is not None:
            _check_count("inputs", len(proto.input), *signature.inputs)
            _check_count("outputs", len(proto.output), *signature.outputs)
        return OnnxNode(
            self,
            scope,
            op_type=proto.op_type,
            domain=domain,
            version=version,
            name=scope.prefix + name,
            inputs=[scope.find(n) if n else None for n in proto.input],
            attributes=self._attributes.read(proto, signature, scope),
            outputs=list(proto.output),
            proto=proto,
        )

    def _translate(self, node: OnnxNode) -> Sequence[Port | None]:
        own = self.functions.get((node.domain, node.op_type, node.proto.overload))
        if own is not None:
            return self._expand(node, own)
        translator = catalog.find_translator(node.domain, node.op_type, node.version)
        if translator is not None:
            made = translator(node)
            if node.domain == "com.microsoft":  # whose operators get new inputs at any time
                node.check_all_read()
            return [made] if isinstance(made, Port) else made
        direct = catalog.find_direct(node.domain, node.op_type)
        if direct is not None:
            op = direct.from_onnx(node.attributes, node.version)
            if isinstance(op, PythonOperation):
                op, given = op.for_inputs(node.inputs)
                return node.emit_all(op, *given)
            return node.emit_all(op, *node.required_inputs())
        return self.expand_definition(node)

    def _define(self, node: OnnxNode, scope: Scope, made: Sequence[Port | None]) -> None:
        ports = [
            self._with_declared_rank(node, scope, position, port)
            for position, port in enumerate(made)
        ]
        node.name_nodes(ports, scope.draft.unique)
        for position, name in enumerate(node.outputs):
            if not name:
                continue
            port = ports[position] if position < len(ports) else None
            if port is None:  # as exporters name statistics that only training reads
                reason = f"output {position} ({name!r}) of {node.op_type} is not supported"
                scope.withhold(name, reason)
                continue
            port.names.add(name)
            scope.define(name, port)

    def _with_declared_rank(
        self, node: OnnxNode, scope: Scope, position: int, port: Port | None
    ) -> Port | None:
        """Let the model say how many dimensions a value has where inference cannot.

        A Reshape whose pattern copies every size changes nothing else; it fails in inference if
        the model is wrong.
        """
        if port is None or port.shape is not None or port.desc.kind != "tensor":
            return port
        name = node.outputs[position] if position < len(node.outputs) else ""
        rank = scope.ranks.get(name)
        return port if not rank else node.emit(Reshape(special_zero=True), port, [0] * rank)

    # -- functions ----------------------------------------------------------------------------

    def expand_definition(self, node: OnnxNode) -> Sequence[Port | None]:
        """Expand an operator by ONNX's own definition of it."""
        schema = find_schema(node.domain, node.op_type, node.version)
        function = None
        if schema is not None:
            types = [type_of_desc(None if p is None else p.desc) for p in node.inputs]
            proto = resolved(node.proto, node.attributes)
            function = catalog.function_body(schema, proto, types, node.version)
        if function is None:
            raise UnsupportedOperationError(
                f"{node.op_type} is not supported for inputs of these types: "
                + ", ".join("none" if p is None else str(p.desc) for p in node.inputs)
            )
        return self._expand(node, function)

    def _expand(self, node: OnnxNode, function: FunctionProto) -> Sequence[Port | None]:
        outer = node._scope
        bindings = self._attributes.defaults_of(function, outer)
        bindings |= node.attributes
        scope = Scope(
            outer.draft,
            {**outer.opsets, **opsets_of(function.opset_import)},
            bindings=bindings,
            depth=outer.depth,
            calls=outer.calls + 1,
            prefix=f"{node.name}/",
        )
        self.budget.check_calls(scope.calls)
        if len(node.inputs) > len(function.input):
            raise ModelFormatError(
                f"function {function.name!r} has {len(function.input)} inputs; "
                f"{len(node.inputs)} are given"
            )
        for position, name in enumerate(function.input):
            scope.define(name, node.optional(position))
        for inner in function.node:
            self.node(inner, scope)
        return [
            scope.find(name) if node.wants(position) else None
            for position, name in enumerate(function.output)
        ]


def _formal_inputs(graph: GraphProto) -> list[ValueInfoProto]:
    """Return the inputs that come from outside; files may list stored tensors among them."""
    stored = {t.name for t in graph.initializer}
    stored |= {t.values.name for t in graph.sparse_initializer}
    return [value for value in graph.input if value.name not in stored]


def declared_ranks(graph: GraphProto) -> dict[str, int]:
    """Return the number of dimensions of the tensors that a graph describes."""
    return {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in (*graph.value_info, *graph.output)
        if value.type.tensor_type.HasField("shape")
    }


def _check_count(what: str, given: int, least: int, most: int) -> None:
    if not least <= given <= most:
        legal = str(least) if least == most else f"{least} to {most}"
        raise ModelFormatError(f"{given} {what} are given; legal: {legal}")
