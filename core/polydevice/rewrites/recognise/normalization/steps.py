"""Mean and variance in steps, as ONNX writes them below opset 17, are one MVN.

Found are ``c / sqrt(mean(c²) + ε)`` and ``c / (sqrt(mean(c²)) + ε)`` with ``c = x - mean(x)``, over
any axes, with the square written as Power, Multiply or SquaredDifference, and with the root's
reciprocal as a factor; without the mean, the same is a root mean square normalisation, NormalizeL2
times a number.
"""

from __future__ import annotations

import math
from dataclasses import field

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network, namer
from polydevice.node import Node, Port
from polydevice.ops.arithmetic import (
    Add,
    Divide,
    Multiply,
    Power,
    SquaredDifference,
    Subtract,
)
from polydevice.ops.math import Sqrt
from polydevice.ops.normalization import MVN, EpsMode, NormalizeL2
from polydevice.ops.reduce import ReduceMean
from polydevice.rewrites.facts import Declined, is_known, numbers_of, size_of
from polydevice.rewrites.pattern import Users, scalar
from polydevice.rewrites.wishes import Wishes
from polydevice.shape import normalize_axis

_FLOATS = (ElementType.f16, ElementType.f32)


@dataclass
class _Found:
    """A normalisation in the making.

    Attributes:
        last: the node that divides.
        nodes: all that is part of it.
        x: what is normalised.
        axes: over which, sorted.
        eps: what keeps the divisor from 0.
        inside: whether that is added under the root.
        centred: whether the mean is subtracted.
    """

    last: Node
    nodes: list[Node] = field(default_factory=list)
    x: Port | None = None
    axes: tuple[int, ...] = ()
    eps: float = 0.0
    inside: bool = True
    centred: bool = True


def recognise_normalizations(network: Network, wishes: Wishes) -> int:
    """Put normalisations that a device wants in the place of their steps; return how many."""
    wanted = [op for op in (MVN, NormalizeL2) if op in wishes.recognise]
    if not wanted:
        return 0
    users, unique = network.consumers(), namer(network)
    replaced: dict[Port, Port] = {}
    for node in network.nodes():
        found = None if wishes.leave(node) else _find(node)
        if found is None or found.x is None or found.x.element_type not in _FLOATS:
            continue
        when = wishes.recognise.get(MVN if found.centred else NormalizeL2)
        if when is None or node.output.shape != found.x.shape or not _is_closed(found, users):
            continue  # a number of higher rank adds axes, or someone else reads a step
        origins = dict.fromkeys(layer for each in found.nodes for layer in each.layers)
        build = Emitter(node.name, evaluate=network.evaluate, origins=origins)
        try:
            made = _made(build, found, found.x)
        except Declined:
            continue
        if when(made.node if found.centred else made.node.inputs[0].node):
            build.name_nodes([made], unique, old=node)
            replaced[node.output] = made
    network.replace(replaced)
    return len(replaced)


def _is_closed(found: _Found, users: Users) -> bool:
    """Whether nobody else reads a value between the steps."""
    inside = set(found.nodes)
    steps = [each.output for each in found.nodes if each is not found.last]
    return all(user in inside for step in steps for user, _ in users.get(step, ()))


def _find(node: Node) -> _Found | None:
    """Return the normalisation that ends with a node: a quotient, or a product with 1 / root."""
    op = node.op
    found = _Found(node, [node])
    if isinstance(op, Divide):
        return found if _root(found, node.inputs[1]) and _matches(found, node.inputs[0]) else None
    if not isinstance(op, Multiply):
        return None
    for data, factor in (node.inputs, node.inputs[::-1]):
        found = _Found(node, [node])
        if _reciprocal(found, factor) and _matches(found, data):
            return found
    return None


def _reciprocal(found: _Found, value: Port) -> bool:
    """Look for 1 / root, or a power of -1/2."""
    op, node = value.node.op, value.node
    found.nodes.append(node)
    if isinstance(op, Divide) and scalar(node.inputs[0]) == 1:
        return _root(found, node.inputs[1])
    if isinstance(op, Power) and scalar(node.inputs[1]) == -0.5:
        return _sum(found, node.inputs[0])
    return False


def _root(found: _Found, value: Port) -> bool:
    """Look for sqrt(variance + eps), or sqrt(variance) + eps."""
    op, node = value.node.op, value.node
    found.nodes.append(node)
    if isinstance(op, Sqrt) or (isinstance(op, Power) and scalar(node.inputs[1]) == 0.5):
        return _sum(found, node.inputs[0])
    if isinstance(op, Add):
        for value_, eps in (node.inputs, node.inputs[::-1]):
            number, root = scalar(eps), value_.node
            if number is not None and number >= 0 and isinstance(root.op, Sqrt):
                found.nodes.append(root)
                found.eps, found.inside = number, False
                return _variance(found, root.inputs[0])
    return False


def _sum(found: _Found, value: Port) -> bool:
    """Look for variance + eps; the eps may be missing."""
    node = value.node
    if not isinstance(node.op, Add):
        return _variance(found, value)
    for variance, eps in (node.inputs, node.inputs[::-1]):
        number = scalar(eps)
        if number is not None and number >= 0:
            found.nodes.append(node)
            found.eps = number
            return _variance(found, variance)
    return False


def _axes(node: Node) -> tuple[int, ...] | None:
    """Return the axes of a mean that keeps them."""
    if not isinstance(node.op, ReduceMean) or not is_known(node.inputs[1]):
        return None
    rank = node.inputs[0].desc.rank
    if rank is None:
        return None
    axes = tuple(sorted({normalize_axis(axis, rank) for axis in numbers_of(node.inputs[1])}))
    return axes if node.op.keep_dims and axes else None


def _variance(found: _Found, value: Port) -> bool:
    """Look for the mean of squares; note what is squared as x."""
    mean = value.node
    square = mean.inputs[0].node if mean.inputs else mean
    axes, op = _axes(mean), square.op
    if axes is None:
        return False
    found.axes = axes
    found.nodes += [mean, square]
    if isinstance(op, SquaredDifference):
        return _centre(found, square)
    twice = isinstance(op, Multiply) and square.inputs[0] is square.inputs[1]
    if not twice and not (isinstance(op, Power) and scalar(square.inputs[1]) == 2):
        return False
    squared = square.inputs[0]
    difference = squared.node
    if isinstance(difference.op, Subtract):
        kept = found.nodes[:]
        if _centre(found, difference):
            found.nodes.append(difference)
            return True
        found.nodes = kept
    found.x, found.centred = squared, False
    return found.inside


def _centre(found: _Found, node: Node) -> bool:
    """Look for the difference of x and its mean."""
    x, mean = node.inputs
    if _axes(mean.node) != found.axes:
        return False
    if mean.node.inputs[0] is not x:
        return False
    found.x = x
    found.nodes.append(mean.node)
    return True


def _matches(found: _Found, value: Port) -> bool:
    """Whether a value is what was found to be squared: x, or its difference to the mean."""
    if not found.centred:
        return value is found.x
    node = value.node
    if not isinstance(node.op, Subtract):
        return False
    kept = found.x
    if not _centre(found, node) or found.x is not kept:
        return False
    found.nodes.append(node)
    return True


def _made(build: Emitter, found: _Found, x: Port) -> Port:
    """Make the one operation in the place of the steps."""
    axes = list(found.axes)
    if found.centred:
        mode = EpsMode.INSIDE_SQRT if found.inside else EpsMode.OUTSIDE_SQRT
        op = MVN(normalize_variance=True, eps=found.eps, eps_mode=mode)
        return build.emit(op, x, axes)
    # x / sqrt(sum(x²) / n + eps) is sqrt(n) * x / sqrt(sum(x²) + n * eps).
    count = math.prod(size_of(x, axis) for axis in axes)
    norm = build.emit(NormalizeL2(eps=found.eps * count, eps_mode=EpsMode.ADD), x, axes)
    return build.emit(Multiply(), norm, math.sqrt(count))
