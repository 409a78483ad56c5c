"""fuse_quantize: quantising and dequantising at once becomes FakeQuantize.

As one operation in f32 it can be a post-operation of what computes its input.
"""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.quantize import FakeQuantize
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice_cpu.passes.pattern import Replacements


def fuse_quantize(network: Network) -> None:
    """Replace pairs with the same constant scale and zero point, of u8 or i8."""
    made: dict[Port, Port] = {}
    replacements = Replacements()
    for node in network.nodes():
        inner = node.inputs[0].node if node.inputs else node
        if not isinstance(node.op, DequantizeLinear) or not isinstance(inner.op, QuantizeLinear):
            continue
        limits = _limits(node, inner)
        if limits is None:
            continue
        quantised = node.inputs[0]
        if quantised not in made:
            low, high = (
                constant(f"{node.name}/{name}", limit)
                for name, limit in zip(("low", "high"), limits, strict=True)
            )
            ports = [low.output, high.output] * 2
            fake = Node(node.name, FakeQuantize(levels=256), [inner.inputs[0], *ports])
            made[quantised] = fake.output
        replacements.put(node.output, made[quantised])
    replacements.apply(network)


def _limits(dequantise: Node, quantise: Node) -> tuple[Array, Array] | None:
    """The smallest and largest value that the pair gives; None where it is something else."""
    op, x = quantise.op, quantise.inputs[0]
    assert isinstance(op, QuantizeLinear)
    kind, rank = quantise.output.element_type.value, x.desc.rank
    if kind not in ("u8", "i8") or x.element_type.value != "f32" or rank is None:
        return None
    if op.block_size or dequantise.output.element_type.value != "f32":
        return None
    values = []
    for one, other in zip(quantise.inputs[1:], dequantise.inputs[1:], strict=False):
        first, second = one.node.constant, other.node.constant
        if first is None or second is None or not np.array_equal(first, second):
            return None
        values.append(first)
    if not values or len(quantise.inputs) != len(dequantise.inputs):
        return None
    scale = np.asarray(values[0], np.float64)
    zero = np.asarray(values[1], np.float64) if len(values) > 1 else np.zeros_like(scale)
    if scale.size > 1:
        same_axis = isinstance(dequantise.op, DequantizeLinear) and dequantise.op.axis == op.axis
        if scale.ndim != 1 or not same_axis:
            return None
        shape = [1] * rank
        shape[op.axis % rank] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    least, most = (0, 255) if kind == "u8" else (-128, 127)
    low, high = (least - zero) * scale, (most - zero) * scale
    largest = np.finfo(np.float32).max  # exceeded where a mask's -3.4e38 was quantised
    if not ((scale > 0) & (low >= -largest) & (high <= largest)).all():
        return None
    return low.astype(np.float32), high.astype(np.float32)
