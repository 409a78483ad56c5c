"""Strips: primitives that treat every position alike, computed so many positions at a time.

Primitives for powers of two of positions serve all sizes: for a new shape nothing is chosen,
generated or proved. Equal code gives equal bits for any position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeGuard
from weakref import WeakValueDictionary

from polydevice.symbolic_size import is_symbolic
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise, Sum
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import (
    Descriptor,
    SymbolicDescriptor,
    channels_last_strides,
    row_major,
    same_steps,
)
from polydevice_cpu.onednn.primitive import Argument, Primitive, SymbolicPrimitive, built
from polydevice_cpu.plan.filling.parts import is_right
from polydevice_cpu.plan.step import Piece, Strip
from polydevice_cpu.proof.claim import NotedClaim

LEAST = 16
"""Positions of the shortest strips that may overlap; of fewer positions there are no strips."""

REPEATED = 32
"""Of so many positions one may be computed twice, where that spares shorter strips."""

LARGE_BYTES = 1 << 20
"""Weights that are read from beyond the second cache for every strip."""

FOR_LARGE = 32
"""So many positions there are for each strip besides the first where weights are large: a product
of 52 rows and 3 MB of weights takes 860 us at once, and 1,075 in three strips."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class _Kind:
    """Where a kind of primitive has what, among the arguments that it is made with.

    Attributes:
        moved: place of a layout → index that it has on execution.
        attributes: place of the attributes.
        axes: which axes may be the one that is not of positions; None: there may be none.
        weights: place of the weights, if it has any; a bias is behind them.
        may_repeat: whether a position may be computed twice: nobody has it write what it reads.
    """

    moved: Mapping[int, Arg]
    attributes: int
    axes: tuple[int | None, ...]
    weights: int | None = None
    may_repeat: bool = False


_CONVOLUTION = "convolution_forward"
_GEOMETRY = slice(7, 11)
_SOFTMAX_AXIS = 5
_KINDS = {
    _CONVOLUTION: _Kind({3: Arg.SRC, 6: Arg.DST}, 11, (1,), 4, may_repeat=True),
    "matmul": _Kind({1: Arg.SRC, 4: Arg.DST}, 5, (-1,), 2, may_repeat=True),
    "eltwise_forward": _Kind({3: Arg.SRC, 4: Arg.DST}, 7, (1, -1, None)),
    "binary": _Kind({2: Arg.SRC, 3: Arg.SRC_1, 4: Arg.DST}, 5, (1, -1, None)),
    "softmax_forward": _Kind({3: Arg.SRC, 4: Arg.DST}, 6, (1, -1)),
    "layer_normalization_forward": _Kind({2: Arg.SRC, 3: Arg.DST}, 7, (-1,)),
}


def treats_positions_alike(given: Primitive) -> TypeGuard[SymbolicPrimitive]:
    """Whether a primitive computes every position alike, as far as sizes do not decide that."""
    kind = _KINDS.get(given.name) if isinstance(given, SymbolicPrimitive) else None
    if kind is None:
        return False
    assert isinstance(given, SymbolicPrimitive)
    attributes = given.arguments[kind.attributes]
    assert isinstance(attributes, Attributes)
    dst = given.arguments[max(kind.moved)]
    return (
        isinstance(dst, SymbolicDescriptor)
        and dst.strides is not None
        and dst.source is None
        and len(dst.shape) > 1
        and (kind.weights is None or _are_for_all(given, given.arguments[kind.weights :]))
        and not attributes.quantisation
        and all(isinstance(each, (Eltwise, Binary, Sum)) for each in attributes.post_ops)
    )


def _are_for_all(given: SymbolicPrimitive, arguments: Sequence[Argument]) -> bool:
    """Whether weights and bias are the same for all positions, and nothing else is read."""
    weights, bias, dst, *_ = arguments
    assert isinstance(weights, Descriptor)
    assert isinstance(dst, Descriptor)
    rank = len(dst.shape)
    if any(map(is_symbolic, weights.shape)) or len(weights.shape) != rank:  # with groups
        return False
    if given.name == _CONVOLUTION:
        return weights.shape[2:] == (1,) * (rank - 2)
    alike = (1,) * (rank - 2)
    return weights.shape[:-2] == alike and (
        bias is None or (isinstance(bias, Descriptor) and bias.shape[:-1] == (*alike, 1))
    )


@lru_cache(maxsize=4096)
def pieces(
    positions: int, least: int = LEAST, *, may_repeat: bool = True
) -> tuple[tuple[int, int], ...]:
    """Return (start, length) of the strips of so many positions; none where there are too few.

    They get shorter, by powers of two; the last one may overlap the one before.
    """
    length = 1 << (positions.bit_length() - 1)
    if length < max(least, LEAST) or (positions % least and not may_repeat):
        return ()
    found, start = [], 0
    while start < positions:
        rest = positions - start
        if rest >= length:
            found.append((start, length))
            start += length
        elif may_repeat and (length == least or (length - rest) * REPEATED <= positions):
            found.append((positions - length, length))
            break
        else:
            length >>= 1
    return tuple(found)


class Strips:
    """Makes primitives for strips of a template's steps; for one thread at a time.

    They are kept as long as plans use them: of each primitive as many as there are powers of
    two up to the most positions.
    """

    def __init__(self, relied_on: Container[int]) -> None:
        """Begin with none.

        Args:
            relied_on: identities of layouts that values have or are brought into.
        """
        self._relied_on = relied_on
        self._made: WeakValueDictionary[tuple[Any, ...], Piece] = WeakValueDictionary()
        self._refused: set[tuple[Any, ...]] = set()

    def of(
        self, given: SymbolicPrimitive, place: int, sizes: Callable[[object], Any]
    ) -> tuple[Strip, ...]:
        """Return what computes a primitive for the sizes at hand; empty where it is no strips.

        Args:
            given: a primitive that `treats_positions_alike`; the calling thread's number of threads
                is its own.
            place: what it shares with those that are made of the same.
            sizes: returns the numbers of a layout (shape and strides), a primitive or a claim.
        """
        kind = _KINDS[given.name]
        if given.name == _CONVOLUTION:
            rank = len(given.src.shape) - 2
            one, none = (1,) * rank, (0,) * rank
            if sizes(given)[_GEOMETRY] != (one, none, none, none):
                return ()
        for axis in kind.axes:
            cut = _Cut(given, axis, sizes)
            wide = cut.wide()
            if wide is not None:
                return self._strips(given, (place, cut.axis, wide), cut)
        return ()

    def _strips(
        self, given: SymbolicPrimitive, key: tuple[Any, ...], cut: _Cut
    ) -> tuple[Strip, ...]:
        """Strips for which the weights are packed alike."""
        kind = _KINDS[given.name]
        attributes = given.arguments[kind.attributes]
        assert isinstance(attributes, Attributes)
        sums = any(isinstance(each, Sum) for each in attributes.post_ops)
        may_repeat = kind.may_repeat and not sums
        least = LEAST if may_repeat else 1
        while cuts := pieces(cut.positions, least, may_repeat=may_repeat):
            first = self._piece(given, key, cut, cuts[0][1])
            if first is None or (
                kind.weights is not None
                and first.primitive.weights.size_bytes > LARGE_BYTES
                and (len(cuts) - 1) * FOR_LARGE > cut.positions
            ):
                break
            strips = []
            for start, length in cuts:
                made = self._piece(given, key, cut, length)
                if made is None or (
                    kind.weights is not None and made.primitive.weights != first.primitive.weights
                ):
                    least = 2 * length
                    break
                strips.append(Strip(made, start))
            else:
                return tuple(strips)
        return ()

    def _piece(
        self, given: SymbolicPrimitive, key: tuple[Any, ...], cut: _Cut, length: int
    ) -> Piece | None:
        place = *key, length
        made = self._made.get(place)
        if made is None and place not in self._refused:
            made = _made(given, cut, length, self._relied_on)
            if made is None:
                self._refused.add(place)
            else:
                self._made[place] = made
        return made


class _Cut:
    """How a primitive is cut, for the sizes at hand.

    Attributes:
        axis: the one that is not of positions; None where every element is a position.
        positions: how many there are.
    """

    def __init__(
        self, given: SymbolicPrimitive, axis: int | None, sizes: Callable[[object], Any]
    ) -> None:
        self._kind = _KINDS[given.name]
        self._given = given
        self._sizes = sizes
        dst = given.arguments[max(self._kind.moved)]
        self._shape, self._strides = sizes(dst)
        rank = len(self._shape)
        self.axis = None if axis is None else axis % rank
        self.positions: int = math.prod(self._positions(self._shape))

    def _positions(self, shape: Shape) -> Shape:
        """The sizes of the axes of positions."""
        return shape if self.axis is None else (*shape[: self.axis], *shape[self.axis + 1 :])

    def layouts(self) -> dict[int, Descriptor]:
        """What is read or written at positions, by index on execution."""
        given, kind = self._given.arguments, self._kind
        found: dict[int, Argument] = {arg: given[place] for place, arg in kind.moved.items()}
        attributes = given[kind.attributes]
        assert isinstance(attributes, Attributes)
        for number, each in enumerate(attributes.post_ops):
            if isinstance(each, Binary):
                found[Arg.ATTR_POST_OP * (number + 1) | Arg.SRC_1] = each.operand
        return found  # type: ignore[return-value]

    def wide(self) -> tuple[bool, ...] | None:
        """Whether layouts have all positions, each, or one number for all.

        Returns:
            None where one has neither, or its positions do not follow each other in memory.
        """
        axis, name = self.axis, self._given.name
        if axis is not None and axis != len(self._shape) - 1 and (axis != 1 or name == "matmul"):
            return None
        if name == "softmax_forward" and axis != self._given.arguments[_SOFTMAX_AXIS]:
            return None
        found = []
        for layout in self.layouts().values():
            shape, strides = self._numbers(layout)
            has_all = math.prod(self._positions(shape)) != 1
            if has_all and not self._is_cut(layout, shape, strides):
                return None
            found.append(has_all)
        return tuple(found)

    def _numbers(self, layout: Descriptor) -> tuple[Shape, Shape | None]:
        if isinstance(layout, SymbolicDescriptor):
            shape, strides = self._sizes(layout)
            return shape, strides
        return layout.shape, layout.strides

    def _is_cut(self, layout: Descriptor, shape: Shape, strides: Shape | None) -> bool:
        """Whether its positions are those of the result, one behind the other."""
        if not isinstance(layout, SymbolicDescriptor) or strides is None:
            return False
        axis = self.axis
        if axis is None:
            return shape == self._shape and _fills(shape, strides) and strides == self._strides
        return (
            len(shape) == len(self._shape)
            and self._positions(shape) == self._positions(self._shape)
            and not is_symbolic(layout.shape[axis])
            and same_steps(shape, strides, self._lie(shape))
        )

    def _lie(self, shape: Shape) -> Shape:
        """Strides with positions one behind the other."""
        if self.axis is None or self.axis == len(shape) - 1:
            return row_major(shape)
        return channels_last_strides(shape)

    def shape(self, shape: Shape, length: int) -> Shape:
        """Sizes of numbers with so many positions, where they have all."""
        if math.prod(self._positions(shape)) == 1:
            return shape
        made, last = [1] * len(shape), len(shape) - 1
        if self.axis is not None:
            made[self.axis] = shape[self.axis]
            last -= self.axis == last
        made[last] = length
        return tuple(made)

    def layout(self, layout: Descriptor, length: int) -> Descriptor:
        """A layout with so many positions."""
        if not isinstance(layout, SymbolicDescriptor):
            return layout
        shape = self.shape(self._sizes(layout)[0], length)
        return Descriptor.strided(shape, self._lie(shape), layout.data_type)

    def shapes(self, length: int) -> Callable[[NotedClaim], list[Shape]]:
        """What returns the sizes of a claim's operands with so many positions."""
        return lambda claim: [self.shape(shape, length) for shape in self._sizes(claim)]

    def created(self, like: Primitive, length: int) -> Primitive | None:
        """What oneDNN has for so many positions."""
        if not isinstance(like, SymbolicPrimitive):
            return like
        arguments = [self._argument(each, length) for each in like.arguments]
        if like.name == _CONVOLUTION:
            rank = len(like.src.shape) - 2
            one, none = (1,) * rank, (0,) * rank
            arguments[_GEOMETRY] = one, none, none, none
        made = Primitive.create(like.name, *arguments)
        if made is not None:
            made.note(
                {place: self.layout(layout, length) for place, layout in like.layouts.items()},
                {place: self.layout(layout, length) for place, layout in like.opaque.items()},
            )
        return made

    def _argument(self, given: Argument, length: int) -> Argument:
        if isinstance(given, Attributes):
            return given.of_numbers(lambda layout: self.layout(layout, length))
        return self.layout(given, length) if isinstance(given, Descriptor) else given


def _fills(shape: Shape, strides: Shape) -> bool:
    """Whether a tensor of some elements leaves no gaps."""
    steps = zip(shape, strides, strict=True)
    return sum((n - 1) * step for n, step in steps) + 1 == math.prod(shape)


def _made(
    given: SymbolicPrimitive, cut: _Cut, length: int, relied_on: Container[int]
) -> Piece | None:
    """The primitive for so many positions; None if that is other code, or is not proved."""
    made = cut.created(given, length)
    if made is None or not is_right(
        made,
        given,
        relied_on,
        cut.shapes(length),
        lambda layout: cut.layout(layout, length),
        lambda base: built(cut.created(base, length)),
    ):
        return None
    layouts = cut.layouts()
    wide = cut.wide() or ()
    parts = {
        index: cut.layout(layout, length)
        for (index, layout), has_all in zip(layouts.items(), wide, strict=True)
        if has_all
    }
    return Piece(made, length, parts)
