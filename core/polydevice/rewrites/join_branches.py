"""join_branches: a sum of convolutions of one value is one convolution.

RepVGG, MobileOne and their kind are trained with branches side by side: windows of 3x3 and of 1x1,
and the value itself, each normalised. All of it is linear, so that the narrower windows' weights
can be added to the widest one's. That has to meet every element that the others meet: so nothing is
multiplied that was not before, and an infinite element makes no other results NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network, namer
from polydevice.node import Node, Port
from polydevice.ops.arithmetic import Add, Multiply, Subtract
from polydevice.ops.convolution import Convolution, GroupConvolution
from polydevice.ops.normalization import BatchNormInference, BatchNormInferenceV1
from polydevice.ops.pointwise import AutoBroadcast
from polydevice.ops.window import Window
from polydevice.rewrites.facts import array_of, is_known
from polydevice.rewrites.wishes import When, never
from polydevice.shape import DimLike
from polydevice.symbolic_size import is_symbolic

_FLOATS = (ElementType.bf16, ElementType.f16, ElementType.f32, ElementType.f64)


@dataclass(frozen=True, eq=False)
class _Linear:
    """factor * x + shift; both are one number for all channels or one for each, in f64.

    Attributes:
        x: the value.
        factor: by which it is multiplied.
        shift: what is added then.
        nodes: that compute it of x, the last one first.
    """

    x: Port
    factor: Array
    shift: Array
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True, eq=False)
class _Term:
    """A window with its weights, [G, O / G, C / G, kernel...], and a factor for them."""

    window: Window
    weights: Array
    factor: Array

    @property
    def channels(self) -> tuple[int, int]:
        """How many it makes, and of how many."""
        groups, outputs, inputs = self.weights.shape[:3]
        return groups * outputs, groups * inputs

    def covers(self, other: _Term, *, alike: bool) -> bool:
        """Whether it meets all that another one meets at each place, with as many places.

        Args:
            other: the other one.
            alike: whether they are known to have as many places.
        """
        mine, theirs = self.window, other.window
        if self.channels != other.channels or other.weights.shape[0] % self.weights.shape[0]:
            return False
        if mine.strides != theirs.strides or not (alike or _rooms(mine) == _rooms(theirs)):
            return False
        return all(
            offset % gap == 0
            and 0 <= offset // gap <= size - their_size
            and (their_size == 1 or gap == their_gap)
            for offset, size, gap, their_size, their_gap in zip(
                self.offsets(other),
                self.weights.shape[3:],
                mine.dilations,
                other.weights.shape[3:],
                theirs.dilations,
                strict=True,
            )
        )

    def offsets(self, other: _Term) -> list[int]:
        """By how many elements the other window begins later, along each axis."""
        begins = zip(self.window.pads_begin, other.window.pads_begin, strict=True)
        return [mine - theirs for mine, theirs in begins]

    def add_to(self, total: Array, widest: _Term) -> None:
        """Add its weights, times its factor, to those of a term that covers it."""
        inside_window = [
            slice(offset // gap, offset // gap + size)
            for offset, gap, size in zip(
                widest.offsets(self), widest.window.dilations, self.weights.shape[3:], strict=True
            )
        ]
        place = (*[slice(None)] * 3, *inside_window)
        groups, outputs, inputs, *kernel = self.weights.shape
        factor = np.broadcast_to(self.factor, groups * outputs)
        scaled = self.weights * factor.reshape(groups, outputs, *[1] * (len(kernel) + 1))
        # Several of its groups are in one of the other's, each with outputs and inputs of its own.
        fewer = total.shape[0]
        inside = groups // fewer
        parts = total[place].reshape(fewer, inside, outputs, inside, inputs, *kernel)
        index = np.arange(inside)
        own = scaled.reshape(fewer, inside, outputs, inputs, *kernel)
        parts[:, index, :, index] += own.swapaxes(0, 1)
        total[place] = parts.reshape(fewer, inside * outputs, inside * inputs, *kernel)


@dataclass(frozen=True, eq=False)
class _Branch:
    """Convolutions of one value, added up, plus a number for each channel.

    Attributes:
        x: the value.
        kind: its type, which is the weights' too.
        terms: the convolutions, the one first that covers all others.
        shift: what is added.
        nodes: that compute it of x, the last one first.
    """

    x: Port
    kind: ElementType
    terms: tuple[_Term, ...]
    shift: Array
    nodes: tuple[Node, ...]

    def under(self, outer: _Linear) -> _Branch | None:
        """Return what a linear function makes of this; None where channels do not fit."""
        if not {outer.factor.size, outer.shift.size} <= {1, self.terms[0].channels[0]}:
            return None
        terms = tuple(_Term(t.window, t.weights, t.factor * outer.factor) for t in self.terms)
        shift = self.shift * outer.factor + outer.shift
        return _Branch(self.x, self.kind, terms, shift, (*outer.nodes, *self.nodes))

    def plus(self, other: _Branch, *, alike: bool) -> _Branch | None:
        """Return the sum; None where neither covers the other, or they are not of one value.

        Args:
            other: what is added.
            alike: whether both are known to have the same sizes.
        """
        if self.x is not other.x or self.kind is not other.kind:
            return None
        for wide, narrow in ((self, other), (other, self)):
            if wide.terms[0].covers(narrow.terms[0], alike=alike):
                terms, nodes = (*wide.terms, *narrow.terms), (*wide.nodes, *narrow.nodes)
                return _Branch(self.x, self.kind, terms, wide.shift + narrow.shift, nodes)
        return None


def join_branches(network: Network, leave: When = never) -> int:
    """Put one convolution in the place of each such sum, in place; return how many sums went.

    Args:
        network: it.
        leave: which nodes are to stay as they are.
    """
    finder = _Finder(network, leave)
    unique, replaced = namer(network), dict[Port, Port]()
    for port, branch in finder.find(network).items():
        build = Emitter(port.node.name)
        made = _made(build, branch)
        if made is None:
            continue
        build.name_nodes([made], unique, old=port.node)
        for node in branch.nodes:
            made.node.rt_info = {**node.rt_info, **made.node.rt_info}
        replaced[port] = made
    network.replace(replaced)
    return len(replaced)


class _Finder:
    """Finds sums of branches in a network, and changes nothing."""

    def __init__(self, network: Network, leave: When) -> None:
        self._users = network.consumers()
        self._leave = leave
        self._sums: dict[Port, _Branch] = {}

    def find(self, network: Network) -> dict[Port, _Branch]:
        """Return sum → what it is of; of sums within sums the outermost."""
        for node in network.nodes():
            total = self._total(node) if _adds(node) and not self._leave(node) else None
            if total is None:
                continue
            for inner in total.nodes:
                self._sums.pop(inner.output, None)
            nodes = (node, *total.nodes)
            self._sums[node.output] = _Branch(total.x, total.kind, total.terms, total.shift, nodes)
        return self._sums

    def _total(self, node: Node) -> _Branch | None:
        sign = -1.0 if isinstance(node.op, Subtract) else 1.0
        left, right = (
            list(self._functions(port, factor))
            for port, factor in zip(node.inputs, (1.0, sign), strict=True)
        )
        alike = _are_alike(*node.inputs)
        for one, others in ((left, right), (right, left)):
            first = self._branch(one[-1])
            if first is None:
                continue
            for other in others:
                second = self._branch(other) or _itself(other, first)
                total = None if second is None else first.plus(second, alike=alike)
                if total is not None:
                    return total
        return None

    def _functions(self, port: Port, factor: float) -> Iterator[_Linear]:
        """Yield a summand as a linear function of itself, of what its last step reads, and so on.

        The nodes on the way are nobody else's.
        """
        found = _Linear(port, np.full(1, factor), np.zeros(1))
        while True:
            yield found
            if len(self._users[found.x]) > 1 or found.x in self._sums:
                return
            step = None if self._leave(found.x.node) else _step(found.x.node)
            if step is None:
                return
            sizes = {each.size for each in (found.factor, found.shift, step.factor, step.shift)}
            if len(sizes - {1}) > 1:
                return
            factors, shift = found.factor * step.factor, found.factor * step.shift + found.shift
            found = _Linear(step.x, factors, shift, (*found.nodes, *step.nodes))

    def _branch(self, function: _Linear) -> _Branch | None:
        """Return what a function of a convolution, or of a sum of some, comes to."""
        if len(self._users[function.x]) > 1 or self._leave(function.x.node):
            return None
        inner = self._sums.get(function.x) or _convolution(function.x.node)
        return None if inner is None else inner.under(function)


def _convolution(node: Node) -> _Branch | None:
    if type(node.op) not in (Convolution, GroupConvolution):
        return None
    op = node.operation(Convolution)
    x, w = node.inputs
    weights = w.node.constant
    if weights is None or not weights.size or w.element_type is not node.output.element_type:
        return None
    window = _explicit(op.window(weights.shape), x)
    if window is None or w.element_type not in _FLOATS:
        return None
    term = _Term(window, weights if op.grouped else weights[None], np.ones(1))
    return _Branch(x, w.element_type, (term,), np.zeros(1), (node,))


def _explicit(window: Window, x: Port) -> Window | None:
    """Return a window with its padding in numbers; None where it depends on unknown sizes."""
    sizes = _known_sizes(x)
    if sizes is None and window.auto_pad.is_same:
        if set(window.strides) != {1}:
            return None
        sizes = [1] * window.rank  # whatever they are, the padding is the same
    begin, end = window.pads(sizes or ())
    return Window(window.kernel, window.strides, window.dilations, begin, end)


def _itself(function: _Linear, beside: _Branch) -> _Branch | None:
    """Return a linear function of what a branch reads as windows of one element."""
    window = beside.terms[0].window
    outputs, inputs = beside.terms[0].channels
    if function.x is not beside.x or outputs != inputs:
        return None
    one = Window((1,) * window.rank)
    term = _Term(one, np.ones((inputs, 1, 1, *one.kernel)), np.ones(1))
    return _Branch(beside.x, beside.kind, (term,), np.zeros(1), ()).under(function)


def _step(node: Node) -> _Linear | None:
    """Return a node as a linear function of its input."""
    if isinstance(node.op, BatchNormInference):
        return _normalisation(node, node.op)
    if not isinstance(node.op, (Add, Multiply, Subtract)):
        return None
    if node.op.auto_broadcast is not AutoBroadcast.NUMPY:
        return None
    for x, other in (node.inputs, node.inputs[::-1]):
        number = _of_channels(other, x)
        if number is None:
            continue
        if isinstance(node.op, Multiply):
            return _Linear(x, number, np.zeros(1), (node,))
        if isinstance(node.op, Add):
            return _Linear(x, np.ones(1), number, (node,))
        return _Linear(x, np.ones(1), -number, (node,)) if x is node.inputs[0] else None
    return None


def _normalisation(node: Node, op: BatchNormInference) -> _Linear | None:
    inputs = list(node.inputs)
    x = inputs.pop(2 if isinstance(op, BatchNormInferenceV1) else 0)
    if not all(map(is_known, inputs)):
        return None
    gamma, beta, mean, variance = (np.asarray(array_of(v), np.float64) for v in inputs)
    factor = gamma / np.sqrt(variance + op.epsilon)
    return _Linear(x, factor, beta - mean * factor, (node,))


def _adds(node: Node) -> bool:
    """Whether a node may be the sum of two values of equal sizes."""
    if not isinstance(node.op, (Add, Subtract)) or node.output.element_type not in _FLOATS:
        return False
    return node.op.auto_broadcast is not AutoBroadcast.PDPD


def _of_channels(port: Port, x: Port) -> Array | None:
    """Return a constant beside x as one number, or one for each channel of x, in f64."""
    value, rank = port.node.constant, x.desc.rank
    if value is None or rank is None or value.ndim > rank:
        return None
    sizes = (1,) * (rank - value.ndim) + value.shape
    if not value.size or any(size != 1 for axis, size in enumerate(sizes) if axis != 1):
        return None
    return value.reshape(-1).astype(np.float64)


def _known_sizes(port: Port) -> list[int] | None:
    """Return the sizes along all axes but batch and channels; None unless all are known.

    Nothing is asked of symbolic ones: the plan would serve sizes with the same answer only.
    """
    sizes: list[DimLike] = [] if port.shape is None else list(port.shape)[2:]
    known = [size for size in sizes if isinstance(size, int) and not is_symbolic(size)]
    return known if sizes and len(known) == len(sizes) else None


def _are_alike(one: Port, other: Port) -> bool:
    sizes = _known_sizes(one)
    return sizes is not None and sizes == _known_sizes(other)


def _rooms(window: Window) -> list[DimLike]:
    """How many more places of a stride of 1 there are than elements, along each axis."""
    sides = zip(window.pads_begin, window.pads_end, window.extent, strict=True)
    return [before + after - extent + 1 for before, after, extent in sides]


def _layers(nodes: Sequence[Node]) -> tuple[str, ...]:
    """The layers of nodes, those of convolutions first: a convolution is what they become."""
    ordered = sorted(nodes, key=lambda node: not isinstance(node.op, Convolution))
    return tuple(dict.fromkeys(layer for node in ordered for layer in node.layers))


def _made(build: Emitter, branch: _Branch) -> Port | None:
    """Emit a sum as one convolution; None where its weights are no finite numbers of its type."""
    widest = branch.terms[0]
    groups, outputs, *_ = widest.weights.shape
    weights, dtype = np.zeros(widest.weights.shape), branch.kind.dtype
    with np.errstate(all="ignore"):
        for term in branch.terms:
            term.add_to(weights, widest)
        narrow, shift = weights.astype(dtype), branch.shift.astype(dtype)
    if not (np.isfinite(narrow).all() and np.isfinite(shift).all()):
        return None
    window = widest.window
    kind = Convolution if groups == 1 else GroupConvolution
    op = kind(window.strides, window.pads_begin, window.pads_end, window.dilations)
    made = build.emit(op, branch.x, build.value(narrow if groups > 1 else narrow[0], branch.kind))
    made.node.origins = _layers(branch.nodes)
    if not branch.shift.any():
        return made
    last, *others = branch.nodes
    made.node.origins = _layers(others)
    build.origins = last.layers
    wide = np.broadcast_to(shift, groups * outputs).reshape(1, -1, *[1] * window.rank)
    return build.emit(Add(), made, build.value(np.ascontiguousarray(wide), branch.kind))
