"""Dim and Shape: sizes that may be known only as an interval.

A `Shape` is a tuple whose items are ``int`` (known) or `Dim` (an interval). `Dim` does interval
arithmetic with ``+ - * //``, so one formula in an operation's shape rule serves static and dynamic
networks alike::

    out = (size + pads - kernel) // stride + 1      # size: int or Dim
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NoReturn, Union

from typing_extensions import Self

from polydevice.dataclass import dataclass
from polydevice.errors import InternalError, ShapeError
from polydevice.symbolic_size import SymbolicSize, is_by_chance, is_symbolic, number_of
from polydevice.symbolic_trace import current_trace


@dataclass(frozen=True)
class Dim:
    """An unknown size between `min` and `max` inclusive; `max` None is unbounded.

    Comparing it, or using it as a number, raises TypeError, since the answer is not known.
    """

    min: int = 0
    max: int | None = None

    def __add__(self, other: DimLike) -> DimLike:
        lo, hi = bounds(other)
        return dim(self.min + lo, None if self.max is None or hi is None else self.max + hi)

    __radd__ = __add__

    def __sub__(self, other: DimLike) -> DimLike:
        lo, hi = bounds(other)
        return dim(0 if hi is None else self.min - hi, None if self.max is None else self.max - lo)

    def __rsub__(self, other: int) -> DimLike:
        return dim(0 if self.max is None else other - self.max, other - self.min)

    def __mul__(self, other: DimLike) -> DimLike:
        lo, hi = bounds(other)
        if other == 0:
            return 0
        return dim(self.min * lo, None if self.max is None or hi is None else self.max * hi)

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> DimLike:
        return dim(self.min // other, None if self.max is None else self.max // other)

    def _unknown(self, *_: object) -> NoReturn:
        raise TypeError(
            f"the size {self} is not known before an inference, so it is neither a number nor "
            "more or less than one; look at its `min` and `max`, or reshape() the network"
        )

    __int__ = __index__ = __float__ = _unknown
    __lt__ = __le__ = __gt__ = __ge__ = _unknown

    def __str__(self) -> str:
        if self.max is None:
            return "?" if self.min <= 0 else f"{self.min}.."
        return f"{self.min}..{self.max}"

    __repr__ = __str__


DimLike = Union[int, Dim]  # noqa: UP007 - evaluated at import, on Python 3.10 too


def dim(low: int, high: int | None) -> DimLike:
    """Make an int when both bounds agree, else a Dim; negative bounds become 0."""
    low = max(low, 0)
    if high is not None and high <= low:
        return low
    return Dim(low, high)


def bounds(size: DimLike) -> tuple[int, int | None]:
    """Return the smallest and largest value of a size; None is unbounded."""
    return (size, size) if isinstance(size, int) else (size.min, size.max)


class Shape(tuple[DimLike, ...]):
    """Sizes of a tensor of known rank; items are ``int`` or `Dim`.

    Equal to a tuple or list of the same sizes.
    """

    __slots__ = ()

    def __new__(cls, sizes: Iterable[DimLike | None] = ()) -> Self:
        """Make a shape; None and -1 stand for an unknown size.

        Raises:
            ShapeError: for what is no sequence of sizes.
        """
        if type(sizes) is cls:
            return sizes
        if not isinstance(sizes, (tuple, list)) and not isinstance(sizes, Iterable):
            raise ShapeError(f"{sizes!r:.80} is no shape; give a sequence of sizes")
        return super().__new__(cls, [_checked(size) for size in sizes])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (tuple, list)) and len(other) != len(self):
            return False  # a tuple would compare sizes first, of which symbols take notes
        return tuple.__eq__(self, tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self)

    @property
    def is_static(self) -> bool:
        """Whether every size is known."""
        for size in self:  # noqa: SIM110 - all() takes twice as long, and plans ask often
            if not isinstance(size, int):
                return False
        return True

    @property
    def static(self) -> tuple[int, ...]:
        """The sizes as plain ints; raises ShapeError when one is not known."""
        if not self.is_static:
            raise ShapeError(f"shape {self} is dynamic; a static shape is needed here")
        return tuple(self)  # type: ignore[arg-type]

    @property
    def elements(self) -> int:
        """Number of elements; raises ShapeError when the shape is dynamic."""
        return math.prod(self.static)

    def admits(self, other: Sequence[DimLike]) -> bool:
        """Whether every shape described by `other` lies within this one."""
        if len(other) != len(self):
            return False
        for mine, theirs in zip(self, other, strict=True):
            if isinstance(mine, int) and isinstance(theirs, int):  # nearly every one
                if mine != theirs:
                    return False
                continue
            (lo, hi), (other_lo, other_hi) = bounds(mine), bounds(theirs)
            if other_lo < lo or (hi is not None and (other_hi is None or other_hi > hi)):
                return False
        return True

    def __str__(self) -> str:
        return "[" + ",".join(str(size) for size in self) + "]"

    __repr__ = __str__


def _checked(size: DimLike | None) -> DimLike:
    if type(size) is int and size >= 0:  # nearly all of them are
        return size
    if size is None:
        return Dim()
    if isinstance(size, Dim):
        return size
    try:
        size = size if is_symbolic(size) else int(size)
    except (TypeError, ValueError, OverflowError):
        raise ShapeError(
            f"{size!r:.80} is no size; use an integer, or -1 for an unknown one"
        ) from None
    if size < -1:
        raise ShapeError(f"a size of {size} is not possible; use -1 for an unknown size")
    return Dim() if size == -1 else size


def merge_dim(a: DimLike, b: DimLike) -> DimLike:
    """Return what two descriptions of the same size agree on; raises ShapeError if nothing."""
    (lo1, hi1), (lo2, hi2) = bounds(a), bounds(b)
    low = max(lo1, lo2)
    high = hi2 if hi1 is None else hi1 if hi2 is None else min(hi1, hi2)
    if high is not None and high < low:
        raise ShapeError(f"sizes {a} and {b} do not agree")
    return dim(low, high)


def merge(a: Shape | None, b: Shape | None) -> Shape | None:
    """Return what two descriptions of the same shape agree on; None is unknown rank."""
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b):
        raise ShapeError(f"shapes {a} and {b} differ in rank")
    return Shape(merge_dim(x, y) for x, y in zip(a, b, strict=True))


def union(a: Shape | None, b: Shape | None) -> Shape | None:
    """Return the smallest shape that covers both; None (unknown rank) when the ranks differ."""
    if a is None or b is None or len(a) != len(b):
        return None
    sizes: list[DimLike] = []
    for x, y in zip(a, b, strict=True):
        (lo1, hi1), (lo2, hi2) = bounds(x), bounds(y)
        sizes.append(dim(min(lo1, lo2), None if hi1 is None or hi2 is None else max(hi1, hi2)))
    return Shape(sizes)


def is_one(size: object) -> bool:
    """Whether a size is 1 and stays 1.

    For where what is made for other sizes is right for 1, too, and serves it without a guard.
    """
    return type(size) is not SymbolicSize and size == 1


def are_same(sizes: Sequence[DimLike], others: Sequence[DimLike]) -> bool:
    """Whether sizes are equal and stay equal, which is noted only where they are.

    For where what is made for sizes that differ is right for equal ones, too.
    """
    return len(sizes) == len(others) and all(map(_stay_same, sizes, others))


def _stay_same(a: DimLike, b: DimLike) -> bool:
    if a is b or not is_symbolic(a):
        return a is b or (not is_symbolic(b) and a == b)
    return is_symbolic(b) and stay_equal(a, b)


def happen_to_be_equal(a: object, b: object) -> bool:
    """Whether two numbers are equal, which is noted only where they are.

    For where what is made for numbers that differ is right for equal ones, too.
    """
    return bool(number_of(a) == number_of(b) and a == b)


def all_happen_to_be_equal(numbers: Sequence[int], others: Sequence[int]) -> bool:
    """Whether as many numbers are equal, each to its own; noted only where all are."""
    return [*map(number_of, numbers)] == [*map(number_of, others)] and all(
        a == b for a, b in zip(numbers, others, strict=True)
    )


def stay_equal(a: object, b: object) -> bool:
    """Whether two numbers are equal, and not by chance, which is noted only where they are.

    For where what is made for numbers that differ is as good for equal ones, nearly.
    """
    return not is_by_chance(a, b) and happen_to_be_equal(a, b)


def all_stay_equal(numbers: Sequence[int], others: Sequence[int]) -> bool:
    """Whether as many numbers are equal, each to its own, and none by chance; see `stay_equal`."""
    return not any(map(is_by_chance, numbers, others)) and all_happen_to_be_equal(numbers, others)


def places_in_order(numbers: Sequence[int]) -> list[int]:
    """Return the places of numbers from the smallest to the largest, of equal ones as they come.

    Noted is that none is larger than the next one; so equal ones may come later as they came
    when they differed, for where the order of equal numbers does not matter.
    """
    places = sorted(range(len(numbers)), key=lambda place: number_of(numbers[place]))
    for place, following in itertools.pairwise(places):
        if not numbers[place] <= numbers[following]:
            raise InternalError(f"{numbers[place]} comes before {numbers[following]}")
    return places


def broadcast_dim(a: DimLike, b: DimLike) -> DimLike:
    """NumPy's broadcasting rule for one size; raises ShapeError when neither is 1 nor equal."""
    if happen_to_be_equal(a, b):
        return a
    if a == 1:
        return b
    if b == 1:
        return a
    if isinstance(a, int) and isinstance(b, int):
        raise ShapeError(f"sizes {a} and {b} cannot be broadcast")
    if isinstance(a, int) and a > 1:
        return a
    if isinstance(b, int) and b > 1:
        return b
    (lo1, hi1), (lo2, hi2) = bounds(a), bounds(b)
    return dim(min(lo1, lo2), None if hi1 is None or hi2 is None else max(hi1, hi2))


def broadcast(a: Shape | None, b: Shape | None) -> Shape | None:
    """NumPy's broadcasting rule for two shapes; None is unknown rank."""
    if a is None or b is None:
        return None
    if current_trace() is None and a == b:
        return a
    left = (1,) * (len(b) - len(a)) + a
    right = (1,) * (len(a) - len(b)) + b
    try:
        sizes = [
            x if is_one(y) else y if is_one(x) else x if x == y else broadcast_dim(x, y)
            for x, y in zip(left, right, strict=True)
        ]
    except ShapeError:
        raise ShapeError(f"shapes {a} and {b} cannot be broadcast") from None
    return tuple.__new__(Shape, sizes)  # all of them are checked


def normalize_axis(axis: int, rank: int, what: str = "axis") -> int:
    """Return `axis` counted from the front; raises ShapeError outside [-rank, rank)."""
    if not rank:
        raise ShapeError(f"{what} {axis} is outside: a scalar has no axes")
    if not -rank <= axis < rank:
        raise ShapeError(f"{what} {axis} is outside [{-rank}, {rank}) for rank {rank}")
    return axis + rank if axis < 0 else axis


def product(sizes: Iterable[DimLike]) -> DimLike:
    """Multiply sizes, known or not."""
    result: DimLike = 1
    for size in sizes:
        result = result * size
    return result


MAX_RANK = 32
"""The limit of NumPy's iterators; a model that asks for more axes is broken or hostile."""

MAX_PLACES = 1 << 58
"""NumPy has no arrays of more bytes than 2**63, not even empty ones: a size of 0 counts as 1."""


def has_array(shape: Sequence[int]) -> bool:
    """Whether NumPy has arrays of such a shape, whatever the elements are."""
    return math.prod(max(size, 1) for size in shape) <= MAX_PLACES


def count_of(sizes: Shape | None) -> int | None:
    """Return how many elements an input of shape `sizes` has that lists sizes or axes.

    None is unknown. Raises ShapeError when they are more than any rank.
    """
    if sizes is None or not sizes.is_static:
        return None
    if sizes.elements > MAX_RANK:
        raise ShapeError(f"{sizes.elements} sizes or axes are listed; at most {MAX_RANK} can be")
    return sizes.elements
