"""fuse_normalization: mean and variance in steps, as ONNX writes them, become one MVN.

Found are ``c / sqrt(mean(c²) + ε)`` and ``c / (sqrt(mean(c²)) + ε)`` with ``c = x - mean(x)``, over
any axes, with the square written as Power, Multiply or SquaredDifference, and with the root's
reciprocal as a factor; without the mean, the same is a root mean square normalisation, NormalizeL2
times a number. Scale and shift then join the one launch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from polydevice.dtype import ElementType
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
from polydevice.ops.op import Op
from polydevice.ops.reduce import ReduceMean
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import GpuGraph, GpuNode, Value, constant_value
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import Fused, single
from polydevice_gpu.views import integers

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

    last: GpuNode
    nodes: list[GpuNode] = field(default_factory=list)
    x: Value | None = None
    axes: tuple[int, ...] = ()
    eps: float = 0.0
    inside: bool = True
    centred: bool = True


def fuse_normalization(graph: GpuGraph, target: Target) -> None:
    """Fuse every normalisation; runs while pointwise nodes are one operation each."""
    del target  # all devices gain
    users = graph.users()
    for node in list(graph.nodes):
        found = _find(node)
        if found is None or found.x is None or found.x.element_type not in _FLOATS:
            continue
        if node.output.shape != found.x.shape:
            continue  # a number of higher rank adds axes
        inside = set(found.nodes)
        steps = [each.output for each in found.nodes if each is not node]
        closed = all(inside.issuperset(users.get(v, [])) and not v.is_output for v in steps)
        if closed:
            _replace(graph, found)
            users = graph.users()


def _op(value: Value | GpuNode | None) -> Op | None:
    """Return the operation that computes a value, if it is one pointwise operation."""
    node = value.producer if isinstance(value, Value) else value
    if node is not None and isinstance(node.op, Fused) and len(node.op.fragment.steps) == 1:
        return node.op.fragment.steps[0].op
    return None


def _number(value: Value) -> float | None:
    if value.constant is None or value.elements != 1:
        return None
    return float(np.asarray(value.constant).reshape(-1)[0])


def _find(node: GpuNode) -> _Found | None:
    """Return the normalisation that ends with a node: a quotient, or a product with 1 / root."""
    op = _op(node)
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


def _reciprocal(found: _Found, value: Value) -> bool:
    """Look for 1 / root, or a power of -1/2."""
    op, node = _op(value), value.producer
    if node is None:
        return False
    found.nodes.append(node)
    if isinstance(op, Divide) and _number(node.inputs[0]) == 1:
        return _root(found, node.inputs[1])
    if isinstance(op, Power) and _number(node.inputs[1]) == -0.5:
        return _sum(found, node.inputs[0])
    return False


def _root(found: _Found, value: Value) -> bool:
    """Look for sqrt(variance + eps), or sqrt(variance) + eps."""
    op, node = _op(value), value.producer
    if node is None:
        return False
    found.nodes.append(node)
    if isinstance(op, Sqrt) or (isinstance(op, Power) and _number(node.inputs[1]) == 0.5):
        return _sum(found, node.inputs[0])
    if isinstance(op, Add):
        for value_, eps in (node.inputs, node.inputs[::-1]):
            number, root = _number(eps), value_.producer
            if number is not None and root is not None and isinstance(_op(root), Sqrt):
                found.nodes.append(root)
                found.eps, found.inside = number, False
                return _variance(found, root.inputs[0])
    return False


def _sum(found: _Found, value: Value) -> bool:
    """Look for variance + eps; the eps may be missing."""
    node = value.producer
    if node is None or not isinstance(_op(value), Add):
        return _variance(found, value)
    for variance, eps in (node.inputs, node.inputs[::-1]):
        number = _number(eps)
        if number is not None and number >= 0:
            found.nodes.append(node)
            found.eps = number
            return _variance(found, variance)
    return False


def _axes(node: GpuNode) -> tuple[int, ...] | None:
    """Return the axes of a mean that keeps them."""
    if not isinstance(node.op, ReduceMean) or node.inputs[1].constant is None:
        return None
    rank = node.inputs[0].rank
    axes = tuple(sorted({normalize_axis(axis, rank) for axis in integers(node, 1)}))
    return axes if node.op.keep_dims and axes else None


def _variance(found: _Found, value: Value) -> bool:
    """Look for the mean of squares; note what is squared as x."""
    mean = value.producer
    square = mean.inputs[0].producer if mean is not None and mean.inputs else None
    if mean is None or square is None:
        return False
    axes, op = _axes(mean), _op(square)
    if axes is None:
        return False
    found.axes = axes
    found.nodes += [mean, square]
    if isinstance(op, SquaredDifference):
        return _centre(found, square)
    twice = isinstance(op, Multiply) and square.inputs[0] is square.inputs[1]
    if not twice and not (isinstance(op, Power) and _number(square.inputs[1]) == 2):
        return False
    squared = square.inputs[0]
    difference = squared.producer
    if difference is not None and isinstance(_op(difference), Subtract):
        kept = found.nodes[:]
        if _centre(found, difference):
            found.nodes.append(difference)
            return True
        found.nodes = kept
    found.x, found.centred = squared, False
    return found.inside


def _centre(found: _Found, node: GpuNode) -> bool:
    """Look for the difference of x and its mean."""
    x, mean = node.inputs
    if mean.producer is None or _axes(mean.producer) != found.axes:
        return False
    if mean.producer.inputs[0] is not x:
        return False
    found.x = x
    found.nodes.append(mean.producer)
    return True


def _matches(found: _Found, value: Value) -> bool:
    """Whether a value is what was found to be squared: x, or its difference to the mean."""
    if not found.centred:
        return value is found.x
    node = value.producer
    if node is None or not isinstance(_op(node), Subtract):
        return False
    kept = found.x
    if not _centre(found, node) or found.x is not kept:
        return False
    found.nodes.append(node)
    return True


def _replace(graph: GpuGraph, found: _Found) -> None:
    """Put one node in the place of the steps."""
    last, x = found.last, found.x
    assert x is not None
    name = last.name
    nodes = list(dict.fromkeys(found.nodes))
    origins = [*last.origins, *(o for node in nodes if node is not last for o in node.origins)]
    axes = constant_value(f"{name}/axes", np.array(found.axes, np.int64))
    mode = EpsMode.INSIDE_SQRT if found.inside else EpsMode.OUTSIDE_SQRT
    if found.centred:
        op: Op = MVN(normalize_variance=True, eps=found.eps, eps_mode=mode)
        made = [GpuNode(name, op, [x, axes], [last.output], dict.fromkeys(origins))]
    else:
        made = _root_mean_square(found, x, axes, list(dict.fromkeys(origins)))
    for node in made:
        node.result_type = node.output.storage
    place = graph.nodes.index(last)
    graph.nodes[place:place] = made
    for node in nodes:
        graph.nodes.remove(node)


def _root_mean_square(found: _Found, x: Value, axes: Value, origins: list[str]) -> list[GpuNode]:
    """x / sqrt(sum(x²) / n + eps) is sqrt(n) * x / sqrt(sum(x²) + n * eps)."""
    name, out = found.last.name, found.last.output
    count = math.prod(x.shape[axis] for axis in found.axes)
    op = NormalizeL2(eps=found.eps * count, eps_mode=EpsMode.ADD)
    between = x.like(f"{name}/normalized")
    factor = constant_value(f"{name}/root", np.asarray(math.sqrt(count), np.float32))
    scaled = Fused(single(Multiply(), [between.storage, factor.storage], out.storage))
    return [
        GpuNode(f"{name}/norm", op, [x, axes], [between], origins),
        GpuNode(name, scaled, [between, factor], [out], []),
    ]
