"""fold_steps: what rounding divides by and multiplies with joins what is before and behind.

``clip(round(x / s)) * s`` is four functions of each element. Where x is a sum of products with
constants these can be divided by s once and for all, and where such sums are what reads the result,
their constants multiplied. What is left is to round and to limit, and values between layers are
integers, in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.activation import Clamp, Relu
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.concat import Concat
from polydevice.ops.convolution import ConvolutionBackpropData, ConvolutionLike
from polydevice.ops.interpolate import Interpolate, Interpolate1, Interpolate4
from polydevice.ops.matmul import MatMul
from polydevice.ops.pad import Pad
from polydevice.ops.pooling import AvgPool
from polydevice.ops.reduce import ReduceMean, ReduceSum
from polydevice.rewrites.integers.movement import moves
from polydevice.rewrites.pattern import Users
from polydevice_cpu.algorithms.precision import fits_f32
from polydevice_cpu.passes.integers.fuse_quantize import QuantizeDequantize
from polydevice_cpu.processor import has_int8

_DIVISOR, _FACTOR = 1, 3
"""Inputs of QuantizeDequantize."""

_LEVELS = 256
"""Values of more levels are not folded: other code wants to know their steps."""


def fold_steps(network: Network) -> None:
    """Fold what can be folded; behind a 1x1 convolution each factor takes 0.1 ns for each element.

    That is a tenth of one with 16 inputs, and a quotient is four times that (AVX2).
    """
    if has_int8():
        return  # what is rounded may be held as integers of these steps
    users = network.consumers()
    nodes = [node for node in network.nodes() if _is_foldable(node)]
    for node in nodes:
        factor = _number(node, _FACTOR)
        if factor != 1 and (fold := _Fold(users)).behind(node.output, factor):
            fold.add(node, _FACTOR, 1 / factor)
            fold.apply()
    for node in nodes:
        divisor = _number(node, _DIVISOR)
        if divisor != 1 and (fold := _Fold(users)).before(node.inputs[0], node, 1 / divisor):
            fold.add(node, _DIVISOR, 1 / divisor)
            fold.apply()


def _is_foldable(node: Node) -> bool:
    op = node.op
    if not isinstance(op, QuantizeDequantize) or op.most - op.least >= _LEVELS:
        return False
    numbers = [node.inputs[place].node.constant for place in (_DIVISOR, _FACTOR)]
    return all(
        number is not None and number.size == 1 and 0 < number.item() < math.inf
        for number in numbers
    )


def _number(node: Node, place: int) -> float:
    number = node.inputs[place].node.constant
    assert number is not None
    return float(number.item())


def _adds_up(node: Node) -> bool:
    """Whether results are sums, whose last bits no division that comes before it changes more.

    A single product may lie on a half.
    """
    weights = node.inputs[1].node.constant
    if weights is None or isinstance(node.op, ConvolutionBackpropData):
        return weights is not None
    if isinstance(node.op, MatMul):
        return weights.ndim < 2 or weights.shape[-1 if node.op.transpose_b else -2] > 1
    grouped = isinstance(node.op, ConvolutionLike) and node.op.grouped
    return math.prod(weights.shape[2 if grouped else 1 :]) > 1


class _Fold:
    """What changes when the numbers of a port become others: constants that are multiplied."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self._numbers: dict[tuple[Node, int], Array] = {}
        self._limits: dict[Node, Clamp] = {}

    def add(self, node: Node, place: int, factor: float) -> bool:
        """Multiply a constant input; whether that is possible."""
        number = node.inputs[place].node.constant
        if number is None or number.dtype != np.float32 or (node, place) in self._numbers:
            return False
        wide = number.astype(np.float64) * factor
        self._numbers[node, place] = wide.astype(np.float32)
        return fits_f32(wide)

    def apply(self) -> None:
        """Do all of it."""
        for (node, place), array in self._numbers.items():
            port = constant(f"{node.inputs[place].node.name}/folded", array).output
            self._users[node.inputs[place]].remove((node, place))
            self._users[port] = [(node, place)]
            node.inputs[place] = port
        for node, op in self._limits.items():
            node.op = op

    def behind(self, port: Port, factor: float) -> bool:
        """Whether all that reads a port can take numbers that are to be multiplied."""
        readers = self._users[port]
        return bool(readers) and all(self._reads(*each, port, factor) for each in readers)

    def _reads(self, node: Node, place: int, port: Port, factor: float) -> bool:
        op = node.op
        if isinstance(op, QuantizeDequantize):
            return place == 0 and _is_foldable(node) and self.add(node, _DIVISOR, 1 / factor)
        if isinstance(op, (ConvolutionLike, MatMul)):
            return place == 0 and self._multiplies(node, factor)
        if isinstance(op, (Add, Multiply)):
            other = 1 - place
            if node.inputs[other] is port or node.output.shape is None:
                return False
            if isinstance(op, Multiply):
                return self.add(node, other, factor)
            return self._all_before([node.inputs[other]], node, 1 / factor) and self.behind(
                node.output, factor
            )
        if isinstance(op, Concat):
            others = [each for number, each in enumerate(node.inputs) if number != place]
            if port in others or not self._all_before(others, node, 1 / factor):
                return False
        elif place or not self._passes(node, 1 / factor):
            return False
        return all(self.behind(each, factor) for each in node.outputs)

    def _all_before(self, ports: Sequence[Port], reader: Node, factor: float) -> bool:
        return all(self.before(port, reader, factor) for port in ports)

    def before(self, port: Port, reader: Node, factor: float) -> bool:
        """Whether what one node alone reads can be made a multiple of what it is."""
        node = port.node
        if node.constant is not None:
            return self.add(reader, reader.inputs.index(port), factor)
        if len(self._users[port]) > 1 or len(node.outputs) > 1:
            return False
        if isinstance(node.op, QuantizeDequantize):
            # One that is 1 would but take the place of the factor that is left out.
            has_one = _is_foldable(node) and _number(node, _FACTOR) != 1
            return has_one and self.add(node, _FACTOR, factor)
        if isinstance(node.op, (ConvolutionLike, MatMul)):
            return _adds_up(node) and self._multiplies(node, factor)
        if isinstance(node.op, Multiply):
            places = [n for n, each in enumerate(node.inputs) if each.node.constant is not None]
            return len(places) == 1 and self.add(node, places[0], factor)
        if isinstance(node.op, Add):
            return self._all_before(node.inputs, node, factor)
        if isinstance(node.op, Concat):
            return self._all_before(node.inputs, node, factor)
        return self._passes(node, factor) and self.before(node.inputs[0], node, factor)

    def _multiplies(self, node: Node, factor: float) -> bool:
        """Whether a product has constants that nothing else reads, and which can be multiplied."""
        weights = node.inputs[1]
        return len(self._users[weights]) == 1 and self.add(node, 1, factor)

    def _passes(self, node: Node, factor: float) -> bool:
        """Whether a multiple of the first input makes the same multiple of the result."""
        op = node.op
        if isinstance(op, Clamp):
            if node in self._limits:
                return False
            self._limits[node] = op.replace(min=op.min * factor, max=op.max * factor)
            return True
        if isinstance(op, Pad):
            filled = node.inputs[3].node.constant if len(node.inputs) > 3 else np.zeros(())
            return filled is not None and not filled.any()
        return isinstance(op, _PASS) or moves(node)


_PASS = (Relu, AvgPool, ReduceMean, ReduceSum, Interpolate1, Interpolate4, Interpolate)
"""Besides what moves elements."""
