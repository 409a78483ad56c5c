"""Graph: nodes that results and sinks reach; walking, replacing and extracting them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from typing_extensions import Self

from polydevice.arguments import text
from polydevice.errors import NetworkError, nearest
from polydevice.node import Evaluate, Node, Port
from polydevice.ops.io import Constant, Parameter, Result


class Graph:
    """Operations from parameters to results and sinks.

    Nodes are those from which a result or a sink can be reached; there is no other list, so a
    pass that disconnects a node has removed it.
    """

    def __init__(
        self,
        name: str,
        parameters: Iterable[Node],
        results: Iterable[Node],
        sinks: Iterable[Node] = (),
        *,
        evaluate: Evaluate | None = None,
        rt_info: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.parameters = list(parameters)
        self.results = list(results)
        self.sinks = list(sinks)
        self.evaluate = evaluate
        self.rt_info: dict[str, Any] = dict(rt_info or {})

    def nodes(self) -> list[Node]:
        """Return every node, producers before consumers; raises NetworkError on a cycle.

        Parameters come first, in order, also those that nothing uses.
        """
        order: list[Node] = []
        done: set[Node] = set()
        open_: set[Node] = set()
        for root in [*self.parameters, *self.results, *self.sinks]:
            stack = [] if root in done else [(root, iter(root.inputs))]
            open_.add(root)
            while stack:
                node, inputs = stack[-1]
                for port in inputs:
                    producer = port.node
                    if producer in done:
                        continue
                    if producer in open_:
                        raise NetworkError(f"the network has a cycle through {producer.title}")
                    if producer.inputs:
                        open_.add(producer)
                        stack.append((producer, iter(producer.inputs)))
                        break
                    done.add(producer)  # as every second node, a constant: nothing stands before it
                    order.append(producer)
                else:
                    stack.pop()
                    open_.discard(node)
                    done.add(node)
                    order.append(node)
        return order

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes())

    def node(self, name: str) -> Node:
        """Return the node of that name; raises NetworkError naming close ones."""
        text(name, "the name of a node", NetworkError)
        nodes = self.nodes()
        for node in nodes:
            if node.name == name:
                return node
        raise NetworkError(
            f"network {self.name!r} has no node {name!r}." + nearest(name, [n.name for n in nodes])
        )

    def consumers(self) -> dict[Port, list[tuple[Node, int]]]:
        """Map every port to the (node, input index) pairs that read it."""
        users: dict[Port, list[tuple[Node, int]]] = {}
        for node in self.nodes():
            for port in node.outputs:
                users.setdefault(port, [])
            for index, port in enumerate(node.inputs):
                users.setdefault(port, []).append((node, index))
        return users

    def replace(self, ports: Mapping[Port, Port]) -> None:
        """Make every reader of a key read its value instead, in one walk however many there are.

        Values may be keys too. A node that is new in the network keeps reading the port that it
        helps to replace, as what is put behind a port does.
        """
        if not ports:
            return
        before = set(self.nodes())
        kept: dict[Node, set[Port]] = {}
        for old, new in ports.items():
            new.names |= old.names
            for node in _made_for(new, before):
                kept.setdefault(node, set()).add(old)
        for node in [*before, *kept]:
            own = kept.get(node, ())
            node.inputs = [port if port in own else _latest(port, ports) for port in node.inputs]

    def extract(
        self,
        nodes: Iterable[Node],
        inputs: Mapping[Port, str],
        outputs: Mapping[Port, str],
        *,
        name: str,
    ) -> Self:
        """Return a network of copies of some nodes; this one stays as it is.

        Args:
            nodes: producers before consumers. Values that they read and that are known become
                constants, where they are no inputs.
            inputs: ports that they read of others → name of the parameter.
            outputs: ports → name of the result.
            name: of the new network.

        Raises:
            NetworkError: a node reads a port that is neither of these nodes nor in `inputs`.
        """
        copies: dict[Port, Port] = {}
        parameters = []
        for port, given in inputs.items():
            op = Parameter(port.element_type, port.shape, port.desc.kind)
            parameters.append(Node(given, op))
            copies[port] = parameters[-1].output

        def inner(port: Port) -> Port:
            if port not in copies:
                known = port.desc.constant
                if known is None:  # texts are no values that anything follows from
                    known = port.node.constant
                if known is None:
                    raise NetworkError(f"{port.name!r} is read, but not among the inputs of {name}")
                copies[port] = Node(port.name, Constant(known, port.element_type)).output
            return copies[port]

        sinks = []
        for node in nodes:
            made = node.copy(inner(port) for port in node.inputs)
            copies.update(zip(node.outputs, made.outputs, strict=True))
            if node.op.has_side_effect:
                sinks.append(made)
        results = [
            Node(given, Result(output_name=given), [inner(port)]) for port, given in outputs.items()
        ]
        return type(self)(name, parameters, results, sinks, evaluate=self.evaluate)

    def state_variables(self) -> list[str]:
        """Names of the variables kept between inferences (ReadValue, Assign)."""
        names = [getattr(node.op, "variable_id", None) for node in self.nodes()]
        return sorted({name for name in names if isinstance(name, str)})

    def take_apart(self) -> None:
        """Part all nodes, once nobody uses them any more.

        They refer to each other, so that Python keeps them, and their constants, until its next
        full collection, which may never come where a program does nothing but infer.
        """
        for node in self.nodes():
            node.inputs.clear()
            node.outputs.clear()

    @property
    def constant_bytes(self) -> int:
        """How much memory the values of its constants take."""
        found = (node.constant for node in self)
        return sum(value.nbytes for value in found if value is not None)

    def clone(self) -> Self:
        """Copy the graph; operations and constant data are shared, since they never change."""
        copies: dict[Port, Port] = {}
        nodes: dict[Node, Node] = {}
        for node in self.nodes():
            made = node.copy(copies[port] for port in node.inputs)
            copies.update(zip(node.outputs, made.outputs, strict=True))
            nodes[node] = made
        return type(self)(
            self.name,
            [nodes[n] for n in self.parameters],
            [nodes[n] for n in self.results],
            [nodes[n] for n in self.sinks],
            evaluate=self.evaluate,
            rt_info=self.rt_info,
        )


def _made_for(port: Port, before: AbstractSet[Node]) -> Iterator[Node]:
    """Yield the nodes behind a port that were not in the network before."""
    seen: set[Node] = set()
    stack = [port.node]
    while stack:
        node = stack.pop()
        if node in seen or node in before:
            continue
        seen.add(node)
        yield node
        stack += [source.node for source in node.inputs]


def _latest(port: Port, ports: Mapping[Port, Port]) -> Port:
    """Return what stands for a port in the end."""
    while port in ports and ports[port] is not port:
        port = ports[port]
    return port
