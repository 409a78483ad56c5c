"""Stretches: what runs between two questions whether the inference may go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from polydevice.processor.machine_code import CALL, Calls, calls
from polydevice_cpu.onednn.primitive import Execution

Call = Callable[[], Any]
"""Runs one step; anything but 0 and None is a oneDNN status."""

STRETCH = 16
"""Steps between two questions; one takes 0.1 µs."""


class Together(partial[int]):
    """C functions that follow each other as one call: of two, each takes 0.3 instead of 0.7 µs.

    Attributes:
        executions: what it calls, as long as one returns 0.
    """

    executions: Sequence[Execution | Calls]

    def failed(self, result: int) -> tuple[Call, int, Sequence[Call]]:
        """Return which one failed, by what the call returned, its status, and those behind it."""
        first, *rest = self.executions[len(self.executions) - (result >> 32) :]
        return first, result & 0xFFFFFFFF, rest


def stretches(steps: Sequence[Call]) -> list[list[Call]]:
    """Return the calls of steps, in order, in stretches.

    Args:
        steps: the call of each; primitives are compiled.
    """
    found: list[list[Call]] = []
    for first in range(0, len(steps), STRETCH):
        found.append([])
        for are_recorded, group in groupby(steps[first : first + STRETCH], is_recorded):
            calls_of = list(group)
            found[-1] += _together(calls_of) if are_recorded else calls_of
    return found


def is_recorded(call: Call) -> bool:
    """Whether a call is one of a C function, which may be called with others."""
    return isinstance(call, (Execution, Calls))


def _together(executions: list[Any]) -> Sequence[Call]:
    if len(executions) > 1:
        made = calls(np.array([each.record for each in executions], CALL))
        if made is not None:
            one = Together(made)
            one.executions = executions
            return [one]
    return executions
