"""How the inputs and outputs of a node with a body are tied to that body."""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import Self

from polydevice.compat.openvino.graph.node import DiscreteTypeInfo
from polydevice.dataclass import dataclass
from polydevice.ops.control_flow import Slicing


@dataclass
class Description:
    """Ties an end of the node to one of the body."""

    def copy(self) -> Self:
        """Return another of the same numbers."""
        return replace(self)

    def get_type_info(self) -> DiscreteTypeInfo:
        """Return what kind of tie it is."""
        return DiscreteTypeInfo(type(self).__name__, "")


@dataclass
class InputDescription(Description):
    """Ties an input of the node to a parameter of the body."""

    input_index: int = 0
    body_parameter_index: int = 0


@dataclass
class InvariantInputDescription(InputDescription):
    """The parameter is the same in every iteration."""


@dataclass
class MergedInputDescription(InputDescription):
    """The parameter is the result `body_value_index` of the iteration before."""

    body_value_index: int = 0


@dataclass
class SliceInputDescription(InputDescription):
    """The parameter is one part of the input after the other."""

    start: int = 0
    stride: int = 0
    part_size: int = 0
    end: int = 0
    axis: int = 0


@dataclass
class OutputDescription(Description):
    """Ties a result of the body to an output of the node."""

    body_value_index: int = 0
    output_index: int = 0


@dataclass
class BodyOutputDescription(OutputDescription):
    """The output is the result of the last iteration, -1."""

    iteration: int = -1


@dataclass
class ConcatOutputDescription(OutputDescription):
    """The output is the results of all iterations, joined."""

    start: int = 0
    stride: int = 0
    part_size: int = 0
    end: int = 0
    axis: int = 0


def cut_of(given: SliceInputDescription | ConcatOutputDescription) -> Slicing:
    """Return core's form of where parts lie."""
    return Slicing(given.axis, given.start, given.end, given.stride, given.part_size)
