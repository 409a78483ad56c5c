"""CompiledNetwork: plans by input shapes; Execution: one request's bound plans."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.memory_budget import MemoryBudget, host_memory_bytes
from polydevice.network import Network
from polydevice.passes.check_sizes import check_sizes
from polydevice.shape import Shape
from polydevice_cpu.implement import evaluate
from polydevice_cpu.passes import prepare
from polydevice_cpu.plan.bound import BoundPlan
from polydevice_cpu.plan.builder import Builder, Settings
from polydevice_cpu.plan.context import Context
from polydevice_cpu.plan.inline import inline
from polydevice_cpu.plan.plan import Plan
from polydevice_cpu.plan.tail import make_tail
from polydevice_cpu.plan.value import Kind
from polydevice_cpu.plan.weights import WeightStore
from polydevice_cpu.proof.ledger import keep_verdicts

Key = tuple["tuple[int, ...] | None", ...]
"""Shapes of all inputs, in the network's order; None for strings and containers."""

BodyStore = dict[int, "tuple[Network, CompiledNetwork]"]
"""Bodies by identity, kept alive so that identities stay unique."""

_BODIES = threading.RLock()

PLAN_LIMIT = 16
"""Plans kept for a network with dynamic shapes; the one used longest ago goes first."""
BOUND_LIMIT = 4
"""Of these, how many each request keeps memory for."""


def shapes_of(arrays: Sequence[Array]) -> Key:
    """Return the key of the plan for these inputs."""
    return tuple(None if array.dtype.hasobject else array.shape for array in arrays)


class CompiledNetwork:
    """A network ready to be planned for any input shapes it admits; shared by its requests."""

    def __init__(
        self,
        network: Network,
        settings: Settings,
        weights: WeightStore,
        memory: MemoryBudget,
        bodies: BodyStore | None = None,
    ) -> None:
        self.network = network
        self.settings = settings
        self.weights = weights
        self.memory = memory
        self.bodies: BodyStore = {} if bodies is None else bodies
        self._plans: OrderedDict[Key, Plan] = OrderedDict()
        self._lock = threading.Lock()
        self._making = threading.Lock()

    def plan(self, shapes: Key) -> Plan:
        """Return the plan for these input shapes; makes it when they are new.

        Raises:
            NetworkError: when an operation does not accept the shapes.
        """
        known = self._known(shapes)
        if known is not None:
            return known
        with self._making:  # requests for shapes that are known do not wait here
            known = self._known(shapes)
            if known is not None:
                return known
            plan = self._make(shapes)
            with self._lock:
                self._plans[shapes] = plan
                if len(self._plans) > PLAN_LIMIT:
                    self._plans.popitem(last=False)
            return plan

    def latest(self) -> Plan | None:
        """Return the plan that was made or used last, if there is one."""
        with self._lock:
            return next(reversed(self._plans.values()), None)

    def _known(self, shapes: Key) -> Plan | None:
        with self._lock:
            known = self._plans.get(shapes)
            if known is not None:
                self._plans.move_to_end(shapes)
            return known

    def _make(self, shapes: Key) -> Plan:
        network = self.network.clone()
        network.evaluate = evaluate
        for parameter, shape in zip(network.parameters, shapes, strict=True):
            if shape is not None:
                parameter.op = parameter.op.replace(shape=Shape(shape))
        network.infer()
        while inline(network, lambda body: self.body(body).network):
            network.infer()
        check_sizes(network, host_memory_bytes(), "CPU")
        builder = Builder(
            network,
            self.settings,
            self.weights,
            lambda made, nodes: make_tail(made, nodes, self._part),
        )
        plan = builder.build()
        keep_verdicts()
        needed = plan.arena_bytes + plan.scratchpad_bytes
        self.memory.check(needed, f"the plan for inputs of shapes {shapes}")
        return plan

    def _part(self, network: Network) -> CompiledNetwork:
        return CompiledNetwork(network, self.settings, self.weights, self.memory, self.bodies)

    def body(self, network: Network) -> CompiledNetwork:
        """Return the compiled form of the body of an operation; made once for all requests."""
        with _BODIES:
            known = self.bodies.get(id(network))
            if known is None:
                copy = network.clone()
                copy.evaluate = evaluate
                prepare(copy, integers=self.settings.integers)
                known = self.bodies[id(network)] = (network, self._part(copy))
            return known[1]

    def execution(self, context: Context) -> Execution:
        """Return what a request runs this network with."""
        return Execution(self, context)


class Execution:
    """The plans that one request has bound to memory of its own."""

    def __init__(self, compiled: CompiledNetwork, context: Context) -> None:
        self.compiled = compiled
        self.context = context
        self._bound: OrderedDict[Key, BoundPlan] = OrderedDict()

    def bound(self, shapes: Key) -> BoundPlan:
        """Return the bound plan for these input shapes."""
        known = self._bound.get(shapes)
        if known is None:
            known = self._bound[shapes] = BoundPlan(self.compiled.plan(shapes), self.context)
            if len(self._bound) > BOUND_LIMIT:
                self._bound.popitem(last=False)
        else:
            self._bound.move_to_end(shapes)
        return known

    def infer(self, inputs: Sequence[Array]) -> list[Array]:
        """Run once on these values; the outputs are new arrays."""
        arrays = [x if x.flags.c_contiguous else x.copy(order="C") for x in inputs]
        bound = self.bound(shapes_of(arrays))
        for index, array in enumerate(arrays):
            bound.set_input(index, array)
        outputs: list[Array] = []
        self.compiled.memory.check(bound.plan.result_bytes, "the results of a body")
        for index, value in enumerate(bound.plan.outputs):
            if value is None:
                outputs.append(np.empty(0))
                continue
            assert value.storage.kind is Kind.OUTPUT
            outputs.append(np.empty(value.shape, value.dtype))
            bound.set_output(index, outputs[index])
        bound.run()
        for index, array in bound.tail_outputs.items():
            outputs[index] = array
        return outputs
