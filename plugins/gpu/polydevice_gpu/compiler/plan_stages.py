"""What makes the plan of a finished graph: launches, programs, constants and memory."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field, replace

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.errors import KernelBuildError
from polydevice.executable_network import ExecutableNetwork
from polydevice.plugin import Services
from polydevice.shape import Shape
from polydevice.symbolic_size import is_formula
from polydevice.symbolic_trace import current_trace
from polydevice_gpu import cl
from polydevice_gpu.compiler import sharing
from polydevice_gpu.compiler.joining import ONE_CORE, Joining, joins_behind, rules_for
from polydevice_gpu.compiler.late_parts import LateParts
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.control_flow.branch import IfStep
from polydevice_gpu.control_flow.loop import CompileBody, LoopStep
from polydevice_gpu.control_flow.nested import LoopBody
from polydevice_gpu.graph import GpuGraph, GpuNode, Memory, Value
from polydevice_gpu.kernels.kernel import Choice
from polydevice_gpu.kernels.launch import Argument, Launch, Weights, may_vary
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.one_launch.stretch import Stretch
from polydevice_gpu.passes.placing import plan_memory as memory
from polydevice_gpu.passes.placing import tile_rows as tiling
from polydevice_gpu.passes.placing.plan_memory import ArenaPlan
from polydevice_gpu.reports.dumps import Dumps
from polydevice_gpu.runtime.host import HostGroup, group, known_shape
from polydevice_gpu.runtime.plan import (
    LATER,
    HostStep,
    NestedStep,
    Step,
    constant_in,
    launching,
    scratch_memory,
)
from polydevice_gpu.runtime.weights import WeightStore
from polydevice_gpu.tuning.candidates import built_choice, launches_of, takes

UPLOADING = min(8, os.cpu_count() or 1)
"""Constants that are brought into their form and uploaded at the same time."""

_SMALL_BYTES = 1 << 16
"""Constants up to here are uploaded one after the other: a thread takes longer to get its turn."""


class NotBuiltError(Exception):
    """A program is missing that others stand in for: until it is there, no plan serves others."""


@dataclass
class PlanWork:
    """A graph on its way to a plan.

    Attributes:
        graph: finished.
        target: what kernels know of the device.
        builder: builds programs for the device.
        weights: uploads constants.
        services: loads what the host computes.
        settings: how to compile.
        compile_body: makes the plan of a body.
        outside: memory that the arena does not hold; of bodies, that of the plan around.
        programs: source → program; those of the plan around are there already.
        number: of the stage, for dumps of the graph.
        stand_in: whether programs that are built already stand in for those that are not.
        parts: runs layers behind late sizes; None in bodies, which leave them to the host.
        made: choices of the network's plans so far; built programs are mostly theirs.
        steps: in execution order.
        scratch: number of a node → memory that its launches need for themselves.
        compiled: how many programs were not in the cache.
        arena: where everything lies.
        joined: number of a step → what runs its launches and its neighbours' as one.
        apart: number of a step → why it has its own.
        wanted: source → program that another one stands in for.
        may_join: whether launches may become one whose kernel is not built yet.
        uploaders: threads that upload.
        uploads: constants on their way to the device.
        loading: source → program that is being loaded; None where no binary is kept.
    """

    graph: GpuGraph
    target: Target
    builder: cl.ProgramBuilder
    weights: WeightStore
    services: Services
    settings: CompileSettings
    compile_body: CompileBody
    outside: AbstractSet[Memory]
    programs: dict[str, cl.Program]
    number: int
    stand_in: bool
    parts: LateParts | None = None
    made: set[Choice] = field(default_factory=set)
    steps: list[Step | HostStep | NestedStep] = field(default_factory=list)
    scratch: dict[int, list[Memory]] = field(default_factory=dict)
    compiled: int = 0
    arena: ArenaPlan | None = None
    joined: dict[int, Stretch] = field(default_factory=dict)
    apart: dict[int, str] = field(default_factory=dict)
    wanted: dict[str, cl.ProgramSource] = field(default_factory=dict)
    may_join: bool = False
    uploaders: ThreadPoolExecutor = field(init=False)
    uploads: list[Future[cl.Buffer] | Future[None]] = field(default_factory=list)
    loading: dict[str, Future[cl.Program] | None] = field(default_factory=dict)
    _built: dict[str, bool] = field(default_factory=dict)
    _stand_ins: dict[tuple[str, ...], Choice | None] = field(default_factory=dict)

    def is_built(self, launch: Launch) -> bool:
        """Whether a launch's program need not be compiled."""
        known = self._built.get(launch.text)
        if known is None:
            known = launch.text in self.programs or self.builder.has(launch.text, launch.options)
            self._built[launch.text] = known
        return known

    def stand_in_for(self, node: GpuNode, launches: Sequence[Launch]) -> Choice | None:
        """Return a choice whose programs are built; looked for once for layers that are alike."""
        key = tuple(launch.text for launch in launches)
        if key not in self._stand_ins:
            self._stand_ins[key] = self._built_choice(node)
            return self._stand_ins[key]
        known = self._stand_ins[key]
        if known is None or takes(node, known, self.target):
            return known
        return self._built_choice(node)

    def _built_choice(self, node: GpuNode) -> Choice | None:
        return built_choice(node, self.target, self.is_built, list(self.made))


def tune(work: PlanWork) -> None:
    """Choose kernels from the tuning file, or by timing them."""
    tuner = work.settings.tuner
    if tuner is not None:
        tuner.tune(work.graph, work.target, work.builder.device, work.builder)
        work.settings.dumps.graph(work.number, "tune", work.graph)


def tile_rows(work: PlanWork) -> None:
    """Let rows that only products by warps read lie as these read them."""
    tiling.tile_rows(work.graph, work.outside)


def make_steps(work: PlanWork) -> None:
    """Make the launches of each node, plans of bodies, and networks of what the host computes."""
    graph = work.graph
    if work.parts is not None:
        work.parts.order(graph)
    for place, node in enumerate(graph.nodes):
        if node.on_host:
            if not place or not graph.nodes[place - 1].on_host:
                work.steps += _host_steps(work, place)
        elif node.nested is not None:
            nested = _nested_step(node, work.compile_body, work.target)
            work.scratch[place] = nested.memory
            work.steps.append(nested)
        elif not node.is_view and node.choice is not None and any(v.elements for v in node.outputs):
            step = _launching_step(work, node, node.choice)
            work.scratch[place] = list(step.scratch.values())
            work.steps.append(step)


def share_functions(work: PlanWork) -> None:
    """Let what may become one launch have fewer kernels, where they would be one; see there."""
    rules = rules_for(work.settings, work.builder.device)
    varies = joins_behind(work.settings, work.target)  # one kernel for many sizes is chosen already
    if work.outside or varies or rules.refuses_all() or not rules.meets:
        return
    steps = [step for step in work.steps if isinstance(step, Step)]
    sharing.share_functions(steps, work.target)
    places = {node: place for place, node in enumerate(work.graph.nodes)}
    work.scratch.update({places[step.node]: list(step.scratch.values()) for step in steps})


def begin_loading(work: PlanWork) -> None:
    """Begin to load programs whose binaries are kept: uploads keep threads busy for longer."""
    for step in launching(work.steps):
        for launch in step.launches:
            if launch.text not in work.programs and launch.text not in work.loading:
                work.loading[launch.text] = work.builder.load_ahead(_source(launch), work.uploaders)


def begin_uploads(work: PlanWork) -> None:
    """Begin to bring every constant that a launch reads to the device, several at a time."""
    launches = [launch for step in launching(work.steps) for launch in step.launches]
    arguments = [argument for launch in launches for argument in launch.arguments]
    for argument in arguments:
        _settle(argument)
    found = [each for each in map(constant_in, arguments) if each and not is_formula(each[0])]
    small = [each for each in found if each[0].nbytes <= _SMALL_BYTES]
    large = [each for each in found if each[0].nbytes > _SMALL_BYTES]
    work.uploads = [work.uploaders.submit(work.weights.buffer, *each) for each in large]
    if small:
        work.uploads.append(work.uploaders.submit(_upload, work.weights, small))


def _upload(
    weights: WeightStore, constants: Iterable[tuple[Array, ElementType, Weights | None]]
) -> None:
    for each in constants:
        weights.buffer(*each)


def build_kernels(work: PlanWork) -> None:
    """Build the programs that are missing.

    Raises:
        KernelBuildError: a compiler refused one, with its log.
    """
    steps = launching(work.steps)
    launches = [launch for step in steps for launch in step.launches]
    missing = [launch for launch in launches if launch.text not in work.programs]
    made = _build_programs(missing, work.loading, work.builder, work.settings.dumps)
    work.programs.update(made)
    kernels: dict[tuple[str, str], cl.CompiledKernel] = {}  # one for layers that are alike
    for step in steps:
        for each in step.launches:
            if (each.text, each.kernel) not in kernels:
                kernels[each.text, each.kernel] = work.programs[each.text].kernel(each.kernel)
        step.kernels = [kernels[each.text, each.kernel] for each in step.launches]
    work.compiled = sum(not program.from_cache for program in made.values())
    work.made.update(node.choice for node in work.graph.nodes if node.choice is not None)
    if current_trace() is not None:
        await_uploads(work)  # which may take notes of sizes; what follows takes some in silence


def await_uploads(work: PlanWork) -> None:
    """Wait until all constants are on the device; raises what kept one from getting there."""
    for upload in work.uploads:
        upload.result()


def _settle(argument: Argument) -> None:
    """Make numbers of a constant that was computed from symbolic sizes and has a form of its own.

    What lies in memory as it is stays a formula: plans that are filled in have their own of it.
    """
    value = argument.value if isinstance(argument, Weights) else argument
    memory = value.memory if isinstance(value, Value) else value
    if isinstance(memory, Memory) and memory.data is not None:
        varies = not isinstance(argument, Weights) and may_vary(memory.data, memory.storage)
        if varies:
            return
    if isinstance(value, Value) and is_formula(value.constant):
        assert value.constant is not None
        value.constant = value.constant.astype(value.element_type.dtype)
        if value.memory is not None:
            value.memory.data = value.constant
    if isinstance(memory, Memory) and is_formula(memory.data):  # of a value that this one looks at
        assert memory.data is not None
        memory.data = memory.data.astype(memory.storage.dtype)


def plan_memory(work: PlanWork) -> None:
    """Give every value and scratch memory its place; plans that are filled in have their own."""
    trace = current_trace()
    side_by_side = not work.outside and work.settings.side_by_side
    with contextlib.nullcontext() if trace is None else trace.silent():
        work.arena = memory.plan_memory(
            work.graph, work.scratch, work.settings.memory_pool, work.outside, side_by_side
        )


def join_launches(work: PlanWork) -> None:
    """Let launches that follow each other become one; of their own accord once that is built."""
    if work.outside:
        return  # of bodies: memory is exchanged in every iteration
    settings, device = work.settings, work.builder.device
    rules = rules_for(settings, device)
    varies = joins_behind(settings, work.target)
    refused = rules.refuses_all() or (ONE_CORE if varies and rules.alone else "")
    numbers = range(len(work.steps))
    if refused:
        work.apart = {} if settings.single_launch == "NO" else dict.fromkeys(numbers, refused)
        return
    if varies:
        work.apart, work.may_join = dict.fromkeys(numbers, LATER), True
        return
    assert work.arena is not None
    joining = Joining.of(work.graph, work.steps, work.arena, settings, device)
    work.may_join = joining.build_at_once(work.builder)
    work.joined, work.apart = joining.joined, joining.apart


def _launching_step(work: PlanWork, node: GpuNode, choice: Choice) -> Step:
    launches = launches_of(choice, node, work.target)
    missing = [each for each in launches if not work.is_built(each)] if work.stand_in else []
    if missing and current_trace() is not None:
        raise NotBuiltError
    if missing and not choice.tuned:
        other = work.stand_in_for(node, launches)
        instead = [] if other is None else launches_of(other, node, work.target)
        if other is not None and all(map(work.is_built, instead)):
            work.wanted.update((each.text, _source(each)) for each in missing)
            node.choice = replace(other, stands_for=str(choice))
            launches = instead
    return Step(node, launches, scratch=scratch_memory(launches))


def _source(launch: Launch) -> cl.ProgramSource:
    return cl.ProgramSource(launch.kernel, launch.text, launch.options)


def _nested_step(node: GpuNode, compile_body: CompileBody, target: Target) -> NestedStep:
    if isinstance(node.nested, LoopBody):
        return LoopStep(node, node.nested, compile_body, target)
    assert node.nested is not None
    return IfStep(node, node.nested, compile_body, target)


def _host_steps(work: PlanWork, start: int) -> list[HostStep]:
    """Load the host nodes that follow each other from `start` on the CPU device.

    Those behind late sizes are a part that runs here, where that is worth while.
    """
    nodes, end = work.graph.nodes, start
    while end < len(nodes) and nodes[end].on_host:
        end += 1
    parts = work.parts
    late = end if parts is None else start + parts.begin(nodes[start:end])

    def made(begin: int, end: int, shape_of: Callable[[Value], Shape | None]) -> HostGroup:
        outside = [*nodes[:begin], *nodes[end:]]
        read = {value for node in outside for value in node.inputs}
        return group(nodes[begin:end], read | set(work.graph.outputs.values()), shape_of)

    def load(group_: HostGroup) -> ExecutableNetwork:
        return work.services.load_network(group_.network, "CPU", work.settings.host_config)

    steps = []
    if late > start:
        first = made(start, late, known_shape)
        steps.append(HostStep(first, load(first)))
    if late < end:
        assert parts is not None
        second = made(late, end, parts.shape_of)
        steps.append(HostStep(second, parts.executable(second), functools.partial(load, second)))
    return steps


def _build_programs(
    launches: Sequence[Launch],
    loading: Mapping[str, Future[cl.Program] | None],
    builder: cl.ProgramBuilder,
    dumps: Dumps,
) -> dict[str, cl.Program]:
    """Build each distinct source once, several at a time; return source → program.

    One kernel a program: compilers take time per kernel, not per program, and so a kernel that
    another network needs as well is found in the cache whatever came with it there.
    """
    distinct = {launch.text: launch for launch in launches}
    programs: dict[str, cl.Program] = {}
    for text in distinct:
        if (loaded := loading.get(text)) is not None:
            with contextlib.suppress(KernelBuildError):  # raised again, and written down, below
                programs[text] = loaded.result()
    left = [text for text in distinct if text not in programs]
    try:
        built = builder.build_all([_source(distinct[text]) for text in left])
        programs.update(zip(left, built, strict=True))
    except KernelBuildError as error:
        for launch in distinct.values():
            log = f"(building the network failed)\n{error}"
            dumps.source(launch.kernel, launch.text, log, custom=launch.is_custom)
        raise
    if dumps.sources or dumps.custom_sources:
        for text, program in programs.items():
            launch = distinct[text]
            log = "(taken from CACHE_DIR, not compiled)" if program.from_cache else program.log
            dumps.source(launch.kernel, text, log, custom=launch.is_custom)
    return programs
