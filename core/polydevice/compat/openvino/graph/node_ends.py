"""NodeEnds: the inputs and outputs of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.graph.ports import DescriptorTensor, Input, Output
from polydevice.compat.openvino.graph.tensor import Tensor
from polydevice.compat.openvino.process import evaluate
from polydevice.compat.openvino.surface import Surface
from polydevice.compat.openvino.types.element_type import Type, type_of
from polydevice.compat.openvino.types.shapes import PartialShape, Shape
from polydevice.network import Network
from polydevice.node import Node as CoreNode
from polydevice.node import Port


class NodeEnds(Surface):
    """What a node reads and gives."""

    __slots__ = ("_network", "_node")
    _network: Network | None
    _node: CoreNode

    # -- inputs -------------------------------------------------------------------------------

    def inputs(self) -> list[Input]:
        """Return its inputs."""
        return [Input(self._node, i, self._network) for i in range(len(self._node.inputs))]

    def input(self, input_index: int) -> Input:
        """Return the input of that number; raises RuntimeError for one that is not there."""
        self._input(input_index)
        return Input(self._node, input_index, self._network)

    def _input(self, index: int) -> Port:
        if not 0 <= index < len(self._node.inputs):
            raise RuntimeError(f"{self!r} has no input {index}; it has {len(self._node.inputs)}")
        return self._node.inputs[index]

    def input_values(self) -> list[Output]:
        """Return what its inputs read."""
        return [Output(port, self._network) for port in self._node.inputs]

    def input_value(self, index: int) -> Output:
        """Return what the input of that number reads."""
        return Output(self._input(index), self._network)

    def get_input_size(self) -> int:
        """Return the number of inputs."""
        return len(self._node.inputs)

    def get_input_element_type(self, index: int) -> Type:
        """Return the type of an input."""
        return type_of(self._input(index).element_type)

    def get_input_partial_shape(self, index: int) -> PartialShape:
        """Return the sizes of an input, known or not."""
        return PartialShape._of(self._input(index).shape)

    def get_input_shape(self, index: int) -> Shape:
        """Return the sizes of an input; raises RuntimeError when one is not known."""
        return self.get_input_partial_shape(index).to_shape()

    def get_input_tensor(self, index: int) -> DescriptorTensor:
        """Return the description of an input."""
        return DescriptorTensor(self.input_value(index))

    @translated
    def set_argument(self, argument_index: int, argument: Output) -> None:
        """Let an input read something else."""
        self.input(argument_index).replace_source_output(argument)

    # -- outputs ------------------------------------------------------------------------------

    def outputs(self) -> list[Output]:
        """Return its outputs."""
        return [Output(port, self._network) for port in self._node.outputs]

    def output(self, output_index: int) -> Output:
        """Return the output of that number; raises RuntimeError for one that is not there."""
        return Output(self._output(output_index), self._network)

    def _output(self, index: int) -> Port:
        if not 0 <= index < len(self._node.outputs):
            raise RuntimeError(
                f"node index is out of range: {self!r} has no output {index}; it has "
                f"{len(self._node.outputs)}"
            )
        return self._node.outputs[index]

    def get_output_size(self) -> int:
        """Return the number of outputs."""
        return len(self._node.outputs)

    def get_output_element_type(self, index: int) -> Type:
        """Return the type of an output."""
        return type_of(self._output(index).element_type)

    def get_output_partial_shape(self, index: int) -> PartialShape:
        """Return the sizes of an output, known or not."""
        return PartialShape._of(self._output(index).shape)

    def get_output_shape(self, index: int) -> Shape:
        """Return the sizes of an output; raises RuntimeError when one is not known."""
        return self.get_output_partial_shape(index).to_shape()

    def get_output_tensor(self, index: int) -> DescriptorTensor:
        """Return the description of an output."""
        return DescriptorTensor(self.output(index))

    def get_element_type(self) -> Type:
        """Return the type of the only output."""
        return type_of(self._single().element_type)

    @property
    def shape(self) -> Shape:
        """Sizes of the only output; raises RuntimeError when one is not known."""
        return PartialShape._of(self._single().shape).to_shape()

    @translated
    def _single(self) -> Port:
        return self._node.output

    @translated
    def validate_and_infer_types(self) -> None:
        """Find types and shapes of the outputs again."""
        self._node.infer(evaluate)

    @translated
    def constructor_validate_and_infer_types(self) -> None:
        """Find types and shapes of the outputs again."""
        self._node.infer(evaluate)

    @translated
    def evaluate(
        self,
        output_values: Sequence[Tensor],
        input_values: Sequence[Tensor],
        evaluationContext: Any = None,  # noqa: N803 - its name
    ) -> bool:
        """Compute the outputs on the host; False where no plugin can."""
        results = evaluate(self._node.op, [tensor._memory() for tensor in input_values])
        if results is None:
            return False
        for tensor, array in zip(output_values, results, strict=False):
            tensor.set_shape(array.shape)
            tensor._memory()[...] = array
        return True
