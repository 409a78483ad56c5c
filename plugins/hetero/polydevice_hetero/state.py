"""state: turn variables into inputs and outputs, so that any member may hold their readers.

A subgraph has no memory of its own in HETERO: the request keeps every variable, feeds it to the
subgraph that reads it and takes the new value from the one that assigns it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polydevice.dtype import Array
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.io import Parameter, Result
from polydevice.profiling import VariableState


@dataclass(frozen=True)
class Variable:
    """One variable of a network.

    Attributes:
        name: the variable's id.
        read: port that now brings the value in (a Parameter).
        assigned: port whose value is kept for the next inference; None when nothing assigns it.
        initial: port that computes the first value; None starts with zeros.
    """

    name: str
    read: Port
    assigned: Port | None
    initial: Port | None


def lower_state(network: Network) -> list[Variable]:
    """Replace ReadValue by Parameter and drop Assign; return what the request must carry."""
    variables: list[Variable] = []
    assigned = {
        str(getattr(node.op, "variable_id")): node.inputs[0]  # noqa: B009 - not on every Op
        for node in network.nodes()
        if node.type == "Assign"
    }
    for node in network.nodes():
        if node.type != "ReadValue":
            continue
        name = str(getattr(node.op, "variable_id"))  # noqa: B009
        port = node.output
        parameter = Node(
            f"variable/{name}", Parameter(element_type=port.element_type, shape=port.shape)
        )
        parameter.rt_info = {k: v for k, v in node.rt_info.items() if k == "affinity"}
        initial = node.inputs[0] if node.inputs else None
        variables.append(Variable(name, parameter.output, assigned.get(name), initial))
        network.parameters.append(parameter)
        network.replace(port, parameter.output)
    for node in network.nodes():
        if node.type == "Assign":
            for port in node.outputs:
                network.replace(port, node.inputs[0])
    network.sinks = [node for node in network.sinks if node.type != "Assign"]
    variables = [_after_replacement(v, variables) for v in variables]
    for variable in variables:
        for kept, what in ((variable.assigned, "next"), (variable.initial, "initial")):
            if kept is not None:
                name = f"variable/{variable.name}/{what}"
                network.results.append(Node(name, Result(output_name=name), [kept]))
    return variables


def _after_replacement(variable: Variable, variables: list[Variable]) -> Variable:
    """An Assign that stores another variable's value directly now stores its parameter."""
    if variable.assigned is None or variable.assigned.node.type != "ReadValue":
        return variable
    source = str(getattr(variable.assigned.node.op, "variable_id"))  # noqa: B009
    port = next(v.read for v in variables if v.name == source)
    return Variable(variable.name, variable.read, port, variable.initial)


class RequestVariable(VariableState):
    """A variable of one request; `value` None means that the initial value comes next."""

    def __init__(self, variable: Variable) -> None:
        """Start at the initial value."""
        self.name = variable.name
        self._variable = variable
        self.value: Array | None = None

    @property
    def state(self) -> Array:
        """The value; zeros while the initial value is still to be computed."""
        if self.value is not None:
            return self.value
        shape = self._variable.read.shape
        sizes = [size if isinstance(size, int) else 0 for size in shape or ()]
        return np.zeros(sizes, self._variable.read.element_type.dtype)

    @state.setter
    def state(self, value: Array) -> None:
        self.value = np.array(value, self._variable.read.element_type.dtype, order="C")

    def reset(self) -> None:
        """Return to the initial value with the next inference."""
        self.value = None
