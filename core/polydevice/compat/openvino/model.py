"""Model: a network, and what is done to whole models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from typing_extensions import Self

from polydevice.compat.openvino.element_type import Type
from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.layout import NOTE, Layout
from polydevice.compat.openvino.node import Node, Result, port_of, wrapped
from polydevice.compat.openvino.ports import ConstOutput, Output
from polydevice.compat.openvino.process import evaluate, new_name
from polydevice.compat.openvino.rt_info import OVAny, RTMap, found, note
from polydevice.compat.openvino.shapes import Dimension, PartialShape, Shape, core_shape
from polydevice.compat.openvino.surface import Surface
from polydevice.core import shared_core
from polydevice.network import Network, unique_name
from polydevice.node import Node as CoreNode
from polydevice.node import Port
from polydevice.ops import io

Anything = TypeVar("Anything", bound=ConstOutput)


class Model(Surface):
    """A graph of operations with inputs and outputs."""

    __slots__ = ("__weakref__", "_network")
    _network: Network

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
        results, sinks, parameters, name = _arguments(list(args), kwargs)
        self._network = _network(results, sinks, parameters, name)

    @classmethod
    def _of(cls, network: Network) -> Model:
        made = cls.__new__(cls)
        made._network = network
        return made

    # -- names --------------------------------------------------------------------------------

    def get_name(self) -> str:
        """Return the name."""
        return self._network.name

    @property
    def name(self) -> str:
        """The name."""
        return self._network.name

    def get_friendly_name(self) -> str:
        """Return the name."""
        return self._network.name

    @property
    def friendly_name(self) -> str:
        """The name."""
        return self._network.name

    @friendly_name.setter
    def friendly_name(self, name: str) -> None:
        self._network.name = name

    def set_friendly_name(self, name: str) -> None:
        """Give another name."""
        self._network.name = name

    # -- nodes --------------------------------------------------------------------------------

    def _wrapped(self, nodes: Sequence[CoreNode]) -> list[Any]:
        return [wrapped(node, self._network) for node in nodes]

    @translated
    def get_ops(self) -> list[Node]:
        """Return all nodes."""
        return self._wrapped(self._network.nodes())

    def get_ordered_ops(self) -> list[Node]:
        """Return all nodes, producers before consumers."""
        return self.get_ops()

    def get_parameters(self) -> list[Any]:
        """Return the nodes that are inputs."""
        return self._wrapped(self._network.parameters)

    @property
    def parameters(self) -> list[Any]:
        """The nodes that are inputs."""
        return self.get_parameters()

    def get_results(self) -> list[Any]:
        """Return the nodes that are outputs."""
        return self._wrapped(self._network.results)

    @property
    def results(self) -> list[Any]:
        """The nodes that are outputs."""
        return self.get_results()

    def get_result(self) -> Any:
        """Return the only node that is an output; raises RuntimeError unless there is one."""
        results = self.get_results()
        if len(results) != 1:
            raise RuntimeError(f"the model has {len(results)} results; use get_results()")
        return results[0]

    @property
    def result(self) -> Any:
        """The only node that is an output; raises RuntimeError unless there is one."""
        return self.get_result()

    def get_sinks(self) -> list[Any]:
        """Return the nodes with side effects."""
        return self._wrapped(self._network.sinks)

    @property
    def sinks(self) -> list[Any]:
        """The nodes with side effects."""
        return self.get_sinks()

    def get_output_op(self, index: int) -> Any:
        """Return the node that is the output of that number."""
        return self.get_results()[index]

    def get_output_size(self) -> int:
        """Return the number of outputs."""
        return len(self._network.results)

    def get_output_shape(self, index: int) -> Shape:
        """Return the sizes of an output; raises RuntimeError when one is not known."""
        return self.output(index).get_shape()

    def get_output_partial_shape(self, index: int) -> PartialShape:
        """Return the sizes of an output, known or not."""
        return self.output(index).get_partial_shape()

    def get_output_element_type(self, index: int) -> Type:
        """Return the type of an output."""
        return self.output(index).get_element_type()

    def get_parameter_index(self, parameter: Node) -> int:
        """Return which input a node is; -1 for none."""
        return _place(self._network.parameters, parameter)

    def get_result_index(self, value: Any) -> int:
        """Return which output a node, or an output, is; -1 for none."""
        if isinstance(value, ConstOutput):
            ports = [result.inputs[0] for result in self._network.results]
            own = [result.outputs[0] for result in self._network.results]
            for listed in (ports, own):
                if value._port in listed:
                    return listed.index(value._port)
            return -1
        return _place(self._network.results, value)

    def get_sink_index(self, sink: Any) -> int:
        """Return which of the nodes with side effects a node is; -1 for none."""
        node = sink.get_node() if isinstance(sink, ConstOutput) else sink
        return _place(self._network.sinks, node)

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
        _remove(self._network.parameters, parameter)

    def remove_result(self, result: Node) -> None:
        """Remove an output; raises RuntimeError when it is none of the model's."""
        _remove(self._network.results, result)

    def remove_sink(self, sink: Any) -> None:
        """Remove a node with side effects; raises RuntimeError when it is none of the model's."""
        _remove(self._network.sinks, sink.get_node() if isinstance(sink, ConstOutput) else sink)

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


class VariableInfo(Surface):
    """What describes a variable."""

    def __init__(self, variable_id: str = "") -> None:
        """Keep the name."""
        self.variable_id = variable_id
        self.data_shape: PartialShape | None = None
        self.data_type: Type | None = None


class Variable(Surface):
    """A value that a model keeps between inferences."""

    def __init__(self, variable_info: Any) -> None:
        """Describe a variable."""
        given = isinstance(variable_info, VariableInfo)
        self.info = variable_info if given else VariableInfo(str(variable_info))

    def get_info(self) -> VariableInfo:
        """Return the description."""
        return self.info


# -- whole models ---------------------------------------------------------------------------------


def get_batch(model: Model) -> Dimension:
    """Return the size of the batch: of the axis N of the first input that has one.

    Raises:
        RuntimeError: no input has an axis N, and none has more than one axis.
    """
    for node, axis in _batches(model):
        shape = node.outputs[0].shape
        if shape is not None:
            return Dimension._of(shape[axis])
    raise RuntimeError("no input of the model has a batch; set a layout with an axis N")


@translated
def set_batch(model: Model, batch_size: Any = -1) -> None:
    """Give the batch another size; without layouts, the first axis of every input.

    Raises:
        RuntimeError: no input has an axis N, or a node does not accept the size.
    """
    size = batch_size._size if isinstance(batch_size, Dimension) else Dimension(batch_size)._size
    shapes = {}
    for node, axis in _batches(model):
        if node.outputs[0].shape is not None:
            sizes = list(node.outputs[0].shape)
            sizes[axis] = size
            shapes[node.name] = sizes
    if not shapes:
        raise RuntimeError("no input of the model has a batch; set a layout with an axis N")
    model._network.reshape(shapes)


def _batches(model: Model) -> list[tuple[CoreNode, int]]:
    """Return the inputs that have a batch, with its axis."""
    laid_out = []
    for node in model._network.parameters:
        layout = Layout(str(node.rt_info.get(NOTE) or "..."))
        if layout.has_name("N"):
            laid_out.append((node, layout.get_index_by_name("N")))
    if laid_out:
        return laid_out
    shapes = [(node, node.outputs[0].shape) for node in model._network.parameters]
    return [(node, 0) for node, shape in shapes if shape is not None and len(shape) > 1]


@translated
def serialize(
    model: Model, xml_path: Any, bin_path: Any = "", version: str = "UNSPECIFIED"
) -> None:
    """Write a model as OpenVINO IR v11.

    Raises:
        RuntimeError: an operation that IR cannot express, or a file that cannot be written.
    """
    model._network.serialize(xml_path, bin_path or None)


@translated
def save_model(model: Model, output_model: Any, compress_to_fp16: bool = True) -> None:
    """Write a model as OpenVINO IR v11, by default with f32 and f64 constants as f16.

    Raises:
        RuntimeError: an operation that IR cannot express, or a file that cannot be written.
    """
    network = model._network
    if compress_to_fp16:
        from polydevice.passes.compress_constants import compress_constants

        network = network.clone()
        compress_constants(network)
    network.serialize(output_model)


# -- making ---------------------------------------------------------------------------------------


def _arguments(args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, Any, Any, str]:
    name = kwargs.pop("name", "")
    if args and isinstance(args[-1], str):
        name = args.pop()
    results = kwargs.pop("result", kwargs.pop("results", None))
    sinks, parameters = kwargs.pop("sinks", ()), kwargs.pop("parameters", None)
    kwargs.pop("variables", None)
    if kwargs:
        raise TypeError(f"Model() takes no {', '.join(kwargs)}")
    if args and results is None:
        results = args.pop(0)
    lists = [list(given) for given in args]
    if parameters is None and lists:
        at = next((i for i, each in enumerate(lists) if _are_parameters(each)), len(lists) - 1)
        parameters = lists[at]
        sinks = lists[0] if at > 0 else sinks
    if results is None or parameters is None:
        raise TypeError("Model() takes results, parameters and a name")
    return results, sinks, parameters, name


def _are_parameters(nodes: list[Any]) -> bool:
    known = [isinstance(node, Node) and isinstance(node._node.op, io.Parameter) for node in nodes]
    return bool(known) and all(known)


def _network(results: Any, sinks: Any, parameters: Any, name: str) -> Network:
    made = []
    for value in [results] if isinstance(results, (Node, ConstOutput)) else results:
        if isinstance(value, Node) and isinstance(value._node.op, io.Result):
            made.append(value._node)
            continue
        ports = value._node.outputs if isinstance(value, Node) else [port_of(value)]
        made += [Result(Output(port))._node for port in ports]
    given = [node._node for node in parameters]
    network = Network(
        name or new_name("Model"), given, made, map(port_node, sinks), evaluate=evaluate
    )
    nodes = network.nodes()
    missing = [n for n in nodes if isinstance(n.op, io.Parameter) and n not in given]
    if missing:
        raise RuntimeError(
            f"Model references undeclared parameters: {', '.join(node.name for node in missing)}"
        )
    taken: set[str] = set()
    for node in nodes:
        if node.name in taken:
            node.name = unique_name(network, node.name)
        taken.add(node.name)
    return network


def port_node(value: Any) -> CoreNode:
    """Return the core node of a node or an output."""
    return value._port.node if isinstance(value, ConstOutput) else value._node


def _place(nodes: list[CoreNode], node: Node) -> int:
    return next((i for i, each in enumerate(nodes) if each is node._node), -1)


def _remove(nodes: list[CoreNode], node: Node) -> None:
    place = _place(nodes, node)
    if place < 0:
        raise RuntimeError(f"{node!r} is none of this model's")
    del nodes[place]


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
