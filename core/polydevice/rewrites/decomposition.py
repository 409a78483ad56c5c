"""Decomposition: operations become what they are made of, where a device asks for it."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.emitter import Emitter
from polydevice.errors import NetworkError
from polydevice.network import Network, namer
from polydevice.node import Node, Port
from polydevice.ops.op import Op
from polydevice.rewrites.facts import Declined
from polydevice.rewrites.rule import Rule, nearest_in, rule_of
from polydevice.rewrites.wishes import When, Wishes, always

DEPTH = 8
"""Most decompositions of decompositions: a rule that makes what it decomposes would never end."""


def decompose(network: Network, wishes: Wishes) -> int:
    """Decompose what a device wants decomposed; return how many nodes were.

    What comes out is decomposed in turn. The first output's node has the name of what it replaces.

    Raises:
        NetworkError: rules go round in circles.
    """
    work = _Work(network, wishes)
    for node in network.nodes():
        node.inputs = [work.now(port) for port in node.inputs]
        work.reduce(node, ())
    network.replace(work.replaced)
    return work.count


def decompositions(op: type[Op], wishes: Wishes) -> list[Rule]:
    """Return the rules by which a device has an operation decomposed, the device's own first."""
    found = [nearest_in(wishes.own, op)]
    if nearest_in(wishes.decompose, op) is not None:
        found.append(rule_of(op))
    return [rule for rule in found if rule is not None]


class _Work:
    """One walk over a network, producers first."""

    def __init__(self, network: Network, wishes: Wishes) -> None:
        self.wishes = wishes
        self.replaced: dict[Port, Port] = {}
        self.count = 0
        self._evaluate = network.evaluate
        self._unique = namer(network)
        self._by_class: dict[type[Op], list[tuple[Rule, When]]] = {}

    def now(self, port: Port) -> Port:
        """Return what stands for a port by now."""
        while port in self.replaced:
            port = self.replaced[port]
        return port

    def reduce(self, node: Node, path: Sequence[Op]) -> None:
        """Decompose a node, and what it is made of."""
        wanted = self._wanted(type(node.op))
        if not wanted or self.wishes.leave(node):  # few have rules, and to ask takes longer
            return
        emitter = Emitter(node.name, evaluate=self._evaluate, origins=node.layers)
        made = self._made(emitter, node, wanted)
        if made is None:
            return
        if len(path) == DEPTH:
            names = " → ".join(op.type for op in (*path, node.op))
            raise NetworkError(f"{node.title}: its decomposition does not end: {names}")
        self._check(node, made)
        emitter.name_nodes(made, self._unique, old=node)
        self.count += 1
        for inner in emitter.emitted:
            inner.inputs = [self.now(port) for port in inner.inputs]
            self.reduce(inner, (*path, node.op))
        self.replaced.update(
            (old, new) for old, new in zip(node.outputs, made, strict=True) if old is not new
        )

    def _wanted(self, cls: type[Op]) -> list[tuple[Rule, When]]:
        """Return the rules for a class of operations, and on which condition each is wanted."""
        known = self._by_class.get(cls)
        if known is not None:
            return known
        own, condition = nearest_in(self.wishes.own, cls), nearest_in(self.wishes.decompose, cls)
        common = None if condition is None else rule_of(cls)
        wanted: list[tuple[Rule, When]] = [] if own is None else [(own, always)]
        if common is not None and condition is not None:
            wanted.append((common, condition))
        self._by_class[cls] = wanted
        return wanted

    @staticmethod
    def _made(
        emitter: Emitter, node: Node, wanted: Sequence[tuple[Rule, When]]
    ) -> Sequence[Port] | None:
        """Return what takes the place of a node's outputs; None if it stays."""
        for rule, when in wanted:
            try:
                if when(node) and rule.where(node.op, node.inputs):
                    return rule.function(emitter, node.op, node.inputs)
            except Declined:
                emitter.emitted.clear()
        return None

    def _check(self, node: Node, made: Sequence[Port]) -> None:
        """Raise NetworkError unless a decomposition gives what the operation did."""
        for old, new in zip(node.outputs, made, strict=True):
            same = old.element_type is new.element_type
            if old.desc.is_static and new.desc.is_static:
                same = same and old.shape == new.shape
            if not same:
                raise NetworkError(f"{node.title}: its decomposition gives {new.desc}, not {old}")
