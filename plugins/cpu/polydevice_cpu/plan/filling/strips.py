"""Strips: primitives that treat every position alike, computed so many positions at a time.

Primitives for powers of two of positions serve all sizes: for a new shape nothing is chosen,
generated or proved. Equal code gives equal bits for any position.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeGuard
from weakref import WeakValueDictionary

from polydevice.locks import Lock
from polydevice.symbolic_size import Number, is_symbolic, number_of
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise, Sum
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import (
    Descriptor,
    SymbolicDescriptor,
)
from polydevice_cpu.onednn.primitive import Argument, Primitive, SymbolicPrimitive
from polydevice_cpu.plan.filling.apart import (
    are_in_row,
    dense,
    sizes_apart,
    strides_apart,
    unasked_strides_apart,
)
from polydevice_cpu.plan.filling.cut import GEOMETRY, Cut, Sizes
from polydevice_cpu.plan.filling.parts import (
    BYTES,
    LEAST,
    is_exact,
    is_one_for_all,
    pieces,
)
from polydevice_cpu.plan.step import Piece, Strips

TWICE_ELEMENTS, TWICE_PRODUCTS = 8192, 100_000
"""So many elements, or products of f32, may be computed twice in any case: some 2.5 us, as long as
one strip more takes."""

LARGE_BYTES = 1 << 20
"""Weights that are read from beyond the second cache for every strip."""

FOR_LARGE = 32
"""So many positions there are for each strip besides the first where weights are large: a product
of 52 rows and 3 MB of weights takes 860 us at once, and 1,075 in three strips."""

KEPT = 48
"""Pieces that are kept although no plan uses them, each some 80 kB: plans that have run often have
primitives of their own, and the next new shape would find none of the pieces that they had."""

MANY = 16
"""So many pieces that are there compute what fewer longer ones would: each takes some 1 us more, to
generate and to prove a longer one 0.5 to 8 ms. Plans that run often have their own primitives."""

WASTED = 4
"""Less than one in so many positions is computed twice where that spares shorter strips, too."""

_Key = tuple[int, "int | None", tuple[bool, ...]]
"""A form's place, the axis that is not of positions, and which layouts have all positions."""


@dataclass(frozen=True)
class _Kind:
    """Where a kind of primitive has what, among the arguments that it is made with.

    Attributes:
        moved: place of a layout → index that it has on execution.
        attributes: place of the attributes.
        axes: which axes may be the one that is not of positions; None: there may be none.
        weights: place of the weights, if it has any; a bias is behind them.
    """

    moved: Mapping[int, Arg]
    attributes: int
    axes: tuple[int | None, ...]
    weights: int | None = None


_CONVOLUTION = "convolution_forward"
_SOFTMAX_AXIS = 5
_KINDS = {
    _CONVOLUTION: _Kind({3: Arg.SRC, 6: Arg.DST}, 11, (1,), 4),
    "matmul": _Kind({1: Arg.SRC, 4: Arg.DST}, 5, (-1,), 2),
    "eltwise_forward": _Kind({3: Arg.SRC, 4: Arg.DST}, 7, (1, -1, None)),
    "binary": _Kind({2: Arg.SRC, 3: Arg.SRC_1, 4: Arg.DST}, 5, (1, -1, None)),
    "softmax_forward": _Kind({3: Arg.SRC, 4: Arg.DST}, 6, (1, -1)),
    "layer_normalization_forward": _Kind({2: Arg.SRC, 3: Arg.DST}, 7, (-1,)),
    "reorder": _Kind({0: Arg.SRC, 2: Arg.DST}, 4, (None,)),
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
        and (len(dst.shape) > 1 or None in kind.axes)
        and (kind.weights is None or _are_for_all(given, given.arguments[kind.weights :]))
        and all(map(is_one_for_all, attributes.quantisation))
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


class StripCut(NamedTuple):
    """How a primitive is cut into strips.

    Attributes:
        key: what strips of other sizes have in common with its own.
        positions: how many there are.
        twice: how many may be computed twice in any case.
    """

    key: _Key
    positions: int
    twice: int


class StripCutter:
    """Makes primitives for strips of a template's steps.

    They are kept as long as plans use them, the latest for longer: of each primitive as many as
    there are powers of two up to the most positions.
    """

    def __init__(self, relied_on: Container[int], in_place: Container[int]) -> None:
        """Begin with none.

        Args:
            relied_on: identities of layouts that values have or are brought into.
            in_place: places of primitives that write what they read, so that no position may be
                computed twice.
        """
        self._relied_on, self._in_place = relied_on, in_place
        self._forms: dict[int, StripForm] = {}
        self._made: dict[_Key, WeakValueDictionary[int, Piece]] = {}
        self._refused: set[tuple[Any, ...]] = set()
        self._latest: deque[Piece] = deque(maxlen=KEPT)
        self._lock = Lock()

    def form(self, given: SymbolicPrimitive, place: int) -> StripForm:
        """Return what there is to cut of a primitive that `treats_positions_alike`.

        Args:
            given: the primitive, while sizes are formulas.
            place: what it shares with those that are made of the same.
        """
        known = self._forms.get(place)
        if known is None:
            known = self._forms[place] = StripForm(given)
        return known

    def of(self, given: SymbolicPrimitive, place: int, sizes: Sizes) -> Strips | None:
        """Return what computes a primitive for the sizes at hand; None where it is no strips.

        Args:
            given: a primitive of which there is a form; the calling thread's number of threads is
                its own.
            place: what it shares with those that are made of the same.
            sizes: returns the numbers of a layout (shape and strides), a primitive, a claim or a
                form.
        """
        cut = self.cut(given, place, sizes)
        return None if cut is None else self.strips(cut, sizes)

    def cut(self, given: SymbolicPrimitive, place: int, sizes: Sizes) -> StripCut | None:
        """Return how a primitive is cut; None where it is not. See `of`."""
        form = self._forms[place]
        if form.apart is not None:
            positions, apart = sizes(form)
            if positions > 1 and not apart:
                return self._cut((place, form.axis, form.all_wide), sizes, positions)
        if form.windows and sizes(given)[GEOMETRY] != form.windows:
            return None
        for axis in form.axes:
            wide = form.wide(axis, sizes)
            if wide is not None:
                positions = math.prod(sizes_apart(sizes(form.result)[0], axis))
                return self._cut((place, axis, wide), sizes, positions)
        return None

    def _cut(self, key: _Key, sizes: Sizes, positions: int) -> StripCut:
        form, axis = self._forms[key[0]], key[1]
        twice = form.twice or TWICE_ELEMENTS // (1 if axis is None else sizes(form.result)[0][axis])
        return StripCut(key, positions, twice)

    def strips(self, cut: StripCut, sizes: Sizes | None = None) -> Strips | None:
        """Return strips for which the weights are packed alike; None where it is no strips.

        Args:
            cut: how a primitive is cut.
            sizes: see `of`; None where nothing is to be made that is not there.
        """
        key, positions, _ = cut
        may_repeat = not self._forms[key[0]].sums and key[0] not in self._in_place
        least = LEAST if may_repeat and positions >= LEAST else 1
        if positions < 2:
            return None
        if key not in self._made:
            self._made[key] = WeakValueDictionary()
        for smallest, most in (least, 0), *self._shorter(cut, least, may_repeat=may_repeat):
            found = self._cut_so(cut, None, smallest, most, may_repeat=may_repeat)
            if found is not None:
                return found
        if sizes is None:
            return None
        return self._cut_so(cut, sizes, least, 0, may_repeat=may_repeat)

    def _shorter(self, cut: StripCut, least: int, *, may_repeat: bool) -> Iterator[tuple[int, int]]:
        """Smallest and longest lengths of strips that may do for longer ones, as they are there."""
        with self._lock:
            there = [length for length in self._made[cut.key] if least <= length <= cut.positions]
        if there and cut.positions <= MANY * (longest := max(there)):
            yield least, longest
            smallest = min(there)
            if may_repeat and smallest * WASTED <= cut.positions:
                yield smallest, longest

    def _cut_so(
        self, cut: StripCut, sizes: Sizes | None, least: int, most: int, *, may_repeat: bool
    ) -> Strips | None:
        key, positions, twice = cut
        made = self._made[key]
        while cuts := pieces(positions, least, may_repeat=may_repeat, twice=twice, most=most):
            first = made.get(cuts[0][1]) or self._piece(key, made, sizes, cuts[0][1])
            if first is None or (
                first.weights is not None
                and first.weights.size_bytes > LARGE_BYTES
                and (len(cuts) - 1) * FOR_LARGE > positions
            ):
                break
            found = [first]
            for _, length in cuts[1:]:
                piece = made.get(length) or self._piece(key, made, sizes, length)
                if piece is None or piece.weights is not first.weights:
                    least = 2 * length
                    break
                found.append(piece)
            else:
                return Strips(tuple(found), cuts)
        return None

    def _piece(
        self,
        key: _Key,
        known: WeakValueDictionary[int, Piece],
        sizes: Sizes | None,
        length: int,
    ) -> Piece | None:
        place = *key, length
        if place in self._refused or sizes is None:
            return None
        made = Cut(self._forms[key[0]], *key[1:], sizes).made(length, self._relied_on)
        if made is None:
            self._refused.add(place)
            return None
        with self._lock:
            for other in list(known.values()):
                if other.weights is not None and other.weights == made.weights:
                    made = replace(made, weights=other.weights)  # compared once
                    break
            known[length] = made
            self._latest.append(made)
        return made


class StripForm:
    """What there is to cut of a primitive, whatever its sizes.

    Attributes:
        apart: formulas: how many positions there are apart from an axis, and a number that is 0
            where layouts have them all, one behind the other in memory, or one for all, as they had
            when the formulas were made; None where no formula tells.
        axis: that one.
        all_wide: what `wide` returns where it is 0, and there are several positions.
        layouts: of what may be read or written at positions, by index on execution.
        result: the layout of what it computes.
        axes: which may be the one that is not of positions; None: every element is one.
        windows: strides, gaps and borders of a convolution that treats positions alike.
        has_weights: whether it multiplies by some.
        sums: whether it adds to what the result has held.
        twice: of what has weights: how many positions may be computed twice in any case.
    """

    def __init__(self, given: SymbolicPrimitive) -> None:
        kind = self._kind = _KINDS[given.name]
        attributes, result = given.arguments[kind.attributes], given.arguments[max(kind.moved)]
        assert isinstance(attributes, Attributes)
        assert isinstance(result, SymbolicDescriptor)
        self.given, self.result = given, result
        layouts: dict[int, Argument] = {arg: given.arguments[at] for at, arg in kind.moved.items()}
        for number, each in enumerate(attributes.post_ops):
            if isinstance(each, Binary):
                layouts[Arg.ATTR_POST_OP * (number + 1) | Arg.SRC_1] = each.operand
        self.layouts = {at: each for at, each in layouts.items() if isinstance(each, Descriptor)}
        rank = len(result.shape)
        spatial = rank - 2
        one, none = (1,) * spatial, (0,) * spatial
        self.windows = (one, none, none, none) if given.name == _CONVOLUTION else ()
        self.has_weights = kind.weights is not None
        self.sums = any(isinstance(each, Sum) for each in attributes.post_ops)
        self.twice = 0
        if kind.weights is not None:
            weights = given.arguments[kind.weights]
            assert isinstance(weights, Descriptor)
            few = TWICE_PRODUCTS * (BYTES if is_exact(given) else 1)
            self.twice = max(few // math.prod(weights.shape), 1)
        axes = kind.axes if rank > 1 else (None,)
        found = dict.fromkeys(None if axis is None else axis % rank for axis in axes)
        self.axes = [axis for axis in found if self._may_be(axis)]
        self._cuttable = {axis: self._may_be_cut(axis) for axis in self.axes}
        self.axis: int | None = None
        self.all_wide: tuple[bool, ...] = ()
        self.apart = self._apart()

    def _may_be(self, axis: int | None) -> bool:
        """Whether an axis may be the one that is not of positions, as oneDNN computes it."""
        if self.given.name == "softmax_forward":
            return axis == self.given.arguments[_SOFTMAX_AXIS]
        return True

    def _may_be_cut(self, axis: int | None) -> list[tuple[Descriptor, bool, bool]]:
        """Layouts, whether they are formulas, and whether the axis always has the same size."""
        found = []
        for layout in self.layouts.values():
            is_open = isinstance(layout, SymbolicDescriptor)
            # What weights multiply has as many numbers as these, whatever formula tells it.
            is_told = self.has_weights and layout is self.given.src
            may_be_cut = (
                is_open
                and layout.strides is not None
                and len(layout.shape) == len(self.result.shape)
                and (axis is None or is_told or not is_symbolic(layout.shape[axis]))
            )
            found.append((layout, is_open, may_be_cut))
        return found

    def _apart(self) -> tuple[Number, Number] | None:
        geometry = tuple(self.given.arguments[GEOMETRY]) if self.windows else ()
        numbers = [size for each in geometry if isinstance(each, tuple) for size in each]
        if any(map(is_symbolic, numbers)) or geometry != self.windows:
            return None
        for axis in self.axes:
            found = self._apart_from(axis)
            if found is not None:
                self.axis = axis
                return found
        return None

    def _apart_from(self, axis: int | None) -> tuple[Number, Number] | None:
        apart, are_wide = 0, []
        positions = sizes_apart(self.result.shape, axis)
        are_many = math.prod(map(number_of, positions)) > 1
        for layout, is_open, may_be_cut in self._cuttable[axis]:
            own = sizes_apart(layout.shape, axis)
            is_wide = is_open and not (are_many and math.prod(map(number_of, own)) == 1)
            are_wide.append(is_wide)
            if not is_wide:
                one = math.prod(own)
                if not is_open and one != 1:
                    return None
                apart |= one ^ 1 if is_open else 0
                continue
            if not may_be_cut:
                return None
            assert layout.strides is not None
            wanted = *positions, *unasked_strides_apart(layout.shape, axis)
            for one, other in zip((*own, *layout.strides), wanted, strict=True):
                apart |= 0 if one is other else one ^ other
        self.all_wide = tuple(are_wide)
        return math.prod(positions), apart

    def wide(self, axis: int | None, sizes: Sizes) -> tuple[bool, ...] | None:
        """Whether layouts have all positions, each, or one number for all.

        Returns:
            None where one has neither, or its positions do not follow each other in memory.
        """
        whole, steps = sizes(self.result)
        positions = sizes_apart(whole, axis)
        plain = dense(whole, steps) if axis is None else None
        found = []
        for layout, is_open, may_be_cut in self._cuttable[axis]:
            shape, strides = sizes(layout) if is_open else (layout.shape, layout.strides)
            own = sizes_apart(shape, axis)
            are_many = math.prod(own) != 1
            if are_many and not (
                may_be_cut
                and strides is not None
                and own == positions
                and are_in_row(shape, strides, plain or strides_apart(shape, axis))
            ):
                return None
            found.append(are_many)
        return tuple(found)
