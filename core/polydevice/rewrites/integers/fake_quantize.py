"""split_fake_quantize: FakeQuantize in front of quantised products as QuantizeLinear and back."""

from __future__ import annotations

import math

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Evaluate, Node, Port, constant
from polydevice.ops.activation import Clamp
from polydevice.ops.quantize import FakeQuantize
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.rewrites.integers.movement import data_inputs, moves
from polydevice.rewrites.integers.products import PRODUCTS
from polydevice.rewrites.integers.quantised import known, quantised_constant

NEAR = 1e-3
"""How far a zero point may be from an integer, in steps: limits in files are rounded to f32."""


@dataclass(frozen=True)
class Grid:
    """The numbers (k - zero) * scale for k of a narrow type."""

    scale: float
    zero: int


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
    if x.element_type is not ElementType.f32 or op.levels > 256 or x.node.constant is not None:
        return None
    if any(array is None or array.size != 1 for array in limits):
        return None
    low, high, out_low, out_high = (
        float(array.reshape(-1)[0]) for array in limits if array is not None
    )
    inside, outside = _grid(op.levels, low, high), _grid(op.levels, out_low, out_high)
    if inside is None or outside is None or node.output.shape != x.shape:
        return None
    build = Emitter(node.name, origins=node.layers)
    if op.levels < 256:  # beyond the limits there are integers that no level has
        x = build.emit(Clamp(low, high), x, name=f"{node.name}/limits")
    quantise = _parameters(node, "input", inside)
    dequantise = _parameters(node, "output", outside)
    integers = build.emit(QuantizeLinear(), x, *quantise, name=f"{node.name}/quantise")
    return build.replacement(node, DequantizeLinear(), integers, *dequantise)


def _grid(levels: int, low: float, high: float) -> Grid | None:
    """The grid with these ends; None unless 0 is on it, or as good as on it."""
    if not (math.isfinite(low) and math.isfinite(high) and high > low) or levels < 2:
        return None
    scale = (high - low) / (levels - 1)
    zero = -low / scale
    nearest = round(zero) if abs(zero) < 1 << 16 else -1
    if not 0 <= nearest < levels or abs(zero - nearest) > NEAR:
        return None
    return Grid(scale, nearest)


def _parameters(node: Node, side: str, grid: Grid) -> list[Port]:
    return [
        constant(f"{node.name}/{side}_scale", np.float32(grid.scale)).output,
        constant(f"{node.name}/{side}_zero", np.uint8(grid.zero)).output,
    ]
