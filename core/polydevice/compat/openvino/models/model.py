"""Model: a network, and what is done to whole models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from typing_extensions import Self

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.graph.node import Node
from polydevice.compat.openvino.graph.ports import ConstOutput, Output
from polydevice.compat.openvino.graph.variables import Variable
from polydevice.compat.openvino.models.making import arguments, network
from polydevice.compat.openvino.models.model_nodes import ModelNodes, port_node, remove
from polydevice.compat.openvino.types.element_type import Type
from polydevice.compat.openvino.types.rt_info import OVAny, RTMap, found, note
from polydevice.compat.openvino.types.shapes import PartialShape, Shape, core_shape
from polydevice.core import shared_core
from polydevice.network import Network, unique_name
from polydevice.node import Node as CoreNode
from polydevice.node import Port
from polydevice.ops import io

Anything = TypeVar("Anything", bound=ConstOutput)


class Model(ModelNodes):
    """A graph of operations with inputs and outputs."""

    __slots__ = ()

    @translated
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Make a model: ``Model(results, [sinks,] parameters, [variables,] name)``.

        Args:
            args: a model, to share it; or nodes, outputs or results, one or a list of them; nodes
                with side effects; the parameters; variables, which the nodes say anyway; a name.
            kwargs: the same by name.

        Raises:
            RuntimeError: nodes read an input that is not among the parameters.
        """
        if len(args) == 1 and isinstance(args[0], Model):
            self._network = args[0]._network
            return
        results, sinks, parameters, name = arguments(list(args), kwargs)
        self._network = network(results, sinks, parameters, name)

    @classmethod
    def _of(cls, network: Network) -> Self:
        made = cls.__new__(cls)
        made._network = network
        return made

    # -- inputs and outputs -------------------------------------------------------------------

    @property
    def inputs(self) -> list[Output]:
        """The inputs."""
        return [Output(node.outputs[0], self._network) for node in self._network.parameters]

    @property
    def outputs(self) -> list[Output]:
        """The outputs."""
        return [Output(node.outputs[0], self._network) for node in self._network.results]

    def input(self, key: int | str | None = None) -> Output:
        """Return an input by number, by the name of its tensor, or the only one.

        Raises:
            IndexError: there is none of that number.
            RuntimeError: there is none of that name, or not exactly one.
        """
        return chosen(self.inputs, key, "Input")

    def output(self, key: int | str | None = None) -> Output:
        """Return an output by number, by the name of its tensor, or the only one.

        Raises:
            IndexError: there is none of that number.
            RuntimeError: there is none of that name, or not exactly one.
        """
        return chosen(self.outputs, key, "Output")

    def get_output_shape(self, index: int) -> Shape:
        """Return the sizes of an output; raises RuntimeError when one is not known."""
        return self.output(index).get_shape()

    def get_output_partial_shape(self, index: int) -> PartialShape:
        """Return the sizes of an output, known or not."""
        return self.output(index).get_partial_shape()

    def get_output_element_type(self, index: int) -> Type:
        """Return the type of an output."""
        return self.output(index).get_element_type()

    @translated
    def add_outputs(self, outputs: Any) -> list[Output]:
        """Make values inside the model outputs too.

        Args:
            outputs: the name of a tensor, (name of a node, number), an Output, or several.

        Raises:
            RuntimeError: there is none of that name.
        """
        many = outputs if isinstance(outputs, (list, set)) else [outputs]
        return [self._add_output(self._port(output)) for output in many]

    def _port(self, output: Any) -> Port:
        if isinstance(output, ConstOutput):
            return output._port
        if isinstance(output, tuple):
            return self._network.node(output[0]).outputs[output[1]]
        for node in self._network.nodes():
            for port in node.outputs:
                if output in port.names:
                    return port
        raise RuntimeError(f"Tensor name {output} was not found.")

    def _add_output(self, port: Port) -> Output:
        for result in self._network.results:
            if result.inputs[0] is port:
                return Output(result.outputs[0], self._network)
        name = unique_name(self._network, f"{port.name}/result")
        result = CoreNode(name, io.Result(), [port])
        self._network.results.append(result)
        return Output(result.outputs[0], self._network)

    def add_parameters(self, parameters: Sequence[Node]) -> None:
        """Add inputs."""
        self._network.parameters += [node._node for node in parameters]

    def add_results(self, results: Sequence[Node]) -> None:
        """Add outputs."""
        self._network.results += [node._node for node in results]

    def add_sinks(self, sinks: Sequence[Any]) -> None:
        """Add nodes with side effects."""
        self._network.sinks += [port_node(sink) for sink in sinks]

    def remove_parameter(self, parameter: Node) -> None:
        """Remove an input; raises RuntimeError when it is none of the model's."""
        remove(self._network.parameters, parameter)

    def remove_result(self, result: Node) -> None:
        """Remove an output; raises RuntimeError when it is none of the model's."""
        remove(self._network.results, result)

    def remove_sink(self, sink: Any) -> None:
        """Remove a node with side effects; raises RuntimeError when it is none of the model's."""
        remove(self._network.sinks, sink.get_node() if isinstance(sink, ConstOutput) else sink)

    @translated
    def replace_parameter(self, parameter_index: int, parameter: Node) -> None:
        """Put another input in the place of one, also for all that reads it."""
        before = self._network.parameters[parameter_index]
        self._network.parameters[parameter_index] = parameter._node
        self._network.replace({before.outputs[0]: parameter._node.outputs[0]})

    # -- shapes -------------------------------------------------------------------------------

    def is_dynamic(self) -> bool:
        """Whether a shape in the model is not known."""
        return self.dynamic

    @property
    def dynamic(self) -> bool:
        """Whether a shape in the model is not known."""
        ports = (port for node in self._network.nodes() for port in node.outputs)
        return any(port.shape is None or not port.shape.is_static for port in ports)

    @translated
    def reshape(self, partial_shape: Any, variables_shapes: Any = None) -> None:
        """Give inputs other shapes.

        Args:
            partial_shape: the only input's; or name, number or output → shape.
            variables_shapes: not possible: variables take the shapes of their initial values.

        Raises:
            RuntimeError: no such input, or a node does not accept the shapes; the model is then as
                it was.
        """
        if variables_shapes:
            raise RuntimeError(
                "variables_shapes: a variable has the shape of its initial value; reshape the "
                "inputs that it is computed from"
            )
        if not isinstance(partial_shape, Mapping):
            partial_shape = {self.input(): partial_shape}
        named = {}
        for key, shape in partial_shape.items():
            port = key if isinstance(key, ConstOutput) else self.input(key)
            named[port._port.node.name] = core_shape(shape)
        unknown = [name for name, sizes in named.items() if sizes is None]
        if unknown:
            raise RuntimeError(f"input {unknown[0]!r} needs a shape of known rank")
        self._network.reshape({name: sizes for name, sizes in named.items() if sizes is not None})

    @translated
    def validate_nodes_and_infer_types(self) -> None:
        """Find types and shapes of all nodes again."""
        self._network.infer()

    # -- running ------------------------------------------------------------------------------

    @translated
    def evaluate(
        self,
        output_tensors: Sequence[Any],
        input_tensors: Sequence[Any],
        evaluation_context: Any = None,
    ) -> bool:
        """Compute the outputs on the host."""
        if len(output_tensors) != len(self.outputs) or len(input_tensors) != len(self.inputs):
            raise RuntimeError(
                f"{len(input_tensors)} inputs and {len(output_tensors)} outputs are given; the "
                f"model has {len(self.inputs)} and {len(self.outputs)}"
            )
        with shared_core().load_network(self._network, "CPU") as executable:
            arrays = [tensor._memory() for tensor in input_tensors]
            results = executable.infer(dict(zip(executable.inputs, arrays, strict=True)))
        for tensor, array in zip(output_tensors, results.values(), strict=True):
            tensor.set_shape(array.shape)
            tensor._memory()[...] = array
        return True

    # -- variables ----------------------------------------------------------------------------

    def get_variables(self) -> list[Variable]:
        """Return the variables that the model keeps between inferences."""
        return [Variable(name) for name in self._network.state_variables()]

    @property
    def variables(self) -> list[Variable]:
        """The variables that the model keeps between inferences."""
        return self.get_variables()

    def get_variable_by_id(self, variable_id: str) -> Variable | None:
        """Return a variable; None when there is none of that name."""
        known = {variable.info.variable_id: variable for variable in self.get_variables()}
        return known.get(variable_id)

    def add_variables(self, variables: Sequence[Any]) -> None:
        """Do nothing: the nodes that read and assign variables say which there are."""

    def remove_variable(self, variable: Any) -> None:
        """Do nothing: the nodes that read and assign variables say which there are."""

    # -- notes --------------------------------------------------------------------------------

    @property
    def rt_info(self) -> RTMap:
        """Notes on the model; live."""
        return RTMap(self._network.rt_info)

    def get_rt_info(self, path: Any = None) -> Any:
        """Return all notes, or the one at a path.

        Raises:
            RuntimeError: there is none.
        """
        if path is None:
            return self.rt_info
        try:
            return OVAny(found(self._network.rt_info, path))
        except KeyError as error:
            raise RuntimeError(
                "Cannot get runtime attribute. Path to runtime attribute is incorrect. "
                f"{path}: there is no {error}"
            ) from None

    def has_rt_info(self, path: Any) -> bool:
        """Whether there is a note at a path."""
        try:
            found(self._network.rt_info, path)
        except KeyError:
            return False
        return True

    def set_rt_info(self, obj: Any, path: Any) -> None:
        """Write a note at a path."""
        note(self._network.rt_info, obj, path)

    # -- copies -------------------------------------------------------------------------------

    def clone(self) -> Model:
        """Return a copy, which shares the values of constants."""
        return Model._of(self._network.__deepcopy__({}))

    def __copy__(self) -> Model:
        raise TypeError("Cannot copy 'openvino.Model'. Please, use deepcopy instead.")

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        return self.clone()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: memory is freed when nothing refers to the model."""

    def __repr__(self) -> str:
        inputs = "\n".join(repr(ConstOutput(port._port)) for port in self.inputs)
        outputs = "\n".join(repr(ConstOutput(port._port)) for port in self.outputs)
        return f"<Model: {self.name!r}\ninputs[\n{inputs}\n]\noutputs[\n{outputs}\n]>"


def chosen(ports: Sequence[Anything], key: int | str | None, what: str) -> Anything:
    """Return one of the inputs or outputs; see `Model.input`."""
    if key is None:
        if len(ports) != 1:
            raise RuntimeError(f"{what}: the model has {len(ports)}; name one, or give its number")
        return ports[0]
    if isinstance(key, str):
        for port in ports:
            if key in port.get_names():
                return port
        raise RuntimeError(f"{what} for tensor name '{key}' is not found.")
    if not 0 <= int(key) < len(ports):
        raise IndexError(f"{what} {key} is not there; the model has {len(ports)}")
    return ports[int(np.int64(key))]
