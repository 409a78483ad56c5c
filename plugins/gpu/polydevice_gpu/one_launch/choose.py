"""Which launches of a plan join, and why the others do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Literal

from polydevice.dataclass import dataclass
from polydevice_gpu import cl
from polydevice_gpu.kernels.launch import Launch
from polydevice_gpu.one_launch.function import why_no_function
from polydevice_gpu.one_launch.source import FIELDS, MOST_WORDS
from polydevice_gpu.one_launch.stage import Stage

Mode = Literal["AUTO", "YES", "NO"]

LOCAL_SIZE = 256
"""Work-items of a group where parts of it can have barriers of their own: they fit with 255
registers each."""
PER_UNIT = 1
"""Groups for each compute unit at most: on an H200 EfficientNet-Lite0 in f16 took 0.44 ms with one
of 256 and 0.51 with two to four of 128, BERT 0.96 and 1.21: more groups meet more slowly."""
BARRIERS_ANYWHERE = False
"""Whether functions may have barriers without PTX too. PoCL 3.1 and 6.0 run most right, but not
the steps of recurrent_group (6.0 nor those of recurrent_ref), and Oclgrind not attention_tiled;
Intel's CPU runtime 2026.2 crashes the process in a function of 64 work-items (gemm_tiled). Tests
try what is right there."""
LARGE_BYTES = 12 << 20
"""A stage that touches more keeps its own launch: on an H200 54 stages of 2 MiB took 178 µs as one
launch of 132 groups and 324 as launches from C, of 16 MiB 728 and 543. BERT-base in f16, whose
products touch 3 to 10 MiB, took 0.51 ms as one launch and 0.80 with those of more than 4 apart."""
MEAN_BYTES = 4 << 20
"""Launches that touch more values on average are not joined by themselves: starting them is little
beside what they take. WeChat's super-resolution in f16, 5.4 MiB each, took 0.177 ms as one launch
and 0.159 as several on an H200, and its one kernel 6.1 s of a processor to compile instead of 2.5
to 2.9. Text detection (ddddocr), which joins, has 1.6 at most."""
FEWEST = 2
"""Launches that are worth joining."""
FEWEST_ALONE, LARGEST_ALONE = 4, 64 << 10
"""The same where one work-item computes all of them in turn, and the most bytes that one of them
may touch then, if it has more: beside what starting them takes on a processor, some 5 us each, it
matters little that other cores do nothing. N-BEATS of 29 launches took 0.20 ms as these and 0.09 as
one on Intel's runtime, quantised 0.27 and 0.08; on PoCL 0.25 and 0.14, 0.24 and 0.08 (of two cores,
CPU time). With 64 KiB instead of 48 small quantised transformers join, which take 0.81 to 0.87 of
their time so; with 96 a text recognition in f32 joins less: its convolutions do more for each."""


@dataclass
class Rules:
    """What a device and a configuration allow.

    Attributes:
        mode: the configuration's word.
        meets: whether groups of one launch can meet.
        ptx: whether a part of a group can have barriers of its own.
        local_bytes: local memory that a group may declare, for calls.
        local_size: work-items of a group; 0 for what the first function with barriers wants.
        prevents: what of the network or its configuration speaks against joining by itself.
        alone: whether one work-item computes all of its own accord, on a processor.
    """

    mode: Mode
    meets: bool
    ptx: bool
    local_bytes: int
    local_size: int
    prevents: str = ""
    alone: bool = False

    @classmethod
    def of(cls, mode: Mode, device: cl.Device, prevents: str = "") -> Rules:
        """Return what a device allows."""
        can = device.capabilities
        meets = can.groups_meet
        most = max(can.declared_local_bytes, device.facts.local_memory_bytes)
        local_size = LOCAL_SIZE if can.inline_ptx else 0
        alone = mode == "AUTO" and not meets and not can.local_memory_is_dedicated
        return cls(mode, meets, can.inline_ptx, most, local_size, prevents, alone)

    def refuses_all(self) -> str:
        """Say why nothing joins; empty when something may."""
        if self.mode == "NO":
            return "GPU_SINGLE_LAUNCH=NO"
        if self.mode == "AUTO" and not (self.meets or self.alone):
            return "the work-groups of one launch cannot wait for each other on this device"
        return self.prevents if self.mode == "AUTO" else ""

    def refuses(self, stage: Stage) -> str:
        """Say why a stage keeps its own launch; empty when it may join others."""
        function = stage.function
        is_spread = stage.groups != (1, 1, 1)
        if self.alone and is_spread and stage.bytes > LARGEST_ALONE:
            return f"it moves {stage.bytes >> 10} KiB, which one core should not do alone"
        if self.alone and function.items > 1:
            return "its work-items share a work-group, which one work-item would be"
        if self.mode == "AUTO" and stage.bytes > LARGE_BYTES:
            return f"it moves {stage.bytes >> 20} MiB, for which a launch of its own is faster"
        if function.has_barriers and not (self.ptx or BARRIERS_ANYWHERE):
            return (
                "its work-items wait for each other, which compilers for CPUs take in kernels only"
            )
        if stage.local_bytes > self.local_bytes + cl.LaunchList.COUNTED_BY_DRIVER:
            return f"it takes {stage.local_bytes} bytes of local memory of {self.local_bytes}"
        if self.local_size and function.items > self.local_size:
            return f"its work-groups have {function.items} work-items, more than {self.local_size}"
        if len(stage.launch.arguments) >= MOST_WORDS - FIELDS:
            return f"its kernel has {len(stage.launch.arguments)} arguments"
        if self.ptx and function.has_barriers and function.items % 32:
            return f"its {function.items} work-items are no whole warps"
        return ""


@dataclass
class Joined:
    """Launches that become one.

    Attributes:
        stages: in order.
        local_size: work-items of a group.
    """

    stages: list[Stage] = field(default_factory=list)
    local_size: int = 0

    def takes(self, stage: Stage, rules: Rules) -> bool:
        """Whether a stage can join those before it.

        Where a part of a group has no barriers of its own, all functions with any share one size.
        """
        if rules.local_size:
            return True
        together = [*self.stages, stage]
        wanted = {s.function.items for s in together if s.function.has_barriers}
        return not wanted or (
            len(wanted) == 1 and max(s.function.items for s in together) == min(wanted)
        )

    def brings_little(self, rules: Rules) -> str:
        """Say why its launches had better stay; empty where they become one."""
        if len(self.stages) < (FEWEST_ALONE if rules.alone else FEWEST):
            return "no neighbour joins it"
        mean = sum(stage.value_bytes for stage in self.stages) / len(self.stages)
        if rules.mode == "AUTO" and mean > MEAN_BYTES:
            return (
                f"the {len(self.stages)} launches that could join move {mean / (1 << 20):.1f} MiB "
                "of values each on average, beside which starting them takes little"
            )
        return ""

    def settle(self, rules: Rules) -> None:
        """Decide on the local size, when all stages are there."""
        self.local_size = rules.local_size or max(s.function.items for s in self.stages)


def why_apart(launches: Sequence[Launch]) -> str:
    """Say why the launches of a layer cannot be functions; empty when they can."""
    return next((reason for each in launches if (reason := why_no_function(each))), "")


def join(layers: Sequence[Sequence[Stage] | str], rules: Rules) -> list[Joined | str]:
    """Join the layers that follow each other.

    Args:
        layers: in execution order: the stages of a layer, or why it takes part in nothing.
        rules: what is allowed.

    Returns:
        For each layer what it is part of, the same object for all parts; or why it is in none.
    """
    found: list[Joined | str] = []
    now: Joined | None = None
    for stages in layers:
        reason = stages if isinstance(stages, str) else _reason(stages, rules)
        if isinstance(stages, str) or reason:
            now = None
            found.append(reason)
            continue
        if now is None or not all(now.takes(stage, rules) for stage in stages):
            now = Joined()
        if not all(now.takes(stage, rules) for stage in stages):
            now = None
            found.append("its launches want work-groups of several sizes")
            continue
        now.stages += stages
        found.append(now)
    return _settled(found, rules)


def _reason(stages: Sequence[Stage], rules: Rules) -> str:
    return next((reason for stage in stages if (reason := rules.refuses(stage))), "")


def _settled(found: list[Joined | str], rules: Rules) -> list[Joined | str]:
    """Leave alone what would bring little as one launch; settle the others."""
    reasons: dict[int, str] = {}
    for joined in {id(j): j for j in found if isinstance(j, Joined)}.values():
        reason = joined.brings_little(rules)
        if reason:
            reasons[id(joined)] = reason
        else:
            joined.settle(rules)
    return [reasons.get(id(each), each) for each in found]
