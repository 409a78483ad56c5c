"""Interval: an element of a tensor that is known only as lying between two numbers.

What a model computes from unknown sizes is carried as such elements (`TensorDesc.value`). Unlike a
size (`polydevice.shape.Dim`) they may be negative, and after a conversion floating-point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Union

from polydevice.dataclass import dataclass
from polydevice.shape import Dim, DimLike, dim

Number = Any
"""``int``, or a NumPy float of the element's own type, so that rounding is the device's."""


_WIDEST = 1 << 64
"""Beyond it integers of every element type wrap around, and some are too large for a float."""


@dataclass(frozen=True)
class Interval:
    """An unknown number between `min` and `max` inclusive; None is unbounded.

    Arithmetic with numbers and other intervals gives what the result lies between. Bounds are
    rounded as the numbers themselves are, which keeps their order. Whatever else is asked of it,
    such as a comparison or its truth, raises TypeError, since the answer is not known.
    """

    min: Number | None = None
    max: Number | None = None

    def __post_init__(self) -> None:
        """Drop bounds that bound nothing: integers that no element type holds, and no numbers."""
        for name in ("min", "max"):
            bound = getattr(self, name)
            wide = isinstance(bound, int) and not -_WIDEST <= bound <= _WIDEST
            if wide or bound != bound:  # the latter: not a number
                object.__setattr__(self, name, None)

    __array_ufunc__ = None  # NumPy's scalars leave arithmetic to the methods below

    def __bool__(self) -> bool:
        raise TypeError(f"whether an unknown number ({self}) is not zero is not known")

    def __add__(self, other: Number | Interval) -> Number | Interval:
        (low, high), (least, most) = limits(self), limits(other)
        return _between(low + least, high + most)

    __radd__ = __add__

    def __neg__(self) -> Number | Interval:
        low, high = limits(self)
        return _between(-high, -low)

    def __sub__(self, other: Number | Interval) -> Number | Interval:
        (low, high), (least, most) = limits(self), limits(other)
        return _between(low - most, high - least)

    def __rsub__(self, other: Number) -> Number | Interval:
        low, high = limits(self)
        return _between(other - high, other - low)

    def __mul__(self, other: Number | Interval) -> Number | Interval:
        corners = [_product(a, b) for a in limits(self) for b in limits(other)]
        return _between(min(corners), max(corners))

    __rmul__ = __mul__

    def __floordiv__(self, other: Number) -> Number | Interval:
        return self.divided(other, lambda number: number // other)

    def __truediv__(self, other: Number) -> Number | Interval:
        return self.divided(other, lambda number: number / other)

    def __mod__(self, other: Number) -> Number | Interval:
        if not isinstance(other, int) or other == 0:
            raise TypeError(f"the remainder of {self} by {other} is not known")
        return _between(0, other - 1) if other > 0 else _between(other + 1, 0)

    def divided(self, by: Number, function: Callable[[Number], Number]) -> Number | Interval:
        """Return what a division by a known number gives; raises TypeError for other divisors."""
        if isinstance(by, Interval) or by == 0:
            raise TypeError(f"{self} divided by {by} is not known")
        if by < 0:
            return (-self).mapped(lambda number: function(-number))
        return self.mapped(function)

    def mapped(self, function: Callable[[Number], Number]) -> Number | Interval:
        """Return what a function gives that never falls as its argument rises."""
        low, high = (bound if bound is None else function(bound) for bound in (self.min, self.max))
        return low if low is not None and low == high else Interval(low, high)

    @property
    def size(self) -> DimLike:
        """The sizes that it may stand for; raises TypeError for a floating-point number."""
        if not all(bound is None or isinstance(bound, int) for bound in (self.min, self.max)):
            raise TypeError(f"{self} is not a size")
        return dim(self.min or 0, self.max)

    def __str__(self) -> str:
        low = "" if self.min is None else self.min
        return "?" if self.min is self.max is None else f"{low}..{_text(self.max)}"

    __repr__ = __str__


IntLike = Union[int, Interval]  # noqa: UP007 - evaluated at import, on Python 3.10 too


def limits(item: Number | Interval) -> tuple[Number, Number]:
    """Return the smallest and the largest number that an element may be; infinite if unbounded."""
    if not isinstance(item, Interval):
        return item, item
    low = -math.inf if item.min is None else item.min
    return low, math.inf if item.max is None else item.max


def interval(size: DimLike) -> IntLike:
    """Return a size as an element."""
    return Interval(size.min, size.max) if isinstance(size, Dim) else size


def sized(item: IntLike) -> DimLike:
    """Return an element as a size; a known number stays what it is, negative or not."""
    return item.size if isinstance(item, Interval) else item


def apply(function: Callable[[Number], Number], item: Number | Interval) -> Number | Interval:
    """Return what a function that never falls as its argument rises gives for an element."""
    return item.mapped(function) if isinstance(item, Interval) else function(item)


def larger(a: Number | Interval, b: Number | Interval) -> Number | Interval:
    """Return the larger of two elements."""
    (low, high), (least, most) = limits(a), limits(b)
    return _between(max(low, least), max(high, most))


def smaller(a: Number | Interval, b: Number | Interval) -> Number | Interval:
    """Return the smaller of two elements."""
    (low, high), (least, most) = limits(a), limits(b)
    return _between(min(low, least), min(high, most))


def _between(low: Number, high: Number) -> Number | Interval:
    if low == high:
        return low
    return Interval(None if low == -math.inf else low, None if high == math.inf else high)


def _product(a: Number, b: Number) -> Number:
    if a == 0 or b == 0:  # also where the other is infinite
        return a if a == 0 else b
    if math.inf in (abs(a), abs(b)):  # an int beyond the largest float has no product with one
        return math.inf if (a > 0) == (b > 0) else -math.inf
    return a * b


def _text(bound: Number | None) -> str:
    return "" if bound is None else str(bound)
