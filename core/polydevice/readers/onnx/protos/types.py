"""TypeProto ↔ TensorDesc."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.errors import ModelFormatError
from polydevice.readers.onnx.protos.element_types import code_of, element_type_of
from polydevice.readers.onnx.protos.messages import TensorShapeProto, TypeProto
from polydevice.shape import Dim, DimLike, Shape
from polydevice.tensor import TensorDesc


def desc_of_type(proto: TypeProto, name: str) -> TensorDesc:
    """Describe a value of an ONNX type.

    ``seq(tensor)`` has kind "sequence"; ``optional(tensor)`` and ``optional(seq(tensor))`` have
    kind "optional" and "optional_sequence".

    Raises:
        ModelFormatError: for maps, opaque types and deeper nesting.
    """
    kind = proto.WhichOneof("value")
    if kind == "optional_type":
        inner = proto.optional_type.elem_type
        if inner.WhichOneof("value") == "optional_type":
            raise ModelFormatError(f"{name!r}: an optional of an optional is not supported")
        item = desc_of_type(inner, name)
        of_sequence = item.kind == "sequence"
        return TensorDesc(
            item.element_type,
            item.shape,
            kind="optional_sequence" if of_sequence else "optional",
        )
    if kind == "sequence_type":
        inner = proto.sequence_type.elem_type
        if inner.WhichOneof("value") != "tensor_type":
            raise ModelFormatError(f"{name!r}: only sequences of tensors are supported")
        item = desc_of_type(inner, name)
        return TensorDesc(item.element_type, item.shape, kind="sequence")
    if kind != "tensor_type":
        raise ModelFormatError(f"{name!r} has type {kind or 'unknown'}; only tensors are supported")
    tensor = proto.tensor_type
    if not tensor.elem_type:
        return TensorDesc(ElementType.dynamic)
    element_type = element_type_of(tensor.elem_type)
    if not tensor.HasField("shape"):
        return TensorDesc(element_type)
    return TensorDesc(element_type, Shape(_size(dim, name) for dim in tensor.shape.dim))


def _size(dim: TensorShapeProto.Dimension, name: str) -> DimLike:
    if dim.WhichOneof("value") != "dim_value":
        return Dim()
    size = int(dim.dim_value)
    # Some exporters write -1 for unknown.
    if size < -1:
        raise ModelFormatError(f"{name!r} has a size of {size}")
    return Dim() if size == -1 else size


def type_of_desc(desc: TensorDesc | None) -> TypeProto:
    """Return the ONNX type for a described value; None (an omitted input) gives an empty one."""
    proto = TypeProto()
    if desc is None:
        return proto
    inner = proto
    if desc.kind in ("optional", "optional_sequence"):
        inner = inner.optional_type.elem_type
    if desc.kind in ("sequence", "optional_sequence"):
        inner = inner.sequence_type.elem_type
    tensor = inner.tensor_type
    tensor.elem_type = code_of(desc.element_type)
    if desc.shape is not None:
        tensor.shape.SetInParent()
        for size in desc.shape:
            dim = tensor.shape.dim.add()
            if isinstance(size, int):
                dim.dim_value = size
    return proto
