"""What `Model` makes of nodes."""

from __future__ import annotations

from typing import Any

from polydevice.compat.openvino.graph.node import Node, port_of
from polydevice.compat.openvino.graph.ports import ConstOutput, Output
from polydevice.compat.openvino.graph.terminals import Result
from polydevice.compat.openvino.models.model_nodes import port_node
from polydevice.compat.openvino.process import evaluate, new_name
from polydevice.network import Network, unique_name
from polydevice.ops import io


def arguments(args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, Any, Any, str]:
    """Return results, nodes with side effects, parameters and name, of what `Model` was given."""
    name = kwargs.pop("name", "")
    if args and isinstance(args[-1], str):
        name = args.pop()
    results = kwargs.pop("result", kwargs.pop("results", None))
    sinks, parameters = kwargs.pop("sinks", ()), kwargs.pop("parameters", None)
    kwargs.pop("variables", None)
    if kwargs:
        raise TypeError(f"Model() takes no {', '.join(kwargs)}")
    if args and results is None:
        results = args.pop(0)
    lists = [list(given) for given in args]
    if parameters is None and lists:
        at = next((i for i, each in enumerate(lists) if _are_parameters(each)), len(lists) - 1)
        parameters = lists[at]
        sinks = lists[0] if at > 0 else sinks
    if results is None or parameters is None:
        raise TypeError("Model() takes results, parameters and a name")
    return results, sinks, parameters, name


def _are_parameters(nodes: list[Any]) -> bool:
    known = [isinstance(node, Node) and isinstance(node._node.op, io.Parameter) for node in nodes]
    return bool(known) and all(known)


def network(results: Any, sinks: Any, parameters: Any, name: str) -> Network:
    """Return the network between parameters and results.

    Raises:
        RuntimeError: nodes read an input that is not among the parameters.
    """
    made = []
    for value in [results] if isinstance(results, (Node, ConstOutput)) else results:
        if isinstance(value, Node) and isinstance(value._node.op, io.Result):
            made.append(value._node)
            continue
        ports = value._node.outputs if isinstance(value, Node) else [port_of(value)]
        made += [Result(Output(port))._node for port in ports]
    given = [node._node for node in parameters]
    network = Network(
        name or new_name("Model"), given, made, map(port_node, sinks), evaluate=evaluate
    )
    nodes = network.nodes()
    missing = [n for n in nodes if isinstance(n.op, io.Parameter) and n not in given]
    if missing:
        raise RuntimeError(
            f"Model references undeclared parameters: {', '.join(node.name for node in missing)}"
        )
    taken: set[str] = set()
    for node in nodes:
        if node.name in taken:
            node.name = unique_name(network, node.name)
        taken.add(node.name)
    return network
