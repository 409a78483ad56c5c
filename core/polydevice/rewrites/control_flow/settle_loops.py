"""settle_loops: what a loop carries without ever changing it becomes the same in all iterations.

ONNX carries the condition of a loop through its body, also where nothing ends the loop but the trip
count. Once the condition is known to stay true, so are the number of iterations and the sizes of
what they give.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import NetworkError
from polydevice.network import Network
from polydevice.node import Evaluate, Node, constant
from polydevice.ops.control_flow import BackEdge, BodyInput, If, Iteration
from polydevice.passes.constant_folding import constant_folding
from polydevice.symbolic_size import is_symbolic

ELEMENTS = 16
"""Carried values up to this size are compared with what they were before: flags and counters."""


def settle_loops(network: Network, evaluate: Evaluate) -> bool:
    """Change every loop of a network that carries such values; return whether there were any.

    Also loops in bodies: what those are given of constants is known in them.
    """
    found = False
    for node in network.nodes():
        if isinstance(node.op, Iteration) and isinstance(node.op.body, Network):
            found = _settle(node, node.op, node.op.body, evaluate) or found
        elif isinstance(node.op, If):
            found = _settle_branches(node, node.op, evaluate) or found
    if found:
        network.infer()
    return found


def _settle(node: Node, op: Iteration, body: Network, evaluate: Evaluate) -> bool:
    """Put constants in the place of carried values that keep their first value."""
    carried = {edge.parameter for edge in op.back_edges}
    first = _constants(node, op.body_inputs)
    known = {index: value for index, value in first.items() if index not in carried}
    copied = [edge for edge in op.back_edges if _passes_through(body, edge)]
    assumed: dict[int, Array] = {}
    for edge in op.back_edges:
        value = first.get(edge.parameter)
        if value is not None and (edge in copied or value.size <= ELEMENTS):
            assumed[edge.parameter] = value
    prepared = _with_constants(body, known, evaluate)
    changed = settle_loops(prepared, evaluate) or bool(copied)
    # Each value follows from all of them; one that does not hold may have made others hold.
    while assumed:
        trial = _with_constants(prepared, assumed, evaluate)
        wrong = [
            edge.parameter
            for edge in op.back_edges
            if edge.parameter in assumed and not _keeps(trial, edge, assumed[edge.parameter])
        ]
        if not wrong:
            changed, prepared = True, trial
            settle_loops(prepared, evaluate)
            break
        assumed = {each: value for each, value in assumed.items() if each not in wrong}
    if not changed:
        node.op = op.replace(body=prepared)  # what is folded need not be folded again
        return False
    # What may run no iteration still gives the first value of what it carries.
    needed = {tie.result for tie in op.body_outputs if tie.slicing is None}
    settled = [e for e in op.back_edges if (e in copied or e.parameter in assumed)]
    edges = tuple(e for e in op.back_edges if e not in settled or e.result in needed)
    node.op = op.replace(body=prepared, back_edges=edges)
    return True


def _settle_branches(node: Node, op: If, evaluate: Evaluate) -> bool:
    """Settle the loops in both bodies of an If."""
    bodies = []
    changed = False
    for body, ties in ((op.then_body, op.then_inputs), (op.else_body, op.else_inputs)):
        assert isinstance(body, Network)
        try:
            prepared = _with_constants(body, _constants(node, ties), evaluate)
            changed = settle_loops(prepared, evaluate) or changed
        except NetworkError:  # inputs of these values never take this body
            prepared = body
        bodies.append(prepared)
    node.op = op.replace(then_body=bodies[0], else_body=bodies[1])
    return changed


def _constants(node: Node, ties: Sequence[BodyInput]) -> dict[int, Array]:
    """Return parameter → value of what bodies are given, or begin with, of constants.

    Without what is computed of sizes as symbols: bodies would serve one number only.
    """
    found: dict[int, Array] = {}
    for tie in ties:
        value = node.inputs[tie.input].node.constant
        if value is not None and tie.slicing is None and not _has_symbols(value):
            found[tie.parameter] = value
    return found


def _has_symbols(value: Array) -> bool:
    return value.dtype == object and any(map(is_symbolic, value.reshape(-1).tolist()))


def _passes_through(body: Network, edge: BackEdge) -> bool:
    return body.results[edge.result].inputs[0] is body.parameters[edge.parameter].output


def _with_constants(body: Network, values: dict[int, Array], evaluate: Evaluate) -> Network:
    """Return a copy of a body in which nothing reads these parameters any more."""
    trial = body.clone()
    trial.evaluate = evaluate
    for index, value in values.items():
        parameter = trial.parameters[index]
        made = constant(f"{parameter.name}/constant", value, parameter.output.element_type)
        trial.replace({parameter.output: made.output})
    trial.infer()
    constant_folding(trial, evaluate)
    return trial


def _keeps(trial: Network, edge: BackEdge, value: Array) -> bool:
    result = trial.results[edge.result].inputs[0].node.constant
    return result is not None and result.shape == value.shape and np.array_equal(result, value)
