"""Scope and Draft: which values a node can see, and the network that is being put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polydevice.errors import ModelFormatError, UnsupportedOperationError
from polydevice.node import Node, Port
from polydevice.ops.io import Constant, Parameter
from polydevice.tensor import TensorDesc

SHARED_CONSTANT_LIMIT = 1 << 16
"""Elements up to which a body gets its own node for an outer value that is known."""


class Draft:
    """A network under construction: names in use, parameters, and what it takes from outside."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.parameters: list[Node] = []
        self.captures: dict[Port, Port] = {}

    def unique(self, name: str) -> str:
        """Return `name`, or `name` with the first free number behind it, and take it."""
        chosen, number = name, 0
        while chosen in self.names:
            number += 1
            chosen = f"{name}_{number}"
        self.names.add(chosen)
        return chosen

    def parameter(self, name: str, desc: TensorDesc) -> Port:
        """Add an input of the network."""
        op = Parameter(desc.element_type, desc.shape, desc.kind)
        node = Node(self.unique(name), op)
        node.output.names.add(name)
        self.parameters.append(node)
        return node.output

    def capture(self, port: Port) -> Port:
        """Return the value inside this network of a port outside of it.

        Known values become constants here, so that the body's shapes can be inferred from them;
        all others become parameters.
        """
        if port not in self.captures:
            constant, value = port.node.constant, port.desc.constant
            if constant is not None:
                op = port.node.op
            elif value is not None and value.size <= SHARED_CONSTANT_LIMIT:
                op = Constant(value, port.element_type)
            else:
                inner = self.parameter(port.node.name, port.desc.without_value())
                self.captures[port] = inner
                return inner
            return Node(self.unique(port.node.name), op).output
        return self.captures[port]


class Scope:
    """The values visible to the nodes of one graph, body or function.

    Attributes:
        draft: the network that the nodes become part of.
        outer: the scope around a body; None for a model's graph and for functions.
        opsets: domain → version.
        bindings: attribute values that a function was called with.
        depth: how many bodies lie around.
        calls: how many function calls lie around.
        prefix: put before the names of nodes.
        ranks: number of dimensions that the graph declares for inner values.
    """

    def __init__(
        self,
        draft: Draft,
        opsets: Mapping[str, int],
        *,
        outer: Scope | None = None,
        bindings: Mapping[str, Any] | None = None,
        depth: int = 0,
        calls: int = 0,
        prefix: str = "",
    ) -> None:
        self.draft = draft
        self.outer = outer
        self.opsets = dict(opsets)
        self.bindings = dict(bindings or {})
        self.depth = depth
        self.calls = calls
        self.prefix = prefix
        self.ranks: dict[str, int] = {}
        self._values: dict[str, Port | None] = {}
        self._withheld: dict[str, str] = {}

    def withhold(self, name: str, reason: str) -> None:
        """Let a value have a name as long as nobody asks for it; `reason` tells who does."""
        self._withheld[name] = reason

    def define(self, name: str, port: Port | None) -> None:
        """Give a value a name; None is an optional input that was left out.

        Raises:
            ModelFormatError: when the name is taken.
        """
        if name in self._values:
            raise ModelFormatError(f"the value {name!r} is defined twice")
        self._values[name] = port

    def find(self, name: str) -> Port | None:
        """Return the port of a value, taking it over from outer scopes where needed.

        Raises:
            ModelFormatError: when no value has the name.
            UnsupportedOperationError: for a value that is not computed.
        """
        if name in self._withheld:
            raise UnsupportedOperationError(self._withheld[name])
        if name in self._values:
            return self._values[name]
        if self.outer is None:
            raise ModelFormatError(
                f"the value {name!r} is not defined by any input, initializer or earlier node"
            )
        port = self.outer.find(name)
        inner = port
        if port is not None and self.draft is not self.outer.draft:
            inner = self.draft.capture(port)
        self._values[name] = inner
        return inner

    def __contains__(self, name: str) -> bool:
        return name in self._values
