"""look_up_constants: lookups at places that constants tell, whatever the sizes, are made ahead.

Positions of a text are the first of 0, 1, 2, … and its token types as many zeros, if no input says
otherwise. What BERT looks up so are the first rows of a table, and one row for all.
"""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import Array
from polydevice.emitter import Emitter
from polydevice.network import Network, namer
from polydevice.node import Node, Port
from polydevice.ops.broadcast import AS_NUMPY, Broadcast, Tile
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.gather import Gather
from polydevice.ops.op import Op
from polydevice.ops.reshape import Reshape, ShapeOf, Squeeze, Unsqueeze
from polydevice.ops.slice import Slice, StridedSlice
from polydevice.ops.transpose import Transpose
from polydevice.shape import normalize_axis

FEW_BYTES = 1 << 16
"""Rows looked up ahead may take so much besides the table, where others read it too."""

_MOVE: tuple[type[Op], ...] = (
    Broadcast, Convert, Reshape, Slice, Squeeze, StridedSlice, Tile, Transpose, Unsqueeze,
)  # fmt: skip
"""What makes of equal elements equal ones."""


def look_up_constants(network: Network) -> int:
    """Look up ahead what constants tell; return how many lookups became something else."""
    users, unique = network.consumers(), namer(network)
    replaced: dict[Port, Port] = {}
    for node in network.nodes():
        if not isinstance(node.op, Gather) or node.op.batch_dims:
            continue
        table, places, axis = node.inputs
        rows = table.node.constant
        if rows is None or rows.dtype.hasobject or places.node.constant is not None:
            continue
        at = axis.desc.static_ints
        if not at or normalize_axis(at[0], rows.ndim):
            continue
        build = Emitter(node.name, evaluate=network.evaluate, origins=node.layers)
        made = _one_for_all(build, node, rows) or _moved(build, node, rows, len(users[table]) == 1)
        if made is not None:
            build.name_nodes([made], unique, old=node)
            replaced[node.output] = made
    network.replace(replaced)
    return len(replaced)


def _one_for_all(build: Emitter, node: Node, rows: Array) -> Port | None:
    """The row that is at all places, as often as there are places; None if they may differ."""
    table, places, axis = node.inputs
    place = _equal(places)
    if place is None or not _are_within(node.op, np.array(place), rows):
        return None
    row = build.emit(node.op, table, build.like(place, places), axis)
    sizes = build.emit(ShapeOf(), places)
    return build.emit(Broadcast(), row, _with_rest(build, sizes, rows))


def _equal(port: Port) -> int | None:
    """The number that all elements are, however many there are; None if that is not known."""
    known = port.node.constant
    if known is not None:
        first = known.flat[0] if known.size and known.dtype.kind in "iu" else None
        return int(first) if first is not None and (known == first).all() else None
    if not isinstance(port.node.op, _MOVE) or not port.element_type.is_integer:
        return None
    found = _equal(port.node.inputs[0])
    info = np.iinfo(port.element_type.dtype)
    return found if found is not None and info.min <= found <= info.max else None


def _moved(build: Emitter, node: Node, rows: Array, is_alone: bool) -> Port | None:
    """What is looked up at constant places, moved as these are; None if they are not constant."""
    table, places, axis = node.inputs
    way = _way(places)
    if not way:
        return None
    known = way[-1].inputs[0].node.constant
    assert known is not None
    row_bytes = rows.nbytes // max(len(rows), 1)
    fits = known.size <= len(rows) if is_alone else known.size * row_bytes <= FEW_BYTES
    if not fits or not _are_within(node.op, known, rows):
        return None
    made = build.emit(node.op, table, way[-1].inputs[0], axis)
    for each in reversed(way):
        made = _again(build, each, made, rows)
    return made


def _way(port: Port) -> list[Node]:
    """The nodes that move constant places to where they are read, the last one first."""
    way = []
    while port.node.constant is None:
        node = port.node
        if not isinstance(node.op, (Slice, Unsqueeze, Broadcast)) or _axes(node) is None:
            return []
        way.append(node)
        port = node.inputs[0]
    return way


def _axes(node: Node) -> list[int] | None:
    """Along which axes a node moves something, counted from the first; None if that is open."""
    op, rank = node.op, node.inputs[0].desc.rank
    if isinstance(op, Broadcast):
        return [] if op.mode in AS_NUMPY else None
    if rank is None:
        return None
    if isinstance(op, Slice) and len(node.inputs) < 5:
        count = node.inputs[1].shape
        return None if count is None or not count.is_static else list(range(count.static[0]))
    known = node.inputs[-1].node.constant
    if known is None:
        return None
    rank += known.size if isinstance(op, Unsqueeze) else 0
    return [normalize_axis(int(axis), rank) for axis in known.reshape(-1)]


def _again(build: Emitter, node: Node, x: Port, rows: Array) -> Port:
    """Do to what is looked up what a node does to the places."""
    if isinstance(node.op, Broadcast):
        return build.emit(node.op, x, _with_rest(build, node.inputs[1], rows))
    axes = _axes(node)
    assert axes is not None
    if isinstance(node.op, Unsqueeze):
        return build.emit(node.op, x, axes)
    return build.emit(node.op, x, *node.inputs[1:4], axes)


def _with_rest(build: Emitter, sizes: Port, rows: Array) -> Port:
    """Sizes, and behind them those of a row."""
    if rows.ndim == 1:
        return sizes
    return build.emit(Concat(0), sizes, build.like(rows.shape[1:], sizes))


def _are_within(op: Op, places: Array, rows: Array) -> bool:
    """Whether there is a row at each place."""
    assert isinstance(op, Gather)
    least = -len(rows) if op.negative_indices else 0
    return bool(math.prod(places.shape)) and least <= places.min() and places.max() < len(rows)
