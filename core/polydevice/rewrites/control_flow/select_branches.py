"""select_branches: both bodies of an If are computed where they are a few functions of few numbers.

Models write `a and b` so, and conditions that end a loop. What is chosen then is an element of
either, which needs no body to be started, and nothing behind it waits for one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.errors import PolydeviceError
from polydevice.network import Network
from polydevice.network.names import namer
from polydevice.node import Node, Port
from polydevice.ops import arithmetic, comparison, logical
from polydevice.ops.control_flow import BodyInput, BodyOutput, If
from polydevice.ops.convert import Convert
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.op import Op
from polydevice.ops.select import Select
from polydevice.rewrites.pattern import Replacements
from polydevice.shape import Shape

MOST_NUMBERS, MOST_NODES = 16, 8
"""Of each value in a body, and functions of both bodies together."""

CANNOT_FAIL: tuple[type[Op], ...] = (
    arithmetic.Add, arithmetic.Subtract, arithmetic.Multiply, arithmetic.Minimum,
    arithmetic.Maximum, comparison.Equal, comparison.NotEqual, comparison.Less,
    comparison.LessEqual, comparison.Greater, comparison.GreaterEqual, logical.LogicalAnd,
    logical.LogicalOr, logical.LogicalXor, logical.LogicalNot, Convert, Select,
)  # fmt: skip
"""Whatever numbers they are given, so that the body that is not chosen may be computed."""

QUOTIENTS: tuple[type[Op], ...] = (arithmetic.Divide, arithmetic.Mod, arithmetic.FloorMod)
"""The same by divisors that are known; those of integers neither 0 nor -1, by which the least
number has no quotient."""


def select_branches(network: Network) -> int:
    """Write such bodies out, the innermost ones first; return how many Ifs there were."""
    found = 0
    replacements = Replacements()
    for node in network.nodes():
        if isinstance(node.op, If):
            found += _select(network, replacements, node, node.op)
    replacements.apply(network)
    if found:
        network.infer()
    return found


def _select(network: Network, replacements: Replacements, node: Node, op: If) -> bool:
    """Choose between what both bodies compute; False where they are not such bodies."""
    condition = node.inputs[0]
    if condition.element_type is not ElementType.boolean or condition.shape != Shape():
        return False
    if not all(map(_is_small, (*node.inputs, *node.outputs))):
        return False
    bodies = [body for body in (op.then_body, op.else_body) if isinstance(body, Network)]
    if len(bodies) < 2 or not all(map(_may_be_simple, bodies)):
        return False
    bodies = list(map(_without_branches, bodies))
    counted = CANNOT_FAIL + QUOTIENTS
    count = sum(type(each.op) in counted for body in bodies for each in body.nodes())
    if count > MOST_NODES or not all(map(_is_simple, bodies)):
        return False
    try:
        sides = [
            _written_out(node, name, body, *ties)
            for name, body, ties in (
                ("then", bodies[0], (op.then_inputs, op.then_outputs)),
                ("else", bodies[1], (op.else_inputs, op.else_outputs)),
            )
        ]
    except PolydeviceError:  # the body that takes no such inputs never runs
        return False
    first, second = sides
    if any(
        first[output].shape != second[output].shape
        or first[output].element_type is not second[output].element_type
        for output in first
    ):
        return False
    for number, output in enumerate(sorted(first)):
        build = Emitter(node.name, origins=node.layers)
        chosen = build.emit(Select(), condition, first[output], second[output])
        build.name_nodes([chosen], namer(network), node if number == 0 else None)
        replacements.put(node.outputs[number], chosen)
    return True


def _written_out(
    node: Node, name: str, body: Network, inputs: Sequence[BodyInput], outputs: Sequence[BodyOutput]
) -> dict[int, Port]:
    """What a body computes of the If's inputs, by number of the output.

    Raises:
        PolydeviceError: it takes none of their sizes.
    """
    copy = body.clone()
    fed = {copy.parameters[tie.parameter].output: node.inputs[tie.input] for tie in inputs}
    for each in copy.nodes():
        if isinstance(each.op, (Parameter, Result)):
            continue
        each.name = f"{node.name}/{name}/{each.name}"
        each.inputs = [fed.get(port, port) for port in each.inputs]
        each.infer()
    made = {tie.output: copy.results[tie.result].inputs[0] for tie in outputs}
    return {output: fed.get(port, port) for output, port in made.items()}


def _may_be_simple(body: Network) -> bool:
    """Whether all in a body is functions that cannot fail, constants of few numbers, and Ifs."""
    allowed = (*CANNOT_FAIL, Constant, Parameter, Result, If)
    nodes = body.nodes()
    constants = (node.output for node in nodes if isinstance(node.op, Constant))
    return (
        not body.sinks
        and all(type(node.op) in allowed or _is_quotient(node) for node in nodes)
        and all(map(_is_small, constants))
    )


def _is_simple(body: Network) -> bool:
    """Whether the same is so without Ifs."""
    return _may_be_simple(body) and not any(isinstance(node.op, If) for node in body.nodes())


def _without_branches(body: Network) -> Network:
    """The body with the Ifs in it written out, as far as they can be."""
    if _is_simple(body):
        return body
    copy = body.clone()
    select_branches(copy)
    return copy


def _is_quotient(node: Node) -> bool:
    """Whether a node divides by numbers by which everything can be divided."""
    if type(node.op) not in QUOTIENTS:
        return False
    divisor = node.inputs[1].desc.constant
    if divisor is None or divisor.dtype.hasobject:
        return False
    return divisor.dtype.kind == "f" or (divisor.dtype.kind in "iu" and not _has_none(divisor))


def _has_none(divisor: Array) -> bool:
    """Whether some of these integers have no quotients."""
    numbers = divisor.reshape(-1).tolist()
    return 0 in numbers or -1 in numbers


def _is_small(port: Port) -> bool:
    """Whether a value has few numbers, for all inputs."""
    shape = port.shape
    if shape is None or not shape.is_static or port.desc.kind != "tensor":
        return False
    return port.element_type is not ElementType.string and math.prod(shape.static) <= MOST_NUMBERS
