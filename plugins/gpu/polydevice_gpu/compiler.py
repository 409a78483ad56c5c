"""Compiler: runs the passes, builds the programs, and returns the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from polydevice.dtype import ElementType
from polydevice.errors import KernelBuildError, UnsupportedNetworkError
from polydevice.memory_budget import host_memory_bytes
from polydevice.network import Network
from polydevice.node import Evaluate
from polydevice.ops.quantize import FakeQuantize
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.passes.check_sizes import check_sizes
from polydevice.passes.constant_folding import constant_folding
from polydevice.plugin import Services
from polydevice.rewrites.control_flow.settle_loops import settle_loops
from polydevice.rewrites.control_flow.unroll_loops import unroll_loops
from polydevice_gpu import cl
from polydevice_gpu.control_flow.branch import IfStep
from polydevice_gpu.control_flow.loop import CompileBody, LoopStep
from polydevice_gpu.control_flow.nested import LoopBody
from polydevice_gpu.custom.layer import CustomLayer
from polydevice_gpu.custom.operation import use_custom_layers
from polydevice_gpu.graph import GpuGraph, GpuNode, Memory
from polydevice_gpu.kernels.kernel import Choice
from polydevice_gpu.kernels.launch import Launch
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.passes import PIPELINE, run_passes
from polydevice_gpu.passes.lower import lower
from polydevice_gpu.passes.nest_bodies import nest_bodies
from polydevice_gpu.passes.plan_memory import plan_memory
from polydevice_gpu.reports.dumps import Dumps
from polydevice_gpu.runtime.host import group
from polydevice_gpu.runtime.plan import (
    HostStep,
    NestedStep,
    Plan,
    Step,
    constant_of,
    launching,
    scratch_memory,
)
from polydevice_gpu.runtime.weights import WeightStore
from polydevice_gpu.tuning.tuner import Tuner

QUANTIZATION = (FakeQuantize, QuantizeLinear, DequantizeLinear)
"""Operations that make a network a quantised one."""


MOST_ELEMENTS = (1 << 31) - 1
"""Kernels count the elements of a value in 32 bits."""


@dataclass(frozen=True)
class CompileSettings:
    """What the configuration says about compiling a network.

    Attributes:
        floats: type in which f16 and f32 values are stored between layers, None for each its own;
            sums stay in f32.
        quantized_in_f32: whether networks with quantisation store all of them as f32.
        memory_pool: whether values that do not live at the same time share memory.
        loop_unrolling: whether loops of more than one iteration become plain layers.
        dumps: where graphs and sources are written.
        tuner: chooses kernels from a tuning file, or None.
        custom_layers: operation type → the user's kernel.
        host_config: configuration of the CPU device for the layers that it computes.
    """

    floats: ElementType | None = None
    quantized_in_f32: bool = False
    memory_pool: bool = True
    loop_unrolling: bool = True
    dumps: Dumps = field(default_factory=Dumps)
    tuner: Tuner | None = None
    custom_layers: Mapping[str, CustomLayer] = field(default_factory=dict)
    host_config: Mapping[str, Any] = field(default_factory=dict)


def target_of(device: cl.Device) -> Target:
    """Return the answers that kernels ask for."""
    can = device.capabilities
    lanes = 1
    if can.local_memory_is_dedicated:
        lanes = can.native_sub_group_width or max(can.sub_group_sizes, default=32)
    width = 4
    if lanes == 1:
        width = max(can.preferred_vector_width.get("f32", 1), can.native_vector_width)
    return Target(
        fp64=can.fp64,
        scalar_lanes=lanes,
        vector_width=max(width, 4),
        compute_units=can.compute_units,
        local_memory_bytes=can.local_memory_bytes if can.local_memory_is_dedicated else 0,
        max_work_group_size=can.max_work_group_size,
        matrix_unit=can.tensor_cores_ptx and can.async_copy_ptx,
        async_copy=can.async_copy_ptx,
        warp_group_unit=can.warp_groups_ptx and can.async_copy_ptx,
        warp_shuffle=can.inline_ptx and can.async_copy_ptx,
        fp16_arithmetic=can.fp16_arithmetic,
        fp16_is_faster=can.fp16_arithmetic and _prefers_half(can),
        sub_group_sizes=can.sub_group_sizes,
        sub_group_size_required="cl_intel_required_subgroup_size" in device.facts.extension_names,
        sub_group_share=_share(can),
        sub_group_block_read=can.sub_group_block_read,
        sub_group_block_read_16bit=can.sub_group_block_read_16bit,
    )


def _prefers_half(can: cl.Capabilities) -> bool:
    """Whether vectors of half are longer than those of float."""
    widths = can.preferred_vector_width
    return widths.get("f16", 0) > widths.get("f32", 0)


def _share(can: cl.Capabilities) -> str:
    """Return the function by which a lane's value reaches its whole sub-group."""
    if can.sub_group_shuffle_intel:
        return "intel_sub_group_shuffle"
    if can.sub_group_shuffle:
        return "sub_group_shuffle"
    return "sub_group_broadcast" if can.sub_groups else ""


def is_quantized(network: Network) -> bool:
    """Whether some layer rounds to a few levels, as in networks made for int8."""
    return any(isinstance(node.op, QUANTIZATION) for node in network.nodes())


def check_memory(network: Network, device: cl.Device) -> None:
    """Check that memory can hold every value of known size, and that kernels can count it.

    Raises:
        ModelLimitError: naming the first node whose value is too large.
    """
    limit = max(host_memory_bytes(), device.facts.global_memory_bytes)
    check_sizes(network, limit, device.facts.name, limit_elements=MOST_ELEMENTS)


def _check_elements(network: Network) -> None:
    """Check that kernels can count every value; memory for it is checked when it is allocated.

    Raises:
        ModelLimitError: naming the first node whose value is too large.
    """
    check_sizes(network, MOST_ELEMENTS * 16, "the device", limit_elements=MOST_ELEMENTS)


def build_graph(
    network: Network,
    target: Target,
    evaluate: Evaluate,
    settings: CompileSettings,
    loose: AbstractSet[str] = frozenset(),
) -> GpuGraph:
    """Run every pass on a network with static shapes; the network is changed.

    Args:
        network: of a body, or a whole one.
        target: the device.
        evaluate: computes constants.
        settings: how to compile.
        loose: outputs that may lie in any way.

    Raises:
        UnsupportedNetworkError: listing every node that no kernel takes.
        ModelLimitError: for a value with more elements than kernels can count.
    """
    unrolled = network.clone()
    if unroll_loops(unrolled, all_counts=settings.loop_unrolling):
        try:
            return _build_graph(unrolled, target, evaluate, settings, loose)
        except UnsupportedNetworkError:
            pass  # no kernel takes something in a loop, but the host computes loops
    return _build_graph(network, target, evaluate, settings, loose)


def _build_graph(
    network: Network,
    target: Target,
    evaluate: Evaluate,
    settings: CompileSettings,
    loose: AbstractSet[str],
) -> GpuGraph:
    floats = settings.floats
    if settings.quantized_in_f32 and is_quantized(network):
        floats = ElementType.f32
    use_custom_layers(network, settings.custom_layers)
    _check_elements(network)  # unrolling a loop may have made sizes known
    constant_folding(network, evaluate)
    if settle_loops(network, evaluate):
        _check_elements(network)
        constant_folding(network, evaluate)

    def build(body: Network, loose: AbstractSet[str]) -> GpuGraph:
        return build_graph(body, target, evaluate, settings, loose)

    nested = nest_bodies(network, evaluate, build)
    graph = lower(network, target, floats=floats, nested=nested)
    graph.loose = loose
    run_passes(graph, target, settings.dumps.graph)
    return graph


def compile_plan(
    graph: GpuGraph,
    target: Target,
    device: cl.Device,
    builder: cl.ProgramBuilder,
    weights: WeightStore,
    services: Services,
    settings: CompileSettings,
    outside: AbstractSet[Memory] = frozenset(),
    built: dict[str, cl.Program] | None = None,
) -> Plan:
    """Build the programs of a graph, plan its memory, and load what the host computes.

    Bodies of loops become plans within the plan. For those, `outside` is memory that the arena does
    not hold, and `built` has the programs that are there already, by their sources.
    """
    programs = {} if built is None else built
    if settings.tuner is not None:
        settings.tuner.tune(graph, target, device, builder)
        settings.dumps.graph(len(PIPELINE) + 1, "tune", graph)

    def compile_body(body: GpuGraph, outside: AbstractSet[Memory]) -> Plan:
        return compile_plan(
            *(body, target, device, builder, weights, services, settings),
            *(outside, programs),
        )

    steps: list[Step | HostStep | NestedStep] = []
    scratch: dict[int, list[Memory]] = {}
    for place, node in enumerate(graph.nodes):
        if node.on_host:
            if not place or not graph.nodes[place - 1].on_host:
                steps.append(_host_step(graph, place, services, settings))
        elif node.nested is not None:
            nested = _nested_step(node, compile_body, target)
            scratch[place] = nested.memory
            steps.append(nested)
        elif not node.is_view and node.choice is not None and any(v.elements for v in node.outputs):
            step = _launching_step(node, node.choice, target)
            scratch[place] = list(step.scratch.values())
            steps.append(step)
    compiled = _build_kernels(launching(steps), builder, programs, weights, settings.dumps)
    arena = plan_memory(graph, scratch, settings.memory_pool, outside)
    plan = Plan(device, graph, steps, arena, weights, compiled)
    for inner in plan.inner_plans:
        plan.programs_compiled += inner.programs_compiled
        more = inner.arena.sum_bytes - inner.arena.size_bytes
        plan.arena = replace(plan.arena, sum_bytes=plan.arena.sum_bytes + more)
    return plan


def _build_kernels(
    steps: Sequence[Step],
    builder: cl.ProgramBuilder,
    programs: dict[str, cl.Program],
    weights: WeightStore,
    dumps: Dumps,
) -> int:
    """Build programs that are missing, and upload constants; return how many had to be compiled."""
    launches = [launch for step in steps for launch in step.launches]
    missing = [launch for launch in launches if launch.text not in programs]
    made = build_programs(missing, builder, dumps)
    programs.update(made)
    for step in steps:
        step.kernels = [programs[launch.text].kernel(launch.kernel) for launch in step.launches]
    for launch in launches:
        for argument in launch.arguments:
            constant_of(argument, weights)  # now, not when the first request is made
    return sum(not program.from_cache for program in made.values())


def _launching_step(node: GpuNode, choice: Choice, target: Target) -> Step:
    launches = choice.kernel.launches(node, choice.kernel.modes[choice.mode], target)
    return Step(node, launches, scratch=scratch_memory(launches))


def _nested_step(node: GpuNode, compile_body: CompileBody, target: Target) -> NestedStep:
    if isinstance(node.nested, LoopBody):
        return LoopStep(node, node.nested, compile_body, target)
    assert node.nested is not None
    return IfStep(node, node.nested, compile_body, target)


def _host_step(
    graph: GpuGraph, start: int, services: Services, settings: CompileSettings
) -> HostStep:
    """Load the host nodes that follow each other from `start` on the CPU device."""
    end = start
    while end < len(graph.nodes) and graph.nodes[end].on_host:
        end += 1
    outside = [*graph.nodes[:start], *graph.nodes[end:]]
    read = {value for node in outside for value in node.inputs} | set(graph.outputs.values())
    group_ = group(graph.nodes[start:end], read)
    return HostStep(group_, services.load_network(group_.network, "CPU", settings.host_config))


def build_programs(
    launches: Sequence[Launch], builder: cl.ProgramBuilder, dumps: Dumps
) -> dict[str, cl.Program]:
    """Build each distinct source once, several at a time; return source → program.

    One kernel a program: compilers take time per kernel, not per program, and so a kernel that
    another network needs as well is found in the cache whatever came with it there.
    """
    distinct = {launch.text: launch for launch in launches}
    sources = [cl.ProgramSource(x.kernel, x.text, x.options) for x in distinct.values()]
    try:
        programs = dict(zip(distinct, builder.build_all(sources), strict=True))
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
