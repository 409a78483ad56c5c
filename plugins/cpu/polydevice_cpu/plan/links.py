"""Functions that follow a primitive, as machine code computes them, and what takes their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polydevice.dtype import Array
from polydevice_cpu.algorithms.by_machine.windows.tiles import LONGEST, Function
from polydevice_cpu.onednn.attributes import Eltwise, PostOp
from polydevice_cpu.onednn.constants import Algorithm
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice_cpu.plan.building.builder import PlanBuilder

Link = tuple[Function, float, float]
"""A function and its two numbers."""

_FUNCTIONS = {
    Algorithm.CLIP: Function.CLIP,
    Algorithm.LINEAR: Function.LINEAR,
    Algorithm.HARD_SWISH: Function.HARDSWISH,
    Algorithm.RELU: Function.RELU,
    Algorithm.LOGISTIC: Function.LOGISTIC,
    Algorithm.SWISH: Function.SWISH,
    Algorithm.ELU: Function.ELU,
    Algorithm.GELU_ERF: Function.GELU,
}


def link_of(post_op: PostOp) -> Link | None:
    """Return a function of one number; None where there is no code for it."""
    if not isinstance(post_op, Eltwise) or post_op.algorithm not in _FUNCTIONS:
        return None
    function = _FUNCTIONS[post_op.algorithm]
    if function is Function.RELU and post_op.alpha != 0:
        return Function.LEAKY, post_op.alpha, 0.0
    return function, post_op.alpha, post_op.beta


def links_of(post_ops: Sequence[PostOp]) -> tuple[Link, ...] | None:
    """Return functions of one number each; None where there is no code for one."""
    found = tuple(link for link in map(link_of, post_ops) if link is not None)
    return found if len(found) == len(post_ops) <= LONGEST else None


@dataclass(frozen=True)
class Settled:
    """A primitive that nothing more is fused into.

    Attributes:
        name: of the last layer.
        type: of all of them.
        layers: names of all, in order; empty for one.
        post_ops: what follows it.
        bias: of each channel.
    """

    name: str
    type: str
    layers: tuple[str, ...]
    post_ops: tuple[PostOp, ...]
    bias: Array | None


Instead = Callable[["PlanBuilder", Settled], "Value | None"]
"""Emits another step instead of the primitive, and returns its result; None where it cannot."""
