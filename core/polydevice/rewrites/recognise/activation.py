"""Activations that a model spells out in elementary steps: Swish, HSwish, HSigmoid, Gelu, Mish."""

from __future__ import annotations

import math

from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops import activation
from polydevice.ops.arithmetic import Add, Divide, Multiply
from polydevice.ops.math import Erf, Tanh
from polydevice.ops.op import Op
from polydevice.rewrites.pattern import (
    Product,
    Replacements,
    is_scalar,
    made_by,
    other_input,
    product,
    scalar,
)
from polydevice.rewrites.wishes import Wishes


def recognise_activations(network: Network, wishes: Wishes) -> int:
    """Put activations that a device wants in the place of their steps; return how many."""
    if not any(issubclass(op, RECOGNISED) for op in wishes.recognise):
        return 0
    users = network.consumers()
    replacements = Replacements()
    for node in reversed(network.nodes()):
        if not isinstance(node.op, (Multiply, Divide)) or not node.output.element_type.is_float:
            continue
        found = None if wishes.leave(node) else _find(product(node, users))
        if found is None or found[1].shape != node.output.shape:
            continue
        when = wishes.recognise.get(type(found[0]))
        if when is not None and when(node):
            replacements.put_node(node, found[0], [found[1]])
    return replacements.apply(network)


RECOGNISED = (
    *(activation.Swish, activation.HSwish, activation.HSigmoid),
    *(activation.Gelu, activation.Mish),
)
"""The activations that are known by their steps."""


def _find(given: Product) -> tuple[Op, Port] | None:
    if given.of(1 / 6, 1):
        x = _clamped(given.ports[0])
        return None if x is None else (activation.HSigmoid(), x)
    if len(given.ports) != 2:
        return None
    for x, gate in (given.ports, given.ports[::-1]):
        op = _gated(given.factor, x, gate)
        if op is not None:
            return op, x
    return None


def _gated(factor: float, x: Port, gate: Port) -> Op | None:
    """The activation that is factor * x * gate(x)."""
    if math.isclose(factor, 1 / 6, rel_tol=1e-4):
        return activation.HSwish() if _clamped(gate) is x else None
    if math.isclose(factor, 0.5, rel_tol=1e-4):
        return activation.Gelu() if _erf_gate(gate) is x else None
    if not math.isclose(factor, 1.0, rel_tol=1e-6) or x not in gate.node.inputs:
        if math.isclose(factor, 1.0, rel_tol=1e-6) and _softplus_gate(gate) is x:
            return activation.Mish()
        return None
    match gate.node.op:
        case activation.Sigmoid():
            return activation.Swish()
        case activation.HSigmoid():
            return activation.HSwish()
        case activation.HardSigmoid():
            _, alpha, beta = gate.node.inputs
            same = is_scalar(alpha, 1 / 6) and is_scalar(beta, 0.5)
            return activation.HSwish() if same else None
    return None


def _clamped(port: Port) -> Port | None:
    """The x of min(max(x + 3, 0), 6)."""
    clamp = made_by(port, activation.Clamp)
    if clamp is None or (clamp.op.min, clamp.op.max) != (0.0, 6.0):  # type: ignore[attr-defined]
        return None
    addition = made_by(clamp.inputs[0], Add)
    return None if addition is None else other_input(addition, 3.0)


def _erf_gate(port: Port) -> Port | None:
    """The x of 1 + erf(x / sqrt(2))."""
    addition = made_by(port, Add)
    inner = None if addition is None else other_input(addition, 1.0)
    erf = None if inner is None else made_by(inner, Erf)
    if erf is None:
        return None
    scaled = erf.inputs[0].node
    return _times(scaled, 1 / math.sqrt(2))


def _times(node: Node, factor: float) -> Port | None:
    """The x of x * factor, which may be written as a division."""
    if isinstance(node.op, Divide):
        divisor = scalar(node.inputs[1])
        same = bool(divisor) and math.isclose(1 / (divisor or 1), factor, rel_tol=1e-4)
        return node.inputs[0] if same else None
    return other_input(node, factor) if isinstance(node.op, Multiply) else None


def _softplus_gate(port: Port) -> Port | None:
    """The x of tanh(log(1 + exp(x)))."""
    tanh = made_by(port, Tanh)
    softplus = None if tanh is None else made_by(tanh.inputs[0], activation.SoftPlus)
    return None if softplus is None else softplus.inputs[0]
