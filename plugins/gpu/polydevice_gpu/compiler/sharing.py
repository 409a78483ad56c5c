"""Layers of one launch call the functions of others, where that takes little longer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.launch import Launch
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.one_launch.choose import LARGE_BYTES, why_apart
from polydevice_gpu.one_launch.function import Function
from polydevice_gpu.one_launch.stage import touched_bytes
from polydevice_gpu.runtime.plan import Step, scratch_memory
from polydevice_gpu.tuning.candidates import launches_of, takes

FUNCTION_US = 1.0
"""What a function has to bring to be one more: the first call of one, whose instructions no
processor has yet, took 2.4 us of ResNet-50 in f16 at batch 1, whose weights fill an H200's second
cache between two launches, 0.6 of MobileNetV2 and 0.3 of BERT-base. With 1 as with 2.4 ResNet-50 is
left modes 10 and 13 of gemm_wgmma but for one layer, and 14 of 18 functions: an inference takes
390 us with 1, 391 with 2.4, 400 with 0.5 and 404 where nothing is shared (H200)."""


@runtime_checkable
class Expecting(Protocol):
    """A kernel that knows what its modes take."""

    def expected_us(self, node: GpuNode, number: int, target: Target) -> float:
        """Return the expected microseconds of a mode; infinite where it cannot run the node."""


def share_functions(steps: Sequence[Step], target: Target) -> None:
    """Give up functions whose layers lose less by those of others than a function costs.

    One after the other, the one by which most is gained first. Only among modes of a kernel: what
    others would take is not known in microseconds. What was tuned stays.

    Args:
        steps: that may become one launch, not necessarily all; their choices and launches change.
        target: the device.
    """
    parts = [_Part(step, target) for step in steps if _joins(step)]
    while moves := _best(parts):
        for part, mode in moves:
            part.use(mode)


def _joins(step: Step) -> bool:
    large = any(touched_bytes(each, step.scratch) > LARGE_BYTES for each in step.launches)
    return not large and not why_apart(step.launches)


class _Part:
    """A step, and by which functions it could be computed."""

    def __init__(self, step: Step, target: Target) -> None:
        self.step, self.target = step, target
        assert step.node.choice is not None
        self.choice = step.node.choice
        self.functions = _functions(step.launches)
        self.is_fixed = bool(self.choice.tuned) or not isinstance(self.choice.kernel, Expecting)
        self._written: dict[int, list[Launch]] = {}

    def more_us(self, mode: int) -> float:
        """Return what a mode takes longer than the choice."""
        kernel = self.choice.kernel
        assert isinstance(kernel, Expecting)
        mine, other = (
            kernel.expected_us(self.step.node, number, self.target)
            for number in (self.choice.mode, mode)
        )
        return other - mine

    def launches(self, mode: int) -> list[Launch]:
        """Return the launches of a mode."""
        if mode not in self._written:
            other = replace(self.choice, mode=mode)
            can = takes(self.step.node, other, self.target)
            self._written[mode] = launches_of(other, self.step.node, self.target) if can else []
        return self._written[mode]

    def use(self, mode: int) -> None:
        """Take another mode, and say why."""
        step, more = self.step, self.more_us(mode)
        why = f"its function would be one more, and that of others takes {more:.1f} us longer"
        passed = {**self.choice.passed, str(self.choice): why}
        step.launches = self.launches(mode)
        step.scratch = scratch_memory(step.launches)
        self.functions = _functions(step.launches)
        self.choice = step.node.choice = replace(self.choice, mode=mode, passed=passed)


def _functions(launches: Sequence[Launch]) -> frozenset[Function]:
    return frozenset(Function.of(launch) for launch in launches)


def _best(parts: Sequence[_Part]) -> list[tuple[_Part, int]]:
    """Return the moves by which the function goes whose loss costs least; none where none pays."""
    users: dict[Function, list[_Part]] = {}
    for part in parts:
        for function in part.functions:
            users.setdefault(function, []).append(part)
    best: list[tuple[_Part, int]] = []
    least = FUNCTION_US
    for function, mine in users.items():
        found = _moves(mine, parts, users.keys() - {function}, least)
        if found is not None:
            best, least = found
    return best


def _moves(
    mine: Sequence[_Part], parts: Sequence[_Part], others: set[Function], limit: float
) -> tuple[list[tuple[_Part, int]], float] | None:
    """Return how parts come by with other functions, and what they lose; None beyond the limit."""
    moves: list[tuple[_Part, int]] = []
    lost = 0.0
    for part in mine:
        if part.is_fixed:
            return None
        modes = {p.choice.mode for p in parts if p.choice.kernel is part.choice.kernel}
        rated = sorted((part.more_us(mode), mode) for mode in modes - {part.choice.mode})
        for more, mode in rated:
            if lost + more >= limit:
                return None
            launches = part.launches(mode)
            if launches and not why_apart(launches) and _functions(launches) <= others:
                moves.append((part, mode))
                lost += more
                break
        else:
            return None
    return moves, lost
