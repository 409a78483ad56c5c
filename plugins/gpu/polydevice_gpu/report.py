"""What became of every layer: counters, the execution graph, and an explanation for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.io import Parameter, Result
from polydevice.ops.op import Op
from polydevice.profiling import LayerCount
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice_gpu import cl
from polydevice_gpu.graph import Fate, GpuGraph, GpuNode, Value
from polydevice_gpu.ops import Fused
from polydevice_gpu.plan import HostStep, Plan, Step

Times = dict[GpuNode, list[cl.LaunchTime]]


def times_by_node(plan: Plan, times: Sequence[cl.LaunchTime]) -> Times:
    """Assign the times of a plan's launches, in order, to the nodes that made them."""
    found: Times = {}
    rest = iter(times)
    for step in plan.steps:
        if isinstance(step, HostStep):
            continue
        found[step.node] = [next(rest) for _ in step.launches]
    return found


def layer_counts(plan: Plan, times: Times) -> list[LayerCount]:
    """Return one row per layer of the model and per node that was inserted.

    The layer that gives a node its name carries the time; the layers fused into it, views and what
    was computed at load are OPTIMIZED_OUT.
    """
    graph = plan.graph
    rows: list[LayerCount] = []
    seen: set[str] = set()

    def add(name: str, executed: bool, node: GpuNode | None) -> None:
        if name in seen:
            return
        seen.add(name)
        spent = times.get(node, []) if node is not None and executed else []
        device_ns = sum(time.duration_ns for time in spent)
        waiting_ns = sum(max(time.started_ns - time.queued_ns, 0) for time in spent)
        rows.append(
            LayerCount(
                name,
                "EXECUTED" if executed else "OPTIMIZED_OUT",
                graph.types.get(name, "Reorder"),
                kernel_name(node) if executed and node is not None else "undef",
                device_ns / 1e3,
                waiting_ns / 1e3,
                len(rows),
            )
        )

    for node in graph.nodes:
        runs = not node.is_view and bool(times.get(node) or node.on_host)
        main, *others = node.origins or [node.name]
        add(main, runs, node)
        for name in others:
            add(name, False, None)
    for name in fates(graph):
        add(name, False, None)
    return rows


def kernel_name(node: GpuNode) -> str:
    """Return the kernel that runs a node, "CPU" for the host, "undef" for none."""
    if node.on_host:
        return "CPU"
    return "undef" if node.choice is None else node.choice.kernel.name


def fates(graph: GpuGraph) -> dict[str, Fate]:
    """Return what became of every layer of the model."""
    found: dict[str, Fate] = {}
    for node in graph.nodes:
        main, *others = node.origins or [""]
        if main and main not in found:
            if node.is_view:
                reason = f"a view of {node.inputs[0].name}"
                found[main] = Fate("OPTIMIZED_OUT", node.name, reason)
            else:
                place = "on the host" if node.on_host else f"by {node.choice}"
                found[main] = Fate("EXECUTED", node.name, f"runs {place}")
        for name in others:
            found.setdefault(name, Fate("OPTIMIZED_OUT", node.name, f"fused into {main}"))
    for name, kind in graph.types.items():
        if kind in ("Result", "Parameter", "Const"):
            continue
        found.setdefault(name, graph.fates.get(name, Fate("OPTIMIZED_OUT", "", "computed at load")))
    return found


def explanation(plan: Plan) -> str:
    """Describe for people what became of each layer, and the memory that the plan takes."""
    graph = plan.graph
    described = fates(graph)
    width = max((len(name) for name in described), default=0)
    lines = [
        f"{name:{width}}  {graph.types.get(name, ''):18}  {fate.reason}"
        for name, fate in described.items()
    ]
    inserted = [node for node in graph.nodes if not node.origins]
    lines += [f"inserted: {node!r}" for node in inserted]
    arena = plan.arena
    launches = sum(len(step.launches) for step in plan.steps if isinstance(step, Step))
    lines.append(
        f"{launches} launches; arena {arena.size_bytes} bytes "
        f"({arena.sum_bytes} without reuse); weights {plan.weights.size_bytes} bytes"
    )
    return "\n".join(lines)


@dataclass(frozen=True)
class ExecutedLayer(Op):
    """A node of the execution graph; its attributes are all texts.

    Inputs:  those of the node
    Outputs: those of the node
    Source:  the Inference Engine's execution graph
    """

    domain = "polydevice_gpu"

    layer_type: str
    results: tuple[TensorDesc, ...]
    notes: tuple[tuple[str, str], ...]

    @property
    def type(self) -> str:  # type: ignore[override]
        """The layer's type."""
        return self.layer_type

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return what the device produces."""
        del inputs
        return list(self.results)

    def to_ir(self) -> dict[str, str]:
        """Return the notes."""
        return dict(self.notes)


def execution_graph(plan: Plan, times: Times) -> Network:
    """Return the graph that runs, with kernels, layouts, types and times as attributes."""
    graph = plan.graph
    nodes: dict[Value, tuple[Node, int]] = {}
    parameters = []
    for name, value in graph.inputs.items():
        node = Node(name, Parameter(element_type=value.element_type, shape=Shape(value.shape)))
        parameters.append(node)
        nodes[value] = (node, 0)
    for order, each in enumerate(graph.nodes):
        ports = [nodes[v][0].outputs[nodes[v][1]] for v in each.inputs if v in nodes]
        results = tuple(TensorDesc(v.element_type, Shape(v.shape)) for v in each.outputs)
        op = ExecutedLayer(_layer_type(graph, each), results, tuple(_notes(each, order, times)))
        made = Node(each.name, op, ports)
        made.rt_info.update(dict(op.notes))
        for index, value in enumerate(each.outputs):
            nodes[value] = (made, index)
    results_ = []
    for name, value in graph.outputs.items():
        source, index = nodes[value]
        result = Node(f"{name}_result", Result(output_name=name), [source.outputs[index]])
        results_.append(result)
    return Network("runtime_gpu_graph", parameters, results_)


def _layer_type(graph: GpuGraph, node: GpuNode) -> str:
    if not node.origins:
        return "Reorder"
    return graph.types.get(node.origins[0], node.op.type)


def _notes(node: GpuNode, order: int, times: Times) -> list[tuple[str, str]]:
    spent = times.get(node)
    micro = "not_executed" if not spent else str(round(sum(t.duration_ns for t in spent) / 1e3))
    types: list[ElementType] = [v.storage for v in node.outputs]
    notes: list[tuple[str, Any]] = [
        ("originalLayersNames", ",".join(node.origins)),
        ("primitiveType", "view" if node.is_view else str(node.choice or kernel_name(node))),
        ("outputPrecisions", ",".join(kind.precision for kind in types)),
        ("outputLayouts", ",".join(v.placed.named(v.shape) for v in node.outputs)),
        ("execTimeMcs", micro),
        ("execOrder", order),
        ("layerType", node.op.type),
        ("runtimePrecision", types[0].precision if types else ""),
    ]
    if isinstance(node.op, Fused):
        notes.append(("fusedOperations", str(node.op.fragment)))
    elif node.epilogue is not None:
        notes.append(("fusedOperations", str(node.epilogue)))
    return [(name, str(value)) for name, value in notes]
