"""What is quantised at run time is read for its range and rounded by one operation."""

from __future__ import annotations

from collections.abc import Mapping

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.arithmetic import Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.convolution import Convolution, GroupConvolution
from polydevice.ops.quantize_linear import QuantizeLinear
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.rewrites.integers.dynamic_range import DynamicRange
from polydevice.rewrites.integers.integer_product import IntegerProduct
from polydevice.rewrites.pattern import Replacements
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.rewrites.integer_product import integer_product
from polydevice_gpu.rewrites.pad_early import borders_of
from polydevice_gpu.rounded_ops import DynamicQuantize

_OF_ONE = (Convert, Reshape, Squeeze, Unsqueeze)
"""What leaves one number that is whole and less than 256 as it is."""


def quantise_at_once(network: Network, target: Target) -> None:
    """Put DynamicQuantize in the place of ranges and what quantises the same values by them.

    Convolutions that pad read the zero point where padding is (`IntegerConvolution`), or sum floats
    if they are depthwise; where the device has no such kernel, they get a border before
    (`pad_early`).
    """
    users, replacements, known = network.consumers(), Replacements(), dict[Node, Port]()
    for node in network.nodes():
        if not isinstance(node.op, QuantizeLinear) or not _is_by_its_range(node):
            continue
        ranges = node.inputs[1].node
        if ranges in known:
            replacements.put(node.output, known[ranges])
            continue
        readers = [each for each in _readers(ranges, users) if not _is_depthwise(each)]
        padding = [each for each in readers if borders_of(each) is not None]
        if not all(_fills(each, ranges.outputs[1], target) for each in padding):
            continue
        fills = max((-(-_channels(each) // 4) * 4 for each in padding), default=0)
        build = Emitter(node.name, origins=dict.fromkeys((*node.layers, *ranges.layers)))
        made = build.emit_all(DynamicQuantize(fills=fills), node.inputs[0])
        for before, after in zip((node.output, *ranges.outputs), made, strict=False):
            replacements.put(before, after)
        known[ranges] = made[0]
        for each in padding:
            assert isinstance(each.op, IntegerProduct)
            product = Emitter(each.name, origins=each.layers)
            inputs = [made[0], *each.inputs[1:]]
            replacements.put(
                each.output, *integer_product(product, each.op, inputs, target, made[3])
            )
    replacements.apply(network)


def _readers(ranges: Node, users: Mapping[Port, list[tuple[Node, int]]]) -> list[Node]:
    """Return what reads the bytes that are made by a range."""
    makers = [node for node, _ in users[ranges.outputs[0]] if _is_by_its_range(node)]
    return [reader for node in makers for reader, _ in users.get(node.output, ())]


def _is_depthwise(node: Node) -> bool:
    """Whether a node is a convolution of each channel by itself; see `floats_at_once`."""
    if not isinstance(node.op, IntegerProduct) or type(node.op.product) is not GroupConvolution:
        return False
    shape = node.inputs[1].shape
    return shape is not None and tuple(shape[1:3]) == (1, 1)


def _channels(node: Node) -> int:
    assert node.inputs[1].shape is not None
    return node.inputs[1].shape.static[1]


def _fills(node: Node, zero: Port, target: Target) -> bool:
    """Whether a convolution that pads can read a zero point that is found at run time."""
    if not isinstance(node.op, IntegerProduct) or type(node.op.product) is not Convolution:
        return False
    is_known = node.inputs[1].node.constant is not None
    return target.sums_byte_vectors and is_known and _is_number(node.inputs[3], zero)


def floats_at_once(network: Network) -> None:
    """Let what rounds make floats without a zero point, where all readers make these of bytes.

    Depthwise convolutions are such, which sum floats: nine of a MobileNetV2, whose bytes became
    floats by a launch each, take 0.4 ms less (Intel's runtime, November 2026).
    """
    users, replacements = network.consumers(), Replacements()
    for node in network.nodes():
        if not isinstance(node.op, DynamicQuantize) or node.op.floats:
            continue
        y, _, zero, *_ = node.outputs
        wide = [reader for reader, _ in users.get(y, ())]
        made = [reader for each in wide for reader, _ in users.get(each.output, ())]
        if not made or not all(_makes_floats(each) for each in wide):
            continue
        if not all(_is_without(each, zero, wide) for each in made):
            continue
        build = Emitter(node.name, origins=node.layers)
        floats, *numbers = build.emit_all(node.op.replace(floats=True), *node.inputs)
        for before, after in zip(node.outputs[1:], numbers, strict=True):
            replacements.put(before, after)
        for each in made:
            replacements.put(each.output, floats)
    replacements.apply(network)


def _makes_floats(node: Node) -> bool:
    return isinstance(node.op, Convert) and node.op.destination_type is ElementType.f32


def _is_without(node: Node, zero: Port, wide: list[Node]) -> bool:
    """Whether a node subtracts a zero point from one of the floats that bytes became."""
    if not isinstance(node.op, Subtract) or node.inputs[0].node not in wide:
        return False
    return _is_number(node.inputs[1], zero) and node.output.shape == node.inputs[0].shape


def _is_number(port: Port, zero: Port) -> bool:
    """Whether a port is a zero point, in whatever type and shape."""
    while port is not zero and isinstance(port.node.op, _OF_ONE):
        port = port.node.inputs[0]
    return port is zero


def _is_by_its_range(node: Node) -> bool:
    """Whether a node quantises what a range was found of by that range."""
    if len(node.inputs) < 3 or node.output.element_type is not ElementType.u8:
        return False
    x, scale, zero = node.inputs
    ranges = scale.node
    if not isinstance(ranges.op, DynamicRange) or [scale, zero] != ranges.outputs:
        return False
    return ranges.inputs == [x] and x.element_type is ElementType.f32
