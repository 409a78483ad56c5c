"""A batch normalisation by the mean and variance of what it reads is MVN, scaled and shifted.

Keras normalises layers so: rows of a value are the channels of a batch of 1, ``Reshape(x, [1, -1,
width, 1])``, whose statistics ONNX computes in steps, and another Reshape returns to the shape of
x. Where both are there, MVN is over the last axes of x, and neither is left.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.convert import Convert
from polydevice.ops.normalization import MVN, BatchNormInference, EpsMode
from polydevice.ops.reduce import ReduceMean, ReduceSum
from polydevice.ops.reshape import Reshape, ShapeOf, Squeeze
from polydevice.rewrites.facts import is_known, numbers_of
from polydevice.rewrites.pattern import Users, is_scalar, scalar
from polydevice.rewrites.wishes import Wishes
from polydevice.shape import normalize_axis

_FLOATS = (ElementType.f16, ElementType.f32)


@dataclass
class _Statistics:
    """What a mean or a variance is of.

    Attributes:
        x: what it is of.
        axes: over which, sorted.
        nodes: that compute it.
    """

    x: Port
    axes: tuple[int, ...]
    nodes: list[Node] = field(default_factory=list)


def recognise_batch_statistics(network: Network, wishes: Wishes) -> int:
    """Put MVN, where a device wants it, in the place of such normalisations; return how many."""
    when = wishes.recognise.get(MVN)
    if when is None:
        return 0
    users, unique = network.consumers(), namer(network)
    replaced: dict[Port, Port] = {}
    for node in network.nodes():
        is_norm = type(node.op) is BatchNormInference  # the older one's inputs are in another order
        found = _find(node, users) if is_norm and not wishes.leave(node) else None
        if found is None:
            continue
        returned = _returned(node, users)
        last = returned or node
        steps = dict.fromkeys([last, node, *found.nodes])
        origins = dict.fromkeys(layer for step in steps for layer in step.layers)
        build = Emitter(last.name, evaluate=network.evaluate, origins=origins)
        made = _normal(build, node, found.axes, returned)
        if not when(made.node):
            continue
        made = _scaled(build, node, made)
        build.name_nodes([made], unique, old=last)
        replaced[last.output] = made
    network.replace(replaced)
    return len(replaced)


def _find(node: Node, users: Users) -> _Statistics | None:
    """Return the steps of the statistics, if they are of what is normalised and nobody else's."""
    x, _, _, mean, variance = node.inputs
    rank = x.desc.rank
    if rank is None or rank < 3 or x.element_type not in _FLOATS:
        return None
    first, second = _mean(mean), _variance(variance)
    if first is None or second is None or first.x is not x or second.x is not x:
        return None
    if not first.axes == second.axes == (0, *range(2, rank)):
        return None
    found = _Statistics(x, first.axes, list(dict.fromkeys([*first.nodes, *second.nodes])))
    inside = {node, *found.nodes}
    steps = (port for each in found.nodes for port in each.outputs)
    if any(user not in inside for port in steps for user, _ in users.get(port, ())):
        return None
    return found


def _flat(port: Port, nodes: list[Node]) -> Port:
    """The value that a port shows without axes of size 1; it has one size per channel."""
    while isinstance(port.node.op, (Squeeze, Reshape)):
        nodes.append(port.node)
        port = port.node.inputs[0]
    return port


def _over(node: Node) -> tuple[int, ...] | None:
    """The axes that a node reduces."""
    rank = node.inputs[0].desc.rank
    if rank is None or not is_known(node.inputs[1]):
        return None
    return tuple(sorted({normalize_axis(axis, rank) for axis in numbers_of(node.inputs[1])}))


def _mean(port: Port) -> _Statistics | None:
    nodes: list[Node] = []
    node = _flat(port, nodes).node
    axes = _over(node) if isinstance(node.op, ReduceMean) else None
    return None if axes is None else _Statistics(node.inputs[0], axes, [*nodes, node])


def _variance(port: Port) -> _Statistics | None:
    """Look for the mean of squares of what is left without the mean."""
    nodes: list[Node] = []
    mean = _flat(port, nodes).node
    counts: list[float | None] = []
    if isinstance(mean.op, Divide):
        nodes.append(mean)
        counts.append(scalar(mean.inputs[1]))
        mean = _flat(mean.inputs[0], nodes).node
    if not isinstance(mean.op, ReduceSum if counts else ReduceMean):
        return None
    axes, square = _over(mean), mean.inputs[0]
    if axes is None or any(count is None or count != _count(square, axes) for count in counts):
        return None
    nodes += [mean, square.node]
    found = _squared(square.node, axes)
    return None if found is None else _Statistics(found.x, axes, [*nodes, *found.nodes])


def _count(port: Port, axes: Sequence[int]) -> int | None:
    """How many elements there are along axes; None where that is not known."""
    count = 1
    for axis in axes:
        size = None if port.shape is None else port.shape[axis]
        if not isinstance(size, int):
            return None
        count *= size
    return count


def _squared(node: Node, axes: tuple[int, ...]) -> _Statistics | None:
    """Look for the square of x less its mean over these axes."""
    op, difference = node.op, node
    is_power = isinstance(op, Power) and is_scalar(node.inputs[1], 2)
    if is_power or (isinstance(op, Multiply) and node.inputs[0] is node.inputs[1]):
        difference = node.inputs[0].node
        if not isinstance(difference.op, Subtract):
            return None
    elif not isinstance(op, SquaredDifference):
        return None
    x, mean = difference.inputs
    keeps = isinstance(mean.node.op, ReduceMean) and mean.node.op.keep_dims
    if not keeps or mean.node.inputs[0] is not x or _over(mean.node) != axes:
        return None
    return _Statistics(x, axes, [difference, mean.node])


def _returned(node: Node, users: Users) -> Node | None:
    """The Reshape behind a node that returns to the shape from which another one led to it."""
    before, read = node.inputs[0].node, users.get(node.output, [])
    if not isinstance(before.op, Reshape) or len(read) != 1 or _rows(before) is None:
        return None
    behind, index = read[0]
    if index != 0 or not isinstance(behind.op, Reshape):
        return None
    if not (_is(node.inputs[1], 1) and _is(node.inputs[2], 0)):
        return None  # rows have scales of their own
    wanted, pattern = before.inputs[0], behind.inputs[1]
    return behind if _is_same(behind.output, wanted) or _shape_of(pattern, wanted) else None


def _rows(reshape: Node) -> int | None:
    """Which axes of a value, from this one on, a Reshape makes the third of its result and later.

    None where there are none such, and where the result is no batch of 1.
    """
    x, made = reshape.inputs[0].shape, reshape.output
    if x is None or made.shape is None or made.shape[0] != 1:
        return None
    width = _count(made, range(2, len(made.shape)))
    for axis in reversed(range(len(x))):
        if width and _count(reshape.inputs[0], range(axis, len(x))) == width:
            return axis
    return None


def _is_same(made: Port, wanted: Port) -> bool:
    """Whether values of as many elements have the same shape: at most one size is unknown."""
    if made.shape is None or wanted.shape is None or len(made.shape) != len(wanted.shape):
        return False
    unknown = 0
    for a, b in zip(made.shape, wanted.shape, strict=True):
        if isinstance(a, int) and isinstance(b, int):
            if a != b or not a:
                return False
        elif isinstance(a, int) or isinstance(b, int):
            return False
        else:
            unknown += 1
    return unknown <= 1


def _shape_of(pattern: Port, wanted: Port) -> bool:
    """Whether a pattern is the shape of a value, be it of other integers on the way."""
    while isinstance(pattern.node.op, Convert) and pattern.element_type.is_integer:
        pattern = pattern.node.inputs[0]
    return isinstance(pattern.node.op, ShapeOf) and pattern.node.inputs[0] is wanted


def _normal(build: Emitter, node: Node, axes: Sequence[int], returned: Node | None) -> Port:
    """Make MVN of what the batch normalisation reads, or of what that was before its Reshape."""
    op, x = node.operation(BatchNormInference), node.inputs[0]
    mvn = MVN(normalize_variance=True, eps=op.epsilon, eps_mode=EpsMode.INSIDE_SQRT)
    if returned is not None:
        first, x = _rows(x.node), x.node.inputs[0]
        assert first is not None
        assert x.shape is not None
        axes = range(first, len(x.shape))
    elif x.shape is not None and x.shape[0] == 1:
        axes = axes[1:]
    return build.emit(mvn, x, list(axes))


def _is(port: Port, wanted: float) -> bool:
    """Whether all elements are this number."""
    if isinstance(port.node.op, Broadcast):
        port = port.node.inputs[0]
    value = port.node.constant
    return value is not None and bool((value == wanted).all())


def _scaled(build: Emitter, node: Node, normal: Port) -> Port:
    """Multiply channels by the scale, and add the shift, where there is anything to."""
    x, scale, shift = node.inputs[:3]
    for op, port, none in ((Multiply(), scale, 1), (Add(), shift, 0)):
        if not _is(port, none):
            column = build.reshape(port, (-1, *[1] * ((x.desc.rank or 2) - 2)))
            normal = build.emit(op, normal, column)
    return normal
