"""split_maxima: the maximum of a large window is that of a column of maxima of rows.

Windows of 9x9 and step 1 look at 18 numbers then, not at 81: of [1, 256, 20, 20] 61 instead of 197
us, of [1, 1, 128, 128] 158 instead of 605.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.ops.pooling import MaxPool
from polydevice.rewrites.pattern import Replacements

_WRITTEN = 5
"""How many numbers are looked at in the time that writing one takes, and reading it again."""


def split_maxima(network: Network) -> None:
    """Split windows along their axes, where nobody asks which element was the largest."""
    users = network.consumers()
    replacements = Replacements()
    for node in network.nodes():
        if not isinstance(node.op, MaxPool) or any(users.get(port) for port in node.outputs[1:]):
            continue
        if node.inputs[0].element_type is not ElementType.f32 or not _gains(node.op):
            continue
        build = Emitter(node.name, origins=node.layers)
        value = replacements.now(node.inputs[0])
        *first, last = _of_each_axis(node.op)
        for number, op in enumerate(first, 1):
            value = build.emit(op, value, name=f"{node.name}/part{number}")
        replacements.put(node.outputs[0], build.replacement(node, last, value))
    replacements.apply(network)


def _gains(op: MaxPool) -> bool:
    kernel = [size for size in op.window.kernel if isinstance(size, int)]
    # The last axis comes first, at all positions along the axes that are still to be reduced.
    parts = (size * math.prod(op.window.strides[:axis]) for axis, size in enumerate(kernel))
    return math.prod(kernel) >= 2 * sum(parts) + _WRITTEN


def _of_each_axis(op: MaxPool) -> Iterator[MaxPool]:
    window = op.window
    for axis in reversed(range(window.rank)):

        def only(values: tuple[int, ...], other: int, axis: int = axis) -> tuple[int, ...]:
            return tuple(v if place == axis else other for place, v in enumerate(values))

        yield MaxPool(
            kernel=only(op.kernel, 1),
            strides=only(window.strides, 1),
            pads_begin=only(window.pads_begin, 0),
            pads_end=only(window.pads_end, 0),
            auto_pad=op.auto_pad,
            rounding_type=op.rounding_type,
            dilations=only(window.dilations, 1),
        )
