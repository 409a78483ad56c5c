"""Formulas: a function from sizes to what was computed of them; see `polydevice.symbolic_size`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

from polydevice.symbolic_operators import CALLED

if TYPE_CHECKING:
    from polydevice.symbolic_size import Number
    from polydevice.symbolic_trace import Trace


class Formulas:
    """A function from sizes to what is wanted of them; see `Trace.formulas`."""

    def __init__(
        self,
        made: FunctionType,
        outcomes: Mapping[str, Callable[..., object]],
        given: Mapping[str, Callable[..., Number]],
    ) -> None:
        """Take over a function, and what it asks by name.

        Args:
            made: the function.
            outcomes: what it asks of sizes of which no formula tells, and is to answer the same.
            given: what gives numbers, see `Trace.computed_by`.
        """
        self._made, self._outcomes, self._given = made, outcomes, given

    def __call__(self, sizes: Sequence[int]) -> tuple[list[Any], list[int]] | None:
        """Return what is wanted, and the numbers of choices that may be others.

        None where a guard does not hold.
        """
        try:
            return self._made(sizes)  # type: ignore[no-any-return]
        except (ArithmeticError, ValueError, MemoryError):  # of sizes that a guard excludes
            return None

    def traced(self, trace: Trace, sizes: Sequence[Number]) -> list[Any] | None:
        """Return what is wanted of symbolic sizes of another trace, which guards what they do.

        Choices are as they were made. None where a guard does not hold.
        """
        names: dict[str, Any] = {**self._made.__globals__, "chooses": False}
        names.update({name: partial(trace.called, name) for name in CALLED})
        for name, function in self._given.items():
            names[name] = partial(trace.computed_by, function)
        for name, function in self._outcomes.items():
            names[name] = lambda *sizes, function=function: trace.outcome(function, sizes)
        found = FunctionType(self._made.__code__, names)(sizes)
        return None if found is None else found[0]
