"""``openvino.utils.types``."""

from __future__ import annotations

from typing import Any

import numpy as np

from polydevice.compat.openvino.graph.node import Node
from polydevice.compat.openvino.graph.ports import Output
from polydevice.compat.openvino.graph.terminals import Constant
from polydevice.compat.openvino.types.element_type import Type
from polydevice.dtype import Array

__all__ = [
    "NodeInput",
    "NumericData",
    "NumericType",
    "ScalarData",
    "TensorShape",
    "as_node",
    "as_nodes",
    "get_dtype",
    "get_element_type",
    "get_element_type_str",
    "get_ndarray",
    "get_numpy_ctype",
    "get_shape",
    "make_constant_node",
]

TensorShape = list[int]
NumericData = int | float | list[Any] | np.ndarray[Any, Any]
NumericType = type | np.dtype[Any]
ScalarData = int | float
NodeInput = Node | Output | NumericData


def get_element_type(data_type: Any) -> Type:
    """Return the Type of a NumPy type, or of Python's float and int, which mean f32 and i32."""
    return Type({float: np.float32, int: np.int32}.get(data_type, data_type))


def get_element_type_str(data_type: Any) -> str:
    """Return the name of the Type; see `get_element_type`."""
    return get_element_type(data_type).type_name


def get_dtype(openvino_type: Type) -> np.dtype[Any]:
    """Return NumPy's type."""
    return openvino_type.to_dtype()


def get_numpy_ctype(openvino_type: Type) -> type:
    """Return NumPy's scalar type."""
    return openvino_type.to_dtype().type


def get_ndarray(data: Any) -> Array:
    """Return a value as an array."""
    return np.asarray(data)


def get_shape(data: Any) -> list[int]:
    """Return the sizes of a value."""
    return list(np.shape(data))


def make_constant_node(value: Any, dtype: Any = None, *, name: str | None = None) -> Constant:
    """Return a constant of a value; of another type where one is given."""
    array = np.asarray(value)
    kind = None if dtype is None else get_element_type(dtype).to_dtype()
    made = Constant(array if kind is None else array.astype(kind))
    if name is not None:
        made.set_friendly_name(name)
    return made


def as_node(input_value: Any, name: str | None = None) -> Any:
    """Return a node or output itself, and anything else as a constant."""
    if isinstance(input_value, (Node, Output)):
        return input_value
    return make_constant_node(input_value, name=name)


def as_nodes(*input_values: Any, name: str | None = None) -> list[Any]:
    """Return each value as a node; see `as_node`."""
    return [as_node(value, name=name) for value in input_values]
