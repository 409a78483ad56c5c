"""lowers: the table of lowerings, one function per operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from polydevice.ops.op import Op
from polydevice.stems import import_stems, stem_of
from polydevice_cpu.onednn.library import library

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

Lowering = Callable[["PlanBuilder", "Node"], bool]
"""Lowers one node of a plan; False when the case is not for it, having done nothing."""

F = TypeVar("F", bound=Lowering)

_TABLE: dict[type[Op], Lowering] = {}
_HEAVY: set[type[Op]] = set()


def lowers(*ops: type[Op], heavy: bool = False) -> Callable[[F], F]:
    """Enter a function in the table for one or more operations.

    Args:
        ops: the operations it lowers.
        heavy: whether they are so much slower on NumPy that a plan pays even for sizes that are
            known only when the request runs.

    Raises:
        ValueError: when an operation already has one of another module, naming that. The same
            module may enter it again: its import may have been interrupted half-way.
    """

    def register(function: F) -> F:
        for op in ops:
            known = _TABLE.setdefault(op, function)
            if known.__module__ != function.__module__:
                raise ValueError(f"{op.__name__} is already lowered in {known.__module__}")
            _TABLE[op] = function
        if heavy:
            _HEAVY.update(ops)
        return function

    return register


ELSEWHERE = {
    "activation": ("arithmetic",),
    "arithmetic": ("activation",),
    "byte_functions": ("quantize_linear",),
    "compressed_recurrent": ("recurrent",),
    "deformable_convolution": ("convolution_special",),
    "dynamic_range": ("quantize_linear",),
    "embedding": ("attention",),
    "fuse_normalization": ("normalization",),
    "fuse_quantize": ("quantize",),
    "grids": ("quantize",),
    "ranges": ("quantize_linear",),
    "math": ("activation",),
    "quantize_linear": ("integers", "quantize"),
    "reshape": ("views",),
    "signal": ("cumulative",),
    "slice": ("views",),
    "split": ("views",),
    "transpose": ("views",),
}
"""Stem of operations → other modules than that of the same stem that lower some of them."""


@lru_cache(maxsize=4096)
def _load(stem: str) -> None:
    """Import what may have the functions of operations of a stem.

    A network needs some 8 of 36 modules, which with what they import take 3 MB and 80 ms less.
    """
    import_stems("polydevice_cpu.lowering", (stem, *ELSEWHERE.get(stem, ())))


def find_lowering(op: type[Op]) -> Lowering | None:
    """Return the function for an operation; None without one, or without oneDNN."""
    _load(stem_of(op))
    return _TABLE.get(op) if library() is not None else None


def is_heavy(op: type[Op]) -> bool:
    """Whether the operation should never be left to NumPy where a plan can be made."""
    _load(stem_of(op))
    return op in _HEAVY and library() is not None
