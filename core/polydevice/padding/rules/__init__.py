"""Rules: for each operation, which axes of its results have padding if its inputs have.

A rule says of an operation that what it computes from padded inputs is, but for the padding, what
it computes from the inputs themselves; or raises `UnprovableError`. It may ask for guards. An
operation without a rule is one of which that is not known.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

from polydevice.ops.op import Op
from polydevice.padding.state import R, Rule

_TABLE: dict[type[Op], Rule] = {}


def rule(*ops: type[Op]) -> Callable[[R], R]:
    """Enter a rule for these operations and those derived from them."""

    def register(function: R) -> R:
        _TABLE.update(dict.fromkeys(ops, function))
        return function

    return register


@functools.cache
def _load() -> None:
    for module in ("mixing", "moving", "pointwise", "products"):
        importlib.import_module(f"polydevice.padding.rules.{module}")


def find_rule(op: type[Op]) -> Rule | None:
    """Return the rule of an operation, if there is one."""
    _load()
    return next((_TABLE[kind] for kind in op.__mro__ if kind in _TABLE), None)
