"""Dimension, PartialShape, Shape and the other lists of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.surface import Surface
from polydevice.errors import ShapeError
from polydevice.ops.op import parse_shape
from polydevice.shape import Dim, DimLike, bounds, dim, merge_dim
from polydevice.shape import Shape as CoreShape


class Symbol(Surface):
    """A name for a size that is not known; two that are alike mean the same size."""


class Dimension(Surface):
    """One size, known or between two bounds."""

    __slots__ = ("_size", "_symbol")

    def __init__(self, *limits: Any) -> None:
        """Make a size: of nothing or -1 unknown, of a number, of two bounds, or of text."""
        self._symbol: Symbol | None = None
        if len(limits) == 1 and isinstance(limits[0], str):
            (self._size,) = _parsed(limits[0].strip() or "0")
        elif len(limits) < 2:
            self._size = _size(limits[0] if limits else -1)
        else:
            low, high = (int(limit) for limit in limits)
            self._size = dim(max(low, 0), None if high == -1 else high)

    @classmethod
    def _of(cls, size: DimLike) -> Dimension:
        made = cls()
        made._size = size
        return made

    @staticmethod
    def dynamic() -> Dimension:
        """Return an unknown size."""
        return Dimension()

    @property
    def is_static(self) -> bool:
        """Whether the size is known."""
        return isinstance(self._size, int)

    @property
    def is_dynamic(self) -> bool:
        """Whether the size is not known."""
        return not isinstance(self._size, int)

    def get_length(self) -> int:
        """Return the size.

        Raises:
            RuntimeError: it is not known.
        """
        if not isinstance(self._size, int):
            raise RuntimeError(f"the size {self._size} is dynamic; see get_min_length()")
        return self._size

    def __len__(self) -> int:
        return self.get_length()

    def get_min_length(self) -> int:
        """Return the lower bound."""
        return bounds(self._size)[0]

    @property
    def min_length(self) -> int:
        """The lower bound."""
        return self.get_min_length()

    def get_max_length(self) -> int:
        """Return the upper bound; -1 for none."""
        high = bounds(self._size)[1]
        return -1 if high is None else high

    @property
    def max_length(self) -> int:
        """The upper bound; -1 for none."""
        return self.get_max_length()

    def same_scheme(self, other: Dimension) -> bool:
        """Whether both are unknown, or both are the same number."""
        both = self.is_dynamic and other.is_dynamic
        return both or (self.is_static and self._size == other._size)

    def compatible(self, other: Dimension) -> bool:
        """Whether one size may be both."""
        try:
            merge_dim(self._size, other._size)
        except ShapeError:
            return False
        return True

    def refines(self, other: Dimension) -> bool:
        """Whether every size that this may be the other may be too."""
        return CoreShape([other._size]).admits([self._size])

    def relaxes(self, other: Dimension) -> bool:
        """Whether every size that the other may be this may be too."""
        return CoreShape([self._size]).admits([other._size])

    def has_symbol(self) -> bool:
        """Whether it has a symbol."""
        return self._symbol is not None

    def get_symbol(self) -> Symbol:
        """Return the symbol; a new one that is not kept when it has none."""
        return self._symbol or Symbol()

    def set_symbol(self, symbol: Symbol) -> None:
        """Give it a symbol."""
        self._symbol = symbol

    def to_string(self) -> str:
        """Return the size as text."""
        return _text(self._size)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dimension):
            return self._size == other._size
        return isinstance(other, int) and self._size == _size(other)

    def __hash__(self) -> int:
        return hash(self._size)

    def __str__(self) -> str:
        return _text(self._size)

    def __repr__(self) -> str:
        return f"<Dimension: {_text(self._size)}>"


class PartialShape(Surface):
    """Sizes of which some, or even their number, are not known."""

    __slots__ = ("_sizes",)

    @translated
    def __init__(self, shape: Any) -> None:
        """Make a shape of sizes, of another shape, or of text such as "[1,?,2..4]" or "..."."""
        self._sizes: list[DimLike] | None
        if isinstance(shape, PartialShape):
            self._sizes = None if shape._sizes is None else list(shape._sizes)
        elif isinstance(shape, str):
            self._sizes = None if shape.strip(" []") == "..." else _parsed(shape)
        else:
            self._sizes = [_size(size) for size in shape]

    @classmethod
    def _of(cls, shape: Sequence[DimLike] | None) -> PartialShape:
        made = cls.__new__(cls)
        made._sizes = None if shape is None else list(shape)
        return made

    @property
    def _core(self) -> CoreShape | None:
        return None if self._sizes is None else CoreShape(self._sizes)

    @staticmethod
    def dynamic(rank: Any = None) -> PartialShape:
        """Return a shape of unknown sizes; without a rank, of unknown rank."""
        if rank is None or (isinstance(rank, Dimension) and rank.is_dynamic):
            return PartialShape._of(None)
        number = rank.get_length() if isinstance(rank, Dimension) else int(rank)
        return PartialShape._of([Dim()] * number)

    @property
    def is_dynamic(self) -> bool:
        """Whether something of it is not known."""
        return not self.is_static

    @property
    def is_static(self) -> bool:
        """Whether every size is known."""
        return self._sizes is not None and all(isinstance(size, int) for size in self._sizes)

    @property
    def rank(self) -> Dimension:
        """The number of sizes."""
        return Dimension() if self._sizes is None else Dimension(len(self._sizes))

    @property
    def all_non_negative(self) -> bool:
        """Whether no size is negative, which none can be."""
        return True

    def to_shape(self) -> Shape:
        """Return the sizes.

        Raises:
            RuntimeError: one is not known.
        """
        if not self.is_static or self._sizes is None:
            raise RuntimeError(f"to_shape was called on a dynamic shape: {self}")
        return Shape(self._sizes)

    def get_shape(self) -> Shape:
        """Return the sizes; see `to_shape`."""
        return self.to_shape()

    def get_max_shape(self) -> Shape:
        """Return the upper bounds; the largest number that OpenVINO knows where there is none."""
        highs = [bounds(size)[1] for size in self._sizes or ()]
        return Shape([2**63 - 1 if high is None else high for high in highs])

    def get_min_shape(self) -> Shape:
        """Return the lower bounds."""
        return Shape([bounds(size)[0] for size in self._sizes or ()])

    def get_dimension(self, index: int) -> Dimension:
        """Return one size."""
        return self[index]  # type: ignore[return-value]

    def _with(self, other: PartialShape) -> Iterable[tuple[Dimension, Dimension]] | None:
        """Return the sizes of both side by side; None when the ranks differ."""
        mine, theirs = list(self), list(other)
        return zip(mine, theirs, strict=True) if len(mine) == len(theirs) else None

    def compatible(self, other: PartialShape) -> bool:
        """Whether one shape may be both."""
        if self._sizes is None or other._sizes is None:
            return True
        pairs = self._with(other)
        return pairs is not None and all(a.compatible(b) for a, b in pairs)

    def refines(self, other: PartialShape) -> bool:
        """Whether every shape that this may be the other may be too."""
        return other.relaxes(self)

    def relaxes(self, other: PartialShape) -> bool:
        """Whether every shape that the other may be this may be too."""
        if self._sizes is None:
            return True
        return other._sizes is not None and CoreShape(self._sizes).admits(other._sizes)

    def same_scheme(self, other: PartialShape) -> bool:
        """Whether the same sizes are known, with the same numbers."""
        if self._sizes is None or other._sizes is None:
            return self._sizes is other._sizes
        pairs = self._with(other)
        return pairs is not None and all(a.same_scheme(b) for a, b in pairs)

    def __len__(self) -> int:
        if self._sizes is None:
            raise RuntimeError("a shape of unknown rank has no length")
        return len(self._sizes)

    def __getitem__(self, index: int | slice) -> Dimension | PartialShape:
        if self._sizes is None:
            raise RuntimeError("a shape of unknown rank has no sizes")
        if isinstance(index, slice):
            return PartialShape._of(self._sizes[index])
        return Dimension._of(self._sizes[index])

    def __setitem__(self, index: int, value: Any) -> None:
        if self._sizes is None:
            raise RuntimeError("a shape of unknown rank has no sizes")
        self._sizes[index] = _size(value)

    def __iter__(self) -> Iterator[Dimension]:
        return iter([Dimension._of(size) for size in self._sizes or ()])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartialShape):
            if not isinstance(other, (list, tuple, Shape)):
                return False
            other = PartialShape(other)
        return self._sizes == other._sizes

    def __hash__(self) -> int:
        return hash(self._core)

    def __copy__(self) -> PartialShape:
        return PartialShape(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> PartialShape:
        return PartialShape(self)

    def to_string(self) -> str:
        """Return the shape as text."""
        return str(self)

    def __str__(self) -> str:
        if self._sizes is None:
            return "[...]"
        return "[" + ",".join(_text(size) for size in self._sizes) + "]"

    def __repr__(self) -> str:
        return f"<PartialShape: {self}>"


class _Numbers(list[int]):
    """A list of whole numbers; slices are of the same class."""

    def __init__(self, values: Any = ()) -> None:
        if isinstance(values, str):
            values = [int(item) for item in values.strip(" []{}").split(",") if item.strip()]
        super().__init__(int(value) for value in values)

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return type(self)(found) if isinstance(index, slice) else found

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (list, tuple)):
            return list.__eq__(self, list(other))
        return isinstance(other, PartialShape) and other == self

    __hash__ = None

    def __str__(self) -> str:
        return "[" + ",".join(map(str, self)) + "]"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"


class Shape(_Numbers):
    """Sizes that are all known."""

    def to_string(self) -> str:
        """Return the shape as text."""
        return str(self)


class Strides(_Numbers):
    """Steps along the axes."""

    def __str__(self) -> str:
        return ", ".join(map(str, self))


class Coordinate(_Numbers):
    """A place in a tensor."""


class CoordinateDiff(_Numbers):
    """A distance between two places."""


class AxisVector(_Numbers):
    """Axes in order."""


class AxisSet(frozenset[int]):
    """Axes, each once, in ascending order."""

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(frozenset.__iter__(self)))

    def __repr__(self) -> str:
        return f"<AxisSet {{{', '.join(map(str, self))}}}>"


def _size(size: Any) -> DimLike:
    if isinstance(size, Dimension):
        return size._size
    if isinstance(size, Dim):
        return size
    if isinstance(size, str):
        return _parsed(size)[0]
    if isinstance(size, (tuple, list)):
        return Dimension(*size)._size
    if int(size) < -1:
        raise RuntimeError(f"a size of {size} is not possible; use -1 for an unknown one")
    return Dim() if int(size) == -1 else int(size)


def _parsed(text: str) -> list[DimLike]:
    try:
        return list(parse_shape(text))
    except ValueError as error:
        raise RuntimeError(f"{text!r} is no shape: {error}") from None


def _text(size: DimLike) -> str:
    low, high = bounds(size)
    if isinstance(size, int):
        return str(size)
    if high is None:
        return f"{low}.." if low else "?"
    return f"{low}..{high}" if low else f"..{high}"


def core_shape(shape: Any) -> CoreShape | None:
    """Return core's form of whatever OpenVINO's functions take for a shape; None: unknown rank.

    Raises:
        RuntimeError: it is no shape.
    """
    return PartialShape(shape)._core
