"""Pattern: what rewrites that look for patterns ask about ports, and products taken apart."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.arithmetic import Divide, Multiply
from polydevice.ops.op import Op

O = TypeVar("O", bound=Op)  # noqa: E741 - an operation

Users = dict[Port, list[tuple[Node, int]]]


def scalar(port: Port) -> float | None:
    """The value of a constant of one element."""
    value = port.node.constant
    return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None


def is_scalar(port: Port, wanted: float) -> bool:
    """Whether the port is a constant of one element near `wanted` (as rounded in a model file)."""
    value = scalar(port)
    return value is not None and math.isclose(value, wanted, rel_tol=1e-4, abs_tol=1e-7)


def made_by(port: Port, *ops: type[Op]) -> Node | None:
    """The node behind a port, if it is of one of these operations."""
    return port.node if isinstance(port.node.op, ops) else None


def other_input(node: Node, wanted: float) -> Port | None:
    """The input of a commutative node whose other input is the scalar `wanted`."""
    a, b = node.inputs
    if is_scalar(b, wanted):
        return a
    return b if is_scalar(a, wanted) else None


@dataclass(frozen=True)
class Product:
    """A product: constant factor times ports."""

    factor: float
    ports: tuple[Port, ...]

    def of(self, factor: float, count: int) -> bool:
        """Whether it has this constant factor and number of ports."""
        return len(self.ports) == count and math.isclose(self.factor, factor, rel_tol=1e-4)


def product(node: Node, users: Users) -> Product:
    """Take a tree of multiplications and divisions by constants apart.

    Inner products that something else reads too stay whole.
    """
    factor, ports = 1.0, []
    stack = [(node, True)]
    while stack:
        current, is_root = stack.pop()
        left, right = current.inputs
        if not is_root and len(users[current.output]) > 1:
            ports.append(current.output)
            continue
        if isinstance(current.op, Divide):
            divisor = scalar(right)
            if not divisor:
                ports.append(current.output)
                continue
            factor /= divisor
            sides = [left]
        else:
            sides = [left, right]
        for side in sides:
            constant = scalar(side)
            if constant is not None:
                factor *= constant
            elif isinstance(side.node.op, (Multiply, Divide)):
                stack.append((side.node, False))
            else:
                ports.append(side)
    return Product(factor, tuple(ports))


class Replacements:
    """Ports that others take the place of, put into a network in one walk at the end."""

    def __init__(self) -> None:
        """Start with none."""
        self._new: dict[Port, Port] = {}

    def now(self, port: Port) -> Port:
        """What stands for a port by now."""
        while port in self._new:
            port = self._new[port]
        return port

    def put(self, old: Port, new: Port) -> None:
        """Let `new` take the place of `old`."""
        self._new[old] = new

    def put_node(self, old: Node, op: Op, inputs: list[Port]) -> Port:
        """Let a new node of this operation take the place of `old`, under the same name."""
        steps = _between(old, inputs)
        build = Emitter(old.name, origins=dict.fromkeys(n for step in steps for n in step.layers))
        made = build.emit(op, *inputs)
        made.node.rt_info = dict(old.rt_info)
        self.put(old.output, made)
        return made

    def apply(self, network: Network) -> int:
        """Make every node read what stands for its inputs by now; return how many ports went."""
        network.replace(self._new)
        return len(self._new)


def _between(last: Node, inputs: list[Port]) -> list[Node]:
    """Return the nodes that compute the last one from inputs, itself first, without constants."""
    found, stack = [last], list(last.inputs)
    while stack:
        port = stack.pop()
        if port in inputs or port.node in found or port.node.constant is not None:
            continue
        found.append(port.node)
        stack += port.node.inputs
    return found


def per_channel(port: Port, axis: int, rank: int) -> Array | None:
    """A constant as one number per index of `axis`; None if it varies along other axes."""
    value = port.node.constant
    if value is None or value.dtype != np.float32 or value.ndim > rank:
        return None
    shape = (1,) * (rank - value.ndim) + value.shape
    if any(n != 1 for d, n in enumerate(shape) if d != axis):
        return None
    return value.reshape(-1)
