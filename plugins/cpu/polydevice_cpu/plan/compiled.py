"""CompiledNetwork: plans by input shapes; Execution: one request's bound plans."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.network import Network
from polydevice.shape import Shape
from polydevice_cpu.plan.bound import BoundPlan
from polydevice_cpu.plan.builder import Builder, Settings
from polydevice_cpu.plan.context import Context
from polydevice_cpu.plan.plan import Plan
from polydevice_cpu.plan.tail import make_tail
from polydevice_cpu.plan.value import Kind
from polydevice_cpu.plan.weights import WeightStore

Key = tuple[tuple[int, ...], ...]
"""Shapes of all inputs, in the network's order."""

PLAN_LIMIT = 16
"""Plans kept for a network with dynamic shapes; the one used longest ago goes first."""
BOUND_LIMIT = 4
"""Of these, how many each request keeps memory for."""


class CompiledNetwork:
    """A network ready to be planned for any input shapes it admits; shared by its requests."""

    def __init__(self, network: Network, settings: Settings, weights: WeightStore) -> None:
        self.network = network
        self.settings = settings
        self.weights = weights
        self._plans: OrderedDict[Key, Plan] = OrderedDict()
        self._lock = threading.Lock()

    def plan(self, shapes: Key) -> Plan:
        """Return the plan for these input shapes; makes it when they are new.

        Raises:
            NetworkError: when an operation does not accept the shapes.
        """
        with self._lock:
            known = self._plans.get(shapes)
            if known is not None:
                self._plans.move_to_end(shapes)
                return known
            plan = self._make(shapes)
            self._plans[shapes] = plan
            if len(self._plans) > PLAN_LIMIT:
                self._plans.popitem(last=False)
            return plan

    def _make(self, shapes: Key) -> Plan:
        network = self.network.clone()
        for parameter, shape in zip(network.parameters, shapes, strict=True):
            parameter.op = parameter.op.replace(shape=Shape(shape))
        network.infer()
        builder = Builder(
            network,
            self.settings,
            self.weights,
            lambda made, nodes: make_tail(made, nodes, CompiledNetwork),
        )
        return builder.build()

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
        """Run once on these arrays; the outputs are new arrays."""
        arrays = [np.ascontiguousarray(x).reshape(x.shape) for x in inputs]
        bound = self.bound(tuple(x.shape for x in arrays))
        for index, array in enumerate(arrays):
            bound.set_input(index, array)
        outputs: list[Array] = []
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
