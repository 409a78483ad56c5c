"""Stretches: what runs between two questions whether the inference may go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_void_p, cast
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import CALL, Calls, calls
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.onednn.primitive import Execution

Call = Callable[[], Any]
"""Runs one step; anything but 0 and None is a oneDNN status."""

STRETCH = 16
"""Steps between two questions; one takes 0.1 µs."""


class PreparedCall(partial[int]):
    """A call of machine code, prepared.

    Attributes:
        told: what it is told; addresses come first.
        record: the call as of type `machine_code.CALL`.
    """

    told: Array
    record: tuple[int, ...]

    @classmethod
    def of(cls, function: Any, told: bytes) -> PreparedCall:
        """Return what calls a function with the address of a copy of what it is told."""
        numbers = np.frombuffer(bytearray(told.ljust(-(-len(told) // 8) * 8, b"\0")), np.int64)
        made = cls(function, c_void_p(address_of(numbers)))
        made.told = numbers
        made.record = cast(function, c_void_p).value or 0, address_of(numbers), 0, 0, 0
        return made


class Together(partial[int]):
    """C functions that follow each other as one call: of two, each takes 0.3 instead of 0.7 µs.

    Attributes:
        executions: what it calls, as long as one returns 0.
    """

    executions: Sequence[Execution | PreparedCall | Calls]

    def failed(self, result: int) -> tuple[Execution | PreparedCall | Calls, int]:
        """Return which one failed, by what the call returned, and its status."""
        return self.executions[len(self.executions) - (result >> 32)], result & 0xFFFFFFFF


def stretches(steps: Sequence[Call]) -> list[list[Call]]:
    """Return the calls of steps, in order, in stretches.

    Args:
        steps: the call of each; primitives are compiled.
    """
    found: list[list[Call]] = []
    for first in range(0, len(steps), STRETCH):
        found.append([])
        for are_recorded, group in groupby(steps[first : first + STRETCH], _is_recorded):
            calls_of = list(group)
            found[-1] += _together(calls_of) if are_recorded else calls_of
    return found


def _is_recorded(call: Call) -> bool:
    return isinstance(call, (Execution, PreparedCall, Calls))


def _together(executions: list[Any]) -> Sequence[Call]:
    if len(executions) > 1:
        made = calls(np.array([each.record for each in executions], CALL))
        if made is not None:
            one = Together(made)
            one.executions = executions
            return [one]
    return executions
