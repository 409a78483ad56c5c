"""AttributeProto → plain Python values."""

from __future__ import annotations

import copy
from typing import Any

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.errors import ModelFormatError
from polydevice.readers.onnx.protos.messages import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
)
from polydevice.readers.onnx.protos.tensors import TensorReader
from polydevice.readers.onnx.protos.types import desc_of_type
from polydevice.readers.onnx.scope import Scope
from polydevice.readers.onnx.signatures import Signature

_A = AttributeProto


@dataclass(frozen=True)
class Subgraph:
    """A graph attribute, with the scope whose values it can see."""

    proto: GraphProto
    scope: Scope


@dataclass(frozen=True)
class TensorValue:
    """A tensor attribute; the array alone would not tell u1 from u8."""

    array: Array
    element_type: ElementType


class AttributeReader:
    """Reads the attributes of nodes."""

    def __init__(self, tensors: TensorReader) -> None:
        self._tensors = tensors

    def read(self, node: NodeProto, signature: Signature | None, scope: Scope) -> dict[str, Any]:
        """Return name → value, with ONNX's defaults for attributes that are not given.

        Raises:
            ModelFormatError: for an attribute given twice, or without a legal value.
        """
        values: dict[str, Any] = {}
        if signature is not None:
            for name, known in signature.attributes.items():
                if known.default is not None:
                    values[name] = copy.copy(known.default)
        given: set[str] = set()
        for attribute in node.attribute:
            if attribute.name in given:
                raise ModelFormatError(f"attribute {attribute.name!r} is given twice")
            given.add(attribute.name)
            if attribute.ref_attr_name:
                if attribute.ref_attr_name in scope.bindings:
                    values[attribute.name] = scope.bindings[attribute.ref_attr_name]
                continue
            self._check_type(attribute, signature)
            values[attribute.name] = self.value(attribute, scope)
        return values

    def _check_type(self, attribute: AttributeProto, signature: Signature | None) -> None:
        if signature is None or attribute.name not in signature.attributes:
            return
        wanted = signature.attributes[attribute.name].type
        if wanted != attribute.type:
            raise ModelFormatError(
                f"attribute {attribute.name!r} has type {_type_name(attribute.type)}; "
                f"legal: {_type_name(wanted)}"
            )

    def defaults_of(self, function: FunctionProto, scope: Scope) -> dict[str, Any]:
        """Return the default values of a function's attributes."""
        return {a.name: self.value(a, scope) for a in function.attribute_proto}

    def value(self, attribute: AttributeProto, scope: Scope) -> Any:
        """Return one attribute's value; raises ModelFormatError for an unknown type."""
        kind = attribute.type
        if kind == _A.FLOAT:
            return attribute.f
        if kind == _A.INT:
            return attribute.i
        if kind == _A.STRING:
            return _text(attribute.s)
        if kind == _A.FLOATS:
            return list(attribute.floats)
        if kind == _A.INTS:
            return list(attribute.ints)
        if kind == _A.STRINGS:
            return [_text(item) for item in attribute.strings]
        if kind == _A.TENSOR:
            return TensorValue(*self._tensors.dense(attribute.t))
        if kind == _A.SPARSE_TENSOR:
            return TensorValue(*self._tensors.sparse(attribute.sparse_tensor))
        if kind == _A.GRAPH:
            return Subgraph(attribute.g, scope)
        if kind == _A.TYPE_PROTO:
            return desc_of_type(attribute.tp, attribute.name)
        raise ModelFormatError(
            f"attribute {attribute.name!r} has type {_type_name(kind)}, which is not supported"
        )


def resolved(node: NodeProto, values: dict[str, Any]) -> NodeProto:
    """Return a node in which references to attributes of a function are replaced by values."""
    if not any(attribute.ref_attr_name for attribute in node.attribute):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copy.attribute.append(attribute)
        elif attribute.name in values:
            value = values[attribute.name]
            if not isinstance(value, (int, float, str, list)):
                raise ModelFormatError(
                    f"attribute {attribute.name!r} of a function that depends on types must be a "
                    "number, a text or a list of these"
                )
            from onnx.helper import make_attribute  # functions that depend on types are rare

            copy.attribute.append(make_attribute(attribute.name, value))
    return copy


def _text(data: bytes) -> str:
    text: str = data.decode("utf-8", "surrogateescape")
    return text


def _type_name(code: int) -> str:
    names = {value: name for name, value in _A.AttributeType.items()}
    return str(names.get(code, code))
