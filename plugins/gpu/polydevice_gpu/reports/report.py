"""What became of every layer of the model: for people, and as counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from polydevice.dataclass import dataclass
from polydevice.ops.concat import Concat
from polydevice.profiling import LayerCount, Status
from polydevice_gpu.graph import Fate, GpuNode
from polydevice_gpu.host_layers import why_left_on_host
from polydevice_gpu.kernels.kernel import Choice, kernels_of
from polydevice_gpu.runtime.layer_times import Times
from polydevice_gpu.runtime.plan import HostStep, NestedStep, Plan, Step


@dataclass
class LayerReport:
    """What became of one layer.

    Attributes:
        type: of its operation.
        fate: status, the node that does its work, and why.
        nodes: those that compute it and are named after it.
    """

    type: str
    fate: Fate
    nodes: list[GpuNode] = field(default_factory=list)


def layer_reports(plan: Plan) -> dict[str, LayerReport]:
    """Return what became of every layer that is no constant, each once.

    In execution order; then what needs no node: inputs and outputs, and what was computed at load
    or written out otherwise. Nodes that were inserted are not among them.
    """
    graph = plan.decided().graph
    types = dict(plan.layers)
    for name, kind in graph.types.items():  # of loops that were written out, and of variables
        if kind not in ("Const", "Parameter", "Result"):
            types.setdefault(name, kind)
    own: dict[str, list[GpuNode]] = {}
    for node in graph.nodes:
        if node.origins:
            own.setdefault(node.origins[0], []).append(node)
    found: dict[str, LayerReport] = {}
    for node in graph.nodes:
        for name in node.origins:
            if name in found:
                continue
            if name in own:
                fate = _fate(plan, name, own[name])
            else:
                fate = Fate("OPTIMIZED_OUT", node.name, f"fused into {node.origins[0]}")
            found[name] = LayerReport(types.get(name, node.op.type), fate, own.get(name, []))
    for name, kind in types.items():
        if name not in found:
            reason = _without_node(types, name, kind)
            fate = graph.fates.get(name, Fate("OPTIMIZED_OUT", "", reason))
            found[name] = LayerReport(kind, fate)
    return found


def _fate(plan: Plan, name: str, nodes: list[GpuNode]) -> Fate:
    """Return what became of a layer that has nodes of its own."""
    running = [node for node in nodes if node in plan.running]
    if running:
        reasons = dict.fromkeys(_how(node) for node in running)
        return Fate("EXECUTED", running[0].name, "; ".join(reasons))
    first = nodes[0]
    if not any(value.elements for node in nodes for value in node.outputs):
        return Fate("NOT_RUN", first.name, "its results have no elements")
    if first.is_view:
        look = Fate("OPTIMIZED_OUT", first.name, f"a view of {first.inputs[0].name}")
        return plan.graph.fates.get(name, look)
    return Fate("OPTIMIZED_OUT", first.name, "its parts are computed right where they belong")


def _how(node: GpuNode) -> str:
    """Say which kernel runs a node, and why that one."""
    if node.nested is not None:
        return f"runs on the device: {node.nested}"
    if node.is_late:
        return "runs by a plan of its own, once an inference has told the sizes that it waits for"
    if node.on_host:
        return f"runs on the host: {why_left_on_host(node)}"
    assert node.choice is not None
    text = f"runs by {node.choice}"
    if isinstance(node.op, Concat):
        copied = len({id(value) for value in node.inputs if value.memory is not node.output.memory})
        text += f", which copies {copied} of {len(node.inputs)} parts"
    return f"{text}: {_why(node, node.choice)}"


def _why(node: GpuNode, choice: Choice) -> str:
    kernels = kernels_of(type(node.op))
    mode = choice.kernel.modes[choice.mode]
    values = " ".join(f"{name}={value}" for name, value in mode.items())
    if choice.stands_for:
        return f"until the program of {choice.stands_for} is built; {values}".rstrip("; ")
    if choice.tuned:
        return f"by {choice.tuned}" + (f", {values}" if values else "")
    if choice.passed:
        why = "; ".join(f"not {name}, as {reason}" for name, reason in choice.passed.items())
    else:
        why = "its only kernel" if len(kernels) == 1 else f"the first of its {len(kernels)} kernels"
    if len(choice.kernel.modes) > 1:
        why += f"; {values} by the cost model, of {len(choice.kernel.modes)} modes"
    return why


def _without_node(types: Mapping[str, str], name: str, kind: str) -> str:
    """Say what became of a layer that the graph does not know any more."""
    if kind == "Parameter":
        return "an input of the network"
    if kind == "Result":
        return "an output of the network"
    if kind in ("ReadValue", "Assign"):
        return "a variable: the request keeps it from one inference to the next"
    if kind in ("TensorIterator", "Loop") and any(n.startswith(f"{name}/") for n in types):
        return f"written out: its iterations are the layers {name}/1/... and so on"
    if kind == "If" and any(n.startswith(f"{name}/") for n in types):
        return f"written out: the body that its condition chooses is the layers {name}/..."
    return "computed at load"


def layer_counts(plan: Plan, times: Times) -> list[LayerCount]:
    """Return one row per layer of the model, and one per node that was inserted.

    The layer that gives nodes their name carries their time. Layers fused into it, views, and what
    was computed at load are OPTIMIZED_OUT; what has not run yet, or has no elements, is NOT_RUN.
    """
    rows: list[LayerCount] = []

    def add(name: str, kind: str, status: str, nodes: list[GpuNode]) -> None:
        measured = [times[node] for node in nodes if node in times]
        ran = status == "EXECUTED" and bool(measured)
        shown: Status = "EXECUTED" if ran else "NOT_RUN"
        names = dict.fromkeys(kernel_name(node) for node in nodes if node in times)
        rows.append(
            LayerCount(
                name,
                "OPTIMIZED_OUT" if status == "OPTIMIZED_OUT" else shown,
                kind,
                "+".join(names) if ran else "undef",
                sum(time.device_us for time in measured),
                sum(time.cpu_us for time in measured),
                len(rows),
            )
        )

    for name, report in layer_reports(plan).items():
        add(name, report.type, report.fate.status, report.nodes)
    inserted: dict[str, list[GpuNode]] = {}
    for node in plan.running:
        if not node.origins:
            inserted.setdefault(node.name, []).append(node)
    for name, nodes in inserted.items():
        add(name, "Reorder", "EXECUTED", nodes)
    return rows


def kernel_name(node: GpuNode) -> str:
    """Return the kernel that runs a node, "CPU" for the host, "undef" for none.

    "later" stands for those of a plan that is made once sizes are known.
    """
    if node.is_late:
        return "later"
    if node.on_host:
        return "CPU"
    if node.nested is not None:
        return node.nested.kind
    return "undef" if node.choice is None else node.choice.kernel.name


def explanation(plan: Plan, others: Sequence[Plan] | None = None) -> str:
    """Describe for people what became of each layer, and the memory that the plan takes.

    Args:
        plan: for the shapes at hand.
        others: the plans for other shapes that are kept; None where there is one set of shapes.
    """
    lines = _of_layers(plan)
    arena = plan.arena
    launches = sum(len(step.launches) for step in plan.steps if isinstance(step, Step))
    lines.append(
        f"{launches} launches; arena {arena.size_bytes} bytes ({arena.live_bytes} alive at once at "
        f"most, {arena.sum_bytes} without reuse); weights {plan.weights.size_bytes} bytes"
    )
    if others is not None:
        lines.append(_of_shapes(plan, others))
    return "\n".join([*lines, *_of_joining(plan)])


def _of_shapes(plan: Plan, others: Sequence[Plan]) -> str:
    """Say which layers run programs that plans for other shapes do not."""
    elsewhere = {program for other in others for program in other.programs}
    own = [
        step.node.name
        for step in plan.launching
        if any(kernel.program not in elsewhere for kernel in step.kernels)
    ]
    return (
        f"plans for {len(others) + 1} sets of shapes are kept; layers with programs for these "
        f"shapes alone: {', '.join(own) or 'none'}"
    )


def _of_joining(plan: Plan) -> list[str]:
    """Say which launches run as one, and why others do not."""
    lines = [stretch.text for stretch in dict.fromkeys(plan.joined.values())]
    apart: dict[str, list[str]] = {}
    for number, reason in plan.apart.items():
        step = plan.steps[number]
        names = step.group.nodes if isinstance(step, HostStep) else [step.node]
        apart.setdefault(reason, []).extend(node.name for node in names)
    if len(apart) == 1 and not lines:
        return [f"no launches run as one, as {reason}" for reason in apart]
    for reason, layers in apart.items():
        shown = ", ".join(layers[:_SHOWN]) + (", ..." if len(layers) > _SHOWN else "")
        lines.append(f"not in one launch with others, as {reason}: {shown}")
    return lines


_SHOWN = 8


def _of_layers(plan: Plan) -> list[str]:
    """Return a line for each layer and inserted node, and for those of bodies behind it."""
    reports = layer_reports(plan)
    width = max((len(name) for name in reports), default=0)
    lines = [f"{name:{width}}  {r.type:18}  {r.fate.reason}" for name, r in reports.items()]
    users = plan.graph.users()
    for node in plan.running:
        if not node.origins:
            value, (made, *_) = node.inputs[0], node.outputs
            readers = dict.fromkeys(user.name for user in users.get(made, []))
            lines.append(
                f"inserted: {node.name} copies {value.name} "
                f"({value.placed.named(value.shape)} to {made.placed.named(made.shape)}) for "
                f"{', '.join(readers) or 'an output'}; {_how(node)}"
            )
    for step in plan.steps:
        for inner in step.plans if isinstance(step, NestedStep) else ():
            launches = sum(len(each.launches) for each in inner.steps if isinstance(each, Step))
            lines.append(f"in {inner.graph.name}, {launches} launches:")
            lines += [f"  {line}" for line in _of_layers(inner)]
    return lines
