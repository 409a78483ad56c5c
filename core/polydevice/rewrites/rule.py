"""decomposes: registers what an operation is made of, where simpler operations say the same.

One rule serves every device that asks for it; which do, and when, is theirs to say (`Wishes`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from polydevice.dataclass import dataclass
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.op import Op
from polydevice.stems import import_stems, stem_of, stems_in

T = TypeVar("T")

Decomposition = Callable[[Emitter, Any, Sequence[Port]], Sequence[Port]]
"""f(emitter, operation, inputs) returns what takes the place of the outputs, or raises Declined."""

Condition = Callable[[Any, Sequence[Port]], bool]
"""f(operation, inputs): whether a rule holds; may raise Declined instead of returning False."""


@dataclass(frozen=True)
class Rule:
    """How operations are decomposed, and where that holds.

    Attributes:
        function: makes the simpler operations.
        where: whether it can, for these inputs.
    """

    function: Decomposition
    where: Condition


def first_of(*given: Rule) -> Rule:
    """Return the rule that is whichever of these holds first."""

    def found(op: Op, inputs: Sequence[Port]) -> Rule | None:
        return next((rule for rule in given if rule.where(op, inputs)), None)

    def function(build: Emitter, op: Op, inputs: Sequence[Port]) -> Sequence[Port]:
        rule = found(op, inputs)
        assert rule is not None, "a rule is used where it holds"
        return rule.function(build, op, inputs)

    return Rule(function, lambda op, inputs: found(op, inputs) is not None)


_CATALOGUE = "polydevice.rewrites.decompose"

ELSEWHERE = {"dynamic_range": ("quantize_linear",)}
"""Stem of operations → other modules than that of the same stem that decompose some of them."""

_RULES: dict[type[Op], Rule] = {}


def decomposes(
    *ops: type[Op], where: Condition = lambda op, inputs: True
) -> Callable[[Decomposition], Decomposition]:
    """Register a decomposition of operations and of their subclasses.

    Args:
        ops: the operations.
        where: for which inputs it holds.

    Raises:
        ValueError: an operation has a decomposition already.
    """

    def register(function: Decomposition) -> Decomposition:
        for op in ops:
            if op in _RULES:
                raise ValueError(f"{op.__name__} is decomposed by {_RULES[op].function} already")
            _RULES[op] = Rule(function, where)
        return function

    return register


def rules() -> dict[type[Op], Rule]:
    """Return operation → rule of everything that is registered."""
    import_stems(_CATALOGUE, stems_in(_CATALOGUE))
    return dict(_RULES)


@functools.lru_cache(maxsize=4096)
def _load(classes: tuple[type, ...]) -> None:
    """Import what may register a decomposition of an operation of these classes."""
    stems = set(map(stem_of, classes))
    import_stems(_CATALOGUE, stems.union(*(ELSEWHERE.get(stem, ()) for stem in stems)))


def rule_of(op: type[Op]) -> Rule | None:
    """Return the rule for a class of operations or its nearest base; None without one."""
    _load(op.__mro__)
    return nearest_in(_RULES, op)


def nearest_in(table: Mapping[type[Op], T], cls: type[Op]) -> T | None:
    """Return the entry of a class or its nearest base."""
    return next((table[base] for base in cls.__mro__ if base in table), None)
