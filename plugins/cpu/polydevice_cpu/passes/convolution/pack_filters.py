"""pack_filters: convolutions of one channel get more of them, which oneDNN multiplies at once.

A window as wide as its input slides along one axis, as those of texts do over embeddings: the
columns are channels, which is how they lie. A long filter of one channel computes several results
side by side.

oneDNN computes a register of channels at once, of which a filter of a sound has one: 21,922 results
of 256 terms took 1.54 ms on one thread of an AMD EPYC, and 0.125 as a convolution of 32 channels to
16, whose weights are the filter 16 times, each further by a stride, with zeros around it. The bytes
of the sound are those of its channels; only its ends are padded.
"""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.arithmetic import Add
from polydevice.ops.convolution import Convolution
from polydevice.ops.pad import Pad
from polydevice.rewrites.pattern import Replacements, Users, scalar

SIDE_BY_SIDE = 16
"""Results that one position computes: as many numbers as a register has."""

LEAST_TERMS, LEAST_RESULTS = 16, 256
"""From here on it is worth a copy of the input: 1,873 results of 256 terms take 17, not 111 us."""

MOST_ZEROS = 3
"""Zeros in the weights for each term; with three, 22,000 sums of 16 terms take 44, not 106 us."""


LEAST_COLUMNS = 8
"""From here on columns are channels: windows of 3, 4 and 5 of 40 rows of 64 numbers take 19, not
49 us with 32 results each."""


def pack_filters(network: Network) -> None:
    """Pack every convolution of one channel to one, along one axis of known size.

    Others whose windows are as wide as the input have its columns as channels.
    """
    users = network.consumers()
    replacements = Replacements()
    for node in network.nodes():
        node.inputs = [replacements.now(port) for port in node.inputs]
        if type(node.op) is Convolution and not _take_columns(replacements, node, node.op):
            _pack(replacements, node, users)
    replacements.apply(network)


def _take_columns(replacements: Replacements, node: Node, op: Convolution) -> bool:
    """Turn [N, 1, rows, columns] into [N, columns, rows, 1], and the weights as well."""
    weights, shape = node.inputs[1].node.constant, node.inputs[0].shape
    if weights is None or weights.dtype != np.float32 or weights.ndim != 4 or shape is None:
        return False
    outputs, channels, _, columns = weights.shape
    if channels > 1 or outputs == 1 or columns < LEAST_COLUMNS or shape[3] != columns:
        return False
    if op.auto_pad.is_same or any(side[1] for side in op.window(weights.shape).pads((0, 0))):
        return False
    build = Emitter(f"{node.name}/columns", origins=node.layers)
    turned = build.transpose(node.inputs[0], (0, 3, 2, 1))
    filters = np.ascontiguousarray(weights.transpose(0, 3, 2, 1))
    replacements.put_node(node, op, [turned, build.value(filters)])
    return True


def _pack(replacements: Replacements, node: Node, users: Users) -> None:
    weights, source, old = node.inputs[1].node.constant, node.inputs[0], node.output
    if weights is None or not _is_filter(node, weights):
        return
    assert isinstance(node.op, Convolution)
    assert source.shape is not None
    assert old.shape is not None
    axis = int(np.argmax(weights.shape))
    window = node.op.window(weights.shape)
    stride, results = window.strides[axis - 2], old.shape[axis]
    assert isinstance(results, int)
    step = SIDE_BY_SIDE * stride
    terms = -(-(weights.size + step - stride) // step)
    positions = -(-results // SIDE_BY_SIDE)
    if results < LEAST_RESULTS or terms * step > (1 + MOST_ZEROS) * weights.size:
        return
    sizes = [size for size in source.shape[1:] if isinstance(size, int)]  # all
    before, after = np.zeros((2, len(old.shape)), np.int64)
    before[axis] = window.pads(sizes[1:])[0][axis - 2]
    after[axis] = (positions + terms - 1) * step - sizes[axis - 1] - before[axis]
    build = Emitter(f"{node.name}/packed", origins=node.layers)
    padded = build.emit(Pad(), source, before, after, np.zeros((), np.float32))
    rows = build.reshape(padded, (-1, 1, positions + terms - 1, step))
    made = build.emit(
        Convolution(strides=(1, 1), pads_begin=(0, 0), pads_end=(0, 0), dilations=(1, 1)),
        build.transpose(rows, (0, 3, 1, 2)),
        _spread(weights, stride, step, terms),
    )
    made.node.rt_info = dict(node.rt_info)
    followers = users[old]
    summand = _summand(followers[0][0], node) if len(followers) == 1 else None
    if summand is not None:
        old = followers[0][0].output
        build.origins = (*node.layers, *old.node.layers)
        made = build.emit(Add(), made, np.float32(summand))
    flat = build.reshape(build.transpose(made, (0, 2, 3, 1)), (-1, positions * SIDE_BY_SIDE))
    shape = [-1, *([1] * len(sizes))]
    shape[axis] = results
    replacements.put(old, build.reshape(build.cut(flat, 1, 0, results), shape))


def _is_filter(node: Node, weights: Array) -> bool:
    """Whether all but one axis has one element, and nothing is skipped or padded but along it."""
    shapes = [node.inputs[0].shape, node.output.shape]
    if weights.dtype != np.float32 or not LEAST_TERMS <= max(weights.shape[2:]) == weights.size:
        return False
    assert isinstance(node.op, Convolution)
    axis = int(np.argmax(weights.shape))
    for shape in shapes:
        if shape is None or not isinstance(shape[axis], int):
            return False
        if any(size != 1 for d, size in enumerate(shape) if d not in (0, axis)):
            return False
    others = [d for d in range(len(weights.shape) - 2) if d != axis - 2]
    is_padded = any(
        pads[d] for pads in (node.op.pads_begin, node.op.pads_end) if pads for d in others
    )
    return not is_padded and set(node.op.dilations) <= {1}


def _spread(filter_: Array, stride: int, step: int, terms: int) -> Array:
    """Return weights [results side by side, step, 1, terms]: each filter a stride further."""
    spread = np.zeros((SIDE_BY_SIDE, terms * step), np.float32)
    for number, row in enumerate(spread):
        row[number * stride :][: filter_.size] = filter_.reshape(-1)
    spread = spread.reshape(SIDE_BY_SIDE, terms, step).transpose(0, 2, 1)
    return np.ascontiguousarray(spread[:, :, None])


def _summand(node: Node, filter_: Node) -> float | None:
    """The number that a node adds; None for anything else."""
    if not isinstance(node.op, Add) or node.output.shape != filter_.output.shape:
        return None
    return next((value for port in node.inputs if (value := scalar(port)) is not None), None)
