"""Activations that a model spells out in elementary steps: Swish, HSwish, HSigmoid, Gelu, Mish."""

from __future__ import annotations

import math

from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops import activation
from polydevice.ops.arithmetic import Add, Divide, Multiply, Power
from polydevice.ops.math import Erf, Tanh
from polydevice.ops.op import Op
from polydevice.rewrites.pattern import (
    Product,
    Replacements,
    Users,
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
        found = None if wishes.leave(node) else _find(product(node, users), users)
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


def _find(given: Product, users: Users) -> tuple[Op, Port] | None:
    if given.of(1 / 6, 1):
        x = _clamped(given.ports[0])
        return None if x is None else (activation.HSigmoid(), x)
    if len(given.ports) != 2:
        return None
    for x, gate in (given.ports, given.ports[::-1]):
        op = _gated(given.factor, x, gate, users)
        if op is not None:
            return op, x
    return None


def _gated(factor: float, x: Port, gate: Port, users: Users) -> Op | None:
    """The activation that is factor * x * gate(x)."""
    if math.isclose(factor, 1 / 6, rel_tol=1e-4):
        return activation.HSwish() if _clamped(gate) is x else None
    if math.isclose(factor, 0.5, rel_tol=1e-4):
        if _erf_gate(gate) is x:
            return activation.Gelu()
        return activation.Gelu(_TANH) if _is_tanh_gate(gate, x, users) else None
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


_TANH = activation.GeluApproximation.TANH
_CUBIC = 0.044715


def _is_tanh_gate(port: Port, x: Port, users: Users) -> bool:
    """Whether it is 1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)), or with x before the sum."""
    addition = made_by(port, Add)
    inner = None if addition is None else other_input(addition, 1.0)
    tanh = None if inner is None else made_by(inner, Tanh)
    scaled = None if tanh is None else made_by(tanh.inputs[0], Multiply, Divide)
    if scaled is None:
        return False
    given = product(scaled, users)
    if given.of(math.sqrt(2 / math.pi), 1):
        total = made_by(given.ports[0], Add)
        if total is None or x not in total.inputs:
            return False
        cubic = total.inputs[1 if total.inputs[0] is x else 0]
        return _is_power(cubic, x, 3, users)
    if given.of(math.sqrt(2 / math.pi), 2) and x in given.ports:
        total = made_by(given.ports[1 if given.ports[0] is x else 0], Add)
        square = None if total is None else other_input(total, 1.0)
        return square is not None and _is_power(square, x, 2, users)
    return False


def _is_power(port: Port, x: Port, exponent: int, users: Users) -> bool:
    """Whether it is 0.044715 times a power of x, which may be written as products."""
    node = made_by(port, Multiply, Divide)
    if node is None:
        return False
    given = product(node, users)
    found = 0.0
    for factor in given.ports:
        power = made_by(factor, Power)
        if (factor if power is None else power.inputs[0]) is not x:
            return False
        found += 1.0 if power is None else scalar(power.inputs[1]) or math.nan
    return found == exponent and math.isclose(given.factor, _CUBIC, rel_tol=1e-4)


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
