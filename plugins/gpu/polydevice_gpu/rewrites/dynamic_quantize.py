"""What is quantised at run time is read for its range and rounded by one operation."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.quantize_linear import QuantizeLinear
from polydevice.rewrites.integers.dynamic_range import DynamicRange
from polydevice.rewrites.pattern import Replacements
from polydevice_gpu.rounded_ops import DynamicQuantize


def quantise_at_once(network: Network) -> None:
    """Put DynamicQuantize in the place of ranges and what quantises the same values by them.

    What got a border in between (`pad_early`) stays as it is: the border is made as it is read.
    """
    replacements, known = Replacements(), dict[Node, Port]()
    for node in network.nodes():
        if not isinstance(node.op, QuantizeLinear) or not _is_by_its_range(node):
            continue
        ranges = node.inputs[1].node
        if ranges in known:
            replacements.put(node.output, known[ranges])
            continue
        build = Emitter(node.name, origins=dict.fromkeys((*node.layers, *ranges.layers)))
        made = build.emit_all(DynamicQuantize(), node.inputs[0])
        for before, after in zip((node.output, *ranges.outputs), made, strict=True):
            replacements.put(before, after)
        known[ranges] = made[0]
    replacements.apply(network)


def _is_by_its_range(node: Node) -> bool:
    """Whether a node quantises what a range was found of by that range."""
    if len(node.inputs) < 3 or node.output.element_type is not ElementType.u8:
        return False
    x, scale, zero = node.inputs
    ranges = scale.node
    if not isinstance(ranges.op, DynamicRange) or [scale, zero] != ranges.outputs:
        return False
    return ranges.inputs == [x] and x.element_type is ElementType.f32
