"""BoundStep: a step of a plan as a prepared call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polydevice_cpu.algorithms.by_machine.code import CodeCall
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.plan.binding.stretches import Call
from polydevice_cpu.plan.step import PrimitiveStep, Step

SEVERAL = -1
"""In the place of a step's number, where a call is of several."""


class BoundStep(NamedTuple):
    """What runs a step, or several that follow each other.

    Attributes:
        number: of the step, or `SEVERAL`.
        call: runs it.
        primitives: what it executes, of which code may still be missing.
        threads: with how many these run; 0 where there are none.
        shared: how many threads share a call of machine code.
    """

    number: int
    call: Call
    primitives: Sequence[Primitive] = ()
    threads: int = 0
    shared: int = 1

    @classmethod
    def of(cls, number: int, step: Step, call: Call) -> BoundStep:
        """Return a step of a plan with its call."""
        if isinstance(step, PrimitiveStep):
            return cls(number, call, step.primitives, step.primitive.threads)
        return cls(number, call, shared=call.code.threads if isinstance(call, CodeCall) else 1)
