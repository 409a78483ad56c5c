"""unsigned_integers: values that are quantised to i8 and back go by u8, 128 more."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.rewrites.integers.quantised import quantised, quantiser

_SHIFT = 128


def unsigned_integers(network: Network) -> None:
    """Quantise to u8 instead of i8 where only DequantizeLinear reads it; nothing else changes.

    Instructions that multiply bytes take one operand without and one with sign. With oneDNN's
    products of i8 and i8, convolutions take 1.25 to 1.7 times as long (AVX-512 VNNI).
    """
    users = network.consumers()
    new: dict[Port, Port] = {}
    for node in network.nodes():
        node.inputs = [new.get(port, port) for port in node.inputs]
        if not isinstance(node.op, QuantizeLinear):
            continue
        parameters = quantiser(node)
        readers = [reader for reader, _ in users[node.output]]
        if parameters is None or parameters[2] is not ElementType.i8 or not readers:
            continue
        found = [quantised(reader.outputs[0]) if reader.outputs else None for reader in readers]
        if any(value is None for value in found):
            continue
        integers = _remade(node, QuantizeLinear(), node.inputs[0], parameters[1])
        for reader, value in zip(readers, found, strict=True):
            assert value is not None
            made = _remade(reader, DequantizeLinear(), integers, value.zero)
            made.names |= reader.output.names
            new[reader.output] = made


def _remade(node: Node, op: QuantizeLinear | DequantizeLinear, x: Port, zero: int) -> Port:
    point = constant(f"{node.name}/unsigned", np.asarray(zero + _SHIFT, np.uint8))
    build = Emitter(node.name, origins=node.layers)
    return build.replacement(node, op, x, node.inputs[1], point.output)
