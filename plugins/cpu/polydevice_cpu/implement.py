"""The table of NumPy implementations: one function per operation."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import PolydeviceError
from polydevice.ops.op import Op
from polydevice.stems import import_stems, stem_of, stems_in

Outputs = Array | tuple[Array, ...]
Implementation = Callable[..., Outputs]
"""``f(op, *inputs)`` returns the output array, or a tuple of them; it never writes its inputs."""

Writer = Callable[..., None]
"""``f(op, *inputs, result)`` writes what the operation's implementation returns into an array."""

Finding = Callable[[Any], "Callable[..., Any] | None"]
"""``f(op)`` returns what computes it of its inputs alone, in less time; None where nothing does."""

F = TypeVar("F", bound=Implementation)
W = TypeVar("W", bound=Writer)
O = TypeVar("O", bound=Op)  # noqa: E741 - reads best in the signature below
T = TypeVar("T")

_TABLE: dict[type[Op], Implementation] = {}
_WRITERS: dict[type[Op], Writer] = {}
_DIRECT: dict[type[Op], Finding] = {}
_MODULES: dict[type[Op], str] = {}
"""Which module entered each: functions may be NumPy's."""


def implements(*ops: type[Op]) -> Callable[[F], F]:
    """Enter a function in the table for one or more operations.

    Raises:
        ValueError: when another module has entered one for an operation, naming it. The same
            module may: its import may have been interrupted half-way.
    """
    module = sys._getframe(1).f_globals["__name__"]

    def register(function: F) -> F:
        for op in ops:
            if _MODULES.setdefault(op, module) != module:
                raise ValueError(f"{op.__name__} is already implemented in {_MODULES[op]}")
            _TABLE[op] = function
        return function

    return register


def writes(*ops: type[Op]) -> Callable[[W], W]:
    """Enter a function that spares the result a copy, beside the one that returns it."""

    def register(function: W) -> W:
        _WRITERS.update(dict.fromkeys(ops, function))
        return function

    return register


def directly(op: type[Op], find: Finding) -> None:
    """Enter what finds a function without the operation, as one of NumPy's own, beside that with.

    It is for those who compute the same operation again and again: a node of a few numbers takes
    1 us, half of it for what stands between the caller and NumPy. It may return a number of
    NumPy's in the place of an array without axes.
    """
    _DIRECT[op] = find


_CATALOGUE = "polydevice_cpu.ops"


@lru_cache(maxsize=4096)
def _load(classes: tuple[type, ...]) -> None:
    """Import what has the function of an operation of these classes: one of their stems.

    A network needs some 15 of 58, which take 1.5 MB and 30 ms less. Of an operation whose module
    has a stem of its own, all are imported.
    """
    import_stems(
        _CATALOGUE, set(map(stem_of, classes)) & stems_in(_CATALOGUE) or stems_in(_CATALOGUE)
    )


def once(make: Callable[[O], T]) -> Callable[[O], T]:
    """Return a function of an operation that computes what `make` does once for each.

    An operation that is asked for by its values would have its attributes hashed each time: all
    keys of a dictionary, say. What was made goes with the operation.
    """
    made: dict[int, tuple[weakref.ref[O], T]] = {}

    def get(op: O) -> T:
        known = made.get(id(op))
        if known is not None and known[0]() is op:
            return known[1]
        result, number = make(op), id(op)
        made[number] = weakref.ref(op, lambda _: made.pop(number, None) and None), result
        return result

    return get


def find_implementation(op: type[Op]) -> Implementation | None:
    """Return the function for an operation or the class it derives from; None without one.

    NumPy warns about infinities and NaN wherever they arise; who calls it silences that, once for
    many calls: it takes 1 µs, as long as many of the functions.
    """
    if op not in _TABLE:
        _load(op.__mro__)
    for cls in op.__mro__:
        if cls in _TABLE:
            return _TABLE[cls]
    return None


def computing(op: Op) -> Callable[..., Any] | None:
    """Return a function of the operation's inputs; None where nothing computes it."""
    function = find_implementation(type(op))
    if function is None:
        return None
    find = _DIRECT.get(type(op))
    direct = None if find is None else find(op)
    return partial(function, op) if direct is None else direct


def find_writer(op: type[Op]) -> Writer | None:
    """Return the function that writes an operation's result; None where there is none."""
    if op not in _TABLE:
        _load(op.__mro__)
    return _WRITERS.get(op)


def run(op: Op, inputs: Sequence[Any]) -> tuple[Array, ...]:
    """Compute an operation on arrays; raises KeyError when it has no implementation."""
    function = find_implementation(type(op))
    if function is None:
        raise KeyError(type(op).__name__)
    with np.errstate(all="ignore"):
        outputs = function(op, *inputs)
    return outputs if isinstance(outputs, tuple) else (outputs,)


_CANNOT = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, MemoryError)
"""What functions raise for unknown sizes, and for absurd ones of a hostile model."""


def evaluate(op: Op, inputs: Sequence[Array]) -> list[Array] | None:
    """Compute an operation ahead of inference; None where that is not possible.

    Not possible are operations without an implementation here, those with state or randomness, and
    values of which some sizes are still unknown (`Dim` among the elements).
    """
    if op.is_stateful or op.has_side_effect or find_implementation(type(op)) is None:
        return None
    try:
        return [_as_array(made) for made in run(op, inputs)]
    except (PolydeviceError, *_CANNOT):
        return None


def _as_array(made: Any) -> Array:
    """NumPy makes a number of its own kind of what has no axes; sequences stay what they are."""
    result: Array = np.asarray(made) if isinstance(made, np.generic) else made
    return result
