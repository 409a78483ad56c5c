"""unroll_loops: loops whose number of iterations is known become plain layers, as do known Ifs.

One copy of the body follows the other, so that the device computes them without returning to the
host between iterations.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from polydevice.dtype import Array
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Evaluate, Node, Port
from polydevice.ops.concat import Concat
from polydevice.ops.control_flow import Iteration, Loop, Slicing
from polydevice.ops.io import Parameter, Result
from polydevice.ops.slice import Slice
from polydevice.rewrites.control_flow.inline_branches import inline_branches
from polydevice.shape import normalize_axis

NODE_LIMIT = 4096
"""Loops that would become more nodes than this stay loops: compiling takes time per node."""


def unroll_loops(
    network: Network,
    *,
    all_counts: bool,
    most_nodes: int | None = None,
    where: Callable[[Node], bool] | None = None,
) -> bool:
    """Unroll loops, also those inside others; return whether there were any.

    Args:
        network: changed in place; its outputs keep their names.
        all_counts: whether loops of more than one iteration are unrolled too.
        most_nodes: that they may become; None for `NODE_LIMIT`.
        where: which loops; None for all.
    """
    names = [name for name, _ in network.output_ports()]
    unrolled = False
    budget = NODE_LIMIT if most_nodes is None else most_nodes
    while True:
        unrolled = inline_branches(network) or unrolled
        for node in network.nodes():
            body = getattr(node.op, "body", None)
            if not isinstance(node.op, Iteration) or not isinstance(body, Network):
                continue
            if where is not None and not where(node):
                continue
            count = _most_iterations(node)
            if count is None or count < 1 or (count > 1 and not all_counts) or body.sinks:
                continue
            size = count * len(body.nodes())
            if size <= budget and _Unrolled(node, body, count, network.evaluate).replace(network):
                budget -= size
                unrolled = True
                break  # the list of nodes is another one now
        else:
            break
    if unrolled:
        for result, name in zip(network.results, names, strict=True):
            if isinstance(result.op, Result) and result.op.output_name != name:
                result.op = result.op.replace(output_name=name)
        network.infer()
    return unrolled


class _Unrolled:
    """One loop in the making as copies of its body."""

    def __init__(self, loop: Node, body: Network, count: int, evaluate: Evaluate | None) -> None:
        assert isinstance(loop.op, Iteration)
        self._loop, self._op, self._body, self._count = loop, loop.op, body, count
        self._carried = {edge.parameter: edge.result for edge in loop.op.back_edges}
        self._emitter = Emitter(loop.name, evaluate=evaluate)
        self._constants = 0

    def replace(self, network: Network) -> bool:
        """Put the copies in the loop's place; False when a size or the end is not known."""
        ties = [t for t in self._op.body_inputs if t.slicing is not None]
        if any(_size(self._loop.inputs[t.input], t.slicing) is None for t in ties if t.slicing):
            return False
        results: list[list[Port]] = []
        for iteration in range(self._count):
            results.append(self._copy(iteration, results[-1] if results else []))
            goes_on = self._goes_on(results[-1])
            if goes_on is None and iteration < self._count - 1:
                return False
            if not goes_on:
                break
        made: dict[Port, Port] = {}
        for tie in self._op.body_outputs:
            ports = [ports[tie.result] for ports in results]
            last = ports[-1] if tie.slicing is None else self._join(ports, tie.slicing, tie.output)
            made[self._loop.outputs[tie.output]] = last
        network.replace(made)
        return True

    def _goes_on(self, results: list[Port]) -> bool | None:
        """Whether another iteration follows; None when that depends on the inputs."""
        if not isinstance(self._op, Loop) or self._op.execution_condition is None:
            return True
        value = results[self._op.execution_condition].desc.constant
        return None if value is None else bool(value.all())

    def _copy(self, iteration: int, before: list[Port]) -> list[Port]:
        """Add one iteration; return what its results are."""
        ports: dict[Port, Port] = {}
        for tie in self._op.body_inputs:
            port = self._loop.inputs[tie.input]
            if tie.slicing is not None:
                port = self._slice(port, tie.slicing, iteration)
            elif before and tie.parameter in self._carried:
                port = before[self._carried[tie.parameter]]
            ports[self._body.parameters[tie.parameter].output] = port
        if isinstance(self._op, Loop) and self._op.current_iteration is not None:
            own = self._body.parameters[self._op.current_iteration].output
            shape = own.shape.static if own.shape is not None and own.shape.is_static else ()
            ports[own] = self._constant(np.full(shape, iteration, own.element_type.dtype))
        for node in self._body.nodes():
            if isinstance(node.op, (Parameter, Result)):
                continue
            name = f"{self._loop.name}/{iteration + 1}/{node.name}"
            # With what is known of its inputs: the condition may be known after all.
            made = self._emitter.emit_all(node.op, *(ports[p] for p in node.inputs), name=name)
            for port in made:
                port.node.rt_info = dict(node.rt_info)
            ports.update(zip(node.outputs, made, strict=True))
        return [ports[result.inputs[0]] for result in self._body.results]

    def _slice(self, port: Port, slicing: Slicing, iteration: int) -> Port:
        size, axis = _size(port, slicing), _axis(port, slicing)
        assert size is not None
        part = slicing.part(iteration, size)
        bounds = [self._constant(np.array([n], np.int64)) for n in (part.start, part.stop, 1, axis)]
        name = f"{self._loop.name}/{iteration + 1}/slice{self._constants}"
        return self._emitter.emit(Slice(), port, *bounds, name=name)

    def _join(self, ports: list[Port], slicing: Slicing, output: int) -> Port:
        if slicing.stride < 0:
            ports.reverse()
        if len(ports) == 1:
            return ports[0]
        axis = _axis(ports[0], slicing)
        name = f"{self._loop.name}/join{output}"
        return self._emitter.emit(Concat(axis=axis), *ports, name=name)

    def _constant(self, value: Array) -> Port:
        self._constants += 1
        name = f"{self._loop.name}/constant{self._constants}"
        return self._emitter.value(value, name=name)


def _most_iterations(node: Node) -> int | None:
    """Return how often a loop runs if no condition ends it before; None when that is not known."""
    inputs = [port.desc for port in node.inputs]
    if not isinstance(node.op, Loop):
        assert isinstance(node.op, Iteration)
        return node.op.iterations(inputs)
    trips, first = inputs[0].static_ints, inputs[1].static_ints
    if trips is None or first is None or trips[0] < 0:
        return None
    return trips[0] if first[0] else 0


def _axis(port: Port, slicing: Slicing) -> int:
    return slicing.axis if port.shape is None else normalize_axis(slicing.axis, len(port.shape))


def _size(port: Port, slicing: Slicing | None) -> int | None:
    if slicing is None or port.shape is None:
        return None
    size = port.shape[_axis(port, slicing)]
    return size if isinstance(size, int) else None
