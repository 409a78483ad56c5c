"""Halves of rows turned by angles, in the two ways that models write it, are one Rotation.

Rotary embeddings are written so: ``[a, b] → [a cos - b sin, b cos + a sin]`` of both halves, or
``x cos + [-b, a] sin`` of whole rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.errors import ShapeError
from polydevice.network import Network, namer
from polydevice.node import Node, Port
from polydevice.ops.arithmetic import Add, Multiply, Subtract
from polydevice.ops.concat import Concat
from polydevice.ops.math import Negative
from polydevice.ops.op import Op, operation
from polydevice.ops.slice import Slice
from polydevice.ops.split import Split, VariadicSplit
from polydevice.rewrites.facts import Declined, numbers_of, rank_of, size_of
from polydevice.rewrites.pattern import Users
from polydevice.rewrites.wishes import Wishes
from polydevice.shape import Shape, broadcast, normalize_axis
from polydevice.tensor import TensorDesc


@operation("Rotation", domain="polydevice")
class Rotation(Op):
    """Rows whose halves are the coordinates of points, turned.

    y = [a * cos - b * sin, b * cos + a * sin] of x = [a, b] along the last axis. Where cosines and
    sines are as long as rows, each half has its own.

    Inputs:  x    [..., 2 * h], f32
             cos  [..., h] or [..., 2 * h], broadcastable along the other axes
             sin  the same
    Outputs: y    [..., 2 * h], broadcast along the other axes
    Raises:  ShapeError if rows are not of even length, or cosines of another
    Source:  ONNX RotaryEmbedding-23
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return x's type, stretched to the other inputs but along the last axis."""
        x, *angles = inputs
        if x.shape is None or any(each.shape is None for each in angles):
            return [x.with_shape(None)]
        size, before = x.shape[-1], Shape(x.shape[:-1])
        for each in angles:
            assert each.shape is not None
            is_row = len(each.shape) > 0
            if not is_row or (
                isinstance(size, int) and (size % 2 or each.shape[-1] not in (size, size // 2))
            ):
                raise ShapeError(f"cosines or sines of {each.shape} do not fit rows of {x.shape}")
            stretched = broadcast(before, Shape(each.shape[:-1]))
            assert stretched is not None
            before = stretched
        return [x.with_shape([*before, size]).without_value()]


class _Found(NamedTuple):
    """A rotation: what is turned, its cosines and sines, and the steps on the way."""

    x: Port
    cos: Port
    sin: Port
    steps: Sequence[Node]


def recognise_rotations(network: Network, wishes: Wishes) -> int:
    """Put rotations that a device wants in the place of their steps; return how many."""
    when = wishes.recognise.get(Rotation)
    if when is None:
        return 0
    users, unique = network.consumers(), namer(network)
    replaced: dict[Port, Port] = {}
    for node in network.nodes():
        if not isinstance(node.op, (Add, Concat)) or wishes.leave(node):
            continue
        if node.output.element_type is not ElementType.f32:
            continue
        try:
            found = _of_rows(node) if isinstance(node.op, Add) else _of_halves(node)
        except Declined:
            continue
        if found is None or not (_fits(found) and _is_closed(node, found.steps, users)):
            continue
        layers = dict.fromkeys(layer for each in (node, *found.steps) for layer in each.layers)
        build = Emitter(node.name, evaluate=network.evaluate, origins=layers)
        made = build.emit(Rotation(), found.x, found.cos, found.sin)
        if when(made.node):
            build.name_nodes([made], unique, old=node)
            replaced[node.output] = made
    network.replace(replaced)
    return len(replaced)


def _fits(found: _Found) -> bool:
    """Whether there is a cosine and a sine for each element of a row, or of its half."""
    shapes = [port.shape for port in (found.x, found.cos, found.sin)]
    if any(shape is None or not len(shape) for shape in shapes):
        return False
    size, *angles = (shape[-1] for shape in shapes if shape is not None)
    return isinstance(size, int) and all(each in (size, size // 2) for each in angles)


def _is_closed(last: Node, steps: Sequence[Node], users: Users) -> bool:
    """Whether nobody else reads a value between the steps."""
    inside = {last, *steps}
    return all(
        user in inside for step in steps for port in step.outputs for user, _ in users.get(port, ())
    )


def _of_halves(node: Node) -> _Found | None:
    """[a * cos - b * sin, b * cos + a * sin], joined."""
    if not _joins_rows(node):
        return None
    first, second = (port.node for port in node.inputs)
    if not isinstance(first.op, Subtract) or not isinstance(second.op, Add):
        return None
    products = [port.node for each in (first, second) for port in each.inputs]
    if not all(isinstance(each.op, Multiply) for each in products):
        return None
    for factor in range(2):
        cos = products[0].inputs[1 - factor]
        half = _half(products[0].inputs[factor])
        for other in range(2):
            sin = products[1].inputs[1 - other]
            rest = _half(products[1].inputs[other])
            if half is None or rest is None or (half[1], rest[1]) != (0, 1) or half[0] != rest[0]:
                continue
            wide = size_of(half[0], -1) // 2
            if not all(rank_of(each) and size_of(each, -1) == wide for each in (cos, sin)):
                continue  # what is stretched gives more than it takes
            a, b = products[0].inputs[factor], products[1].inputs[other]
            wanted = {frozenset((b, cos)), frozenset((a, sin))}
            if {frozenset(each.inputs) for each in products[2:]} == wanted:
                return _Found(half[0], cos, sin, (first, second, *products))
    return None


def _of_rows(node: Node) -> _Found | None:
    """X * cos + [-b, a] * sin."""
    products = [port.node for port in node.inputs]
    if not all(isinstance(each.op, Multiply) for each in products):
        return None
    for plain, turned in (products, products[::-1]):
        for place in range(2):
            joined, sin = turned.inputs[place].node, turned.inputs[1 - place]
            if not _joins_rows(joined) or not isinstance(joined.inputs[0].node.op, Negative):
                continue
            negative = joined.inputs[0].node
            b, a = (_half(port) for port in (negative.inputs[0], joined.inputs[1]))
            if a is None or b is None or (a[1], b[1]) != (0, 1) or a[0] != b[0]:
                continue
            if a[0] in plain.inputs:
                cos = plain.inputs[1 - plain.inputs.index(a[0])]
                return _Found(a[0], cos, sin, (plain, turned, joined, negative))
    return None


def _joins_rows(node: Node) -> bool:
    """Whether a node joins two values along the last axis."""
    if not isinstance(node.op, Concat) or len(node.inputs) != 2:
        return False
    return normalize_axis(node.op.axis, rank_of(node.output)) == rank_of(node.output) - 1


def _half(port: Port) -> tuple[Port, int] | None:
    """What a value is half of along the last axis, and which half; None for others."""
    node, op = port.node, port.node.op
    if not isinstance(op, (Split, VariadicSplit, Slice)):
        return None
    x = node.inputs[0]
    rank, size = rank_of(x), size_of(x, -1)
    if size % 2 or size_of(port, -1) != size // 2:
        return None
    place = 4 if isinstance(op, Slice) else 1
    axes = numbers_of(node.inputs[place]) if len(node.inputs) > place else []
    if [normalize_axis(axis, rank) for axis in axes] != [rank - 1]:
        return None
    if not isinstance(op, Slice):
        return (x, port.index) if len(node.outputs) == 2 else None
    (start,), (step,) = (numbers_of(node.inputs[place]) for place in (1, 3))
    if step != 1:
        return None
    return (x, 0) if start in (0, -size) else (x, 1) if start in (size // 2, -size // 2) else None
