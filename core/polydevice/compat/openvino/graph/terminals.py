"""Parameter, Constant and Result: where a graph begins and ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.graph.node import Node, constant_value, make, port_of, shown_as
from polydevice.compat.openvino.graph.tensor import Tensor
from polydevice.compat.openvino.types.element_type import Type, element_of
from polydevice.compat.openvino.types.layout import NOTE, Layout, layout_of
from polydevice.compat.openvino.types.packing import unpacked
from polydevice.compat.openvino.types.shapes import PartialShape, Strides, core_shape
from polydevice.dtype import Array, ElementType
from polydevice.ops import io


class _WithLayout(Node):
    """A node whose axes mean something."""

    __slots__ = ()

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


@shown_as(io.Parameter)
class Parameter(_WithLayout):
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

    def __repr__(self) -> str:
        port = self._node.outputs[0]
        kind = "float" if port.element_type is ElementType.f32 else port.element_type.value
        return f"<Parameter: {self._node.name!r} ({PartialShape._of(port.shape)}, {kind})>"


@shown_as(io.Constant)
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
            element, array = constant_value(values[0], shared)
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


@shown_as(io.Result)
class Result(_WithLayout):
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
