"""What became of every layer of the model: as counters, and as the graph that runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from polydevice.dtype import ElementType
from polydevice.exec_graph import ExecutedGraph, Execution
from polydevice.network import Network
from polydevice.node import Port
from polydevice.profiling import LayerCount, Status
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.plan.plan import Plan
from polydevice_cpu.plan.step import ArrayStep, CodeStep, PrimitiveStep, Step, TailStep, name_of
from polydevice_cpu.plan.value import Kind, Value


def layer_counts(plan: Plan, layers: Mapping[str, str]) -> list[LayerCount]:
    """Return one row per step, and one per layer that is part of another's or a view.

    Args:
        plan: with its times; before its first inference every step is NOT_RUN.
        layers: layer of the model → type.
    """
    times = plan.times.averages()
    ran: Status = "EXECUTED" if times else "NOT_RUN"
    rows: list[LayerCount] = []
    for index, step in enumerate(plan.steps):
        time = times[index].device_us if times else 0.0
        kernel = step.implementation if times else "undef"
        names = step.layers if isinstance(step, TailStep) else (name_of(step, index),)
        for name in names:
            kind = layers.get(name, step.type) if isinstance(step, TailStep) else step.type
            rows.append(LayerCount(name, ran, kind, kernel, time, time, len(rows)))
            time = 0.0  # what a tail takes is not known by layer
    found = {row.name for row in rows}
    for name, kind in layers.items():
        if name not in found:
            rows.append(LayerCount(name, "OPTIMIZED_OUT", kind, "undef", 0, 0, len(rows)))
    return rows


def explanation(plan: Plan, layers: Mapping[str, str], others: Sequence[Plan] | None = None) -> str:
    """Describe for people what became of each layer, and the memory that the plan takes.

    Args:
        plan: for the shapes at hand.
        layers: layer of the model → type.
        others: the plans for other shapes that are kept; None where there is one set of shapes.
    """
    reasons: dict[str, str] = {}
    codes = _codes(plan)
    elsewhere = {step.primitive for other in others or () for step in _by_primitives(other)}
    for step in plan.steps:
        whose = "" if others is None else f", {_whose(step, elsewhere)}"
        for name in step.layers or (step.name,):
            if name and name != step.name and not isinstance(step, TailStep):
                reasons.setdefault(name, f"fused into {step.name}")
            elif name:
                reasons[name] = f"runs by {codes.get(name, step.implementation)}{whose}"
    for layer, code in codes.items():  # of several steps, none of its name
        reasons.setdefault(layer, f"runs by {code}")
    for name, reason in plan.refused.items():
        if name in reasons:
            reasons[name] += f"; not by or not with oneDNN's primitive: {reason}"
    width = max((len(name) for name in layers), default=0)
    other = "a view, an input or output, merged into another layer, or computed at load"
    lines = [f"{n:{width}}  {kind:18}  {reasons.get(n, other)}" for n, kind in layers.items()]
    if others is not None:
        own = sum(step.primitive not in elsewhere for step in _by_primitives(plan))
        lines.append(
            f"plans for {len(others) + 1} sets of shapes are kept; {own} steps of this one are for "
            "its shapes alone"
        )
    lines.append(
        f"{len(plan.steps)} steps; arena {plan.arena_bytes} bytes; scratchpad "
        f"{plan.scratchpad_bytes} bytes"
    )
    return "\n".join(lines)


def _codes(plan: Plan) -> dict[str, str]:
    """Layer → names of the code of all steps that it became."""
    found: dict[str, dict[str, None]] = {}
    for step in plan.steps:
        for name in step.layers or (step.name,):
            for layer in plan.origins.get(name, ()):
                found.setdefault(layer, {})[step.implementation] = None
    return {layer: ", ".join(codes) for layer, codes in found.items()}


def _by_primitives(plan: Plan) -> list[PrimitiveStep]:
    return [step for step in plan.steps if isinstance(step, PrimitiveStep)]


def _whose(step: Step, elsewhere: AbstractSet[Primitive]) -> str:
    """For which shapes a step's code is."""
    if not isinstance(step, PrimitiveStep):
        return "for all shapes"
    return "for other shapes too" if step.primitive in elsewhere else "for these shapes"


def execution_graph(network: Network, plan: Plan) -> Network:
    """Return the steps as a network, with primitives, layouts, types and times as notes."""
    times = plan.times.averages()
    made = ExecutedGraph()
    inputs: list[Port] = []
    for node, desc in zip(network.parameters, plan.inputs, strict=True):
        precision = [desc.element_type.precision]
        execution = Execution("input", [node.name], precisions=precision)
        inputs.append(made.input(node.name, desc.without_value(), execution))
    writers: dict[int, list[Port]] = {}
    late: dict[int, Port] = {}

    def ports(value: Value) -> list[Port]:
        root = value.storage.root
        if root.kind is Kind.INPUT or (root.kind is Kind.OBJECTS and root.array is None):
            return [inputs[root.index]]
        return writers.get(id(root), [])

    for index, step in enumerate(plan.steps):
        read = _read(step)
        written = _written(step)
        descs = [_desc(value) for value in written]
        if isinstance(step, TailStep):
            descs = [network.results[n].inputs[0].desc.without_value() for n in step.results]
        execution = Execution(
            step.implementation,
            step.layers or [step.name] * bool(step.name),
            [_layout(value) for value in written],
            [desc.element_type.precision for desc in descs],
            times[index].device_us if times else None,
        )
        # A sum in place reads what its result's place holds.
        added = [value for value in written if _is_whole(value)]
        sources = dict.fromkeys(port for value in (*read, *added) for port in ports(value))
        found = made.layer(name_of(step, index), step.type, sources, descs, execution)
        if isinstance(step, TailStep):
            late.update(zip(step.results, found, strict=True))
        for value, port in zip(written, found):
            before = [] if _is_whole(value) else ports(value)
            writers[id(value.storage.root)] = [*before, port]
    names = [name for name, _ in network.output_ports()]
    for number, (name, result) in enumerate(zip(names, plan.outputs, strict=True)):
        if result is None:
            made.output(name, late[number])
        elif last := ports(result):
            made.output(name, last[-1])
        else:  # known at load
            (port,) = made.layer(name, "Const", [], [_desc(result)], Execution())
            made.output(name, port)
    return made.network("runtime_cpu_graph")


def _read(step: Step) -> list[Value]:
    if isinstance(step, PrimitiveStep):
        return [value for index, value in step.arguments.items() if index not in step.outputs]
    return step.inputs


def _written(step: Step) -> list[Value]:
    if isinstance(step, PrimitiveStep):
        return [step.arguments[index] for index in step.outputs]
    return step.outputs if isinstance(step, (ArrayStep, CodeStep)) else []


def _is_whole(value: Value) -> bool:
    """Whether a value fills its storage, of which others fill parts."""
    return value.elements * value.dtype.itemsize >= value.storage.root.size_bytes


def _desc(value: Value) -> TensorDesc:
    return TensorDesc(ElementType.of(value.dtype), Shape(value.shape))


def _layout(value: Value) -> str:
    """Name a layout as oneDNN does: "abcd" is planar, "acdb" has its channels last."""
    if value.strides is None:
        return "blocked"
    strides = value.strides
    order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
    return "".join("abcdefghijkl"[axis] for axis in order) or "a"
