"""Output, ConstOutput and Input: the ends of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.process import evaluate
from polydevice.compat.openvino.surface import Surface
from polydevice.compat.openvino.types.element_type import Type, type_of
from polydevice.compat.openvino.types.rt_info import RTMap
from polydevice.compat.openvino.types.shapes import PartialShape, Shape
from polydevice.errors import PolydeviceError
from polydevice.network import Network
from polydevice.node import Node as CoreNode
from polydevice.node import Port
from polydevice.ops.io import Parameter, Result
from polydevice.tensor import TensorDesc

if TYPE_CHECKING:
    from polydevice.compat.openvino.graph.node import Node


class _End(Surface):
    """What the three have in common: a core port, for its type and shape."""

    __slots__ = ()

    def _described(self) -> TensorDesc:
        raise NotImplementedError

    def get_element_type(self) -> Type:
        """Return the type of the elements."""
        return type_of(self._described().element_type)

    def get_shape(self) -> Shape:
        """Return the sizes.

        Raises:
            RuntimeError: one is not known.
        """
        return self.get_partial_shape().to_shape()

    def get_partial_shape(self) -> PartialShape:
        """Return the sizes, known or not."""
        return PartialShape._of(self._described().shape)

    @property
    def element_type(self) -> Type:
        """Type of the elements."""
        return self.get_element_type()

    @property
    def shape(self) -> Shape:
        """Sizes; raises RuntimeError when one is not known."""
        return self.get_shape()

    @property
    def partial_shape(self) -> PartialShape:
        """Sizes, known or not."""
        return self.get_partial_shape()


class ConstOutput(_End):
    """An output of a node, or an input or output of a model, to look at."""

    __slots__ = ("_hash", "_network", "_port")

    def __init__(self, port: Port, network: Network | None = None) -> None:
        """Show a core port; the network, where one is known, tells what reads it."""
        self._port = port
        self._network = network
        self._hash = id(port)

    def _described(self) -> TensorDesc:
        return self._port.desc

    @property
    def _named(self) -> Port:
        """The port whose names count: a result has those of what it reads."""
        node = self._port.node
        return node.inputs[0] if isinstance(node.op, Result) else self._port

    @property
    def _note_node(self) -> CoreNode:
        return self._port.node

    def get_node(self) -> Node:
        """Return the node that it belongs to."""
        from polydevice.compat.openvino.graph.node import wrapped

        return wrapped(self._port.node, self._network)

    @property
    def node(self) -> Node:
        """The node that it belongs to."""
        return self.get_node()

    def get_index(self) -> int:
        """Return its number among the node's outputs."""
        return self._port.index

    @property
    def index(self) -> int:
        """Its number among the node's outputs."""
        return self._port.index

    def get_names(self) -> set[str]:
        """Return the names of the tensor."""
        names = set(self._named.names)
        node = self._port.node
        if isinstance(node.op, Result):
            names |= {node.op.output_name} - {""}
        if names or not isinstance(node.op, (Parameter, Result)):
            return names
        return {node.name}

    @property
    def names(self) -> set[str]:
        """The names of the tensor."""
        return self.get_names()

    def get_any_name(self) -> str:
        """Return one of the names.

        Raises:
            RuntimeError: it has none.
        """
        node = self._port.node
        named = getattr(node.op, "output_name", "")
        names = sorted(self.get_names())
        if not names:
            raise RuntimeError("Attempt to get a name for a Tensor without names")
        return named or names[0]

    @property
    def any_name(self) -> str:
        """One of the names; raises RuntimeError when there is none."""
        return self.get_any_name()

    def get_target_inputs(self) -> set[Input]:
        """Return the inputs that read it, of the nodes of the model that made it."""
        if self._network is None:
            raise RuntimeError(
                "what reads an output is known of nodes that belong to a model: take the node from "
                "Model.get_ops()"
            )
        readers = self._network.consumers().get(self._port, [])
        return {Input(node, index, self._network) for node, index in readers}

    @property
    def target_inputs(self) -> set[Input]:
        """The inputs that read it."""
        return self.get_target_inputs()

    def get_tensor(self) -> DescriptorTensor:
        """Return its description."""
        return DescriptorTensor(self)

    @property
    def tensor(self) -> DescriptorTensor:
        """Its description."""
        return DescriptorTensor(self)

    def get_rt_info(self) -> RTMap:
        """Return the notes on it."""
        return RTMap(self._note_node.rt_info)

    @property
    def rt_info(self) -> RTMap:
        """The notes on it."""
        return self.get_rt_info()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._port is self._port

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: ConstOutput) -> bool:
        return (self._port.node.name, self.index) < (other._port.node.name, other.index)

    def __copy__(self) -> ConstOutput:
        raise TypeError(
            f"Cannot copy 'openvino.{type(self).__name__}', which belongs to its model; use "
            "copy.deepcopy on the model"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> ConstOutput:
        return self.__copy__()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: names[{', '.join(sorted(self.get_names()))}] "
            f"shape{self.get_partial_shape()} type: {self._port.desc.element_type.value}>"
        )


class Output(ConstOutput):
    """An output of a node, which may be changed."""

    __slots__ = ()

    def set_names(self, names: set[str]) -> None:
        """Call the tensor by these names."""
        self._named.names.clear()
        self.add_names(names)

    def add_names(self, names: set[str]) -> None:
        """Call the tensor by these names too."""
        self._named.names.update(names)
        node = self._port.node
        if isinstance(node.op, Result) and node.op.output_name not in names and names:
            node.op = node.op.replace(output_name="")

    @translated
    def replace(self, other: Output) -> None:
        """Let everything that reads this read the other."""
        for reader in self.get_target_inputs():
            if reader._node is not other._port.node:
                reader.replace_source_output(other)
        other._named.names.update(self.get_names())

    @translated
    def remove_target_input(self, input: Input) -> None:  # noqa: A002 - its name
        """Not possible: an input always reads something.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "an input of a node always reads something here; use Input.replace_source_output()"
        )

    def set_rt_info(self, rt_info: Any, key: str) -> None:
        """Write a note."""
        self._note_node.rt_info[key] = getattr(rt_info, "value", rt_info)


class Input(_End):
    """An input of a node."""

    __slots__ = ("_index", "_network", "_node")

    def __init__(self, node: CoreNode, index: int, network: Network | None = None) -> None:
        """Show the input of that number."""
        self._node, self._index, self._network = node, index, network

    def _described(self) -> TensorDesc:
        return self._node.inputs[self._index].desc

    def get_node(self) -> Node:
        """Return the node that it belongs to."""
        from polydevice.compat.openvino.graph.node import wrapped

        return wrapped(self._node, self._network)

    def get_index(self) -> int:
        """Return its number among the node's inputs."""
        return self._index

    def get_source_output(self) -> Output:
        """Return what it reads."""
        return Output(self._node.inputs[self._index], self._network)

    @translated
    def replace_source_output(self, new_source_output: Output) -> None:
        """Read something else.

        Raises:
            RuntimeError: the node does not accept it; it then reads what it read before.
        """
        before = self._node.inputs[self._index]
        self._node.inputs[self._index] = new_source_output._port
        try:
            self._node.infer(evaluate)
        except PolydeviceError:
            self._node.inputs[self._index] = before
            self._node.infer(evaluate)
            raise

    def get_tensor(self) -> DescriptorTensor:
        """Return the description of what it reads."""
        return DescriptorTensor(self.get_source_output())

    def get_rt_info(self) -> RTMap:
        """Return the notes on its node."""
        return RTMap(self._node.rt_info)

    @property
    def rt_info(self) -> RTMap:
        """The notes on its node."""
        return self.get_rt_info()

    def set_rt_info(self, rt_info: Any, key: str) -> None:
        """Write a note."""
        self._node.rt_info[key] = getattr(rt_info, "value", rt_info)

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Input) and other._node is self._node
        return same and other._index == self._index  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((id(self._node), self._index))

    def __repr__(self) -> str:
        return f"<Input: {self._node.name}.{self._index} shape{self.get_partial_shape()}>"


class DescriptorTensor(Surface):
    """What describes a value before it is computed: names, type, shape."""

    __slots__ = ("_output",)

    def __init__(self, output: ConstOutput) -> None:
        """Describe an output."""
        self._output = output

    def get_names(self) -> set[str]:
        """Return the names."""
        return self._output.get_names()

    @property
    def names(self) -> set[str]:
        """The names."""
        return self._output.get_names()

    @names.setter
    def names(self, names: set[str]) -> None:
        self.set_names(names)

    def set_names(self, names: set[str]) -> None:
        """Call the tensor by these names."""
        Output(self._output._port).set_names(names)

    def add_names(self, names: set[str]) -> None:
        """Call the tensor by these names too."""
        Output(self._output._port).add_names(names)

    def get_any_name(self) -> str:
        """Return one of the names; raises RuntimeError when there is none."""
        return self._output.get_any_name()

    @property
    def any_name(self) -> str:
        """One of the names; raises RuntimeError when there is none."""
        return self._output.get_any_name()

    def get_element_type(self) -> Type:
        """Return the type of the elements."""
        return self._output.get_element_type()

    @property
    def element_type(self) -> Type:
        """Type of the elements."""
        return self._output.get_element_type()

    def get_shape(self) -> Shape:
        """Return the sizes; raises RuntimeError when one is not known."""
        return self._output.get_shape()

    @property
    def shape(self) -> Shape:
        """Sizes; raises RuntimeError when one is not known."""
        return self._output.get_shape()

    def get_partial_shape(self) -> PartialShape:
        """Return the sizes, known or not."""
        return self._output.get_partial_shape()

    @property
    def partial_shape(self) -> PartialShape:
        """Sizes, known or not."""
        return self._output.get_partial_shape()

    def get_rt_info(self) -> RTMap:
        """Return the notes."""
        return self._output.get_rt_info()

    @property
    def rt_info(self) -> RTMap:
        """The notes."""
        return self._output.get_rt_info()
