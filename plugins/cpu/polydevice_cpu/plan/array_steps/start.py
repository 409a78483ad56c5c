"""How an operation computed on arrays is started for a request.

Most are functions of their inputs alone (`polydevice_cpu.implement`). Those that run a body or
keep a variable register a starter here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TypeVar

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.op import Op
from polydevice.stems import import_stems, stem_of
from polydevice_cpu.implement import computing, find_implementation, find_writer
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import Compute, Start

F = TypeVar("F", bound=Callable[..., Start])

_TABLE: dict[type[Op], Callable[..., Start]] = {}


def starts(*ops: type[Op]) -> Callable[[F], F]:
    """Enter a function ``f(op) -> Start`` for operations that need more than their inputs."""

    def register(function: F) -> F:
        _TABLE.update(dict.fromkeys(ops, function))
        return function

    return register


@lru_cache(maxsize=4096)
def _load(stem: str) -> None:
    import_stems("polydevice_cpu.plan.array_steps", {stem} & {"control_flow", "state"})


def has_starter(op: type[Op]) -> bool:
    """Whether the operation can be computed on arrays."""
    _load(stem_of(op))
    return op in _TABLE or find_implementation(op) is not None


def starter_of(op: type[Op]) -> Callable[..., object] | None:
    """Return what computes an operation on arrays: what starts it, or its function."""
    _load(stem_of(op))
    return _TABLE.get(op) or find_implementation(op)


def starter(op: Op) -> Start:
    """Return what starts `op` for a request; raises InferenceError where nothing computes it."""
    _load(stem_of(type(op)))
    special = _TABLE.get(type(op))
    if special is not None:
        return special(op)
    compute = computing(op)
    if compute is None:
        raise InferenceError(f"CPU has no implementation of {op.type} ({op.opset})")

    def start(_: Context) -> Compute:
        return compute

    return start


def writer(op: Op) -> Start | None:
    """Return what starts writing the result of `op` to its place; None where nothing does."""
    function = find_writer(type(op))
    if function is None:
        return None
    write = partial(function, op)

    def compute(*arrays: Array) -> tuple[()]:
        write(*arrays)
        return ()

    return lambda _: compute
