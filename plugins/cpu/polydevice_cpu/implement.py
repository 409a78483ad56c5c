"""The table of NumPy implementations: one function per operation."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Union

from polydevice.dtype import Array
from polydevice.ops.op import Op

Outputs = Union[Array, "tuple[Array, ...]"]
Implementation = Callable[..., Outputs]
"""``f(op, *inputs)`` returns the output array, or a tuple of them; it never writes its inputs."""

F = TypeVar("F", bound=Implementation)

_TABLE: dict[type[Op], Implementation] = {}
_loaded = False


def implements(*ops: type[Op]) -> Callable[[F], F]:
    """Enter a function in the table for one or more operations.

    Raises:
        ValueError: when an operation already has one, naming its module.
    """

    def register(function: F) -> F:
        for op in ops:
            if op in _TABLE:
                raise ValueError(f"{op.__name__} is already implemented in {_TABLE[op].__module__}")
            _TABLE[op] = function
        return function

    return register


def find_implementation(op: type[Op]) -> Implementation | None:
    """Return the function for an operation or the class it derives from; None without one."""
    global _loaded
    if not _loaded:
        package = importlib.import_module("polydevice_cpu.ops")
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
        _loaded = True
    for cls in op.__mro__:
        if cls in _TABLE:
            return _TABLE[cls]
    return None


def run(op: Op, inputs: Sequence[Any]) -> tuple[Array, ...]:
    """Compute an operation on arrays; raises KeyError when it has no implementation."""
    function = find_implementation(type(op))
    if function is None:
        raise KeyError(type(op).__name__)
    outputs = function(op, *inputs)
    return outputs if isinstance(outputs, tuple) else (outputs,)
