"""Columns: tensors [N, C, L, 1], which primitives see as rows [N, C, 1, L].

Both are the same bytes in every layout: row-major, channels-last, in blocks of channels. oneDNN
computes a register's worth of results along the last axis at once, so that convolutions of columns
(one-dimensional ones, as TensorFlow exports them) were 4 to 12 times slower than those of rows
(measured with AVX-512).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from polydevice_cpu.plan.building.sight import AS_IS, TURNED, Sight

if TYPE_CHECKING:
    from polydevice.node import Node

Order = Callable[[Sequence[int]], tuple[int, ...]]
"""Sizes, strides or paddings of the network in the order of the primitive's axes."""


def as_is(values: Sequence[int]) -> tuple[int, ...]:
    """The axes of the network."""
    return tuple(values)


def turned(values: Sequence[int]) -> tuple[int, ...]:
    """The last two axes exchanged; see `polydevice_cpu.plan.value.Value.turned`."""
    *lead, a, b = values
    return (*lead, b, a)


def sight(order: Order) -> Sight:
    """How a primitive sees tensors in this order."""
    return TURNED if order is turned else AS_IS


def orders(node: Node) -> tuple[Order, ...]:
    """The orders to try for an operation with a window, best first."""
    shapes = [port.shape for port in (node.inputs[0], node.outputs[0])]
    columns = all(shape is not None and len(shape) > 3 and shape[-1] == 1 for shape in shapes)
    source = shapes[0]
    return (turned, as_is) if columns and source is not None and source[-2] != 1 else (as_is,)
