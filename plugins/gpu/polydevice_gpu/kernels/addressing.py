"""How coordinates step through memory, and which vectors of neighbours lie at multiples."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from polydevice.shape import stay_equal
from polydevice.symbolic_size import is_symbolic
from polydevice.symbolic_trace import gains
from polydevice_gpu.graph import Value
from polydevice_gpu.layout import Layout, broadcast, collapse

Groups = Sequence[Sequence[int]]
"""Which axes of a tensor each coordinate runs over; () for a coordinate that is always 0."""


def aligned_widths(
    layout: Layout, shape: Sequence[int], groups: Groups, widths: Sequence[int]
) -> dict[int, bool]:
    """Return for each width whether vectors at multiples of it along the last coordinate align."""
    if step_along(layout, shape, groups) != 1:
        return dict.fromkeys(widths, False)
    last = groups[-1]
    others = [
        layout.pitches[axis]
        for group in groups
        for axis in group
        if group is not last and (is_symbolic(shape[axis]) or shape[axis] > 1)
    ]

    def aligns(width: int) -> bool:
        return all(number % width == 0 for number in (layout.offset, *others))

    return {width: gains(functools.partial(aligns, width), by_chance=True) for width in widths}


def spread(extra: Value, target: Value) -> Layout:
    """Return the layout of an epilogue's input over the axes of the result."""
    return broadcast(extra.placed, extra.shape, target.shape)


def operand_step(
    operand: Value, layout: Layout, shape: Sequence[int], groups: Groups
) -> int | None:
    """Return the pitch of an operand along the last coordinate, as `step_along` does.

    None as well where a border ends on the way, so that a vector could lie on both sides.
    """
    if operand.border is not None:
        inside = operand.border.inside
        if not all(stay_equal(inside[axis][1], operand.shape[axis]) for axis in groups[-1]):
            return None
    return step_along(layout, shape, groups)


def lies_whole(operand: Value, layout: Layout, shape: Sequence[int], groups: Groups) -> bool:
    """Whether vectors along the last coordinate may lie inside a border that ends on the way."""
    if operand.border is None or operand_step(operand, layout, shape, groups) is not None:
        return False
    return step_along(layout, shape, groups) == 1


def step_along(layout: Layout, shape: Sequence[int], groups: Groups) -> int | None:
    """Return the pitch along the last coordinate: 0, 1, or None for any other."""
    blocks = collapse([(shape[axis], layout.pitches[axis]) for axis in groups[-1]])
    if not blocks:
        return 0
    return blocks[0][1] if len(blocks) == 1 and blocks[0][1] in (0, 1) else None
