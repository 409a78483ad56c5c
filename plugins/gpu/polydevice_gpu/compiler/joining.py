"""Joining: which launches of a plan run as one; at once where their kernel is built, else behind.

A plan made for sizes that vary is joined behind alone, by what it holds: writing the kernel of each
plan would make new sizes wait. Programs of such networks read their sizes from arguments, so that
one kernel mostly serves all sizes of a class, and each plan brings a table of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace

from polydevice.dataclass import dataclass
from polydevice.errors import DeviceError, KernelBuildError
from polydevice_gpu import cl
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.graph import GpuGraph, Memory
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.one_launch.choose import Joined, Rules, join, why_apart
from polydevice_gpu.one_launch.stage import Stage
from polydevice_gpu.one_launch.stretch import Draft, Stretch, build, draft
from polydevice_gpu.passes.placing.plan_memory import ArenaPlan
from polydevice_gpu.runtime.plan import LATER, HostStep, NestedStep, Plan, Step

MOST_KERNELS = 8
"""Plans of a network for which kernels are built behind: each takes a core 5 to 18 s (H200), and
without a template every set of sizes may want its own."""


ONE_CORE = "one core would do alone what launches do, which is timed for sizes that do not vary"


def rules_for(settings: CompileSettings, device: cl.Device) -> Rules:
    """Return what a configuration and a device allow."""
    prevents = ""
    if settings.streams > 1:
        prevents = f"launches of {settings.streams} streams run side by side"
    elif settings.on_users_queue:
        prevents = "on a queue of the user's they could not be repeated"
    return Rules.of(settings.single_launch, device, prevents)


def joins_behind(settings: CompileSettings, target: Target) -> bool:
    """Whether plans are joined behind inferences alone, as there may be one for each of them."""
    varies = target.sizes_vary or settings.dynamic_batch
    return varies and settings.single_launch == "AUTO"


@dataclass
class Joining:
    """Launches of a plan that may become one, and what became of them.

    Attributes:
        rules: what is allowed.
        tells: whether runs on this queue have to tell at once whether they ended.
        drafts: each with the numbers of its steps.
        joined: number of a step → what runs its launches and its neighbours' as one.
        apart: number of a step → why it has launches of its own.
    """

    rules: Rules
    tells: bool
    drafts: list[tuple[Draft, list[int]]] = field(default_factory=list)
    joined: dict[int, Stretch] = field(default_factory=dict)
    apart: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        graph: GpuGraph,
        steps: Sequence[Step | HostStep | NestedStep],
        arena: ArenaPlan,
        settings: CompileSettings,
        device: cl.Device,
    ) -> Joining:
        """Find out which launches may join, and write their kernels.

        Args:
            graph: of the plan.
            steps: in execution order; their kernels are built.
            arena: where everything lies.
            settings: how to compile.
            device: where they run.
        """
        made = cls(rules_for(settings, device), settings.on_users_queue)
        refused = made.rules.refuses_all()
        if refused:
            made.apart = dict.fromkeys(range(len(steps)), refused)
            return made
        found = join([_stages(step, arena) for step in steps], made.rules)
        made.apart = {number: each for number, each in enumerate(found) if isinstance(each, str)}
        for joined in {id(each): each for each in found if isinstance(each, Joined)}.values():
            numbers = [number for number, each in enumerate(found) if each is joined]
            drafted = draft(joined.stages, _ports(graph), made.rules, joined.local_size)
            made.drafts.append((drafted, numbers))
        return made

    def build_at_once(self, builder: cl.ProgramBuilder) -> bool:
        """Build the kernels whose time it is; return whether they are built behind instead.

        Of its own accord a network waits for none to be compiled.
        """
        sources = [drafted.source for drafted, _ in self.drafts]
        if self.rules.mode == "AUTO" and not all(builder.has(s.source, s.options) for s in sources):
            self.apart.update({number: LATER for _, numbers in self.drafts for number in numbers})
            return True
        for drafted, numbers in self.drafts:
            self.build(drafted, numbers, builder)
        return False

    def build(self, drafted: Draft, numbers: Iterable[int], builder: cl.ProgramBuilder) -> None:
        """Build the kernel of some steps; where that cannot be or run, they keep their launches."""
        try:
            stretch = build(drafted, builder)
        except (KernelBuildError, DeviceError) as error:
            self.apart.update(dict.fromkeys(numbers, str(error).splitlines()[0]))
        else:
            # Of what is on a user's queue nobody here knows how long it took.
            stretch.tells = self.tells or not stretch.has_clock
            self.joined.update(dict.fromkeys(numbers, stretch))


def joined_behind(
    plan: Plan,
    settings: CompileSettings,
    builder: cl.ProgramBuilder,
    known: set[frozenset[str]],
    goes_on: Callable[[], bool],
) -> Plan | None:
    """Return a plan like one that has run often, whose launches run as one where that can be.

    Args:
        plan: is not changed.
        settings: how to compile.
        builder: builds the kernels, in child processes.
        known: sources of the kernels of the network's plans so far; those of this one are added.
        goes_on: asked ten times a second; once it says no, nothing more is built.

    Returns:
        The plan; None where nobody waits for it any longer.

    Raises:
        KernelBuildError: the compiler refused a kernel.
    """
    joining = Joining.of(plan.graph, plan.steps, plan.arena, settings, builder.device)
    sources = frozenset(drafted.source.source for drafted, _ in joining.drafts)
    if sources not in known and len(known) >= MOST_KERNELS:
        reason = f"kernels for those of {MOST_KERNELS} other sets of sizes were built"
        for _, numbers in joining.drafts:
            joining.apart.update(dict.fromkeys(numbers, reason))
        return replace(plan, apart=joining.apart, may_join=False)
    known.add(sources)
    programs = []  # held until the plan holds them
    for drafted, _ in joining.drafts:
        program = builder.build_apart(drafted.source, goes_on)
        if program is None:
            return None
        programs.append(program)
    for drafted, numbers in joining.drafts:
        joining.build(drafted, numbers, builder)
    return replace(plan, joined=joining.joined, apart=joining.apart, may_join=False)


def _ports(graph: GpuGraph) -> list[Memory]:
    """Return the memory of inputs and outputs, which requests exchange."""
    values = (*graph.inputs.values(), *graph.outputs.values())
    return list(dict.fromkeys(v.memory for v in values if v.memory is not None))


def _stages(step: Step | HostStep | NestedStep, arena: ArenaPlan) -> list[Stage] | str:
    """Return the stages of a step, or why it cannot join others."""
    if isinstance(step, HostStep):
        return "the host computes it"
    if isinstance(step, NestedStep):
        return "a loop or If"
    reason = why_apart(step.launches)
    if reason:
        return reason
    return [
        Stage.of(step.node.name, launch, kernel, step.scratch, arena.places)
        for launch, kernel in zip(step.launches, step.kernels, strict=True)
    ]
