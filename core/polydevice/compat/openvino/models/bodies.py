"""if_op, loop and tensor_iterator: nodes with models inside, put together step by step.

What has been said of a node so far is always a whole operation of core's, so that every step is
checked, and one that is refused leaves the node as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.graph.descriptions import (
    BodyOutputDescription,
    ConcatOutputDescription,
    InputDescription,
    InvariantInputDescription,
    MergedInputDescription,
    OutputDescription,
    SliceInputDescription,
    cut_of,
)
from polydevice.compat.openvino.graph.node import Node, make, port_of, shown_as
from polydevice.compat.openvino.graph.ports import ConstOutput, Output
from polydevice.compat.openvino.models.model import Model
from polydevice.compat.openvino.process import evaluate
from polydevice.dtype import ElementType
from polydevice.errors import PolydeviceError
from polydevice.network import Network
from polydevice.node import Node as CoreNode
from polydevice.node import Port
from polydevice.ops.control_flow import (
    BackEdge,
    Body,
    BodyInput,
    BodyOutput,
    If,
    Iteration,
    Loop,
    Slicing,
    TensorIterator,
)
from polydevice.ops.op import Op
from polydevice.tensor import TensorDesc


class _WithBodies(Node):
    """What all three share: steps that a node takes or refuses as a whole."""

    __slots__ = ()

    @translated
    def _become(self, op: Op, ports: Sequence[Port] | None = None, outputs: int = 0) -> None:
        """Be another operation, that reads these ports and has so many outputs more.

        Raises:
            RuntimeError: the bodies do not accept it; the node is then as it was.
        """
        node = self._node
        before = node.op, list(node.inputs), list(node.outputs)
        node.op, node.inputs = op, list(node.inputs if ports is None else ports)
        for _ in range(outputs):
            node.outputs.append(
                Port(node, len(node.outputs), TensorDesc(ElementType.dynamic, None))
            )
        try:
            if node.outputs:
                node.infer(evaluate)
        except PolydeviceError:
            node.op, node.inputs, node.outputs = before
            raise

    def _reading(self, value: Any) -> tuple[list[Port], int]:
        """Return the ports that are read with one more, and its number."""
        port = port_of(value)
        ports = [*self._node.inputs, port]
        return ports, len(ports) - 1


class _Repeated(_WithBodies):
    """loop and tensor_iterator: one body, as often as there are parts, or a count says."""

    __slots__ = ()

    @property
    def _op(self) -> Iteration:
        op = self._node.op
        assert isinstance(op, Iteration)
        return op

    # -- the body -----------------------------------------------------------------------------

    def get_function(self) -> Model:
        """Return the body."""
        return Model._of(_network_of(self._op.body))

    def set_function(self, func: Model) -> None:
        """Take a model as the body; its inputs and outputs are tied one by one."""
        self._become(self._op.replace(body=func._network))

    def get_num_iterations(self) -> int:
        """Return how often the body runs; -1 where that is not known before an inference."""
        count = self._op.iterations([port.desc for port in self._node.inputs])
        return -1 if count is None else count

    # -- ties ---------------------------------------------------------------------------------

    def _tie(self, parameter: Any, value: Any, cut: Slicing | None, *edges: BackEdge) -> None:
        ports, index = self._reading(value)
        tie = BodyInput(index, _place(self._op.body.parameters, parameter), cut)
        changed = self._op.replace(
            body_inputs=(*self._op.body_inputs, tie),
            back_edges=(*self._op.back_edges, *edges),
        )
        self._become(changed, ports)

    def set_invariant_input(self, body_parameter: Node, value: Any) -> None:
        """Give a parameter of the body the same value in every iteration.

        Raises:
            RuntimeError: it is no parameter of the body, or the body does not accept the value.
        """
        self._tie(body_parameter, value, None)

    def set_merged_input(
        self, body_parameter: Node, initial_value: Any, successive_value: Any
    ) -> None:
        """Give a parameter a first value, and what the body gave before in later iterations.

        Raises:
            RuntimeError: these are no parameter and no result of the body, or do not fit.
        """
        body = self._op.body
        edge = BackEdge(_result(body, successive_value), _place(body.parameters, body_parameter))
        self._tie(body_parameter, initial_value, None, edge)

    def set_sliced_input(
        self,
        parameter: Node,
        value: Any,
        start: int,
        stride: int,
        part_size: int,
        end: int,
        axis: int,
    ) -> None:
        """Give a parameter one part of a value after the other.

        Raises:
            RuntimeError: it is no parameter of the body, or the parts do not fit.
        """
        self._tie(parameter, value, Slicing(axis, start, end, stride, part_size))

    def _give(self, value: Any, cut: Slicing | None) -> Output:
        number = len(self._node.outputs)
        tie = BodyOutput(number, _result(self._op.body, value), cut)
        self._become(self._op.replace(body_outputs=(*self._op.body_outputs, tie)), outputs=1)
        return self.output(number)

    def get_iter_value(self, body_value: Any, iteration: int = -1) -> Output:
        """Return an output that is a result of the last iteration.

        Raises:
            RuntimeError: it is no result of the body, or another iteration than the last, -1.
        """
        if iteration != -1:
            raise RuntimeError(
                f"iteration={iteration}: the value of the last iteration, -1, leaves a body; take "
                "others out of get_concatenated_slices()"
            )
        return self._give(body_value, None)

    def get_concatenated_slices(
        self, value: Any, start: int, stride: int, part_size: int, end: int, axis: int
    ) -> Output:
        """Return an output that is the results of all iterations, joined along an axis.

        Raises:
            RuntimeError: it is no result of the body.
        """
        return self._give(value, Slicing(axis, start, end, stride, part_size))

    # -- all ties at once ---------------------------------------------------------------------

    def get_input_descriptions(self) -> list[InputDescription]:
        """Return what ties the inputs to the body."""
        carried = {edge.parameter: edge.result for edge in self._op.back_edges}
        return [_described(tie, carried) for tie in self._op.body_inputs]

    def set_input_descriptions(self, inputs: Sequence[InputDescription]) -> None:
        """Tie the inputs, which `set_arguments` gives, to the body.

        Raises:
            RuntimeError: ties that do not fit the body.
        """
        merged = [each for each in inputs if isinstance(each, MergedInputDescription)]
        changed = self._op.replace(
            body_inputs=tuple(_input(each) for each in inputs),
            back_edges=tuple(BackEdge(m.body_value_index, m.body_parameter_index) for m in merged),
        )
        self._become(changed)

    def get_output_descriptions(self) -> list[OutputDescription]:
        """Return what ties the outputs to the body."""
        return [_described_output(tie) for tie in self._op.body_outputs]

    def set_output_descriptions(self, outputs: Sequence[OutputDescription]) -> None:
        """Tie outputs to the body; the node has as many afterwards.

        Raises:
            RuntimeError: ties that do not fit the body, or fewer outputs than there were.
        """
        ties = tuple(map(_output, outputs))
        self._become(self._op.replace(body_outputs=ties), outputs=len(ties) - len(self.outputs()))


@shown_as(TensorIterator)
class tensor_iterator(_Repeated):  # noqa: N801 - its name
    """Runs a body for one part of its inputs after the other."""

    __slots__ = ()

    def __init__(self) -> None:
        """Begin with an empty body."""
        super().__init__(make(TensorIterator(_empty(), (), (), ()), [])._node)

    def get_body(self) -> Model:
        """Return the body."""
        return self.get_function()

    def set_body(self, body: Model) -> None:
        """Take a model as the body; its inputs and outputs are tied one by one."""
        self.set_function(body)


@shown_as(Loop)
class loop(_Repeated):  # noqa: N801 - its name
    """Runs a body a number of times, while a condition holds."""

    __slots__ = ()

    def __init__(self, trip_count: Any, execution_condition: Any) -> None:
        """Begin with an empty body.

        Args:
            trip_count: i32 or i64 scalar, how often; -1 for as often as the condition holds.
            execution_condition: boolean scalar, whether the first iteration runs.
        """
        ports = [port_of(trip_count), port_of(execution_condition)]
        super().__init__(make(Loop(_empty(), (), (), ()), ports)._node)

    def get_special_body_ports(self) -> list[int]:
        """Return which parameter counts iterations, and which result is the condition; or -1."""
        op = self._node.op
        assert isinstance(op, Loop)
        ports = (op.current_iteration, op.execution_condition)
        return [-1 if port is None else port for port in ports]

    def set_special_body_ports(self, special_body_ports: Sequence[int]) -> None:
        """Say which parameter counts iterations, and which result is the condition; -1 for none.

        Raises:
            RuntimeError: the body has none of that number.
        """
        current, condition = (None if port < 0 else port for port in special_body_ports)
        body = self._op.body
        for what, port, there in (
            ("parameter", current, body.parameters),
            ("result", condition, body.results),
        ):
            if port is not None and port >= len(there):
                raise RuntimeError(f"the body has {len(there)} {what}s, and none of number {port}")
        self._become(self._op.replace(current_iteration=current, execution_condition=condition))


@shown_as(If)
class if_op(_WithBodies):  # noqa: N801 - its name
    """Runs one of two bodies."""

    __slots__ = ()

    def __init__(self, execution_condition: Any) -> None:
        """Begin with two empty bodies.

        Args:
            execution_condition: boolean scalar, whether the first one runs.
        """
        op = If(_empty(), _empty(), (), (), (), ())
        super().__init__(make(op, [port_of(execution_condition)])._node)

    @property
    def _op(self) -> If:
        op = self._node.op
        assert isinstance(op, If)
        return op

    def get_function(self, index: int) -> Model:
        """Return the body for true, 0, or for false, 1."""
        return Model._of(_network_of((self._op.then_body, self._op.else_body)[index]))

    def set_function(self, index: int, func: Model) -> None:
        """Take a model as the body for true, 0, or for false, 1."""
        self._become(self._op.replace(**{("then_body", "else_body")[index]: func._network}))

    def get_then_body(self) -> Model:
        """Return the body for true."""
        return self.get_function(0)

    def get_else_body(self) -> Model:
        """Return the body for false."""
        return self.get_function(1)

    def set_then_body(self, body: Model) -> None:
        """Take a model as the body for true."""
        self.set_function(0, body)

    def set_else_body(self, body: Model) -> None:
        """Take a model as the body for false."""
        self.set_function(1, body)

    def set_input(
        self, value: Any, then_parameter: Node | None, else_parameter: Node | None
    ) -> None:
        """Give a value to a parameter of either body, or of both.

        Raises:
            RuntimeError: these are no parameters of the bodies.
        """
        op = self._op
        ports, index = self._reading(value)
        then_inputs, else_inputs = op.then_inputs, op.else_inputs
        if then_parameter is not None:
            tie = BodyInput(index, _place(op.then_body.parameters, then_parameter))
            then_inputs = (*then_inputs, tie)
        if else_parameter is not None:
            tie = BodyInput(index, _place(op.else_body.parameters, else_parameter))
            else_inputs = (*else_inputs, tie)
        self._become(op.replace(then_inputs=then_inputs, else_inputs=else_inputs), ports)

    def set_output(self, then_result: Node, else_result: Node) -> Output:
        """Return an output that is a result of whichever body runs.

        Raises:
            RuntimeError: these are no results of the bodies, or of different element types.
        """
        op, number = self._op, len(self._node.outputs)
        first = BodyOutput(number, _result(op.then_body, then_result))
        second = BodyOutput(number, _result(op.else_body, else_result))
        changed = op.replace(
            then_outputs=(*op.then_outputs, first), else_outputs=(*op.else_outputs, second)
        )
        self._become(changed, outputs=1)
        return self.output(number)

    def get_input_descriptions(self, index: int) -> list[InputDescription]:
        """Return what ties the inputs to the body for true, 0, or for false, 1."""
        ties = (self._op.then_inputs, self._op.else_inputs)[index]
        return [_described(tie, {}) for tie in ties]

    def set_input_descriptions(self, index: int, inputs: Sequence[InputDescription]) -> None:
        """Tie the inputs, which `set_arguments` gives, to a body."""
        ties = tuple(map(_input, inputs))
        self._become(self._op.replace(**{("then_inputs", "else_inputs")[index]: ties}))

    def get_output_descriptions(self, index: int) -> list[OutputDescription]:
        """Return what ties the outputs to the body for true, 0, or for false, 1."""
        ties = (self._op.then_outputs, self._op.else_outputs)[index]
        return [_described_output(tie) for tie in ties]

    def set_output_descriptions(self, index: int, outputs: Sequence[OutputDescription]) -> None:
        """Tie outputs to a body; the node has them when both bodies are tied."""
        ties = tuple(map(_output, outputs))
        changed = self._op.replace(**{("then_outputs", "else_outputs")[index]: ties})
        both = len(changed.then_outputs) == len(changed.else_outputs)
        if both:
            self._become(changed, outputs=len(ties) - len(self._node.outputs))
        else:
            self._node.op = changed


def _empty() -> Network:
    return Network("", [], [])


def _network_of(body: Body) -> Network:
    assert isinstance(body, Network)
    return body


def _place(parameters: Sequence[CoreNode], parameter: Any) -> int:
    for index, each in enumerate(parameters):
        if each is parameter._node:
            return index
    raise RuntimeError(f"{parameter!r} is no parameter of the body; set the body first")


def _result(body: Body, value: Any) -> int:
    """Return the number of a result: the node itself, or what it is the result of."""
    port = value._port if isinstance(value, ConstOutput) else None
    for index, each in enumerate(body.results):
        if port is None and each is value._node:
            return index
        if port is not None and port in (each.inputs[0], each.outputs[0]):
            return index
    raise RuntimeError(f"{value!r} is no result of the body; make one of it, and set the body")


def _described(tie: BodyInput, carried: dict[int, int]) -> InputDescription:
    if tie.slicing is not None:
        cut = tie.slicing
        return SliceInputDescription(
            tie.input, tie.parameter, cut.start, cut.stride, cut.part_size, cut.end, cut.axis
        )
    if tie.parameter in carried:
        return MergedInputDescription(tie.input, tie.parameter, carried[tie.parameter])
    return InvariantInputDescription(tie.input, tie.parameter)


def _described_output(tie: BodyOutput) -> OutputDescription:
    cut = tie.slicing
    if cut is None:
        return BodyOutputDescription(tie.result, tie.output)
    return ConcatOutputDescription(
        tie.result, tie.output, cut.start, cut.stride, cut.part_size, cut.end, cut.axis
    )


def _input(given: InputDescription) -> BodyInput:
    cut = cut_of(given) if isinstance(given, SliceInputDescription) else None
    return BodyInput(given.input_index, given.body_parameter_index, cut)


def _output(given: OutputDescription) -> BodyOutput:
    cut = cut_of(given) if isinstance(given, ConcatOutputDescription) else None
    return BodyOutput(given.output_index, given.body_value_index, cut)
