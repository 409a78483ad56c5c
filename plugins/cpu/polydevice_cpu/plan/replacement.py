"""What takes the place of a primitive once all that is fused into it is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polydevice.dtype import Array
from polydevice_cpu.onednn.attributes import PostOp
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice_cpu.plan.building.builder import PlanBuilder
    from polydevice_cpu.plan.building.pending import Operand


@dataclass(frozen=True)
class Fused:
    """A primitive that nothing more is fused into.

    Attributes:
        name: of the last layer.
        type: of all of them.
        layers: names of all, in order; empty for one.
        post_ops: what follows it.
        bias: of each channel.
        operands: what post-operations read besides, by position.
    """

    name: str
    type: str
    layers: tuple[str, ...]
    post_ops: tuple[PostOp, ...]
    bias: Array | None
    operands: Mapping[int, Operand]


Replacement = Callable[["PlanBuilder", Fused], "Value | None"]
"""Emits another step instead of the primitive, and returns its result; None where it cannot."""
