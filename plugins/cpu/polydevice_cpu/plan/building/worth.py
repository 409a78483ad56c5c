"""How many threads are worth their meeting: an estimate of what a network of known shapes takes.

Two threads meet after every primitive. That takes 1 to 5 µs where both have a core, and
milliseconds where another process has taken one: networks below a millisecond then took 8 to 13
times as long on two threads as on one, and never less than 0.85 of it on an idle machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from polydevice.node import Node, Port
from polydevice.ops.convolution import ConvolutionBackpropData, ConvolutionLike
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op
from polydevice.ops.recurrent import Recurrent, SequenceOf
from polydevice.rewrites.integers.integer_product import IntegerProduct

PRODUCTS_PER_US = 70_000
"""Multiplications and additions that one thread makes, with AVX-512 in the networks measured."""

ELEMENTS_PER_US = 15_000
"""Numbers that one thread reads or writes, from memory or through a short formula."""

NETWORK_US = 1_000
"""A network that takes one thread less has no use for more."""

STEP_US = 40
"""Nor has a step of a larger one."""


def threads_worth(nodes: Iterable[Node], most: int, least_us: float) -> int:
    """Return `most`, or 1 for nodes that together take one thread less than `least_us`."""
    spent = 0.0
    for node in nodes if most > 1 else ():
        spent += _microseconds(node)
        if spent >= least_us:
            return most
    return 1


def _microseconds(node: Node) -> float:
    """What the node takes one thread; sizes that are not known count as 1."""
    if node.constant is not None:
        return 0.0
    moved = sum(_size(port) for port in (*node.inputs, *node.outputs))
    return moved / ELEMENTS_PER_US + _products(node, node.op) / PRODUCTS_PER_US


def _products(node: Node, op: Op) -> float:
    """How many products of two numbers are added up."""
    if isinstance(op, IntegerProduct):
        return _products(node, op.product)
    if isinstance(op, MatMul):
        sizes = _sizes(node.inputs[0])
        terms = sizes[-2 if op.transpose_a and len(sizes) > 1 else -1] if sizes else 1
        return _size(node.outputs[0]) * float(terms)
    if isinstance(op, ConvolutionLike):
        # Each element of one side meets the window and the other side's channels of its group.
        back = isinstance(op, ConvolutionBackpropData)
        sizes = _sizes(node.inputs[1])
        window = sizes[1:] if op.grouped else sizes
        return _size(node.inputs[0] if back else node.outputs[0]) * float(math.prod(window[1:]))
    if isinstance(op, Recurrent):
        times = _sizes(node.inputs[0])[1:2] if isinstance(op, SequenceOf) else ()
        weights = sum(_size(port) for port in node.inputs if port.node.constant is not None)
        return weights * float(math.prod(times) * (_sizes(node.inputs[0]) or (1,))[0])
    return 0.0


def _size(port: Port) -> int:
    return math.prod(_sizes(port))


def _sizes(port: Port) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else 1 for size in port.shape or ())
