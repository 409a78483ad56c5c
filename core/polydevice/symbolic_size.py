"""Sizes that remember how they were computed, so that what was made with them serves others too.

A `SymbolicSize` behaves like the number that it has, and its `Trace` notes what is done with it:
arithmetic becomes a formula; whatever depends on the number itself (a comparison, its truth, an
index) becomes a guard. See `polydevice.symbolic_trace`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from polydevice.errors import InternalError, PolydeviceError
from polydevice.symbolic_operators import CALLED, INFIX, OF_NUMPY

if TYPE_CHECKING:
    from polydevice.symbolic_trace import Trace

T = TypeVar("T")

Number = Any
"""``int``, ``float`` or a `SymbolicSize`."""

_OPEN, _CLOSE = "\ue000", "\ue001"
"""Around the name of a size in a text; characters for private use."""
_NAMED = re.compile(f"{_OPEN}(.*?){_CLOSE}")


class UntraceableError(Exception):
    """Something cannot be made with formulas, whatever the sizes are."""


class NoFormulaError(PolydeviceError):
    """No formula tells what becomes of sizes; for others there may be one."""


def number_of(size: Number) -> Number:
    """Return the number that a size has now, of which nothing is noted."""
    return size.value if type(size) is SymbolicSize else size


def elsewhere(function: Callable[..., T], *items: Number) -> T | None:
    """Return what a function makes of numbers as they would be for other sizes, if that is known.

    Sizes that are equal are equal there, too; one of 1 is larger.
    """
    others = [item.other if type(item) is SymbolicSize else item for item in items]
    if None in others:
        return None
    try:
        return function(*others)
    except (ArithmeticError, ValueError, TypeError):
        return None


def is_by_chance(a: Number, b: Number) -> bool:
    """Whether numbers that are equal are not for other sizes of the same class.

    Not where something was made for one number alone already: others are of no account then.
    """
    sizes = [size for size in (a, b) if type(size) is SymbolicSize]
    is_open = all(size.trace.is_open for size in sizes)
    return bool(sizes) and is_open and elsewhere(operator.ne, a, b) is True


def named(item: object, tuples: dict[str, str], others: dict[str, object]) -> str:
    """Something as it stands in a formula.

    Args:
        item: it.
        tuples: text → name, of tuples that were met; more are noted.
        others: the same of what is neither a number nor consists of some.
    """
    kind = type(item)
    if kind is SymbolicSize:
        return item.name  # type: ignore[attr-defined, no-any-return]
    if kind in (tuple, list):
        assert isinstance(item, (tuple, list))
        inner = "".join(f"{named(each, tuples, others)}, " for each in item)
        if kind is list:
            return f"[{inner}]"
        text = f"({inner})"
        return tuples.setdefault(text, f"tuple{len(tuples)}")
    if isinstance(item, tuple) and hasattr(item, "_fields"):  # of names
        given = [_other(kind, others), *(named(each, tuples, others) for each in item)]
        return f"{given[0]}({', '.join(given[1:])})"
    if isinstance(item, slice):
        ends = (named(each, tuples, others) for each in (item.start, item.stop, item.step))
        return f"slice({', '.join(ends)})"
    if isinstance(item, partial):
        given = [named(each, tuples, others) for each in (item.func, *item.args)]
        given += [f"{key}={named(each, tuples, others)}" for key, each in item.keywords.items()]
        return f"partial({', '.join(given)})"
    if item is None or kind in (int, bool, str):
        return repr(item)
    if isinstance(item, float):
        return repr(item) if math.isfinite(item) else f"float('{item}')"
    return _other(item, others)


def _other(item: object, others: dict[str, object]) -> str:
    """The name of what is neither a number nor consists of some."""
    name = f"other{len(others)}"
    others[name] = item
    return name


def decided(size: Number) -> Number:
    """Return the number that a size has where few others are met, each of which decides something.

    An `Trace.attempt` goes on.
    """
    if type(size) is SymbolicSize and size.trace.is_live:
        size.trace.guard(f"{size.name} == {size.value!r}", True)
    return number_of(size)


def is_within(cost: Number, limit: float) -> bool:
    """Whether what something takes is within a limit; an `Trace.attempt` is made as if it were.

    For which sizes it is decides about the attempt.
    """
    if type(cost) is SymbolicSize and cost.trace.is_attempt:
        cost.trace.guard(f"{cost.name} <= {limit!r}", True)
        return True
    return bool(cost <= limit)


def single_bits(number: Number) -> int:
    """Return the bits of a number as an f32."""
    bits: int = number.single_bits() if is_symbolic(number) else CALLED["single_bits"](number)
    return bits


def largest(sizes: Sequence[Number]) -> Number:
    """Return the largest of sizes, by a formula: no other one of them makes another plan."""
    return _one_of(max, sizes)


def smallest(sizes: Sequence[Number]) -> Number:
    """Return the smallest of sizes, likewise."""
    return _one_of(min, sizes)


def _one_of(choose: Callable[..., Number], sizes: Sequence[Number]) -> Number:
    symbolic = next((size for size in sizes if type(size) is SymbolicSize), None)
    sizes = list({named(size, {}, {}): size for size in sizes}.values())
    if symbolic is None or len(sizes) == 1:
        return choose(sizes)
    name, names = choose.__name__, [named(size, {}, {}) for size in sizes]
    value, other = choose(map(number_of, sizes)), elsewhere(lambda *all_: choose(all_), *sizes)
    return symbolic.trace.computed((name, *names), f"{name}({', '.join(names)})", value, other)


def _refuse_another(*traces: Trace) -> None:
    """Refuse to compute with sizes of two traces, of which one takes notes: it would note nonsense.

    Raises:
        InternalError: something kept a size longer than what it was made for.
    """
    if any(trace.is_live for trace in traces):
        raise InternalError("a size was kept longer than what it was computed for")


def _infix(symbol: str, *, reverse: bool = False) -> Callable[..., Any]:
    function = INFIX[symbol]
    is_comparison = symbol in ("<", "<=", ">", ">=", "==")

    def method(self: SymbolicSize, other: object) -> Any:
        kind = type(other)
        trace = self.trace
        if kind is SymbolicSize:
            if other.trace is not trace:  # type: ignore[attr-defined]
                _refuse_another(trace, other.trace)  # type: ignore[attr-defined]
            text, number = other.name, other.value  # type: ignore[attr-defined]
        elif kind is int or kind is float or kind is bool:
            text = number = other
        elif isinstance(other, (np.integer, np.float64, np.bool_)):
            text = number = other.item()
        elif isinstance(other, np.floating):  # narrower ones round as their own type does
            return function(other, self.known()) if reverse else function(self.known(), other)
        else:
            return NotImplemented
        value = function(number, self.value) if reverse else function(self.value, number)
        if not trace.is_live:
            return value
        given = other if kind is SymbolicSize else number
        there = elsewhere(function, given, self) if reverse else elsewhere(function, self, given)
        short = _shortened(self, symbol, given, value, reverse, there)
        if short is not None:
            return short
        if kind is not SymbolicSize:
            text = f"({text!r})" if math.isfinite(number) else f"float('{text}')"
        a, b = (text, self.name) if reverse else (self.name, text)
        if is_comparison:
            trace.guard(f"{a} {symbol} {b}", value)
            if symbol == "==" and value and not there:
                trace.is_open = False
            return value
        # Computed for sizes, too, for which a choice by it is another one.
        text = f"left_shift({a}, {b})" if symbol == "<<" else f"{a} {symbol} {b}"
        factors = _multiplied(self, symbol, given, reverse)
        return _computed(trace, factors, (symbol, a, b), text, value, there)

    return method


def _shortened(
    size: SymbolicSize, symbol: str, other: Number, value: Any, reverse: bool, there: Any
) -> Any:
    """What becomes of a size that is a sum with a number, or stays itself; None of others.

    A convolution with borders computes (n + 1 + 1 - 3) // 1 + 1: so its sizes stay the same ones.
    """
    base = _base(size)
    if type(other) is SymbolicSize:
        is_known = _base(other) is base and (symbol == "-" or isinstance(value, bool))
        return value if is_known else None
    if type(other) is not int or type(size.value) is not int:
        return None
    if isinstance(value, bool):
        if other == size.offset and _is_told_by_factors(base, symbol, value):
            return value
        size.trace.guard(f"{base.name} {symbol} ({other - size.offset})", value)
        if symbol == "==" and value and not there:
            size.trace.is_open = False
        return value
    if other == 1 and (symbol == "*" or (symbol == "//" and not reverse)):
        return size
    if symbol == "+" or (symbol == "-" and not reverse):
        offset = value - base.value
        if not offset:
            return base
        key = ("+", base.name, offset)
        made = size.trace.computed(key, f"{base.name} + ({offset})", value, there)
        made.base, made.offset = base, offset
        return made
    return None


_Factors = tuple[int, tuple[str, ...]]
"""A number, and the names of sizes in their order: what a whole size is the product of."""


def _factors(number: Number) -> _Factors | None:
    """What a number is the product of; None of one that is not whole."""
    if type(number) is SymbolicSize and type(number.value) is int:
        return number.factors or (1, (number.name,))
    return (number, ()) if type(number) is int else None


def _multiplied(size: SymbolicSize, symbol: str, other: Number, reverse: bool) -> _Factors | None:
    """What becomes of the factors of a size that is multiplied, or divided without a rest.

    Sizes of tensors are products of few others in many orders: those of a plan become a third of
    the formulas so, and that they are equal needs no guards.
    """
    ours, others = _factors(size), _factors(other)
    if ours is None or others is None:
        return None
    if symbol == "*":
        return ours[0] * others[0], tuple(sorted(ours[1] + others[1]))
    if symbol == "-" and reverse and others == (0, ()):
        return -ours[0], ours[1]
    is_whole = not (reverse or others[1]) and others[0] and ours[0] % others[0] == 0
    if symbol == "//" and is_whole:
        return ours[0] // others[0], ours[1]
    return (0, ()) if symbol == "%" and is_whole else None


def _computed(
    trace: Trace,
    factors: _Factors | None,
    key: tuple[object, ...],
    text: str,
    value: Number,
    other: Number,
) -> Number:
    """What a formula gives: the size, or number, that has these factors, where they are known."""
    if factors is None:
        return trace.computed(key, text, value, other)
    factor, names = factors
    if factor == 0 or not names:
        return value
    if factor == 1 and len(names) == 1:
        return trace.named(names[0])
    made: Any = trace.computed(("*", factor, *names), text, value, other)
    made.factors = factors
    return made


def _is_told_by_factors(size: SymbolicSize, symbol: str, value: bool) -> bool:
    """Guard what the factors of a product tell of its sign, where that tells the product's."""
    if size.factors is None:
        return False
    factor, names = size.factors
    sizes = [size.trace.named(name) for name in names]
    if (symbol, value) in ((">", True), ("<=", False), (">=", True), ("<", False)):
        is_told = factor > 0 and min(each.value for each in sizes) >= 0
    else:
        is_told = symbol == "==" and not value
    for each in sizes if is_told else ():
        size.trace.guard(f"{each.name} {symbol} (0)", value)
    return is_told


def _base(size: SymbolicSize) -> SymbolicSize:
    return size if size.base is None else size.base


def _called(name: str) -> Callable[[SymbolicSize], Any]:
    function = CALLED[name]

    def method(self: SymbolicSize, *_: object) -> Any:
        value = function(self.value)
        if not self.trace.is_live:
            return value
        there = elsewhere(function, self)
        factors = _factors(self) if name == "neg" else None
        if factors is not None:
            factors = -factors[0], factors[1]
        text = f"-{self.name}" if name == "neg" else f"{name}({self.name})"
        return _computed(self.trace, factors, (name, self.name), text, value, there)

    return method


def _pinned(convert: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: SymbolicSize, *rest: Any) -> Any:
        return convert(self.known(), *rest)

    return method


class SymbolicSize:
    """A size with its formula; see the module.

    Attributes:
        base, offset: of which other size and which number it is the sum; None and 0 for others.
        factors: a number, and the names of sizes, that it is the product of; None for others.
        other: what the number would be for other sizes; None where nobody knows.
        unlike: numbers that it differs from, which is no guard; see the function.

    It says that it is an ``int`` (or ``float``, as quotients are), and is none: what asks for the
    number behind it goes through the methods below.
    """

    __slots__ = ("base", "factors", "name", "offset", "other", "trace", "unlike", "value")

    def __init__(self, trace: Trace, name: str, value: Number, other: Number = None) -> None:
        self.trace = trace
        self.name = name
        self.value = value
        self.other = other
        self.base: SymbolicSize | None = None
        self.offset = 0
        self.factors: _Factors | None = None
        self.unlike: tuple[int, ...] = ()

    @property  # type: ignore[misc]  # nobody sets it
    def __class__(self) -> type:
        return type(self.value)

    def known(self) -> Number:
        """Return the number; what is made with it serves no other."""
        if self.trace.is_live:
            self.trace.pin(self)
        return self.value

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: Any, **_: Any) -> Any:
        """Compute with a scalar of NumPy's, by the methods below.

        Raises:
            UntraceableError: for arrays, which hold numbers.
        """
        function = INFIX.get(OF_NUMPY.get(ufunc.__name__, ""))
        numbers: list[Any] = [x if is_symbolic(x) else np.asarray(x)[()] for x in operands]
        if function is None or any(isinstance(x, np.ndarray) for x in numbers):
            raise UntraceableError(f"NumPy's {ufunc.__name__} is not for sizes as symbols")
        if any(isinstance(x, np.floating) and x.itemsize < 8 for x in numbers):
            return function(*(x.known() if is_symbolic(x) else x for x in numbers))
        return function(*(x if is_symbolic(x) else x.item() for x in numbers))

    __add__, __radd__ = _infix("+"), _infix("+", reverse=True)
    __sub__, __rsub__ = _infix("-"), _infix("-", reverse=True)
    __mul__, __rmul__ = _infix("*"), _infix("*", reverse=True)
    __floordiv__, __rfloordiv__ = _infix("//"), _infix("//", reverse=True)
    __truediv__, __rtruediv__ = _infix("/"), _infix("/", reverse=True)
    __mod__, __rmod__ = _infix("%"), _infix("%", reverse=True)
    __pow__, __rpow__ = _infix("**"), _infix("**", reverse=True)
    __lshift__, __rlshift__ = _infix("<<"), _infix("<<", reverse=True)
    __rshift__, __rrshift__ = _infix(">>"), _infix(">>", reverse=True)
    __and__, __rand__ = _infix("&"), _infix("&", reverse=True)
    __or__, __ror__ = _infix("|"), _infix("|", reverse=True)
    __xor__, __rxor__ = _infix("^"), _infix("^", reverse=True)
    __lt__, __le__ = _infix("<"), _infix("<=")
    __gt__, __ge__ = _infix(">"), _infix(">=")
    _equals = _infix("==")
    __neg__, __abs__, __invert__ = _called("neg"), _called("abs"), _called("invert")
    __ceil__, __floor__, __trunc__ = _called("ceil"), _called("floor"), _called("trunc")
    bit_length, single = _called("bit_length"), _called("single")  # the latter: rounded to f32
    single_bits = _called("single_bits")  # as f32, as a number

    __int__, __index__, __float__ = _pinned(int), _pinned(operator.index), _pinned(float)
    __hash__, __round__, __divmod__ = _pinned(hash), _pinned(round), _pinned(divmod)

    def __str__(self) -> str:
        return f"{_OPEN}{self.name}{_CLOSE}" if self.trace.is_live else str(self.value)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return str(self) if self.trace.is_live else format(self.value, spec)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __eq__(self, other: object) -> Any:
        if self.unlike and type(other) is int and other in self.unlike:
            return False
        return self._equals(other)

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __pos__(self) -> SymbolicSize:
        return self

    item = __pos__  # as NumPy's scalars have it


def is_symbolic(number: object) -> bool:
    """Whether a number is a `SymbolicSize`."""
    return type(number) is SymbolicSize


def always_equal(a: Number, b: Number) -> bool:
    """Whether two sizes are equal whatever they are, of which nothing is noted."""
    return type(a) is SymbolicSize and type(b) is SymbolicSize and a.name == b.name


def unlike(number: int, *others: int) -> int:
    """Return a number of which nothing is noted where it is found to differ from these.

    For where what is made for numbers that differ is right for equal ones, too. One that is equal
    to one of them is returned as it is.
    """
    if not is_symbolic(number) or number_of(number) in others:
        return number
    size: Any = number
    made = SymbolicSize(size.trace, size.name, size.value, size.other)
    made.base, made.offset, made.factors = size.base, size.offset, size.factors
    made.unlike = others
    return made  # type: ignore[return-value]


def is_formula(array: object) -> bool:
    """Whether an array consists of numbers of which some are symbolic."""
    if not isinstance(array, np.ndarray) or array.dtype != object:
        return False
    items = array.reshape(-1).tolist()
    return any(map(is_symbolic, items)) and all(isinstance(item, int) for item in items)


def array_of(items: Sequence[Number], dtype: Any) -> np.ndarray[Any, Any]:
    """Return numbers as an array of this type, or of objects where some are symbolic."""
    return np.array(items, object if any(map(is_symbolic, items)) else dtype)


def whole(number: Number) -> int:
    """Return a number as an ``int``, or a symbolic one, without what is behind the point."""
    if not is_symbolic(number):
        return int(number)
    return number if isinstance(number, int) else math.trunc(number)


def names_in(text: str) -> list[str]:
    """Return the names of the sizes that a text says."""
    return _NAMED.findall(text)


def mentions_sizes(text: str) -> bool:
    """Whether a text says sizes that are symbolic: by their names, until `written` says numbers."""
    return _OPEN in text


def written(text: str, number_of: Callable[[str], Number]) -> str:
    """Return a text with the numbers that its sizes have, by their names."""
    return _NAMED.sub(lambda found: str(number_of(found[1])), text)
