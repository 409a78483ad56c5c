"""Passes: what is done to a model, as a whole or wherever a pattern matches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polydevice.compat.openvino.graph.node import Node
from polydevice.compat.openvino.graph.ports import Output
from polydevice.compat.openvino.models.model import Model
from polydevice.compat.openvino.passes.patterns import Found, meet
from polydevice.compat.openvino.surface import Surface


class PassBase(Surface):
    """Something that is done to a model."""

    _name = ""

    def get_name(self) -> str:
        """Return the name: that of the class, unless another was set."""
        return self._name or type(self).__name__

    def set_name(self, name: str) -> None:
        """Give it a name."""
        self._name = name


class ModelPass(PassBase):
    """Something that is done to a model; a subclass has `run_on_model`."""

    def run_on_model(self, model: Model) -> bool:
        """Change a model; returns whether anything was changed."""
        raise NotImplementedError(f"{type(self).__name__} does not define run_on_model()")


class Matcher(Surface):
    """Compares nodes with a pattern."""

    def __init__(self, node: Any, name: str) -> None:
        """Look for a pattern: one of this module's, or a node or output as one."""
        self._pattern, self._name = node, name
        self._root: Output | None = None
        self._found: Found = {}

    def get_name(self) -> str:
        """Return the name."""
        return self._name

    def match(self, arg0: Any) -> bool:
        """Return whether a node, or an output, fits the pattern."""
        outputs = arg0.outputs() if isinstance(arg0, Node) else [arg0]
        for output in outputs:
            found: Found = {}
            if meet(self._pattern, output, found):
                self._root, self._found = output, found
                return True
        return False

    def _matched(self) -> Output:
        if self._root is None:
            raise RuntimeError(f"nothing has matched the pattern {self._name!r} yet")
        return self._root

    def get_match_root(self) -> Node:
        """Return the node that fits the whole pattern; raises RuntimeError before one does."""
        return self._matched().get_node()

    def get_match_value(self) -> Output:
        """Return the output that fits the whole pattern; raises RuntimeError before one does."""
        return self._matched()

    def get_match_nodes(self) -> list[Node]:
        """Return all nodes that fit a part of the pattern."""
        return [output.get_node() for output in self._found.values()]

    def get_match_values(self) -> list[Output]:
        """Return all outputs that fit a part of the pattern."""
        return list(self._found.values())

    def get_pattern_value_map(self) -> Found:
        """Return part of the pattern → output that fits it."""
        return dict(self._found)


class MatcherPass(PassBase):
    """Calls a function for every node that fits a pattern."""

    def __init__(
        self, matcher: Matcher | None = None, callback: Callable[[Matcher], bool] | None = None
    ) -> None:
        """Begin with a matcher and a function, or none: see `register_matcher`."""
        self._matcher, self._callback = matcher, callback
        self._new: list[Node] = []

    def register_matcher(self, arg0: Matcher, arg1: Callable[[Matcher], bool]) -> None:
        """Call a function, which returns whether it changed anything, where a matcher fits."""
        self._matcher, self._callback = arg0, arg1

    def register_new_node(self, arg0: Node) -> Node:
        """Look at a node that the function has made too."""
        self._new.append(arg0)
        return arg0

    def apply(self, arg0: Node) -> bool:
        """Call the function if a node fits; returns whether it changed anything."""
        if self._matcher is None or self._callback is None:
            raise RuntimeError(f"{self.get_name()} has no matcher; call register_matcher() first")
        return bool(self._matcher.match(arg0) and self._callback(self._matcher))


class GraphRewrite(ModelPass):
    """Applies passes to every node in turn, producers first."""

    def __init__(self) -> None:
        """Begin with none."""
        self._passes: list[MatcherPass] = []

    def add_matcher(self, transformation: MatcherPass) -> MatcherPass:
        """Add a pass."""
        self._passes.append(transformation)
        return transformation

    def _ordered(self, model: Model) -> list[Node]:
        return model.get_ordered_ops()

    def run_on_model(self, model: Model) -> bool:
        """Apply the passes; returns whether one changed anything."""
        changed = False
        waiting = self._ordered(model)[::-1]
        while waiting:
            node = waiting.pop()
            for each in self._passes:
                done = each.apply(node)
                waiting += each._new
                each._new.clear()
                if done:
                    changed = True
                    break
        return changed


class BackwardGraphRewrite(GraphRewrite):
    """Applies passes to every node in turn, consumers first."""

    def _ordered(self, model: Model) -> list[Node]:
        return model.get_ordered_ops()[::-1]
