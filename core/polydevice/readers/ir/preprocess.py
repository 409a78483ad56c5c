"""The pre-process section of IR v10: mean values that are subtracted from one input."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.errors import ModelFormatError, WeightsError
from polydevice.network import Network, unique_name
from polydevice.node import Node
from polydevice.ops.arithmetic import Subtract
from polydevice.readers.ir.document import Element
from polydevice.readers.ir.weights import WeightsFile


def subtract_mean(network: Network, section: Element, weights: WeightsFile) -> None:
    """Insert a Subtract node behind the input that the section describes.

    The mean is one value per channel, or one image per channel stored with the weights.

    Raises:
        ModelFormatError: the input does not exist, or the section does not fit it.
        WeightsError: a mean image is not inside the weights.
    """
    channels = list(section.all("channel"))
    if not any(channel.children for channel in channels):
        return
    node = _input(network, section)
    shape, element_type = node.output.shape, node.output.element_type
    if shape is None or len(shape) < 3 or not element_type.is_float:
        raise ModelFormatError(
            f"the pre-process section needs a floating-point image as input; {node.name!r} is "
            f"{node.output.desc}"
        )
    if sorted(c.integer("id") for c in channels) != list(range(len(channels))) or (
        isinstance(shape[1], int) and shape[1] != len(channels)
    ):
        raise ModelFormatError(
            f"the pre-process section describes {len(channels)} channels; input {node.name!r} "
            f"has the shape {shape}"
        )
    channels.sort(key=lambda channel: channel.integer("id"))
    precision = ElementType.parse(section.attributes.get("mean-precision", "FP32"))
    size = tuple(s if isinstance(s, int) else 0 for s in shape[2:])
    mean = np.stack([_mean(channel, precision, size, weights) for channel in channels])
    build = Emitter(unique_name(network, f"{node.name}/subtract_mean"))
    name = unique_name(network, f"{node.name}/mean")
    value = build.value(mean[None].astype(element_type.dtype), name=name)
    consumers = network.consumers()[node.output]
    centred = build.emit(Subtract(), node.output, value)
    for user, index in consumers:
        user.inputs[index] = centred


def _input(network: Network, section: Element) -> Node:
    name = section.attributes.get("reference-layer-name", "")
    for node in network.parameters:
        rank = node.output.desc.rank
        if node.name == name or (not name and rank == 4):
            return node
    raise ModelFormatError(
        f"the pre-process section refers to input {name!r}; inputs: "
        f"{', '.join(node.name for node in network.parameters)}"
    )


def _mean(
    channel: Element, precision: ElementType, size: tuple[int, ...], weights: WeightsFile
) -> Array:
    scale = channel.child("scale")
    if scale is not None and _number(scale, "value") != 1.0:
        raise ModelFormatError(
            f"{channel}: a scale other than 1 is not defined for IR v10; put it into the network"
        )
    mean = channel.child("mean")
    if mean is None:
        raise ModelFormatError(f"{channel} has no mean; all channels need one, or none")
    if "value" in mean.attributes:
        return np.full((1,) * len(size), _number(mean, "value"))
    title = f"mean image of {channel}"
    length = mean.integer("size")
    needed = int(np.prod(size)) * precision.dtype.itemsize
    if length != needed:
        raise WeightsError(f"{title} has {length} bytes; {list(size)} of {precision} need {needed}")
    return weights.constant(precision, size, mean.integer("offset"), length, title)


def _number(element: Element, name: str) -> float:
    text = element.required(name)
    try:
        return float(text)
    except ValueError:
        raise ModelFormatError(f"{element}: {name}={text[:60]!r} is not a number") from None
