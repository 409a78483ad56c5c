"""Stretch: launches of a plan that run as one; shared by all requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.errors import DeviceError
from polydevice_gpu import cl
from polydevice_gpu.graph import Memory
from polydevice_gpu.one_launch import choose, trial
from polydevice_gpu.one_launch.choose import Rules
from polydevice_gpu.one_launch.function import Function
from polydevice_gpu.one_launch.source import FIELDS, Meeting, Shape, shape_of, source
from polydevice_gpu.one_launch.stage import Stage

WAIT_NS = 1_000_000_000
"""How long a group waits for the others at most: a stage takes a thousandth of it."""
NAME = "one_launch"
_MEETS, _GATHERS = 1 << 32, 1 << 33
_LINE_BYTES = 128


@dataclass(eq=False)
class Stretch:
    """Launches that are one.

    Attributes:
        stages: in order.
        ports: memory that may be another buffer in each run.
        functions: the distinct kernels.
        shapes: how each runs.
        numbers: the function of each stage.
        kernel: which runs them all.
        note: the kernel that notes addresses.
        local_size: work-items of its groups.
        groups: how many of them there are.
        meets: for each stage, whether all groups meet before it.
        gathers: for each stage, whether the work-items of a group wait for each other before it.
        has_clock: whether it can tell when each stage began, and how long a group has waited.
        tells: whether each run tells at once whether it ended. Else that is asked of runs that took
            long enough to have waited in vain.
        failed: why it is not used any more; empty while it is.
    """

    stages: Sequence[Stage]
    ports: list[Memory]
    functions: list[Function]
    shapes: list[Shape]
    numbers: list[int]
    kernel: cl.Kernel
    note: cl.Kernel
    local_size: int
    groups: int
    meets: list[bool] = field(default_factory=list)
    gathers: list[bool] = field(default_factory=list)
    has_clock: bool = False
    tells: bool = True
    failed: str = ""

    @property
    def waits(self) -> bool:
        """Whether its groups wait for each other."""
        return self.groups > 1

    @property
    def text(self) -> str:
        """What it is, for people."""
        names = list(dict.fromkeys(stage.name for stage in self.stages))
        if self.failed:
            return f"{len(self.stages)} launches run one by one, as {self.failed}"
        return (
            f"{len(self.stages)} launches, from {names[0]} to {names[-1]}, run as one: "
            f"{len(self.functions)} kernels, {sum(self.meets)} barriers, "
            f"{self.groups} work-groups of {self.local_size}"
        )

    def record(
        self, number: int, arguments: Sequence[int], rotation: int, ahead: tuple[int, int]
    ) -> list[int]:
        """Return the words of a stage.

        Args:
            number: of the stage.
            arguments: the word of each.
            rotation: places that the stages since the last meeting keep busy.
            ahead: address and bytes of weights that the next stage reads.
        """
        stage = self.stages[number]
        x, y, z = stage.groups
        ends = [stage.local_arguments_bytes] if stage.local_arguments_bytes else []
        words = FIELDS + len(arguments) + len(ends)
        head = self.numbers[number] | words << 16 | (_MEETS if self.meets[number] else 0)
        head |= _GATHERS if self.gathers[number] else 0
        address, size = ahead
        lines = -(-size // _LINE_BYTES)
        shape = self.shapes[self.numbers[number]]
        rotation %= self.groups * (shape.slots // shape.together)
        return [head, x * y * z, x | y << 32, rotation, address, lines, *arguments, *ends]

    def busy(self, number: int) -> int:
        """Return how many groups a stage keeps busy, before any has a second slot to fill."""
        x, y, z = self.stages[number].groups
        return -(-x * y * z // self.shapes[self.numbers[number]].together)


@dataclass(frozen=True)
class Draft:
    """A stretch whose kernel need not be built yet.

    Attributes:
        stages: in order.
        ports: memory that may be another buffer in each run.
        functions: the distinct kernels.
        shapes: how each runs.
        numbers: the function of each stage.
        rules: what the device allows.
        local_size: work-items of a group.
        source: of its kernel.
    """

    stages: Sequence[Stage]
    ports: list[Memory]
    functions: list[Function]
    shapes: list[Shape]
    numbers: list[int]
    rules: Rules
    local_size: int
    source: cl.ProgramSource


def draft(stages: Sequence[Stage], ports: list[Memory], rules: Rules, local_size: int) -> Draft:
    """Write the kernel of launches that join.

    Args:
        stages: the launches, in order.
        ports: memory that may be another buffer in each run.
        rules: what the device allows.
        local_size: work-items of a group.
    """
    functions = list(dict.fromkeys(stage.function for stage in stages))
    numbers = [functions.index(stage.function) for stage in stages]
    shapes: list[Shape] = []
    for number, function in enumerate(functions):
        most = max(s.local_bytes for s, n in zip(stages, numbers, strict=True) if n == number)
        shapes.append(shape_of(function, local_size, rules.local_bytes, most, ptx=rules.ptx))
    meeting = Meeting.NONE
    if rules.meets:
        meeting = Meeting.PTX if rules.ptx else Meeting.ATOMICS
    text = source(functions, shapes, local_size, len(ports), rules.local_bytes, meeting)
    options = tuple(dict.fromkeys(option for stage in stages for option in stage.launch.options))
    made = cl.ProgramSource(NAME, text, options)
    return Draft(stages, ports, functions, shapes, numbers, rules, local_size, made)


def build(drafted: Draft, builder: cl.ProgramBuilder) -> Stretch:
    """Build the kernel of launches that join, and see how many of its groups run together.

    Raises:
        KernelBuildError: the compiler refused it.
        DeviceError: its groups do not all run at the same time.
    """
    device, rules, size, made = builder.device, drafted.rules, drafted.local_size, drafted.source
    kernel = builder.build(made.name, made.source, made.options).kernel(NAME)
    note = builder.build(trial.NOTE, trial.NOTE_SOURCE).kernel(trial.NOTE)
    groups = _together(kernel, device, len(drafted.ports), size) if rules.meets else 1
    meets = _meets(drafted.stages)
    return Stretch(
        *(drafted.stages, drafted.ports, drafted.functions, drafted.shapes, drafted.numbers),
        *(kernel, note, size, groups),
        meets=meets,
        gathers=gathers(drafted, meets),
        has_clock=rules.meets and rules.ptx and groups > 1,
    )


def _together(kernel: cl.Kernel, device: cl.Device, ports: int, local_size: int) -> int:
    """Return how many groups of a kernel run at the same time, tried from the most.

    Raises:
        DeviceError: not even one for each compute unit.
    """
    units = device.capabilities.compute_units
    for each in range(choose.PER_UNIT, 0, -1):
        if trial.meet(kernel, device, ports, local_size, each * units):
            return each * units
    raise DeviceError(
        f"{units} work-groups of {local_size} do not run at the same time on {device.name}"
    )


def _meets(stages: Sequence[Stage]) -> list[bool]:
    """Return before which stages all groups meet: where one waits for another since the last."""
    found: list[bool] = []
    since: list[Stage] = []
    for stage in stages:
        found.append(any(stage.waits_for(other) for other in since))
        if found[-1]:
            since = []
        since.append(stage)
    return found


def gathers(drafted: Draft, meets: Sequence[bool]) -> list[bool]:
    """Return before which stages work-items wait for those of their group that are still behind.

    Between two meetings a warp that has nothing to do in a stage goes on to the next. There it must
    not find local memory, or a barrier, that others are still using for calls of another size.
    """
    uses = [
        (function.items, shape.slot_bytes) if function.has_barriers or shape.slot_bytes else None
        for function, shape in zip(drafted.functions, drafted.shapes, strict=True)
    ]
    found: list[bool] = []
    now: tuple[int, int] | None = None
    for number, met in zip(drafted.numbers, meets, strict=True):
        mine = uses[number]
        if met:
            now = None
        found.append(not met and None not in (now, mine) and now != mine)
        now = mine or now
    return found


def word(argument: np.generic) -> int:
    """Return the 64 bits that stand for a number."""
    return int.from_bytes(argument.tobytes().ljust(8, b"\0"), "little")
