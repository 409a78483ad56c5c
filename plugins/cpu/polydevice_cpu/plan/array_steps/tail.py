"""Tail: the part of a network whose sizes only the data tells, run when they are known.

The nodes that make sizes unknown (NonZero, NonMaxSuppression, a Reshape to a computed shape…) run
one by one on arrays. Heavy operations that follow form networks of their own (see `segments`) with
these arrays as inputs, compiled for the sizes found; plans for sizes seen before are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.control_flow import If
from polydevice_cpu.plan.array_steps.checking import Check
from polydevice_cpu.plan.array_steps.growth import COUNTED_BYTES, counted
from polydevice_cpu.plan.array_steps.repeating import Repeating, may_repeat
from polydevice_cpu.plan.array_steps.segments import Segment, segments
from polydevice_cpu.plan.array_steps.start import starter
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.binding.workspace import Workspace
from polydevice_cpu.plan.step import Compute, Start, TailStep, outputs_of

if TYPE_CHECKING:
    from polydevice_cpu.plan.building.builder import PlanBuilder
    from polydevice_cpu.plan.compiled import CompiledNetwork


Begin = Callable[[Context, Workspace], Compute]
"""Makes the function of a part for one request, with memory that its parts share."""


def make_tail(
    builder: PlanBuilder,
    nodes: list[Node],
    compile_: Callable[[Network, int], CompiledNetwork],
) -> TailStep:
    """Return the step that runs `nodes`, the last ones of the builder's network.

    Args:
        builder: of the plan.
        nodes: the nodes.
        compile_: compiles a part of a network, of so many that share what plans may take.
    """
    late = {port for node in nodes for port in node.outputs}
    results = [
        (index, result.inputs[0])
        for index, result in enumerate(builder.network.results)
        if builder.is_late(result.inputs[0])
    ]
    wanted = [port for _, port in results]
    boundary = _read_from_outside(nodes, late, wanted)
    parts = _joined(segments(nodes, late))
    planned = sum(_may_be_planned(part) for part in parts)
    if not planned:
        start = _interpret(nodes, boundary, wanted)
    else:
        compile_part = partial(_compiled, builder, lambda network: compile_(network, planned))
        start = _in_turn(parts, boundary, wanted, compile_part)
    values = [builder.array_value(port) for port in boundary]
    layers = tuple(node.name for node in nodes)
    numbers = [index for index, _ in results]
    made = {port for node in nodes if isinstance(node.op, If) for port in node.outputs}
    made -= {port for node in nodes for port in node.inputs}
    new = frozenset(n for n, port in results if port in made and wanted.count(port) == 1)
    return TailStep("", "Tail", start, values, numbers, new, layers=layers)


def _may_be_planned(part: Segment) -> bool:
    """Whether a part may have plans: always, or for sizes that come back."""
    return part.is_planned or (not part.is_first and may_repeat(part.nodes))


def _joined(parts: list[Segment]) -> list[Segment]:
    """Join neighbours that are not planned: they run node by node."""
    joined: list[Segment] = []
    for part in parts:
        if joined and not (_may_be_planned(joined[-1]) or _may_be_planned(part)):
            joined[-1].nodes.extend(part.nodes)
        else:
            joined.append(part)
    return joined


def _in_turn(
    parts: Sequence[Segment],
    boundary: Sequence[Port],
    wanted: Sequence[Port],
    compile_: Callable[[Segment, Sequence[Port], Begin | None], Begin],
) -> Start:
    """Run parts one after the other, each as a plan of its own or node by node."""
    read = [dict.fromkeys(part.reads()) for part in parts]
    begins: list[Begin] = []
    ports = dict.fromkeys([*boundary, *wanted])
    rows: list[tuple[list[Port], list[Port]]] = []
    for number, part in enumerate(parts):
        later = {port for ports_read in read[number + 1 :] for port in ports_read}
        gives = [port for port in part.outputs if port in later or port in wanted]
        reads = list(read[number])
        walk = _beginning(_interpret(part.nodes, reads, gives))
        if _may_be_planned(part):
            begins.append(compile_(part, gives, None if part.is_planned else walk))
        else:
            begins.append(walk)
        rows.append((reads, gives))
        ports |= dict.fromkeys(gives)
    numbers = {port: number for number, port in enumerate(ports)}
    constants = [port.desc.constant for port in ports]
    last = {port: k for k, (reads, _) in enumerate(rows) for port in reads if port not in wanted}
    forgotten = [[numbers[port] for port in last if last[port] == k] for k in range(len(rows))]
    places = [([numbers[p] for p in reads], [numbers[p] for p in gives]) for reads, gives in rows]
    results = [numbers[port] for port in wanted]

    def start(context: Context) -> Compute:
        workspace = Workspace(context.compiled.memory)  # they run by turns
        runs = [begin(context, workspace) for begin in begins]

        def compute(*arrays: Array) -> list[Array]:
            values: list[Any] = [*arrays, *constants[len(arrays) :]]
            for run, (reads, writes), forget in zip(runs, places, forgotten, strict=True):
                outputs = run(*[values[number] for number in reads])
                for number, output in zip(writes, outputs_of(outputs), strict=True):
                    values[number] = output
                for number in forget:
                    values[number] = None
            return [values[number] for number in results]

        return compute

    return start


def _beginning(start: Start) -> Begin:
    return lambda context, _: start(context)


def _compiled(
    builder: PlanBuilder,
    compile_: Callable[[Network], CompiledNetwork],
    part: Segment,
    gives: Sequence[Port],
    walk: Begin | None,
) -> Begin:
    """A part as a network whose inputs are what it reads, or node by node until sizes repeat."""
    inputs = {port: f"input{number}" for number, port in enumerate(part.reads())}
    outputs = {port: f"output{number}" for number, port in enumerate(gives)}
    whole = builder.network
    compiled = compile_(whole.extract(part.nodes, inputs, outputs, name=whole.name))

    def begin(context: Context, workspace: Workspace) -> Compute:
        plans = compiled.request_plans(context, workspace)
        if walk is not None:
            return Repeating(walk(context, workspace), plans)
        return lambda *arrays: plans.infer(arrays)

    return begin


def _read_from_outside(nodes: Sequence[Node], own: set[Port], wanted: Sequence[Port]) -> list[Port]:
    """The ports that `nodes` read, or that are wanted, and that none of them computes."""
    read = [port for node in nodes for port in node.inputs]
    return list(
        dict.fromkeys(
            port for port in (*read, *wanted) if port not in own and port.desc.constant is None
        )
    )


def _interpret(nodes: Sequence[Node], boundary: Sequence[Port], wanted: Sequence[Port]) -> Start:
    """Run nodes one by one; values are dropped after their last reader.

    A node takes some 1 µs besides what NumPy computes, so values have numbers here, not names.
    """
    read = [port for node in nodes for port in node.inputs]
    ports = dict.fromkeys([*boundary, *read, *wanted])
    ports |= dict.fromkeys(port for node in nodes for port in node.outputs)
    numbers = {port: number for number, port in enumerate(ports)}
    constants: list[Array | None] = [port.desc.constant for port in ports]
    last = {port: k for k, node in enumerate(nodes) for port in node.inputs}
    keep = {*wanted, *(port for port in ports if port.desc.constant is not None)}
    starts = [starter(node.op) for node in nodes]
    rows = [
        (
            node,
            Check(node),
            [numbers[port] for port in node.inputs],
            [numbers[port] for port in node.outputs],
            [numbers[port] for port in last if last[port] == k and port not in keep],
        )
        for k, node in enumerate(nodes)
    ]
    results = [numbers[port] for port in wanted]

    def start(context: Context) -> Compute:
        steps = [(begin(context), *row) for begin, row in zip(starts, rows, strict=True)]

        def compute(*arrays: Array) -> list[Array]:
            values: list[Any] = [*arrays, *constants[len(arrays) :]]
            go_on = current_bounds().check
            for run, node, check, reads, writes, forget in steps:  # errors name the node
                go_on()
                inputs = [values[number] for number in reads]
                check(inputs)
                try:
                    output = run(*inputs)
                except (ArithmeticError, LookupError, TypeError, ValueError):
                    check.values(inputs)
                    raise
                if type(output) is np.ndarray and len(writes) == 1:
                    large = output.nbytes >= COUNTED_BYTES
                    values[writes[0]] = counted(node.op, output) if large else output
                else:
                    for number, each in zip(writes, outputs_of(output), strict=True):
                        values[number] = counted(node.op, each)
                for number in forget:
                    values[number] = None
            return [values[number] for number in results]

        return compute

    return start
