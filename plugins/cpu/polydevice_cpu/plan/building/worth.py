"""How many threads are worth their meeting: an estimate of what a network of known shapes takes.

Two threads meet after every primitive. That takes 1 to 5 µs where both have a core, so that
networks of 0.2 ms and more gain: on two cores of an EPYC 0.74 ms became 0.48, and 0.21 0.165. It
takes milliseconds where another process has taken a core, which GivingWay notices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import starmap

from polydevice.node import Node, Port
from polydevice.ops.convolution import ConvolutionBackpropData, ConvolutionLike
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op
from polydevice.ops.recurrent import Recurrent, SequenceOf
from polydevice.rewrites.integers.integer_product import IntegerProduct
from polydevice.symbolic_size import number_of
from polydevice_cpu.passes.integers.compressed import CompressedMatMul

PRODUCTS_PER_US = 70_000
"""Multiplications and additions that one thread makes, with AVX-512 in the networks measured."""

ELEMENTS_PER_US = 15_000
"""Numbers that one thread reads or writes, from memory or through a short formula."""

WAKE_US = 20
"""What several threads must save in all. To wake them, 60 us after an inference, takes up to 50 us
more, which GivingWay notices where inferences are far apart."""

MEETING_US = 3
"""What it takes two threads to begin a step together, and to wait for one another after it. More of
them meet in as many rounds as their number has binary digits."""

CHANGE_US = 15
"""What it takes to go on with another number of threads: each finds half of what it reads in
another core's cache (a step of 7 us then takes 10), and those not needed sleep and are woken."""


def threads_worth(nodes: Sequence[Node], most: int) -> list[int]:
    """Return with how many threads each node is computed: `most`, or 1.

    Small steps between large ones run on all threads too. A network of convolutions that take
    30 us, with smaller ones between them, took 2.4 ms on one thread, 2.4 to 2.6 with the large
    ones alone on two, and 1.95 with all of them on two. So what is made least is the sum of the
    steps and of the changes between them.

    Args:
        nodes: in the order in which they are computed.
        most: how many threads there are.
    """
    if most == 1:
        return [1] * len(nodes)
    meeting = MEETING_US * math.log2(most)
    sized = [(_products(node, node.op), _moved(node)) for node in nodes]
    work = [(number_of(products), number_of(moved)) for products, moved in sized]
    meetings = meeting * sum(1 for products, _ in work if products)
    if sum(starmap(_microseconds, sized)) < (WAKE_US + meetings) / (1 - 1 / most):
        return [1] * len(nodes)
    alone = together = 0.0  # the least time until now, if the latest node ran on one, or on all
    stays: list[tuple[bool, bool]] = []  # whether the node before each ran as it does, for both
    for products, moved in work:
        stays.append((alone <= together + CHANGE_US, together <= alone + CHANGE_US))
        spent = _microseconds(products, moved)
        shared = spent / most + meeting
        if not products:  # most of these become part of what precedes them, or views
            shared = min(shared, spent)
        alone, together = (
            min(alone, together + CHANGE_US) + spent,
            min(together, alone + CHANGE_US) + shared,
        )
    is_alone, counts = alone < together, []
    for each in reversed(stays):
        counts.append(1 if is_alone else most)
        is_alone ^= not each[0 if is_alone else 1]
    return counts[::-1]


def _microseconds(products: float, moved: int) -> float:
    return moved / ELEMENTS_PER_US + products / PRODUCTS_PER_US


def _moved(node: Node) -> int:
    """How many numbers are read and written; sizes that are not known count as 1."""
    if node.constant is not None:
        return 0
    return sum(_size(port) for port in (*node.inputs, *node.outputs))


def _products(node: Node, op: Op) -> float:
    """How many products of two numbers are added up; no `float`, which ends a formula."""
    if node.constant is not None:
        return 0.0
    if isinstance(op, IntegerProduct):
        return _products(node, op.product)
    if isinstance(op, (MatMul, CompressedMatMul)):
        sizes = _sizes(node.inputs[0])
        turned = isinstance(op, MatMul) and op.transpose_a and len(sizes) > 1
        terms = sizes[-2 if turned else -1] if sizes else 1
        return _size(node.outputs[0]) * terms
    if isinstance(op, ConvolutionLike):
        # Each element of one side meets the window and the other side's channels of its group.
        back = isinstance(op, ConvolutionBackpropData)
        sizes = _sizes(node.inputs[1])
        window = sizes[1:] if op.grouped else sizes
        return _size(node.inputs[0] if back else node.outputs[0]) * math.prod(window[1:])
    if isinstance(op, Recurrent):
        times = _sizes(node.inputs[0])[1:2] if isinstance(op, SequenceOf) else ()
        weights = sum(_size(port) for port in node.inputs if port.node.constant is not None)
        return weights * math.prod(times) * (_sizes(node.inputs[0]) or (1,))[0]
    return 0.0


def _size(port: Port) -> int:
    return math.prod(_sizes(port))


def _sizes(port: Port) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else 1 for size in port.shape or ())
