"""Layers of one launch take modes that suit it, or the functions of others, where that pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.gemm.gemm import Product, Tile
from polydevice_gpu.kernels.kernel import Choice
from polydevice_gpu.kernels.launch import Launch
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.one_launch.choose import LARGE_BYTES, LOCAL_SIZE, why_apart
from polydevice_gpu.one_launch.function import Function
from polydevice_gpu.one_launch.stage import touched_bytes
from polydevice_gpu.runtime.plan import Step, scratch_memory
from polydevice_gpu.tuning.candidates import launches_of, takes

FUNCTION_US = 1.5
"""What a function has to bring to be one more: the first call of one, whose instructions no
processor has yet, took 2.4 us of ResNet-50 in f16 at batch 1, whose weights fill an H200's second
cache between two launches, 0.6 of MobileNetV2 and 0.3 of BERT-base. With 1.5 as with 2.4 ResNet-50
is left modes 10 and 13 of gemm_wgmma alone, and 13 functions: an inference takes 352 us with 1.5,
351 with 2.4 and 358 with 1; EfficientNet-Lite0 218.1, 220.5 and 218.3 (H200)."""
NEAR_US = 0.2
"""How much longer a mode may take as a launch of its own, if fewer of its work-groups wait for room
in one launch. The first convolutions of ResNet-50 and MobileNetV2 in f16 have 392 work-groups of
128 work-items, of which 264 run side by side, or 196: 16.8 and 10.0 us, 6.1 and 4.2 (H200)."""


@runtime_checkable
class Expecting(Protocol):
    """A kernel that knows what its modes take."""

    def expected_us(self, node: GpuNode, number: int, target: Target) -> float:
        """Return the expected microseconds of a mode; infinite where it cannot run the node."""


@runtime_checkable
class Roomy(Protocol):
    """A kernel that knows which of its modes needs no more work-items than run at once."""

    def mode_within(self, node: GpuNode, number: int, items: int) -> int:
        """Return a mode of at most that many work-items; the given one if that is, or none can."""


def share_functions(steps: Sequence[Step], target: Target) -> None:
    """Take modes whose groups run side by side; give up functions that bring less than they cost.

    One after the other, the one by which most is gained first. Only among modes of a kernel: what
    others would take is not known in microseconds. What was tuned stays.

    Args:
        steps: that may become one launch, not necessarily all; their choices and launches change.
        target: the device.
    """
    parts = [_Part(step, target) for step in steps if _joins(step)]
    for part in parts:
        part.make_room()
    while moves := _best(parts):
        for part, mode in moves:
            more = part.more_us(mode)
            why = f"its function would be one more, and that of others takes {more:.1f} us longer"
            part.use(mode, why)


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
        kernel = self.choice.kernel
        self._expecting = kernel if isinstance(kernel, Expecting) else None
        self.is_fixed = bool(self.choice.tuned) or self._expecting is None
        self._written: dict[int, list[Launch]] = {}
        self._functions: dict[int, frozenset[Function] | None] = {}
        self._expected: dict[int, float] = {}

    def make_room(self) -> None:
        """Take a mode that takes hardly longer and whose work-groups wait less for each other."""
        mode = None if self.choice.tuned else self._roomier()
        if mode is not None and self.launches(mode):
            self.use(mode, "in one launch its work-groups would wait for each other")

    def _roomier(self) -> int | None:
        node, kernel, now = self.step.node, self.choice.kernel, self.choice.mode
        if isinstance(kernel, Roomy):
            mode = kernel.mode_within(node, now, LOCAL_SIZE * self.target.compute_units)
            return None if mode == now else mode
        if self.is_fixed or not waiting_us(node, self.choice, self.target):
            return None
        waits = {
            mode: waiting_us(node, replace(self.choice, mode=mode), self.target)
            for mode in range(len(kernel.modes))
            if self.more_us(mode) < NEAR_US and self._fits(mode)
        }
        best = min(waits, key=lambda mode: (self.more_us(mode) + waits[mode], mode))
        return None if best == now else best

    def _fits(self, mode: int) -> bool:
        functions = self.functions_of(mode)
        return functions is not None and all(each.items <= LOCAL_SIZE for each in functions)

    def functions_of(self, mode: int) -> frozenset[Function] | None:
        """Return the functions of a mode; None where it has launches of its own or is none."""
        if mode not in self._functions:
            launches = self.launches(mode)
            joins = bool(launches) and not why_apart(launches)
            self._functions[mode] = _functions(launches) if joins else None
        return self._functions[mode]

    def more_us(self, mode: int) -> float:
        """Return what a mode takes longer than the choice, as a launch of its own."""
        return self._expected_us(mode) - self._expected_us(self.choice.mode)

    def _expected_us(self, mode: int) -> float:
        known = self._expected.get(mode)
        if known is None:
            assert self._expecting is not None, "modes of other kernels are not compared"
            known = self._expecting.expected_us(self.step.node, mode, self.target)
            self._expected[mode] = known
        return known

    def launches(self, mode: int) -> list[Launch]:
        """Return the launches of a mode."""
        if mode not in self._written:
            other = replace(self.choice, mode=mode)
            can = takes(self.step.node, other, self.target)
            self._written[mode] = launches_of(other, self.step.node, self.target) if can else []
        return self._written[mode]

    def use(self, mode: int, why: str) -> None:
        """Take another mode, and say why."""
        step = self.step
        passed = {**self.choice.passed, str(self.choice): why}
        step.launches = self.launches(mode)
        step.scratch = scratch_memory(step.launches)
        self.functions = _functions(step.launches)
        self.choice = step.node.choice = replace(self.choice, mode=mode, passed=passed)


def waiting_us(node: GpuNode, choice: Choice, target: Target) -> float:
    """Return how long work-groups wait in one launch for others that launches run beside them.

    Known of products whose times are made of steps: a launch lets a processor have as many groups
    as find room, one launch as many as have work-items.
    """
    kernel = choice.kernel
    if not isinstance(kernel, Product):
        return 0.0
    mode = kernel.modes[choice.mode]
    tiles: Sequence[Tile] = getattr(kernel, "tiles", ())  # products of images have none
    paces = (pace for tile, pace in tiles if {**tile, "SPLIT": mode["SPLIT"]} == mode)
    pace = next(paces, None)
    if pace is None:
        return 0.0
    rows, columns, terms = kernel.sizes(node)
    groups = -(-rows // mode["BM"]) * -(-columns // mode["BN"]) * mode["SPLIT"]
    steps = -(-terms // kernel.step_of(mode) // mode["SPLIT"])
    room = max(1, LOCAL_SIZE // kernel.threads(mode))
    fewer = pace._replace(together=min(pace.together or room, room))
    units = target.compute_units
    return steps * (fewer.steps_us(groups, units) - pace.steps_us(groups, units))


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
            functions = part.functions_of(mode)
            if functions is not None and functions <= others:
                moves.append((part, mode))
                lost += more
                break
        else:
            return None
    return moves, lost
