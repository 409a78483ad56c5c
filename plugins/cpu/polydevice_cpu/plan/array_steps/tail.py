"""Tail: the part of a network whose sizes only the data tells, run when they are known.

The nodes that make sizes unknown (NonZero, NonMaxSuppression, a Reshape to a computed shape…) run
one by one on arrays. Where heavy operations follow, they form a network of their own with these
arrays as inputs, compiled for the sizes found; plans for sizes seen before are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.errors import PolydeviceError, ShapeError
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice_cpu.lower import is_heavy
from polydevice_cpu.plan.array_steps.growth import COUNTED_BYTES, KEPT, Growth, counted, is_small
from polydevice_cpu.plan.array_steps.start import starter
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import Compute, Start, TailStep, outputs_of

if TYPE_CHECKING:
    from polydevice_cpu.plan.building.builder import PlanBuilder
    from polydevice_cpu.plan.compiled import CompiledNetwork


def make_tail(
    builder: PlanBuilder, nodes: list[Node], compile_: Callable[[Network], CompiledNetwork]
) -> TailStep:
    """Return the step that runs `nodes`, the last ones of the builder's network."""
    late = {port for node in nodes for port in node.outputs}
    results = [
        (index, result.inputs[0])
        for index, result in enumerate(builder.network.results)
        if builder.is_late(result.inputs[0])
    ]
    wanted = [port for _, port in results]
    first, rest = _split(nodes, late)
    if not any(is_heavy(type(node.op)) for node in rest):
        first, rest = nodes, []
    boundary = _read_from_outside(nodes, late, wanted)
    start = _interpret(first, boundary, wanted)
    if rest:
        inner = _read_from_outside(rest, {p for n in rest for p in n.outputs}, wanted)
        inputs = {port: f"input{number}" for number, port in enumerate(inner)}
        distinct = list(dict.fromkeys(wanted))  # two outputs of the network may be one value
        outputs = {port: f"output{number}" for number, port in enumerate(distinct)}
        whole = builder.network
        network = whole.extract(rest, inputs, outputs, name=whole.name)
        compiled = compile_(network)
        places = [distinct.index(port) for port in wanted]
        start = _then(_interpret(first, boundary, inner), compiled, places)
    values = [builder.array_value(port) for port in boundary]
    layers = tuple(node.name for node in nodes)
    numbers = [index for index, _ in results]
    return TailStep("", "Tail", start, values, numbers, layers=layers)


def _split(nodes: Sequence[Node], late: set[Port]) -> tuple[list[Node], list[Node]]:
    """Split into nodes that read nothing late, and those that do."""
    first: list[Node] = []
    rest: list[Node] = []
    for node in nodes:
        (rest if any(port in late for port in node.inputs) else first).append(node)
    return first, rest


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
            _Check(node),
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
            for run, check, reads, writes, forget in steps:
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
                    values[writes[0]] = counted(check.op, output) if large else output
                else:
                    for number, each in zip(writes, outputs_of(output), strict=True):
                        values[number] = counted(check.op, each)
                for number in forget:
                    values[number] = None
            return [values[number] for number in results]

        return compute

    return start


class _Check:
    """Whether a node takes arrays of these sizes, and memory for what it makes of them.

    Nobody could tell before, and NumPy would repeat what has one item where the operation has no
    rule for it. Inferring takes some 20 µs, so what was found of sizes is kept; what only values
    break shows when they are computed, and is named then.

    Attributes:
        op: the node's.
    """

    __slots__ = ("_growth", "_has_sizes", "_node", "_small", "op")

    def __init__(self, node: Node) -> None:
        self._node = node
        self.op = node.op
        self._growth = Growth(node.op)
        self._has_sizes = all(port.desc.kind == "tensor" for port in node.inputs)
        self._small: dict[tuple[tuple[int, ...], ...], bool] = {}

    def __call__(self, inputs: Sequence[Array]) -> None:
        """Check the sizes alone.

        Raises:
            ShapeError: they are none that the operation takes.
            DeviceMemoryError: the result is more than the network may use.
        """
        if not self._has_sizes:  # sequences have none
            if not is_small(self.op, inputs):
                self._growth.admit(inputs)
            return
        sizes = tuple([array.shape for array in inputs])
        small = self._small.get(sizes)
        if small is None:
            self._infer(inputs, [None] * len(inputs))
            if len(self._small) >= KEPT:
                self._small.clear()
            small = self._small[sizes] = is_small(self.op, inputs)
        if not small:
            self._growth.admit(inputs)

    def values(self, inputs: Sequence[Array]) -> None:
        """Check the values too; raises ShapeError."""
        if self._has_sizes:
            self._infer(inputs, inputs)

    def _infer(self, inputs: Sequence[Array], values: Sequence[Array | None]) -> None:
        node = self._node
        described = [
            TensorDesc(port.element_type, Shape(array.shape), value)
            for port, array, value in zip(node.inputs, inputs, values, strict=True)
        ]
        try:
            node.op.check_inputs(described)
            node.op.infer(described)
        except PolydeviceError as error:
            raise ShapeError(f"{node.title}: {error}") from None


def _then(first: Start, compiled: CompiledNetwork, places: Sequence[int]) -> Start:
    """Run `first`, then the network with what it returned as inputs; take its results in places."""

    def start(context: Context) -> Compute:
        before = first(context)
        plans = compiled.request_plans(context)

        def compute(*arrays: Array) -> Sequence[Array]:
            results = plans.infer(outputs_of(before(*arrays)))
            return [results[place] for place in places]

        return compute

    return start
