"""raise_strides: what nobody reads of a convolution's results is not computed.

A window of one element that moves in steps reads but one of several elements. Where nothing else
reads the others, as between the stages of a ResNet (its first form, and Keras'), the convolution
before it makes the steps, and what is added to that is thinned out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.activation import PRelu, slope_shape
from polydevice.ops.convolution import Convolution
from polydevice.ops.normalization import BatchNormInference, BatchNormInferenceV1
from polydevice.ops.op import Op
from polydevice.ops.pointwise import AutoBroadcast, BinaryPointwise, UnaryPointwise
from polydevice.ops.pooling import MaxPool
from polydevice.ops.quantize import FakeQuantize
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.ops.window import PadType
from polydevice.rewrites.pattern import Replacements
from polydevice.rewrites.wishes import Wishes
from polydevice.shape import DimLike, Shape, are_same, is_one

_FLOATS = (ElementType.bf16, ElementType.f16, ElementType.f32)

Steps = tuple[int, ...]
"""One for each spatial axis: each element so far from the one before is read."""


def raise_strides(network: Network, wishes: Wishes) -> int:
    """Let convolutions compute what is read of them alone; return how many do.

    A ResNet-50 for 224x224 pixels with three such places takes 56.6 instead of 62.3 ms (AVX2).
    """
    del wishes  # all devices gain
    skips = _Skips(network)
    if not skips.steps:
        return 0
    replacements = Replacements()
    few: dict[Port, Port] = {}
    count = 0
    for node in network.nodes():
        if len(node.outputs) != 1:
            continue
        if isinstance(node.op, Convolution):
            made = _convolution(node, skips, few, replacements)
        elif node.output in skips.steps:
            made = _pointwise(node, skips, few, replacements)
        else:
            continue
        if made is None:
            continue
        if node.output not in skips.steps:
            replacements.put(node.output, made)
            continue
        few[node.output] = made
        count += isinstance(node.op, Convolution)
    replacements.apply(network)
    return count


class _Skips:
    """What is read of ports.

    Attributes:
        steps: of ports of which elements are left out, where that spares a convolution something.
    """

    def __init__(self, network: Network) -> None:
        nodes, self.steps = network.nodes(), dict[Port, Steps]()
        if not any(map(_is_stepping_point, nodes)):
            return
        users = network.consumers()
        for node in reversed(nodes):
            if len(node.outputs) != 1 or not _may_step(node):
                continue
            steps = _common([self._passed(*reader) for reader in users[node.output]])
            if steps is not None:
                self.steps[node.output] = steps
        for node in nodes:
            steps = self.steps.get(node.output) if len(node.outputs) == 1 else None
            if steps is None or isinstance(node.op, Convolution):
                continue
            if not any(node.inputs[place] in self.steps for place in _data(node) or ()):
                del self.steps[node.output]

    def _passed(self, reader: Node, place: int) -> Steps | None:
        """What a node reads of an input; None for all of it."""
        if isinstance(reader.op, Convolution):
            steps = self.of_convolution(reader)
            return steps if place == 0 and _is_point(reader) else None
        data = _data(reader) if len(reader.outputs) == 1 else None
        return self.steps.get(reader.output) if data is not None and place in data else None

    def of_convolution(self, node: Node) -> Steps:
        """What a convolution has to move in, so that it computes what is read."""
        own = _strides(node)
        return tuple(map(math.prod, zip(own, self.steps.get(node.output, (1,) * len(own)))))


def _common(found: Sequence[Steps | None]) -> Steps | None:
    """The steps that readers have in common; None where one reads all, or nobody anything."""
    every = [each for each in found if each is not None]
    if not every or len(every) < len(found):
        return None
    steps = tuple(math.gcd(*each) for each in zip(*every))
    return steps if max(steps) > 1 else None


def _convolution(
    node: Node, skips: _Skips, few: dict[Port, Port], replacements: Replacements
) -> Port | None:
    """The convolution that computes what is read, of what is computed; None if it is as it was."""
    op, (data, *rest) = node.operation(Convolution), node.inputs
    steps = skips.of_convolution(node)
    is_thin = data in few
    if not is_thin and node.output not in skips.steps:
        return None
    if is_thin:
        op = op.replace(strides=_left(steps, skips.steps[data]), auto_pad=PadType.VALID)
        data = few[data]
    else:
        pads = _pads(node)
        assert pads is not None, "a convolution that may step has borders that are known"
        begin, end = pads
        op = op.replace(strides=steps, pads_begin=begin, pads_end=end, auto_pad=PadType.EXPLICIT)
    build = Emitter(node.name, origins=node.layers)
    return build.replacement(node, op, replacements.now(data), *map(replacements.now, rest))


def _pointwise(
    node: Node, skips: _Skips, few: dict[Port, Port], replacements: Replacements
) -> Port:
    """The same function of what is read alone."""
    steps, data = skips.steps[node.output], _data(node) or ()
    build = Emitter(node.name, origins=node.layers)
    inputs = []
    for place, port in enumerate(node.inputs):
        is_thin = place in data and port in few
        given = few[port] if is_thin else replacements.now(port)
        left = _left(steps, skips.steps[port]) if is_thin else steps
        if place in data and max(left) > 1:
            pool = MaxPool(kernel=(1,) * len(left), strides=left)
            given = build.emit(pool, given, name=f"{port.node.name}/thinned")
        inputs.append(given)
    return build.replacement(node, node.op, *inputs)


def _left(steps: Steps, made: Steps) -> Steps:
    """The steps that are left where some were made before."""
    return tuple(each // early for each, early in zip(steps, made, strict=True))


def _may_step(node: Node) -> bool:
    """Whether a node can compute some of its results alone."""
    if isinstance(node.op, Convolution):
        return node.inputs[1].shape is not None and _pads(node) is not None
    data = _data(node)
    if data is None:
        return False
    return len(data) == 1 or node.output.element_type in _FLOATS


def _is_point(node: Node) -> bool:
    """Whether a convolution's window is one element, and there are no borders."""
    op, shape = node.operation(Convolution), node.inputs[1].shape
    if shape is None or not all(map(is_one, shape[3 if op.grouped else 2 :])):
        return False
    pads = _pads(node)
    return pads is not None and not any((*pads[0], *pads[1]))


def _is_stepping_point(node: Node) -> bool:
    """Whether a node is a convolution that leaves out some of what it could read."""
    return isinstance(node.op, Convolution) and _is_point(node) and max(_strides(node)) > 1


def _strides(node: Node) -> Steps:
    shape = node.inputs[1].shape
    assert shape is not None
    return node.operation(Convolution).window(shape).strides


def _pads(node: Node) -> tuple[Steps, Steps] | None:
    """Borders before and behind; None where they depend on sizes that are not known."""
    op, weights, data = node.operation(Convolution), node.inputs[1].shape, node.inputs[0].shape
    if weights is None:
        return None
    if not op.auto_pad.is_same:
        return op.window(weights).pads(())
    if data is None or not (data.is_static and weights.is_static):
        return None
    return op.window(weights).pads(data.static[2:])


def _data(node: Node) -> tuple[int, ...] | None:
    """Inputs of whose elements a result's is a function in its place; None for other nodes."""
    op, shape = node.op, node.output.shape
    if shape is None or not 3 <= len(shape) <= 5:
        return None
    if isinstance(op, BatchNormInference):
        return (2,) if isinstance(op, BatchNormInferenceV1) else (0,)
    if isinstance(op, (QuantizeLinear, DequantizeLinear)):
        by_channel = op.axis % len(shape) < 2
        are_alike = all(_has_numbers_of_channels(port, by_channel) for port in node.inputs[1:])
        return (0,) if are_alike and not op.block_size else None
    if isinstance(op, (PRelu, FakeQuantize)):
        is_alike = all(_is_alike(port.shape, shape, op) for port in node.inputs[1:])
        return (0,) if is_alike and node.inputs[0].shape == shape else None
    if isinstance(op, UnaryPointwise):
        return (0,)
    if not isinstance(op, BinaryPointwise) or op.auto_broadcast is not AutoBroadcast.NUMPY:
        return None
    places = [n for n, port in enumerate(node.inputs) if not _is_alike(port.shape, shape, op)]
    wide = [node.inputs[place].shape for place in places]
    if len(places) == 1:  # and nothing stretches it
        return tuple(places) if wide[0] is not None and len(wide[0]) == len(shape) else None
    are_whole = [each is not None and _are_equal(each[2:], shape[2:]) for each in wide]
    return tuple(places) if places and all(are_whole) else None


def _has_numbers_of_channels(port: Port, by_channel: bool) -> bool:
    """Whether scales are for all elements, or for channels."""
    known = port.shape if port.desc.is_static else None
    return known is not None and (by_channel or all(map(is_one, known)))


def _are_equal(sizes: Sequence[DimLike], others: Sequence[DimLike]) -> bool:
    """Whether sizes are known and equal; of unknown ones, one may stretch to the other."""
    return all(isinstance(size, int) for size in (*sizes, *others)) and are_same(sizes, others)


def _is_alike(sizes: Shape | None, wanted: Shape, op: Op) -> bool:
    """Whether a value has one number for all elements of a channel, or less."""
    if sizes is None:
        return False
    if isinstance(op, PRelu):
        sizes = slope_shape(wanted, sizes)
    return all(map(is_one, sizes[max(0, len(sizes) - len(wanted) + 2) :]))
