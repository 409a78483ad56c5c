"""compress_constants: keep floating-point constants as f16, to halve a model's file."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice.network import Network, unique_name
from polydevice.node import Node
from polydevice.ops.convert import Convert
from polydevice.ops.io import Constant

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
        kept = Node(
            unique_name(network, f"{node.name}/compressed"),
            Constant(value.astype(np.float16), ElementType.f16),
        )
        convert = Convert(destination_type=node.output.element_type)
        behind = Node(node.name, convert, [kept.output], rt_info=node.rt_info)
        behind.output.names |= node.output.names
        for user, index in consumers[node.output]:
            user.inputs[index] = behind.output
