"""whole_products: products of 8-bit integers are computed in f32, for which there are kernels.

MatMulInteger and ConvInteger of dynamically quantised models come as products in i32. A product in
f32 gives the same numbers as long as every sum stays below 2^24; where it may not, the result is
only taken if all its readers turn it into f32 anyway.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.arithmetic import Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.convolution import Convolution, GroupConvolution
from polydevice.ops.matmul import MatMul
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.rewrites.pattern import Replacements

EXACT = 1 << 24
"""Integers up to here are f32 numbers."""

_RANGES = {ElementType.u8: (0, 255), ElementType.i8: (-128, 127)}
_RESHAPING = (Reshape, Squeeze, Unsqueeze)
_TO_F32 = Convert(destination_type=ElementType.f32)
_TO_I32 = Convert(destination_type=ElementType.i32)


@dataclass(frozen=True)
class _Wide:
    """An i32 value that is also had in f32: `port`, whose elements lie from `low` to `high`."""

    port: Port
    low: int
    high: int

    @property
    def reach(self) -> int:
        return max(abs(self.low), abs(self.high))


def whole_products(network: Network) -> None:
    """Replace products in i32 whose operands come from 8-bit integers."""
    users = network.consumers()
    replacements = Replacements()
    known: dict[Port, _Wide | None] = {}
    for node in network.nodes():
        if not isinstance(node.op, (MatMul, Convolution, GroupConvolution)):
            continue
        if node.outputs[0].element_type is not ElementType.i32:
            continue
        a, b = (_widened(port, known) for port in node.inputs[:2])
        if a is None or b is None:
            continue
        readers = [reader for reader, _ in users[node.output]]
        exact = _largest_sum(node, a, b) < EXACT
        if not exact and not all(_makes_f32(reader) for reader in readers):
            continue
        build = Emitter(node.name, origins=node.layers)
        made = build.replacement(node, node.op, a.port, b.port)
        for reader in readers:
            if _makes_f32(reader):
                replacements.put(reader.output, made)
        back = build.emit(_TO_I32, made, name=f"{node.name}/i32")
        replacements.put(node.output, back)
    replacements.apply(network)


def _makes_f32(node: Node) -> bool:
    return isinstance(node.op, Convert) and node.op.destination_type is ElementType.f32


def _widened(port: Port, known: dict[Port, _Wide | None]) -> _Wide | None:
    """The same value in f32; None where its range is not known to be small."""
    if port not in known:
        known[port] = _widen(port, known)
    return known[port]


def _widen(port: Port, known: dict[Port, _Wide | None]) -> _Wide | None:
    node = port.node
    build = Emitter(f"{node.name}/f32", origins=node.layers)
    if node.constant is not None:
        values = node.constant
        low, high = (int(limit(values)) if values.size else 0 for limit in (np.min, np.max))
        if max(-low, high) >= EXACT:
            return None
        return _Wide(build.value(values.astype(np.float32)), low, high)
    if isinstance(node.op, Convert) and node.inputs[0].element_type in _RANGES:
        low, high = _RANGES[node.inputs[0].element_type]
        return _Wide(build.emit(_TO_F32, *node.inputs), low, high)
    if isinstance(node.op, _RESHAPING):
        inner = _widened(node.inputs[0], known)
        if inner is None:
            return None
        made = build.emit(node.op, inner.port, *node.inputs[1:])
        return _Wide(made, inner.low, inner.high)
    if isinstance(node.op, Subtract):
        left, right = (_widened(side, known) for side in node.inputs)
        if left is None or right is None:
            return None
        made = build.emit(node.op, left.port, right.port)
        return _Wide(made, left.low - right.high, left.high - right.low)
    return None


def _largest_sum(node: Node, a: _Wide, b: _Wide) -> float:
    """A bound of the absolute value of every partial sum."""
    weights = b.port.node.constant
    if weights is not None:
        return _sums(node, np.abs(weights)) * a.reach
    return _terms(node) * a.reach * b.reach


def _sums(node: Node, weights: Array) -> float:
    """The largest sum of weights that meet in one element of the result."""
    if not weights.size:
        return 0
    if isinstance(node.op, MatMul):
        inner = -1 if node.op.transpose_b or weights.ndim == 1 else -2
        return float(weights.sum(axis=inner, dtype=np.float64).max())
    first = 2 if isinstance(node.op, GroupConvolution) else 1
    return float(weights.sum(axis=tuple(range(first, weights.ndim)), dtype=np.float64).max())


def _terms(node: Node) -> float:
    """How many products an element of the result is the sum of; infinity if not known."""
    shape = node.inputs[1].shape
    if shape is None:
        return math.inf
    if isinstance(node.op, MatMul):
        inner = -1 if node.op.transpose_b or len(shape) == 1 else -2
        sizes = [shape[inner]]
    else:
        sizes = list(shape)[2 if isinstance(node.op, GroupConvolution) else 1 :]
    if not all(isinstance(size, int) for size in sizes):
        return math.inf
    return float(math.prod(size for size in sizes if isinstance(size, int)))
