"""Products of what was rounded to 16 bits multiply integers, and round where they read it.

Two products of 16 bits are added to a sum at once, by an instruction of processors that add four of
8 bits. What is rounded stays a float in memory, so that other readers are as before; where there is
none, it is rounded where it is read alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.network.kept_layers import KeptLayers
from polydevice.node import Node, Port, constant
from polydevice.ops.arithmetic import Multiply
from polydevice.ops.concat import Concat
from polydevice.ops.convolution import Convolution
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op
from polydevice.rewrites.integers.movement import MOVES
from polydevice.rewrites.integers.products import per_output
from polydevice.rewrites.integers.quantised import (
    Parameters,
    quantised,
    quantised_constant,
    quantiser,
)
from polydevice.rewrites.pattern import Replacements
from polydevice_gpu.rounded_ops import (
    MOST_BYTES,
    ROUNDED_PRODUCTS,
    RoundedConvolution,
    RoundedMatMul,
    bytes_of_window,
)

WORDS = (ElementType.u16, ElementType.i16)
"""Types of what is rounded."""

LEAST_TERMS = 8
"""Channels (rows of a matrix) from which on rounding what is read takes less than it saves."""

_LARGEST_SUM = (1 << 31) - 1


def round_products(network: Network) -> None:
    """Put products of integers in the place of those of floats, and leave out roundings before."""
    kept, replacements = KeptLayers.of(network), Replacements()
    for node in network.nodes():
        made = None if kept.has(node.layers) else _made(node, network)
        if made is not None:
            replacements.put(node.output, made)
    replacements.apply(network)
    _round_where_read(network)


def _made(node: Node, network: Network) -> Port | None:
    """The product of integers, if a node is one of what was rounded and of weights of 8 bits."""
    if (
        type(node.op) not in (Convolution, MatMul)
        or node.output.element_type is not ElementType.f32
    ):
        return None
    source, parameters = node.inputs[0], _rounded(node.inputs[0])
    if parameters is None or not _has_rows(node):
        return None
    found = quantised_constant(node.inputs[1], network.evaluate)
    scales = None if found is None else per_output(node, found.scale, found.integers)
    if found is None or scales is None:
        return None
    scale, zero, kind = parameters
    limits = np.iinfo(kind.dtype)
    low, high = int(limits.min) - zero, int(limits.max) - zero
    weights: Array = found.integers.astype(np.int64) + found.lacking
    if not _fits(node.op, weights, max(abs(low), abs(high))):
        return None
    narrow = np.int8 if found.integers.dtype == np.int8 and not found.lacking.any() else np.int16
    wanted = RoundedMatMul if isinstance(node.op, MatMul) else RoundedConvolution
    op = wanted(**node.op.attributes(), scale=scale, low=low, high=high)
    build = Emitter(node.name, origins=node.layers)
    integers = constant(f"{node.name}/weights", weights.astype(narrow)).output
    sums = build.emit(op, source, integers, name=f"{node.name}/sums")
    factor = constant(f"{node.name}/scale", np.asarray(np.float32(scale) * scales, np.float32))
    return build.replacement(node, Multiply(), sums, factor.output)


def _rounded(port: Port) -> Parameters | None:
    """Scale, zero point and type of what a value was rounded to, also if it was moved then."""
    while isinstance(port.node.op, MOVES) and not isinstance(port.node.op, Concat):
        port = port.node.inputs[0]
    found = quantised(port, WORDS)
    return None if found is None else found.parameters


def _has_rows(node: Node) -> bool:
    """Whether a product is one with a matrix, or a convolution of enough channels."""
    w = node.inputs[1].shape
    if w is None or not w.is_static:
        return False
    if isinstance(node.op, MatMul):
        rows = w.static[-1 if node.op.transpose_b else 0]
        rank = node.inputs[0].desc.rank
        is_matrix = len(w) == 2 and not node.op.transpose_a and rank is not None and rank > 1
        return is_matrix and bool(
            rows >= LEAST_TERMS and bytes_of_window((), (), rows) <= MOST_BYTES
        )
    assert isinstance(node.op, Convolution)
    _, channels, *kernel = w.static
    bytes_ = bytes_of_window(kernel, node.op.dilations, channels)
    return bool(channels >= LEAST_TERMS and bytes_ <= MOST_BYTES)


def _fits(op: Op, weights: Array, largest: int) -> bool:
    """Whether i16 holds the weights, and i32 every sum."""
    limits = np.iinfo(np.int16)
    if not weights.size or weights.min() < limits.min or weights.max() > limits.max:
        return False
    inner: Sequence[int] = range(1, weights.ndim)
    if isinstance(op, MatMul):
        inner = (1,) if op.transpose_b else (0,)
    return int(np.abs(weights).sum(tuple(inner)).max()) * largest <= _LARGEST_SUM


def _round_where_read(network: Network) -> None:
    """Leave out roundings of what such products alone read: they round it as it was."""
    users = network.consumers()
    replacements = Replacements()
    for node in network.nodes():
        found = quantised(node.outputs[0], WORDS) if node.outputs else None
        if found is None or quantiser(found.integers.node, WORDS) != found.parameters:
            continue
        if _rounds_again(node.output, users):
            replacements.put(node.output, found.integers.node.inputs[0])
    replacements.apply(network)


def _rounds_again(port: Port, users: Mapping[Port, list[tuple[Node, int]]]) -> bool:
    """Whether all readers, also of what moves a value, are products that round it."""
    readers = users.get(port, [])
    return bool(readers) and all(
        index == 0 and (isinstance(reader.op, ROUNDED_PRODUCTS) or _moves_alone(reader, users))
        for reader, index in readers
    )


def _moves_alone(node: Node, users: Mapping[Port, list[tuple[Node, int]]]) -> bool:
    """Whether a node moves elements to such products, and to nobody else."""
    if not isinstance(node.op, MOVES) or isinstance(node.op, Concat):
        return False
    return all(_rounds_again(made, users) for made in node.outputs if users.get(made))
