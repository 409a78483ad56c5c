"""TensorIterator, Loop and If layers: their bodies, and what ties these to the layer's ports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from polydevice.errors import ModelFormatError
from polydevice.node import Node
from polydevice.ops.control_flow import (
    BackEdge,
    BodyInput,
    BodyOutput,
    If,
    Iteration,
    Loop,
    Slicing,
    TensorIterator,
)
from polydevice.ops.op import Op
from polydevice.readers.ir.document import Element
from polydevice.readers.ir.layers import LayerRecord

if TYPE_CHECKING:
    from polydevice.readers.ir.graph import BuiltGraph, GraphBuilder


def is_control_flow(kind: type[Op]) -> bool:
    """Whether an operation has bodies, so that `read_operation` makes it."""
    return issubclass(kind, (Iteration, If))


def read_operation(kind: type[Op], layer: LayerRecord, builder: GraphBuilder) -> Op:
    """Make the operation of a layer with bodies.

    Raises:
        ModelFormatError: a body is missing, or a port map refers to what does not exist.
    """
    if issubclass(kind, If):
        then_inputs, then_outputs, then_body = _branch(layer, "then", builder)
        else_inputs, else_outputs, else_body = _branch(layer, "else", builder)
        return kind(
            then_body=then_body.network,
            else_body=else_body.network,
            then_inputs=then_inputs,
            else_inputs=else_inputs,
            then_outputs=then_outputs,
            else_outputs=else_outputs,
        )
    return _iteration(kind, layer, builder)


def _branch(
    layer: LayerRecord, side: str, builder: GraphBuilder
) -> tuple[tuple[BodyInput, ...], tuple[BodyOutput, ...], BuiltGraph]:
    body = _body(layer, f"{side}_body", builder)
    ties = _Ties(layer, body, f"{side}_port_map")
    return tuple(ties.inputs()), tuple(ties.outputs()), body


def _iteration(kind: type[Op], layer: LayerRecord, builder: GraphBuilder) -> Op:
    built = _body(layer, "body", builder)
    ties = _Ties(layer, built, "port_map")
    body, inputs, outputs = built.network, tuple(ties.inputs()), tuple(ties.outputs())
    back_edges = tuple(ties.back_edges())
    current_iteration = ties.purpose("input", "current_iteration")
    condition = ties.purpose("output", "execution_condition")
    ties.check_fed([*(tie.parameter for tie in inputs), current_iteration])
    if issubclass(kind, Loop):
        return kind(body, inputs, outputs, back_edges, current_iteration, condition)
    if current_iteration is not None or condition is not None:
        raise ModelFormatError(f"{layer.title}: only Loop has ports with a purpose")
    return TensorIterator(body, inputs, outputs, back_edges)


def _body(layer: LayerRecord, tag: str, builder: GraphBuilder) -> BuiltGraph:
    if tag not in layer.bodies:
        raise ModelFormatError(f"{layer.title} has no <{tag}>")
    return builder.build(layer.bodies[tag], f"{layer.name}/{tag}")


class _Ties:
    """Resolves the port ids of a layer and the layer ids of its body to positions."""

    def __init__(self, layer: LayerRecord, body: BuiltGraph, tag: str) -> None:
        self.layer = layer
        self.map = layer.element.child(tag) or Element(tag, {})
        self.parameters = _positions(body, body.network.parameters)
        self.results = _positions(body, body.network.results)

    def inputs(self) -> Iterator[BodyInput]:
        """Yield the connected inputs, by ascending port."""
        ports = {port.id: index for index, port in enumerate(self.layer.inputs)}
        taken: set[int] = set()
        for item in self._connected("input"):
            parameter = self._position(item, self.parameters, "Parameter")
            if parameter in taken:
                raise ModelFormatError(f"{self.layer.title}: two inputs feed one body parameter")
            taken.add(parameter)
            yield BodyInput(self._port(item, ports, "input"), parameter, self._slicing(item))

    def outputs(self) -> Iterator[BodyOutput]:
        """Yield the connected outputs, by ascending port."""
        ports = {port.id: index for index, port in enumerate(self.layer.outputs)}
        taken: set[int] = set()
        for item in self._connected("output"):
            result = self._position(item, self.results, "Result")
            output = self._port(item, ports, "output")
            if output in taken:
                raise ModelFormatError(f"{self.layer.title}: two body results feed one output")
            taken.add(output)
            yield BodyOutput(output, result, self._slicing(item))
        if len(taken) != len(ports):
            raise ModelFormatError(f"{self.layer.title}: an output has no body result")

    def back_edges(self) -> Iterator[BackEdge]:
        """Yield what each iteration hands to the next."""
        section = self.layer.element.child("back_edges")
        for edge in section.all("edge") if section is not None else ():
            result, parameter = edge.integer("from-layer"), edge.integer("to-layer")
            if result not in self.results or parameter not in self.parameters:
                raise ModelFormatError(
                    f"{self.layer.title}: back edge {edge} must lead from a Result to a Parameter "
                    "of the body"
                )
            yield BackEdge(self.results[result], self.parameters[parameter])

    def purpose(self, side: str, purpose: str) -> int | None:
        """Return the position of the body's parameter or result with that purpose, or None."""
        known = self.parameters if side == "input" else self.results
        for item in self.map.all(side):
            if item.attributes.get("purpose") == purpose:
                return self._position(item, known, "layer")
        return None

    def check_fed(self, parameters: Sequence[int | None]) -> None:
        """Raise ModelFormatError if a parameter of the body is not among those that get a value."""
        for number, position in self.parameters.items():
            if position not in parameters:
                raise ModelFormatError(
                    f"{self.layer.title}: nothing feeds the body's parameter with id {number}"
                )

    def _connected(self, side: str) -> list[Element]:
        items = [item for item in self.map.all(side) if item.integer("external_port_id") >= 0]
        return sorted(items, key=lambda item: item.integer("external_port_id"))

    def _port(self, item: Element, ports: dict[int, int], side: str) -> int:
        number = item.integer("external_port_id")
        if number not in ports:
            raise ModelFormatError(f"{self.layer.title} has no {side} port {number} to tie")
        return ports[number]

    def _position(self, item: Element, known: dict[int, int], what: str) -> int:
        number = item.integer("internal_layer_id")
        if number not in known:
            raise ModelFormatError(f"{self.layer.title}: its body has no {what} with id {number}")
        return known[number]

    def _slicing(self, item: Element) -> Slicing | None:
        if "axis" not in item.attributes:
            return None
        return Slicing(
            axis=item.integer("axis"),
            start=item.integer("start", 0),
            end=item.integer("end", -1),
            stride=item.integer("stride", 1),
            part_size=item.integer("part_size", 1),
        )


def _positions(body: BuiltGraph, nodes: list[Node]) -> dict[int, int]:
    index = {node: position for position, node in enumerate(nodes)}
    return {number: index[node] for number, node in body.nodes.items() if node in index}
