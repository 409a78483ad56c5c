"""Which steps of a plan rely on oneDNN for fused, scaled or approximated functions unproved."""

from __future__ import annotations

from collections.abc import Iterator

from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.plan.plan import Plan
from polydevice_cpu.plan.step import PrimitiveStep

POINTWISE = ("binary", "eltwise", "prelu")
RECURRENT = ("gru", "lbr_gru", "lstm", "vanilla_rnn")
OPERANDS = (Arg.BIAS, Arg.SCALE, Arg.SHIFT)


def unproved(plan: Plan) -> Iterator[str]:
    """Name every step that needs a proof and has none."""
    for step in plan.steps:
        if not isinstance(step, PrimitiveStep) or step.primitive.kind in RECURRENT:
            continue
        read = [index for index in step.arguments if index >= Arg.ATTR_SCALES or index in OPERANDS]
        is_fused = read or len(step.layers) > 1 or step.primitive.kind in POINTWISE
        if is_fused and not step.primitive.is_proved:
            yield f"{step.type} {step.name!r} by {step.primitive.kind} {step.implementation}"
