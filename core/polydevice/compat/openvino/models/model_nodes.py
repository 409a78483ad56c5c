"""ModelNodes: the names and nodes of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.graph.node import Node, wrapped
from polydevice.compat.openvino.graph.ports import ConstOutput
from polydevice.compat.openvino.surface import Surface
from polydevice.network import Network
from polydevice.node import Node as CoreNode


class ModelNodes(Surface):
    """What a model consists of."""

    __slots__ = ("__weakref__", "_network")
    _network: Network

    # -- names --------------------------------------------------------------------------------

    def get_name(self) -> str:
        """Return the name."""
        return self._network.name

    @property
    def name(self) -> str:
        """The name."""
        return self._network.name

    def get_friendly_name(self) -> str:
        """Return the name."""
        return self._network.name

    @property
    def friendly_name(self) -> str:
        """The name."""
        return self._network.name

    @friendly_name.setter
    def friendly_name(self, name: str) -> None:
        self._network.name = name

    def set_friendly_name(self, name: str) -> None:
        """Give another name."""
        self._network.name = name

    # -- nodes --------------------------------------------------------------------------------

    def _wrapped(self, nodes: Sequence[CoreNode]) -> list[Any]:
        return [wrapped(node, self._network) for node in nodes]

    @translated
    def get_ops(self) -> list[Node]:
        """Return all nodes."""
        return self._wrapped(self._network.nodes())

    def get_ordered_ops(self) -> list[Node]:
        """Return all nodes, producers before consumers."""
        return self.get_ops()

    def get_parameters(self) -> list[Any]:
        """Return the nodes that are inputs."""
        return self._wrapped(self._network.parameters)

    @property
    def parameters(self) -> list[Any]:
        """The nodes that are inputs."""
        return self.get_parameters()

    def get_results(self) -> list[Any]:
        """Return the nodes that are outputs."""
        return self._wrapped(self._network.results)

    @property
    def results(self) -> list[Any]:
        """The nodes that are outputs."""
        return self.get_results()

    def get_result(self) -> Any:
        """Return the only node that is an output; raises RuntimeError unless there is one."""
        results = self.get_results()
        if len(results) != 1:
            raise RuntimeError(f"the model has {len(results)} results; use get_results()")
        return results[0]

    @property
    def result(self) -> Any:
        """The only node that is an output; raises RuntimeError unless there is one."""
        return self.get_result()

    def get_sinks(self) -> list[Any]:
        """Return the nodes with side effects."""
        return self._wrapped(self._network.sinks)

    @property
    def sinks(self) -> list[Any]:
        """The nodes with side effects."""
        return self.get_sinks()

    def get_output_op(self, index: int) -> Any:
        """Return the node that is the output of that number."""
        return self.get_results()[index]

    def get_output_size(self) -> int:
        """Return the number of outputs."""
        return len(self._network.results)

    def get_parameter_index(self, parameter: Node) -> int:
        """Return which input a node is; -1 for none."""
        return place_of(self._network.parameters, parameter)

    def get_result_index(self, value: Any) -> int:
        """Return which output a node, or an output, is; -1 for none."""
        if isinstance(value, ConstOutput):
            ports = [result.inputs[0] for result in self._network.results]
            own = [result.outputs[0] for result in self._network.results]
            for listed in (ports, own):
                if value._port in listed:
                    return listed.index(value._port)
            return -1
        return place_of(self._network.results, value)

    def get_sink_index(self, sink: Any) -> int:
        """Return which of the nodes with side effects a node is; -1 for none."""
        node = sink.get_node() if isinstance(sink, ConstOutput) else sink
        return place_of(self._network.sinks, node)


def port_node(value: Any) -> CoreNode:
    """Return the core node of a node or an output."""
    return value._port.node if isinstance(value, ConstOutput) else value._node


def place_of(nodes: list[CoreNode], node: Node) -> int:
    """Return the number of a node among others; -1 for none."""
    return next((i for i, each in enumerate(nodes) if each is node._node), -1)


def remove(nodes: list[CoreNode], node: Node) -> None:
    """Take a node out of a list; raises RuntimeError when it is not in it."""
    place = place_of(nodes, node)
    if place < 0:
        raise RuntimeError(f"{node!r} is none of this model's")
    del nodes[place]
