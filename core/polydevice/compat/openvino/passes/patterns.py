"""Patterns of nodes, and what they ask of the outputs that they meet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from polydevice.compat.openvino.graph.node import Node
from polydevice.compat.openvino.graph.ports import ConstOutput, Output
from polydevice.compat.openvino.surface import Surface
from polydevice.compat.openvino.types.element_type import element_of

Found = dict[Any, Output]
"""Pattern, or a node of a pattern → the output that it met."""

_COMMUTATIVE = {
    "Add",
    "Equal",
    "LogicalAnd",
    "LogicalOr",
    "LogicalXor",
    "Maximum",
    "Minimum",
    "Multiply",
    "NotEqual",
}


class Predicate(Surface):
    """A question to an output; with ``&``, ``|`` and ``^`` two make one."""

    def __init__(self, predicate: Callable[[Any], bool] | None = None) -> None:
        """Ask a function; None is true of every output."""
        self._asked = predicate or (lambda _: True)

    def __call__(self, output: Any) -> bool:
        """Return the answer."""
        return bool(self._asked(output))

    def __and__(self, other: Any) -> Predicate:
        return Predicate(lambda output: self(output) and other(output))

    def __or__(self, other: Any) -> Predicate:
        return Predicate(lambda output: self(output) or other(output))

    def __xor__(self, other: Any) -> Predicate:
        return Predicate(lambda output: self(output) != other(output))


class Pattern(Surface):
    """What the root, or an input, of a matched node may be."""

    def output(self, index: int = 0) -> Pattern:
        """Return the pattern: an output is matched through its node."""
        return self

    def meet(self, output: Output, found: Found) -> bool:
        """Return whether an output fits, and note it in `found`."""
        raise NotImplementedError


class AnyInput(Pattern):
    """Fits every output of which a predicate is true."""

    def __init__(self, predicate: Callable[[Any], bool] | None = None) -> None:
        """Ask a predicate; None is true of every output."""
        self._predicate = predicate

    def meet(self, output: Output, found: Found) -> bool:
        """Return whether the predicate is true."""
        if self in found:
            return found[self] == output
        if self._predicate is not None and not self._predicate(output):
            return False
        found[self] = output
        return True


class WrapType(Pattern):
    """Fits a node of some types, whose inputs fit further patterns."""

    def __init__(self, *given: Any, **named: Any) -> None:
        """Look for types: ``WrapType(types[, inputs][, predicate])``.

        Args:
            given: "opset13.Relu", or a list of such; a pattern, node or output for the inputs, or
                a list of them; a predicate.
            named: `type_name`, `type_names`, `input`, `inputs`, `pred` or `predicate` by name.
        """
        values = [*given, *named.values()]
        kinds = [values[0]] if isinstance(values[0], str) else list(values[0])
        self._kinds = {kind.rpartition(".")[2] for kind in kinds}
        self._inputs: list[Any] = []
        self._predicate: Callable[[Any], bool] | None = None
        for value in values[1:]:
            if isinstance(value, (list, tuple)):
                self._inputs = list(value)
            elif isinstance(value, (Pattern, Node, ConstOutput)):
                self._inputs = [value]
            else:
                self._predicate = value

    def meet(self, output: Output, found: Found) -> bool:
        """Return whether type, inputs and predicate fit."""
        if self in found:
            return found[self] == output
        node = output.get_node()
        if node.get_type_name() not in self._kinds:
            return False
        if self._predicate is not None and not self._predicate(output):
            return False
        if self._inputs and not meet_inputs(self._inputs, node, found):
            return False
        found[self] = output
        return True


class Or(Pattern):
    """Fits what one of several patterns fits, the first of them."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        """Try these in turn."""
        self._patterns = list(inputs)

    def meet(self, output: Output, found: Found) -> bool:
        """Return whether one fits."""
        for pattern in self._patterns:
            trial = dict(found)
            if meet(pattern, output, trial):
                found.update(trial)
                found[self] = output
                return True
        return False


class Optional(WrapType):
    """Fits a node of some types, or what fits the pattern of its first input."""

    def meet(self, output: Output, found: Found) -> bool:
        """Return whether either fits."""
        trial = dict(found)
        if super().meet(output, trial):
            found.update(trial)
            return True
        return bool(self._inputs) and meet(self._inputs[0], output, found)


def meet(pattern: Any, output: Output, found: Found) -> bool:
    """Return whether an output fits a pattern, or a node that is given as one."""
    if isinstance(pattern, Pattern):
        return pattern.meet(output, found)
    node = pattern.get_node() if isinstance(pattern, ConstOutput) else pattern
    if node in found:
        return found[node] == output
    own = output.get_node()
    if own.get_type_name() != node.get_type_name():
        return False
    if not meet_inputs([value.get_source_output() for value in node.inputs()], own, found):
        return False
    found[node] = output
    return True


def meet_inputs(patterns: Sequence[Any], node: Node, found: Found) -> bool:
    """Return whether the inputs of a node fit patterns, in either order where that is the same."""
    sources = [value.get_source_output() for value in node.inputs()]
    if len(sources) != len(patterns):
        return False
    orders = [sources]
    if len(sources) == 2 and node.get_type_name() in _COMMUTATIVE:
        orders.append(sources[::-1])
    for order in orders:
        trial = dict(found)
        if all(meet(p, source, trial) for p, source in zip(patterns, order, strict=True)):
            found.update(trial)
            return True
    return False


# -- predicates -----------------------------------------------------------------------------------


def consumers_count(n: int) -> Predicate:
    """Ask whether so many inputs read an output."""
    return Predicate(lambda output: len(output.get_target_inputs()) == n)


def has_static_dim(pos: int) -> Predicate:
    """Ask whether the size of an axis is known."""
    return has_static_dims([pos])


def has_static_dims(dims: Sequence[int]) -> Predicate:
    """Ask whether the sizes of axes are known."""

    def ask(output: Output) -> bool:
        shape = output._port.shape
        return shape is not None and all(
            axis < len(shape) and isinstance(shape[axis], int) for axis in dims
        )

    return Predicate(ask)


def has_static_shape() -> Predicate:
    """Ask whether all sizes are known."""
    return Predicate(lambda o: o._port.shape is not None and o._port.shape.is_static)


def has_static_rank() -> Predicate:
    """Ask whether the number of axes is known."""
    return Predicate(lambda output: output._port.shape is not None)


def rank_equals(expected_rank: Any) -> Predicate:
    """Ask whether there are so many axes."""
    wanted = getattr(expected_rank, "_size", expected_rank)
    return Predicate(lambda o: o._port.shape is not None and len(o._port.shape) == wanted)


def type_matches(type: Any) -> Predicate:  # noqa: A002 - its name
    """Ask whether elements are of a type."""
    return type_matches_any([type])


def type_matches_any(types: Sequence[Any]) -> Predicate:
    """Ask whether elements are of one of some types."""
    wanted = [element_of(each) for each in types]
    return Predicate(lambda output: output._port.element_type in wanted)


def attrs_match(attrs: dict[str, Any]) -> Predicate:
    """Ask whether attributes of the node have these values."""

    def ask(output: Output) -> bool:
        own = output.get_node().get_attributes()
        return all(name in own and own[name] == value for name, value in attrs.items())

    return Predicate(ask)
