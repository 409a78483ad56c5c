"""split_fake_quantize: FakeQuantize in front of quantised products as QuantizeLinear and back."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Evaluate, Node, Port, constant
from polydevice.ops.activation import Clamp
from polydevice.ops.quantize import FakeQuantize
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.rewrites.integers.movement import data_inputs, moves
from polydevice.rewrites.integers.products import PRODUCTS
from polydevice.rewrites.integers.quantised import grid, known, quantised_constant


def split_fake_quantize(network: Network) -> None:
    """Split FakeQuantize where products with quantised weights read some of what it makes.

    In such a network all others become pairs too: what is neither multiplied nor moved is put
    together again by devices that like it better, or kept as integers for its size.
    """
    nodes = network.nodes()
    if not any(isinstance(node.op, FakeQuantize) for node in nodes):
        return
    if not _has_quantised_products(nodes, network.evaluate):
        return
    new: dict[Port, Port] = {}
    for node in nodes:
        node.inputs = [new.get(port, port) for port in node.inputs]
        if isinstance(node.op, FakeQuantize):
            made = _split(node)
            if made is not None:
                made.names |= node.output.names
                new[node.output] = made


def _has_quantised_products(nodes: list[Node], evaluate: Evaluate | None) -> bool:
    """Whether a product with quantised weights reads quantised values, moved perhaps."""
    found: set[Port] = set()
    for node in reversed(nodes):
        if isinstance(node.op, FakeQuantize) and node.output in found:
            return True
        if isinstance(node.op, PRODUCTS):
            if quantised_constant(node.inputs[1], evaluate) is not None:
                found.add(node.inputs[0])
        elif moves(node) and any(port in found for port in node.outputs):
            found.update(data_inputs(node))
    return False


def _split(node: Node) -> Port | None:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, FakeQuantize)
    limits = [known(port) for port in node.inputs[1:]]
    if x.element_type is not ElementType.f32 or op.levels > 256 or known(x) is not None:
        return None
    if any(array is None or array.size != 1 for array in limits):
        return None
    low, high, *ends = (array.reshape(()) for array in limits if array is not None)
    inside, outside = grid(op.levels, low, high), grid(op.levels, *ends)
    if inside is None or outside is None or node.output.shape != x.shape:
        return None
    build = Emitter(node.name, origins=node.layers)
    if op.levels < 256:  # beyond the limits there are integers that no level has
        x = build.emit(Clamp(float(low), float(high)), x, name=f"{node.name}/limits")
    quantise = _parameters(node, "input", *inside)
    dequantise = _parameters(node, "output", *outside)
    integers = build.emit(QuantizeLinear(), x, *quantise, name=f"{node.name}/quantise")
    return build.replacement(node, DequantizeLinear(), integers, *dequantise)


def _parameters(node: Node, side: str, scale: Array, zero: Array) -> list[Port]:
    return [
        constant(f"{node.name}/{side}_scale", scale.astype(np.float32)).output,
        constant(f"{node.name}/{side}_zero", zero.astype(np.uint8)).output,
    ]
