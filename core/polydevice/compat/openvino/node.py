"""Node: one use of an operation, and the arithmetic that makes further ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from polydevice.compat.openvino.element_type import Type, element_of, type_of
from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.layout import NOTE, Layout, layout_of
from polydevice.compat.openvino.ports import ConstOutput, DescriptorTensor, Input, Output
from polydevice.compat.openvino.process import evaluate, new_name
from polydevice.compat.openvino.rt_info import RTMap
from polydevice.compat.openvino.shapes import PartialShape, Shape, Strides, core_shape
from polydevice.compat.openvino.surface import Surface
from polydevice.compat.openvino.tensor import Tensor, unpacked
from polydevice.dtype import Array, ElementType
from polydevice.network import Network
from polydevice.node import Node as CoreNode
from polydevice.node import Port
from polydevice.ops import io
from polydevice.ops.arithmetic import Add, Divide, Multiply, Power, Subtract
from polydevice.ops.comparison import Greater, GreaterEqual, Less, LessEqual
from polydevice.ops.op import Op
from polydevice.shape import Shape as CoreShape

_CALLED = {"Const": "Constant", "PReLU": "PRelu", "ReLU": "Relu", "SoftMax": "Softmax"}
"""Types that OpenVINO's API calls otherwise than IR files do."""


class DiscreteTypeInfo(Surface):
    """Type and operation set of a node."""

    def __init__(self, name: str, version_id: str) -> None:
        """Keep both."""
        self.name, self.version_id = name, version_id
        self.parent: DiscreteTypeInfo | None = None

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, DiscreteTypeInfo) and self.name == other.name
        return same and self.version_id == other.version_id  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((self.name, self.version_id))

    def hash(self) -> int:
        """Return a number for hashing."""
        return hash(self)

    def __repr__(self) -> str:
        return f"<DiscreteTypeInfo: {self.name} {self.version_id}>"


class Node(Surface):
    """One use of an operation in a model."""

    __slots__ = ("_network", "_node")
    __array_ufunc__ = None  # lets `array + node` reach __radd__

    def __init__(self, node: CoreNode, network: Network | None = None) -> None:
        """Show a core node; the network, where one is known, tells what reads it."""
        self._node, self._network = node, network

    # -- names and kinds ----------------------------------------------------------------------

    def get_friendly_name(self) -> str:
        """Return the name."""
        return self._node.name

    @property
    def friendly_name(self) -> str:
        """The name."""
        return self._node.name

    @friendly_name.setter
    def friendly_name(self, name: str) -> None:
        self._node.name = name

    def set_friendly_name(self, name: str) -> None:
        """Give another name."""
        self._node.name = name

    def get_name(self) -> str:
        """Return the name."""
        return self._node.name

    @property
    def name(self) -> str:
        """The name."""
        return self._node.name

    def get_type_name(self) -> str:
        """Return what operation it is."""
        return called(self._node.op)

    def get_type_info(self) -> DiscreteTypeInfo:
        """Return what operation it is, and of which set."""
        return DiscreteTypeInfo(called(self._node.op), self._node.op.opset)

    @property
    def type_info(self) -> DiscreteTypeInfo:
        """What operation it is, and of which set."""
        return self.get_type_info()

    def get_instance_id(self) -> int:
        """Return a number that no other node of the process has."""
        return id(self._node)

    # -- attributes ---------------------------------------------------------------------------

    def get_attributes(self) -> dict[str, Any]:
        """Return attribute → value, with the names of IR files."""
        return {
            name: _plain(value)
            for name, field in _attributes(self._node.op).items()
            if (value := getattr(self._node.op, field)) is not None
        }

    @translated
    def set_attribute(self, name: str, value: Any) -> None:
        """Change an attribute.

        Raises:
            RuntimeError: there is none of that name, or the node does not accept the value.
        """
        op = self._node.op
        fields = _attributes(op)
        if name not in fields:
            raise RuntimeError(f"{self!r} has no attribute {name!r}; it has: {', '.join(fields)}")
        held = getattr(op, fields[name])
        changed = type(held)(value) if isinstance(held, Enum) else value
        changed = tuple(changed) if isinstance(changed, list) else changed
        changed = element_of(changed) if isinstance(held, ElementType) else changed
        self._node.op = op.replace(**{fields[name]: changed})
        self._node.infer(evaluate)

    def get_rt_info(self) -> RTMap:
        """Return the notes on it; live."""
        return RTMap(self._node.rt_info)

    @property
    def rt_info(self) -> RTMap:
        """The notes on it; live."""
        return RTMap(self._node.rt_info)

    def set_rt_info(self, rt_info: Any, key: str) -> None:
        """Write a note."""
        self._node.rt_info[key] = getattr(rt_info, "value", rt_info)

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

    @translated
    def set_arguments(self, arguments: Sequence[Any]) -> None:
        """Let the inputs read these."""
        self._node.inputs = [port_of(argument) for argument in arguments]
        self._node.infer(evaluate)

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

    # -- arithmetic ---------------------------------------------------------------------------

    def _made(self, op: Op, other: Any, turned: bool = False) -> Node:
        ports = [self._single(), port_of(other, self._single().element_type)]
        return make(op, ports[::-1] if turned else ports)

    def __add__(self, other: Any) -> Node:
        return self._made(Add(), other)

    def __radd__(self, other: Any) -> Node:
        return self._made(Add(), other, turned=True)

    def __sub__(self, other: Any) -> Node:
        return self._made(Subtract(), other)

    def __rsub__(self, other: Any) -> Node:
        return self._made(Subtract(), other, turned=True)

    def __mul__(self, other: Any) -> Node:
        return self._made(Multiply(), other)

    def __rmul__(self, other: Any) -> Node:
        return self._made(Multiply(), other, turned=True)

    def __truediv__(self, other: Any) -> Node:
        return self._made(Divide(), other)

    def __rtruediv__(self, other: Any) -> Node:
        return self._made(Divide(), other, turned=True)

    def __pow__(self, other: Any) -> Node:
        return self._made(Power(), other)

    def __lt__(self, other: Any) -> Node:
        return self._made(Less(), other)

    def __le__(self, other: Any) -> Node:
        return self._made(LessEqual(), other)

    def __gt__(self, other: Any) -> Node:
        return self._made(Greater(), other)

    def __ge__(self, other: Any) -> Node:
        return self._made(GreaterEqual(), other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and other._node is self._node

    def __hash__(self) -> int:
        return hash(id(self._node))

    def __repr__(self) -> str:
        shapes = ", ".join(str(PartialShape._of(port.shape)) for port in self._node.outputs)
        return f"<{called(self._node.op)}: {self._node.name!r} ({shapes})>"


class Parameter(Node):
    """An input of a model."""

    __slots__ = ()

    def __init__(self, element_type: Any, partial_shape: Any) -> None:
        """Make an input of that type and shape."""
        node = make(io.Parameter(element_of(element_type), core_shape(partial_shape)), [])
        super().__init__(node._node)

    def _set(self, **changes: Any) -> None:
        self._node.op = self._node.op.replace(**changes)
        self._node.infer()

    @property
    def partial_shape(self) -> PartialShape:
        """Sizes, known or not; may be set."""
        return self.get_partial_shape()

    @partial_shape.setter
    def partial_shape(self, shape: Any) -> None:
        self.set_partial_shape(shape)

    def get_partial_shape(self) -> PartialShape:
        """Return the sizes, known or not."""
        return PartialShape._of(self._single().shape)

    @translated
    def set_partial_shape(self, shape: Any) -> None:
        """Give other sizes; `Model.validate_nodes_and_infer_types` then tells the rest."""
        self._set(shape=core_shape(shape))

    @property
    def element_type(self) -> Type:
        """Type of the elements; may be set."""
        return self.get_element_type()

    @element_type.setter
    def element_type(self, kind: Any) -> None:
        self.set_element_type(kind)

    @translated
    def set_element_type(self, type: Any) -> None:  # noqa: A002 - its name
        """Give another element type."""
        self._set(element_type=element_of(type))

    @property
    def layout(self) -> Layout:
        """What the axes mean; may be set."""
        return self.get_layout()

    @layout.setter
    def layout(self, layout: Any) -> None:
        self.set_layout(layout)

    def get_layout(self) -> Layout:
        """Return what the axes mean; "..." when it was not said."""
        return Layout(str(self._node.rt_info.get(NOTE) or "..."))

    def set_layout(self, layout: Any) -> None:
        """Say what the axes mean; nothing is transposed."""
        self._node.rt_info[NOTE] = str(layout_of(layout))

    def __repr__(self) -> str:
        port = self._node.outputs[0]
        kind = "float" if port.element_type is ElementType.f32 else port.element_type.value
        return f"<Parameter: {self._node.name!r} ({PartialShape._of(port.shape)}, {kind})>"


class Constant(Node):
    """A value in a model."""

    __slots__ = ()

    def __init__(self, *values: Any, shared_memory: bool = False) -> None:
        """Make a constant: of an array or tensor, or of type, shape and values.

        Args:
            values: an array or a Tensor, and whether its memory is shared; or type, shape and a
                list of numbers.
            shared_memory: read the array's own memory.
        """
        if len(values) >= 2 and not isinstance(values[1], bool):
            element, sizes = element_of(values[0]), core_shape(values[1])
            given = values[2] if len(values) > 2 else 0
            array = _filled(given, element, () if sizes is None else sizes.static)
        else:
            shared = shared_memory or (len(values) > 1 and values[1])
            element, array = _value(values[0], shared)
        super().__init__(make(io.Constant(array, element), [])._node)

    @property
    def data(self) -> Array:
        """The value."""
        return self._value

    @property
    def _value(self) -> Array:
        op = self._node.op
        assert isinstance(op, io.Constant)
        return op.value

    def get_data(self, *, dtype: Any = None, copy: bool = False) -> Array:
        """Return the value, as another type or as a copy where that is asked for."""
        wanted = None if dtype is None else element_of(dtype).dtype
        array = self._value if wanted is None else self._value.astype(wanted)
        return array.copy() if copy else array

    def get_vector(self) -> Array:
        """Return the elements in order."""
        return self._value.reshape(-1)

    def get_value_strings(self) -> list[str]:
        """Return the elements as text."""
        return [str(item) for item in self._value.reshape(-1)]

    def get_byte_size(self) -> int:
        """Return the bytes of the elements."""
        return (self._value.size * self._single().element_type.bits + 7) // 8

    def get_tensor_view(self) -> Tensor:
        """Return the value as a tensor."""
        return Tensor._of(self._value, self._single().element_type)

    @property
    def tensor_view(self) -> Tensor:
        """The value as a tensor."""
        return self.get_tensor_view()

    def get_strides(self) -> Strides:
        """Return the bytes from one element to the next, along every axis."""
        return Strides(self._value.strides)

    @property
    def strides(self) -> Strides:
        """Bytes from one element to the next, along every axis."""
        return self.get_strides()


class Result(Node):
    """An output of a model."""

    __slots__ = ()

    def __init__(self, output: Any) -> None:
        """Make an output of what a node's output gives."""
        super().__init__(make(io.Result(), [port_of(output)])._node)

    def get_output_partial_shape(self, index: int = 0) -> PartialShape:
        """Return the sizes, known or not."""
        return super().get_output_partial_shape(index)

    def get_output_element_type(self, index: int = 0) -> Type:
        """Return the element type."""
        return super().get_output_element_type(index)

    @property
    def layout(self) -> Layout:
        """What the axes mean; may be set."""
        return self.get_layout()

    @layout.setter
    def layout(self, layout: Any) -> None:
        self.set_layout(layout)

    def get_layout(self) -> Layout:
        """Return what the axes mean; "..." when it was not said."""
        return Layout(str(self._node.rt_info.get(NOTE) or "..."))

    def set_layout(self, layout: Any) -> None:
        """Say what the axes mean; nothing is transposed."""
        self._node.rt_info[NOTE] = str(layout_of(layout))


_CLASSES: dict[type[Op], type[Node]] = {
    io.Parameter: Parameter,
    io.Constant: Constant,
    io.Result: Result,
}


def wrapped(node: CoreNode, network: Network | None = None) -> Node:
    """Return OpenVINO's form of a core node."""
    cls = _CLASSES.get(type(node.op), Node)
    made = cls.__new__(cls)
    made._node, made._network = node, network
    return made


@translated
def make(op: Op, inputs: Sequence[Port], name: str | None = None) -> Node:
    """Make a node.

    Raises:
        RuntimeError: the operation does not accept the inputs.
    """
    node = CoreNode(name or new_name(called(op)), op, inputs)
    node.infer(evaluate)
    return wrapped(node)


@translated
def port_of(value: Any, element: ElementType | None = None) -> Port:
    """Return the core port of a node, an output, or of a constant made of a value.

    Args:
        value: what gives one number, or many.
        element: the type that Python's own numbers take; what NumPy gives them otherwise.

    Raises:
        RuntimeError: a node with several outputs, of which one is to be chosen.
    """
    if isinstance(value, Node):
        return value._single()
    if isinstance(value, ConstOutput):
        return value._port
    if element is not None and isinstance(value, (int, float, bool)):
        value = np.asarray(value, element.dtype)
    return Constant(value)._single()


def called(op: Op) -> str:
    """Return what OpenVINO's API calls an operation."""
    return _CALLED.get(op.type, op.type)


def _attributes(op: Op) -> dict[str, str]:
    """Return name in IR files → field, of those that are there."""
    return {
        field.metadata.get("ir") or field.name: field.name
        for field in dataclasses.fields(op)  # type: ignore[arg-type]
        if field.metadata.get("ir") != ""
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, CoreShape):
        return [size if isinstance(size, int) else str(size) for size in value]
    return list(value) if isinstance(value, tuple) else value


def _value(value: Any, shared: bool) -> tuple[ElementType, Array]:
    if isinstance(value, Tensor):
        array = value._memory()
        return value._element, array if shared else array.copy()
    array = np.asarray(value)
    element = ElementType.of(array.dtype)
    array = array.astype(object) if element is ElementType.string else array
    return element, array if shared and array is value else np.array(array, order="C")


def _filled(given: Any, element: ElementType, sizes: tuple[int, ...]) -> Array:
    if isinstance(given, np.ndarray) and element.bits < 8 and given.dtype.itemsize == 1:
        return unpacked(given.reshape(-1).view(np.uint8), element, int(np.prod(sizes))).reshape(
            sizes
        )
    array = np.asarray(given)
    dtype = element.dtype
    if array.size == 1:
        return np.full(sizes, array.reshape(-1)[0], dtype)
    return array.astype(dtype).reshape(sizes)
