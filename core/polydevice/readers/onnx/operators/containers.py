"""Sequences and optionals."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice.node import Port
from polydevice.ops.containers import (
    OptionalConstruct,
    OptionalGetElement,
    OptionalHasElement,
    SequenceConstruct,
    SequenceEmpty,
)
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.protos.element_types import element_type_of


@translates("SequenceConstruct")
def sequence_construct(n: OnnxNode) -> Port:
    """A sequence of the inputs."""
    return n.emit(SequenceConstruct(), *n.required_inputs())


@translates("SequenceEmpty")
def sequence_empty(n: OnnxNode) -> Port:
    """A sequence without tensors."""
    code = n.attribute("dtype")
    return n.emit(SequenceEmpty(ElementType.f32 if code is None else element_type_of(code)))


@translates("Optional")
def optional(n: OnnxNode) -> Port:
    """An optional of the input, or an empty one of the type in the attribute."""
    return n.emit(OptionalConstruct(n.attribute("type")), *n.required_inputs())


@translates("OptionalHasElement")
def optional_has_element(n: OnnxNode) -> Port:
    """Known at once where the input is not an optional."""
    x = n.optional(0)
    if x is None:
        return n.value(np.array(False))
    if not x.desc.kind.startswith("optional"):
        return n.value(np.array(True))
    return n.emit(OptionalHasElement(), x)


@translates("OptionalGetElement")
def optional_get_element(n: OnnxNode) -> Port:
    """What is no optional is returned as it is."""
    x = n.input(0)
    return n.emit(OptionalGetElement(), x) if x.desc.kind.startswith("optional") else x
