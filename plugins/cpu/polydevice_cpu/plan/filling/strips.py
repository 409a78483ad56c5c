"""Strips: convolutions with windows of one element, computed so many positions at a time.

They treat every position alike, so that primitives for powers of two of them serve all sizes: for
a new shape nothing is chosen, generated or proved. Equal code gives equal bits for any position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from functools import lru_cache
from typing import Any, TypeGuard
from weakref import WeakValueDictionary

from polydevice.symbolic_size import is_symbolic
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise
from polydevice_cpu.onednn.descriptor import Descriptor, SymbolicDescriptor, channels_last_strides
from polydevice_cpu.onednn.primitive import Argument, Primitive, SymbolicPrimitive, built
from polydevice_cpu.plan.step import Strip
from polydevice_cpu.proof.proof import refusal

LEAST = 16
"""Positions of the shortest strips. Of fewer positions there are few sizes, and no strips."""

REPEATED = 32
"""Of so many positions one may be computed twice, where that spares shorter strips."""

_SRC, _WEIGHTS, _DST, _ATTRIBUTES = 3, 4, 6, 11
_GEOMETRY = slice(7, 11)


def treats_positions_alike(given: Primitive) -> TypeGuard[SymbolicPrimitive]:
    """Whether a primitive computes every position alike, as far as sizes do not decide that."""
    if not isinstance(given, SymbolicPrimitive) or given.name != "convolution_forward":
        return False
    src, weights, dst, attributes = (
        given.arguments[place] for place in (_SRC, _WEIGHTS, _DST, _ATTRIBUTES)
    )
    if not (_has_open_positions(src) and _has_open_positions(dst)):
        return False
    assert isinstance(weights, Descriptor)
    assert isinstance(attributes, Attributes)
    rank = len(src.shape)
    return (
        len(weights.shape) == rank  # no groups
        and weights.shape[2:] == (1,) * (rank - 2)
        and not attributes.quantisation
        and all(isinstance(each, (Eltwise, Binary)) for each in attributes.post_ops)
        and all(_has_open_positions(each) or _is_by_channel(each) for each in attributes.operands)
    )


def _has_open_positions(layout: Argument) -> TypeGuard[SymbolicDescriptor]:
    return (
        isinstance(layout, SymbolicDescriptor)
        and layout.strides is not None
        and len(layout.shape) > 2
        and not is_symbolic(layout.shape[1])
    )


def _is_by_channel(layout: Descriptor) -> bool:
    sizes = (layout.shape[0], *layout.shape[2:])
    return not any(map(is_symbolic, layout.shape)) and math.prod(sizes) == 1


@lru_cache(maxsize=4096)
def pieces(positions: int, least: int = LEAST) -> tuple[tuple[int, int], ...]:
    """Return (start, length) of the strips of so many positions; none where there are too few.

    They get shorter, by powers of two; the last one may overlap the one before.
    """
    length = 1 << (positions.bit_length() - 1)
    if length < least:
        return ()
    found, start = [], 0
    while start < positions:
        rest = positions - start
        if rest >= length:
            found.append((start, length))
            start += length
        elif length == least or (length - rest) * REPEATED <= positions:
            found.append((positions - length, length))
            break
        else:
            length >>= 1
    return tuple(found)


class Strips:
    """Makes primitives for strips of a template's convolutions; for one thread at a time.

    They are kept as long as plans use them: for each convolution as many as there are powers of
    two up to the most positions.
    """

    def __init__(self, relied_on: Container[int]) -> None:
        """Begin with none.

        Args:
            relied_on: identities of layouts that values have or are brought into.
        """
        self._relied_on = relied_on
        self._made: WeakValueDictionary[tuple[int, int], Primitive] = WeakValueDictionary()
        self._refused: set[tuple[int, int]] = set()

    def of(
        self, given: SymbolicPrimitive, place: int, sizes: Callable[[object], Any]
    ) -> tuple[Strip, ...]:
        """Return what computes a primitive for the sizes at hand; empty where it is no strips.

        Args:
            given: a primitive that `treats_positions_alike`; the calling thread's number of threads
                is its own.
            place: what it shares with those that are made of the same.
            sizes: returns the numbers of a layout (shape and strides) or a primitive.
        """
        rank = len(given.src.shape) - 2
        one, none = (1,) * rank, (0,) * rank
        if sizes(given)[_GEOMETRY] != (one, none, none, none):
            return ()
        lies = {_positions(*sizes(layout)) for layout in _open_layouts(given)}
        if len(lies) > 1 or None in lies:
            return ()
        return self._cut(given, place, math.prod(lies.pop() or ()))

    def _cut(self, given: SymbolicPrimitive, place: int, positions: int) -> tuple[Strip, ...]:
        """Strips for which the weights are packed alike."""
        least = LEAST
        while cuts := pieces(positions, least):
            first = self._primitive(given, place, cuts[0][1])
            if first is None:
                break
            strips = []
            for start, length in cuts:
                made = self._primitive(given, place, length)
                if made is None or made.weights != first.weights:
                    least = 2 * length
                    break
                strips.append(Strip(made, start))
            else:
                return tuple(strips)
        return ()

    def _primitive(self, given: SymbolicPrimitive, place: int, length: int) -> Primitive | None:
        key = place, length
        made = self._made.get(key)
        if made is None and key not in self._refused:
            made = _made(given, length, self._relied_on)
            if made is None:
                self._refused.add(key)
            else:
                self._made[key] = made
        return made


def _open_layouts(given: SymbolicPrimitive) -> list[SymbolicDescriptor]:
    attributes = given.arguments[_ATTRIBUTES]
    assert isinstance(attributes, Attributes)
    each = (given.arguments[_SRC], given.arguments[_DST], *attributes.operands)
    return [layout for layout in each if isinstance(layout, SymbolicDescriptor)]


def _positions(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """The sizes besides channels, where channels lie next to each other without gaps."""
    return (shape[0], *shape[2:]) if strides == channels_last_strides(shape) else None


def _made(given: SymbolicPrimitive, length: int, relied_on: Container[int]) -> Primitive | None:
    """The primitive for so many positions; None if that is other code, or is not proved."""
    made = _created(given, length)
    if made is None or made.implementation != given.implementation:
        return None
    for place, answer in given.answers.items():
        if id(answer) in relied_on and made.descriptor(*place).layout != answer.layout:
            return None
    for claim in given.claims:
        shapes = [_cut_shape(link.shape, length) for link in claim.links]
        of_strip = claim.of(
            made,
            shapes,
            lambda layout: _cut_layout(layout, length),
            lambda base: built(_created(base, length)),
        )
        if refusal(of_strip):
            return None
    return made


def _created(like: Primitive, length: int) -> Primitive | None:
    """What oneDNN has for so many positions."""
    assert isinstance(like, SymbolicPrimitive)
    arguments = list(like.arguments)
    src, dst, attributes = (arguments[place] for place in (_SRC, _DST, _ATTRIBUTES))
    assert isinstance(src, Descriptor)
    assert isinstance(dst, Descriptor)
    assert isinstance(attributes, Attributes)
    arguments[_SRC], arguments[_DST] = _cut_layout(src, length), _cut_layout(dst, length)
    arguments[_ATTRIBUTES] = attributes.of_numbers(lambda layout: _cut_layout(layout, length))
    rank = len(src.shape) - 2
    one, none = (1,) * rank, (0,) * rank
    arguments[_GEOMETRY] = one, none, none, none
    made = Primitive.create(like.name, *arguments)
    if made is not None:
        made.note(
            {place: _cut_layout(layout, length) for place, layout in like.layouts.items()},
            {place: _cut_layout(layout, length) for place, layout in like.opaque.items()},
        )
    return made


def _cut_layout(layout: Descriptor, length: int) -> Descriptor:
    if not isinstance(layout, SymbolicDescriptor):
        return layout
    return Descriptor.channels_last(_cut_shape(layout.shape, length), layout.data_type)


def _cut_shape(shape: tuple[int, ...], length: int) -> tuple[int, ...]:
    """The sizes of so many positions, where sizes are open."""
    if not any(map(is_symbolic, shape)):
        return shape
    return (1, shape[1], *[1] * (len(shape) - 3), length)
