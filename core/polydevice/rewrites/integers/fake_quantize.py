"""split_fake_quantize: FakeQuantize in front of quantised products as QuantizeLinear and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Evaluate, Node, Port, constant
from polydevice.ops.activation import Clamp
from polydevice.ops.arithmetic import Multiply
from polydevice.ops.convolution import GroupConvolution, GroupConvolutionBackpropData
from polydevice.ops.pointwise import AutoBroadcast
from polydevice.ops.quantize import FakeQuantize
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.rewrites.integers.movement import data_inputs, moves
from polydevice.rewrites.integers.products import PRODUCTS
from polydevice.rewrites.integers.quantised import grid, known, quantised_constant

_LEAST_STEP = 1e-30
"""What is divided by less, or by more than its inverse, may be no normal f32 number."""


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
    users = network.consumers()
    for node in nodes:
        node.inputs = [new.get(port, port) for port in node.inputs]
        if isinstance(node.op, FakeQuantize):
            made = _split(node) or _split_by_channel(node, users[node.output], network.evaluate)
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


def _split_by_channel(
    node: Node, users: Sequence[tuple[Node, int]], evaluate: Evaluate | None
) -> Port | None:
    """The same with limits for each channel, where windows of single channels read all of it.

    Their weights take over the scales, so that one is left for all channels.
    """
    op, x = node.operation(FakeQuantize), node.inputs[0]
    limits = [_by_channel(known(port), x.desc.rank) for port in node.inputs[1:]]
    if x.element_type is not ElementType.f32 or op.levels > 256 or known(x) is not None:
        return None
    if node.output.shape != x.shape or op.auto_broadcast is not AutoBroadcast.NUMPY or not users:
        return None
    low, high, *ends = (np.zeros(0) if array is None else array for array in limits)
    if not (low.size and high.size and all(array.size for array in ends)):
        return None
    inside, outside = grid(op.levels, low, high), grid(op.levels, *ends)
    if inside is None or outside is None:
        return None
    (steps, zeros), (scales, points) = inside, outside
    if any((each != each.flat[0]).any() for each in (zeros, points)):
        return None
    weights = [_scaled(user, place, scales, evaluate) for user, place in users]
    if steps.min() < _LEAST_STEP or steps.max() > 1 / _LEAST_STEP or None in weights:
        return None
    for (user, _), port in zip(users, weights, strict=True):
        assert port is not None
        user.inputs[1] = port
    build, zero = Emitter(node.name, origins=node.layers), int(zeros.flat[0])
    x = build.emit(Multiply(), x, (1 / steps).astype(np.float32), name=f"{node.name}/steps")
    if op.levels < 256:
        last = float(op.levels - 1 - zero)
        x = build.emit(Clamp(float(-zero), last), x, name=f"{node.name}/limits")
    one = np.ones((), np.float32)
    quantise, dequantise = (
        _parameters(node, side, one, each.reshape(-1)[0])
        for side, each in (("input", zeros), ("output", points))
    )
    integers = build.emit(QuantizeLinear(), x, *quantise, name=f"{node.name}/quantise")
    return build.replacement(node, DequantizeLinear(), integers, *dequantise)


def _by_channel(limits: Array | None, rank: int | None) -> Array | None:
    """Limits with as many axes as the source, of which only that of channels is longer than 1."""
    if limits is None or rank is None or rank < 3 or not 0 < limits.ndim <= rank:
        return None
    shape = [1] * (rank - limits.ndim) + list(limits.shape)
    return limits.reshape(shape) if limits.size == shape[1] else None


def _scaled(node: Node, place: int, scales: Array, evaluate: Evaluate | None) -> Port | None:
    """Weights of windows of single channels, those of each times its scale; None for others."""
    if place or not isinstance(node.op, (GroupConvolution, GroupConvolutionBackpropData)):
        return None
    weights = quantised_constant(node.inputs[1], evaluate)
    if weights is None or weights.lacking.any() or set(weights.scale.shape[3:]) - {1}:
        return None
    sources = 1 if isinstance(node.op, GroupConvolutionBackpropData) else 2
    groups, rank = weights.integers.shape[0], weights.integers.ndim
    if weights.integers.shape[sources] != 1 or scales.size not in (1, groups):
        return None
    factor = (weights.scale * scales.reshape(-1, *[1] * (rank - 1))).astype(np.float32)
    if not np.isfinite(factor).all():
        return None
    build = Emitter(f"{node.name}/weights", origins=node.layers)
    whole = build.convert(build.value(weights.integers), ElementType.f32)
    return build.emit(Multiply(), whole, factor)


def _parameters(node: Node, side: str, scale: Array, zero: Array) -> list[Port]:
    return [
        constant(f"{node.name}/{side}_scale", scale.astype(np.float32)).output,
        constant(f"{node.name}/{side}_zero", zero.astype(np.uint8)).output,
    ]
