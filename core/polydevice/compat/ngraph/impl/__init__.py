"""``ngraph.impl``: the classes of graphs."""

from __future__ import annotations

from polydevice.compat.ngraph.impl import op
from polydevice.compat.openvino.graph.node import Node
from polydevice.compat.openvino.models.model import Model
from polydevice.compat.openvino.types.element_type import Type
from polydevice.compat.openvino.types.shapes import (
    AxisSet,
    AxisVector,
    Coordinate,
    CoordinateDiff,
    Dimension,
    PartialShape,
    Shape,
    Strides,
)

__all__ = [
    "AxisSet",
    "AxisVector",
    "Coordinate",
    "CoordinateDiff",
    "Dimension",
    "Function",
    "Node",
    "PartialShape",
    "Shape",
    "Strides",
    "Type",
    "op",
]


class Function(Model):
    """A graph of operations with inputs and outputs."""

    __slots__ = ()

    @staticmethod
    def to_capsule(arg0: Model) -> Model:
        """Return what `IENetwork` takes."""
        return arg0

    @staticmethod
    def from_capsule(arg0: Model) -> Function:
        """Return the graph that `to_capsule` was given."""
        return Function._of(arg0._network)
