"""lower_state: turn variables (ReadValue, Assign) into inputs and outputs of the network.

For devices whose requests keep the variables themselves, feed them to what reads them and take the
new values from what assigns them.
"""

from __future__ import annotations

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.errors import NetworkError
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.io import Parameter, Result
from polydevice.ops.state import Assign, ReadValue


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

    @property
    def input(self) -> str:
        """Name of the network's input that brings the value in."""
        return f"variable/{self.name}"

    @property
    def output(self) -> str:
        """Name of the network's output that takes the next value out, if anything assigns it."""
        return f"variable/{self.name}/next"

    @property
    def start(self) -> str:
        """Name of the network's output that takes the first value out, if it is computed."""
        return f"variable/{self.name}/initial"


def lower_state(network: Network) -> list[Variable]:
    """Replace ReadValue by Parameter and drop Assign; return what the request must carry."""
    nodes = [node for node in network.nodes() if isinstance(node.op, (ReadValue, Assign))]
    if not nodes:
        return []
    variables: list[Variable] = []
    assigned = {
        node.op.variable_id: node.inputs[0] for node in nodes if isinstance(node.op, Assign)
    }
    for node in nodes:
        if not isinstance(node.op, ReadValue):
            continue
        name = node.op.variable_id
        port = node.output
        parameter = Node(
            f"variable/{name}", Parameter(element_type=port.element_type, shape=port.shape)
        )
        parameter.rt_info = {k: v for k, v in node.rt_info.items() if k == "affinity"}
        initial = node.inputs[0] if node.inputs else None
        variables.append(Variable(name, parameter.output, assigned.get(name), initial))
        network.parameters.append(parameter)
        network.replace({port: parameter.output})
    for node in network.nodes():
        if isinstance(node.op, Assign):
            for port in node.outputs:
                network.replace({port: node.inputs[0]})
    network.sinks = [node for node in network.sinks if not isinstance(node.op, Assign)]
    variables = [_after_replacement(v, variables) for v in variables]
    for variable in variables:
        if variable.assigned is not None:
            network.results.append(_result(variable.output, variable.assigned))
        if variable.initial is not None:
            network.results.append(_result(variable.start, variable.initial))
    return variables


def _result(name: str, port: Port) -> Node:
    return Node(name, Result(output_name=name), [port])


def start_variable(network: Network, variable: Variable) -> None:
    """Let a variable of a lowered network begin: its input becomes its initial value, or zeros.

    Raises:
        NetworkError: it has no initial value, and a shape that is not static.
    """
    if variable.initial is not None:
        initial = variable.initial
    else:
        kind = variable.read.element_type
        initial = constant(f"{variable.input}/zeros", zeros(variable), kind).output
    network.parameters.remove(variable.read.node)
    network.replace({variable.read: initial})
    _drop_start(network, variable)


def zeros(variable: Variable) -> Array:
    """Return the first value of a variable without an initial value.

    Raises:
        NetworkError: its shape is not static.
    """
    shape = variable.read.shape
    if shape is None or not shape.is_static:
        raise NetworkError(
            f"variable {variable.name!r} of shape {shape} has no initial value; assign one "
            "through InferRequest.query_state() before the first inference"
        )
    return np.zeros(shape.static, variable.read.element_type.dtype)


def keep_variable(network: Network, variable: Variable) -> None:
    """Let a variable of a lowered network go on: its first value need not be computed."""
    _drop_start(network, variable)


def _drop_start(network: Network, variable: Variable) -> None:
    network.results = [node for node in network.results if node.name != variable.start]


def _after_replacement(variable: Variable, variables: list[Variable]) -> Variable:
    """An Assign that stores another variable's value directly now stores its parameter."""
    if variable.assigned is None or not isinstance(variable.assigned.node.op, ReadValue):
        return variable
    source = variable.assigned.node.op.variable_id
    port = next(v.read for v in variables if v.name == source)
    return Variable(variable.name, variable.read, port, variable.initial)
