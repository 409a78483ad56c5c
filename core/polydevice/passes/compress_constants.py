"""compress_constants: keep floating-point constants as f16, to halve a model's file."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network, unique_name
from polydevice.ops.convert import Convert

_LARGEST = float(np.finfo(np.float16).max)


def compress_constants(network: Network) -> None:
    """Store f32 and f64 constants as f16, with a conversion to their type behind each.

    A constant stays as it is when a value of it is too large for f16, or not finite.
    """
    consumers = network.consumers()
    for node in network.nodes():
        value = node.constant
        if value is None or node.output.element_type not in (ElementType.f32, ElementType.f64):
            continue
        if value.size == 0 or not np.abs(value).max() <= _LARGEST:
            continue
        build = Emitter(node.name, origins=node.origins)
        name = unique_name(network, f"{node.name}/compressed")
        kept = build.value(value.astype(np.float16), ElementType.f16, name=name)
        convert = Convert(destination_type=node.output.element_type)
        behind = build.replacement(node, convert, kept)
        behind.names |= node.output.names
        for user, index in consumers[node.output]:
            user.inputs[index] = behind
