"""Node: one use of an operation, and the arithmetic that makes further ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.graph.node_ends import NodeEnds
from polydevice.compat.openvino.graph.ports import ConstOutput
from polydevice.compat.openvino.graph.tensor import Tensor
from polydevice.compat.openvino.process import evaluate, new_name
from polydevice.compat.openvino.surface import Surface
from polydevice.compat.openvino.types.element_type import element_of
from polydevice.compat.openvino.types.rt_info import RTMap
from polydevice.compat.openvino.types.shapes import PartialShape
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


class Node(NodeEnds):
    """One use of an operation in a model."""

    __slots__ = ()
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

    @translated
    def set_arguments(self, arguments: Sequence[Any]) -> None:
        """Let the inputs read these."""
        self._node.inputs = [port_of(argument) for argument in arguments]
        self._node.infer(evaluate)

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


Shown = TypeVar("Shown", bound=Node)

_CLASSES: dict[type[Op], type[Node]] = {}


def shown_as(op: type[Op]) -> Callable[[type[Shown]], type[Shown]]:
    """Let a class show the nodes of an operation, where `Node` would be too little."""

    def register(cls: type[Shown]) -> type[Shown]:
        _CLASSES[op] = cls
        return cls

    return register


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
    kind, array = constant_value(value)
    return make(io.Constant(array, kind), [])._single()


def called(op: Op) -> str:
    """Return what OpenVINO's API calls an operation."""
    return _CALLED.get(op.type, op.type)


def _attributes(op: Op) -> dict[str, str]:
    """Return name in IR files → field, of those that are there."""
    return {
        field.metadata.get("ir") or field.name: field.name
        for field in dataclasses.fields(op)
        if field.metadata.get("ir") != ""
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, CoreShape):
        return [size if isinstance(size, int) else str(size) for size in value]
    return list(value) if isinstance(value, tuple) else value


def constant_value(value: Any, shared: bool = False) -> tuple[ElementType, Array]:
    """Return type and memory of a constant made of an array, a tensor or numbers."""
    if isinstance(value, Tensor):
        array = value._memory()
        return value._element, array if shared else array.copy()
    array = np.asarray(value)
    element = ElementType.of(array.dtype)
    array = array.astype(object) if element is ElementType.string else array
    return element, array if shared and array is value else np.array(array, order="C")
