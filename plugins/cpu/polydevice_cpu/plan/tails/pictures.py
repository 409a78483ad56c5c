"""Pictures of which a tail pools regions: given channels last, as convolutions leave them.

Detectors know their regions only from the data. A map of 256 channels of 50x68 would take 5 ms to
become planes for the tail, and 2 to become what regions are pooled of there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.io import Parameter
from polydevice.ops.roi import ROIAlign, ROIPooling
from polydevice.shape import Shape
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice_cpu.plan.building.builder import PlanBuilder


def pictures_of(
    nodes: Sequence[Node], boundary: Iterable[Port], wanted: Collection[Port]
) -> frozenset[Port]:
    """Return ports of the boundary that nodes read as pictures of regions alone."""
    found, others = set[Port](), set(wanted)
    for node in nodes:
        has_regions = isinstance(node.op, (ROIAlign, ROIPooling))
        for number, port in enumerate(node.inputs):
            is_picture = has_regions and number == 0 and port.element_type is ElementType.f32
            (found if is_picture else others).add(port)
    return frozenset(found.intersection(boundary) - others)


def channels_last(builder: PlanBuilder, port: Port) -> Value:
    """Return the value of a picture, channels last."""
    value = builder.value(port)
    if not value.in_reach:
        return builder.array_value(port)
    return builder.in_layout(value, Descriptor.channels_last(value.shape))


def take_turned(network: Network, given: Iterable[Port], pictures: Collection[Port]) -> None:
    """Let the inputs that are pictures, of those given, have their channels as the last axis."""
    replaced: dict[Port, Port] = {}
    for parameter, port_given in zip(network.parameters, given, strict=False):
        port = parameter.output
        if port_given not in pictures or port.shape is None:
            continue
        images, channels, *sizes = port.shape
        parameter.op = Parameter(port.element_type, Shape([images, *sizes, channels]))
        parameter.infer()
        build = Emitter(parameter.name, evaluate=network.evaluate)
        replaced[port] = build.transpose(port, (0, 3, 1, 2))
    network.replace(replaced)
