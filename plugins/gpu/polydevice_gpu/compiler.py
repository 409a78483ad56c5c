"""Compiler: runs the passes, builds the programs, and returns the plan."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.network import Evaluate, Network
from polydevice.passes.constant_folding import constant_folding
from polydevice_gpu import cl
from polydevice_gpu.graph import GpuGraph
from polydevice_gpu.kernels.launch import Launch
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.passes import run_passes
from polydevice_gpu.passes.lower import lower
from polydevice_gpu.passes.plan_memory import plan_memory
from polydevice_gpu.plan import Plan, Step, WeightStore, scratch_memory


def target_of(device: cl.Device) -> Target:
    """Return the answers that kernels ask for."""
    can = device.capabilities
    lanes = 1
    if can.local_memory_is_dedicated:
        lanes = can.native_sub_group_width or max(can.sub_group_sizes, default=32)
    width = can.preferred_vector_width.get("f32", 1) if lanes == 1 else 4
    return Target(
        fp64=can.fp64,
        scalar_lanes=lanes,
        vector_width=max(width, 4),
        compute_units=can.compute_units,
        local_memory_bytes=can.local_memory_bytes if can.local_memory_is_dedicated else 0,
        max_work_group_size=can.max_work_group_size,
        matrix_unit=can.tensor_cores_ptx and can.async_copy_ptx,
    )


def build_graph(network: Network, target: Target, evaluate: Evaluate) -> GpuGraph:
    """Run every pass on a network with static shapes; the network is changed.

    Raises:
        UnsupportedNetworkError: listing every node that no kernel takes.
    """
    constant_folding(network, evaluate)
    graph = lower(network, fp64=target.fp64)
    run_passes(graph, target)
    return graph


def compile_plan(
    graph: GpuGraph,
    target: Target,
    device: cl.Device,
    builder: cl.ProgramBuilder,
    weights: WeightStore,
) -> Plan:
    """Build the programs of a graph and plan its memory."""
    steps: list[Step] = []
    scratch = {}
    for place, node in enumerate(graph.nodes):
        if node.is_view or node.choice is None or not any(v.elements for v in node.outputs):
            continue
        kernel, mode = node.choice.kernel, node.choice.mode
        launches = kernel.launches(node, kernel.modes[mode], target)
        step = Step(node, launches, scratch=scratch_memory(launches))
        scratch[place] = list(step.scratch.values())
        steps.append(step)
    programs = build_programs([launch for step in steps for launch in step.launches], builder)
    for step in steps:
        step.kernels = [programs[launch.text].kernel(launch.kernel) for launch in step.launches]
    arena = plan_memory(graph, scratch, device.region_alignment_bytes)
    compiled = sum(not program.from_cache for program in programs.values())
    return Plan(device, graph, steps, arena, weights, compiled)


def build_programs(launches: Sequence[Launch], builder: cl.ProgramBuilder) -> dict[str, cl.Program]:
    """Build each distinct source once, several at a time; return source → program.

    One kernel a program: compilers take time per kernel, not per program, and so a kernel that
    another network needs as well is found in the cache whatever came with it there.
    """
    distinct = {launch.text: launch for launch in launches}
    sources = [cl.ProgramSource(x.kernel, x.text, x.options) for x in distinct.values()]
    return dict(zip(distinct, builder.build_all(sources), strict=True))
