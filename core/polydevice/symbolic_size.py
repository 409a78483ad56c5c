"""Sizes that remember how they were computed, so that what was made with them serves others too.

A `SymbolicSize` behaves like the number that it has, and its `Trace` notes what is done with it:
arithmetic becomes a formula; whatever depends on the number itself (a comparison, its truth, an
index) becomes a guard. `Trace.formulas` then says for other sizes what would have come out, or
nothing if a guard does not hold, so that a decision would have been another one.
"""

from __future__ import annotations

import contextlib
import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.errors import InternalError, PolydeviceError
from polydevice.symbolic_operators import CALLED, INFIX, OF_NUMPY

T = TypeVar("T")

Number = Any
"""``int``, ``float`` or a `SymbolicSize`."""

_OPEN, _CLOSE = "\ue000", "\ue001"
"""Around the name of a size in a text; characters for private use."""
_NAMED = re.compile(f"{_OPEN}(.*?){_CLOSE}")
_COMPUTED = re.compile(r"t\d+ = ")

Formulas = Callable[[Sequence[int]], "tuple[list[Number], list[int]] | None"]
"""From sizes to what is wanted of them, and the numbers of choices that may be others; None where a
guard does not hold."""


class UntraceableError(Exception):
    """Something cannot be made with formulas, whatever the sizes are."""


class NoFormulaError(PolydeviceError):
    """No formula tells what becomes of sizes; for others there may be one."""


@dataclass(frozen=True)
class Asked:
    """What becomes of a choice for other sizes.

    Attributes:
        other: says what would be chosen of what takes a thing's place; empty for the same.
        is_possible: whether the choice as it was made is right there all the same.
        about: the thing.
    """

    other: Callable[[Any], str]
    is_possible: Callable[[Any], bool]
    about: Any


class Trace:
    """What is done with sizes while something is made of them.

    Attributes:
        is_live: whether it still takes notes; afterwards the sizes are plain numbers.
        steps: lines of a function of the sizes, in their order.
        asked: number of a choice → how to find out whether it stays the same.
    """

    def __init__(self, pause: Callable[[], None] | None = None) -> None:
        """Begin with nothing noted.

        Args:
            pause: called at every note, so that other threads get on while much is noted.
        """
        self.is_live = True
        self.steps: list[str] = []
        self.asked: dict[int, Asked] = {}
        self._pause = pause
        self._known: dict[tuple[object, ...], SymbolicSize] = {}
        self._guards: set[str] = set()
        self._named: dict[str, SymbolicSize] = {}
        self._inputs: list[SymbolicSize] = []
        self._made = 0
        self._choices: dict[str, int] = {}
        self._functions: dict[str, tuple[Callable[..., object], object]] = {}

    def input(self, value: int) -> SymbolicSize:
        """Return a size from which others are computed."""
        made = self._named[f"s{len(self._inputs)}"] = SymbolicSize(
            self, f"s{len(self._inputs)}", value
        )
        self._inputs.append(made)
        return made

    def known(self, name: str) -> Number:
        """Return the number that the size of a name has; what is made with it serves no other."""
        return self._named[name].known()

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Take no notes in the block, of which nothing is used for other sizes."""
        self.is_live, before = False, self.is_live
        try:
            yield
        finally:
            self.is_live = before

    def named_in(self, text: str) -> list[SymbolicSize]:
        """Return the sizes that a text names."""
        return [self._named[name] for name in _NAMED.findall(text)]

    def computed(self, key: tuple[object, ...], text: str, value: Number) -> Number:
        """Return what a formula gives; one that was noted before is computed once."""
        known = self._known.get(key)
        if known is None:
            self._made += 1
            known = self._known[key] = SymbolicSize(self, f"t{self._made}", value)
            self._named[known.name] = known
            self.steps.append(f"{known.name} = {text}")
            if self._pause is not None:
                self._pause()
        return known

    @contextlib.contextmanager
    def choice(self) -> Iterator[list[int]]:
        """Note a choice among ways that all are right, by a model of costs, say.

        Where a guard in it does not hold, the choice may still be the same: `formulas` then tells
        its number, which is in the list once the block has ended. Choices by equal formulas have
        one. What is computed in the block may be used outside of it.
        """
        around = self.steps, self._guards
        self.steps, self._guards = [], set(self._guards)
        number: list[int] = []
        try:
            yield number
        finally:
            own = self.steps
            self.steps, self._guards = around
        self.steps += [line for line in own if _COMPUTED.match(line)]
        guards = [line for line in own if not _COMPUTED.match(line)]
        if not guards:
            return  # it does not depend on sizes
        text = "\n".join(guards)
        known = self._choices.get(text)
        if known is None:
            known = self._choices[text] = len(self._choices)
            broken = f"others.append({known}); break"
            lines = [line.replace("return None", broken) for line in guards]
            self.steps += ["while True:", *(f" {line}" for line in lines), " break"]
        number.append(known)

    def ask(self, number: int, asked: Asked) -> None:
        """Note how to find out what becomes of a choice."""
        self.asked.setdefault(number, asked)

    def guard(self, text: str, holds: bool) -> None:
        """Note what was found to hold, or not to."""
        line = f"if not ({text}): return None" if holds else f"if {text}: return None"
        if line not in self._guards:
            self._guards.add(line)
            self.steps.append(line)

    def outcome(self, function: Callable[..., T], sizes: Sequence[Number]) -> T:
        """Return what a function that no formula tells makes of sizes; it guards all that follows.

        For other sizes it is asked again, and has to answer something equal.
        """
        found = function(*map(number_of, sizes))
        if self.is_live:
            name = f"f{len(self._functions)}"
            self._functions[name] = function, found
            arguments = ", ".join(_named(size, {}) for size in sizes)
            self.steps.append(f"if {name}({arguments}) != {name}_answer: return None")
        return found

    def formulas(self, wanted: Sequence[Number | tuple[Number, ...]]) -> Formulas:
        """Take no more notes; return the function from sizes to what is wanted of them.

        It returns None where a guard does not hold.
        """
        self.is_live = False
        tuples: dict[str, str] = {}  # text → name: what is alike is made once
        results = ", ".join(_named(each, tuples) for each in wanted)
        names = "".join(f"{item.name}, " for item in self._inputs)
        lines = ["def formulas(sizes):", *([f"{names} = sizes"] if names else []), "others = []"]
        lines += [*self.steps, *(f"{name} = {text}" for text, name in tuples.items())]
        lines.append(f"return [{results}], others")
        for notes in (self.steps, self._known, self._guards, self._named, self._choices):
            notes.clear()  # they take more than what was made
        scope: dict[str, Any] = dict(CALLED)
        for name, (function, answer) in self._functions.items():
            scope[name], scope[f"{name}_answer"] = function, answer
        exec(compile("\n ".join(lines), "<formulas>", "exec"), scope)  # noqa: S102 - our own text
        made = scope["formulas"]

        def formulas(sizes: Sequence[int]) -> tuple[list[Number], list[int]] | None:
            try:
                return made(sizes)  # type: ignore[no-any-return]
            except (ArithmeticError, ValueError):  # computed of sizes that a guard excludes
                return None

        return formulas


_TRACE: ContextVar[Trace | None] = ContextVar("trace", default=None)


def current_trace() -> Trace | None:
    """Return the trace of what is going on in this thread; None where sizes are numbers."""
    return _TRACE.get()


@contextlib.contextmanager
def tracing(pause: Callable[[], None] | None = None) -> Iterator[Trace]:
    """Take notes of what is done with sizes until the end of the block; see `Trace` for `pause`."""
    trace = Trace(pause)
    token = _TRACE.set(trace)
    try:
        yield trace
    finally:
        trace.is_live = False
        _TRACE.reset(token)


def gains(condition: Callable[[], bool]) -> bool:
    """Whether something holds that makes things faster, and is never needed.

    What is made because it does not hold is right for all sizes, so that this is a choice.
    """
    trace = _TRACE.get()
    if trace is None:
        return condition()
    with trace.choice() as number:
        holds = condition()
    for each in number:
        trace.ask(each, Asked(lambda _: "what gains by sizes", lambda _: not holds, None))
    return holds


def number_of(size: Number) -> Number:
    """Return the number that a size has now, of which nothing is noted."""
    return size.value if type(size) is SymbolicSize else size


def _named(item: Number | tuple[Number, ...], tuples: dict[str, str]) -> str:
    """A number as it stands in a formula; tuples are noted, text → name, and named."""
    if isinstance(item, tuple):
        text = f"({''.join(f'{_named(each, tuples)}, ' for each in item)})"
        return tuples.setdefault(text, f"tuple{len(tuples)}")
    return item.name if type(item) is SymbolicSize else repr(item)


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
        short = _shortened(self, symbol, other if kind is SymbolicSize else number, value, reverse)
        if short is not None:
            return short
        if kind is not SymbolicSize:
            text = f"({text!r})" if math.isfinite(number) else f"float('{text}')"
        a, b = (text, self.name) if reverse else (self.name, text)
        if is_comparison:
            trace.guard(f"{a} {symbol} {b}", value)
            return value
        # Computed for sizes, too, for which a choice by it is another one.
        text = f"left_shift({a}, {b})" if symbol == "<<" else f"{a} {symbol} {b}"
        return trace.computed((symbol, a, b), text, value)

    return method


def _shortened(size: SymbolicSize, symbol: str, other: Number, value: Any, reverse: bool) -> Any:
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
        size.trace.guard(f"{base.name} {symbol} ({other - size.offset})", value)
        return value
    if other == 1 and (symbol == "*" or (symbol == "//" and not reverse)):
        return size
    if symbol == "+" or (symbol == "-" and not reverse):
        offset = value - base.value
        if not offset:
            return base
        key = ("+", base.name, offset)
        made = size.trace.computed(key, f"{base.name} + ({offset})", value)
        made.base, made.offset = base, offset
        return made
    return None


def _base(size: SymbolicSize) -> SymbolicSize:
    return size if size.base is None else size.base


def _called(name: str) -> Callable[[SymbolicSize], Any]:
    function = CALLED[name]

    def method(self: SymbolicSize, *_: object) -> Any:
        value = function(self.value)
        if not self.trace.is_live:
            return value
        return self.trace.computed((name, self.name), f"{name}({self.name})", value)

    return method


def _pinned(convert: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: SymbolicSize, *rest: Any) -> Any:
        return convert(self.known(), *rest)

    return method


class SymbolicSize:
    """A size with its formula; see the module.

    Attributes:
        base, offset: of which other size and which number it is the sum; None and 0 for others.
        unlike: numbers that it differs from, which is no guard; see the function.

    It says that it is an ``int`` (or ``float``, as quotients are), and is none: what asks for the
    number behind it goes through the methods below.
    """

    __slots__ = ("base", "name", "offset", "trace", "unlike", "value")

    def __init__(self, trace: Trace, name: str, value: Number) -> None:
        self.trace = trace
        self.name = name
        self.value = value
        self.base: SymbolicSize | None = None
        self.offset = 0
        self.unlike: tuple[int, ...] = ()

    @property  # type: ignore[misc]  # nobody sets it
    def __class__(self) -> type:
        return type(self.value)

    def known(self) -> Number:
        """Return the number; what is made with it serves no other."""
        if self.trace.is_live:
            self.trace.guard(f"{self.name} == {self.value!r}", True)
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


def unlike(number: int, *others: int) -> int:
    """Return a number of which nothing is noted where it is found to differ from these.

    For where what is made for numbers that differ is right for equal ones, too. One that is equal
    to one of them is returned as it is.
    """
    if not is_symbolic(number) or number_of(number) in others:
        return number
    size: Any = number
    made = SymbolicSize(size.trace, size.name, size.value)
    made.base, made.offset, made.unlike = size.base, size.offset, others
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


def mentions_sizes(text: str) -> bool:
    """Whether a text says sizes that are symbolic: by their names, until `written` says numbers."""
    return _OPEN in text


def settled(text: str) -> str:
    """Return a text that decides something with the numbers of the sizes that it names."""
    trace = _TRACE.get()
    return text if trace is None or _OPEN not in text else written(text, trace.known)


def written(text: str, number_of: Callable[[str], Number]) -> str:
    """Return a text with the numbers that its sizes have, by their names."""
    return _NAMED.sub(lambda found: str(number_of(found[1])), text)
