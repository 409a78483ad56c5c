"""Blocks: convolutions with larger windows, computed for so many positions of each axis at a time.

What a block reads is copied, with the zeros around the picture, and its result is copied back, so
that primitives for powers of two serve all sizes. Answers are the same to the bit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Sequence
from typing import Any, TypeGuard
from weakref import WeakValueDictionary

from polydevice.symbolic_size import is_symbolic
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise, Prelu, Sum
from polydevice_cpu.onednn.constants import Arg, Query
from polydevice_cpu.onednn.descriptor import (
    Descriptor,
    SymbolicDescriptor,
    channels_last_strides,
    is_strided,
    number_descriptor,
    same_steps,
)
from polydevice_cpu.onednn.primitive import Argument, Primitive, SymbolicPrimitive, built
from polydevice_cpu.plan.filling.parts import BYTES, is_exact, is_one_for_all, is_right
from polydevice_cpu.plan.step import Block
from polydevice_cpu.proof.claim import NotedClaim

MOST = 24
"""Blocks of a convolution: each takes some 40 us to bind, code for other sizes 0.5 to 1.2 ms."""

REPEATED = 600_000
"""So many products may be computed twice to spare a block: as long as one takes besides."""

BLOCK_US = 9.0
"""What a block takes besides its products, and what is copied."""

PRODUCTS_PER_US = 40_000.0
BYTES_PER_US = 8_000.0

BYTES_US = 100.0
"""What blocks of bytes may take besides in any network where one axis is open: AMX code for other
sizes takes 0.7 to 5 ms. Of two axes there are so many blocks of other sizes that those of a network
for pictures took longer than their code (23 instead of 9 ms, 18 shapes)."""

LITTLE = 1 / 100
"""What blocks may take besides, as a part of what all convolutions and products of the network
take: to spare 1 ms once, in a network of 20 ms."""

_SRC, _WEIGHTS, _DST, _ATTRIBUTES = 3, 4, 6, 11
_GEOMETRY = slice(7, 11)

Shape = tuple[int, ...]


def may_be_in_blocks(given: Primitive) -> TypeGuard[SymbolicPrimitive]:
    """Whether a primitive is a convolution of pictures of any size, without groups."""
    if not isinstance(given, SymbolicPrimitive) or given.name != "convolution_forward":
        return False
    src, weights, dst, attributes = (
        given.arguments[place] for place in (_SRC, _WEIGHTS, _DST, _ATTRIBUTES)
    )
    assert isinstance(weights, Descriptor)
    assert isinstance(attributes, Attributes)
    return (
        all(_is_open(each) and not is_symbolic(each.shape[1]) for each in (src, dst))
        and len(weights.shape) == len(given.src.shape)  # no groups
        and not any(map(is_symbolic, weights.shape))
        and all(map(is_one_for_all, attributes.quantisation))
        and all(isinstance(each, (Eltwise, Binary, Prelu, Sum)) for each in attributes.post_ops)
        and all(_is_number_or_whole(each, dst) for each in attributes.operands)
    )


def _is_open(layout: object) -> TypeGuard[SymbolicDescriptor]:
    """Whether formulas of strides tell it."""
    return isinstance(layout, SymbolicDescriptor) and is_strided(layout)


def _is_number_or_whole(operand: Descriptor, dst: Argument) -> bool:
    """Whether an operand is one number, one for each channel, or one for each of the result."""
    if isinstance(operand, SymbolicDescriptor):
        return _is_open(operand) and isinstance(dst, Descriptor) and operand.shape == dst.shape
    return operand.shape.count(1) >= len(operand.shape) - 1


def cuts(size: int, products: float) -> list[tuple[int, int]]:
    """Return (start, length) of what an axis is cut into, by powers of two.

    Args:
        size: of the axis.
        products: how many are computed for one position; infinite where none may be twice.
    """
    length, start = 1 << (size.bit_length() - 1), 0
    found = []
    while start < size:
        rest = size - start
        if rest >= length:
            found.append((start, length))
            start += length
        elif (length - rest) * products <= REPEATED:
            found.append((size - length, length))
            break
        else:
            length >>= 1
    return found


class Blocks:
    """Makes primitives for blocks of a template's convolutions; for one thread at a time.

    They are kept as long as plans use them.
    """

    def __init__(self, relied_on: Container[int]) -> None:
        """Begin with none.

        Args:
            relied_on: identities of layouts that values have or are brought into.
        """
        self._relied_on = relied_on
        self._made: WeakValueDictionary[tuple[Any, ...], Primitive] = WeakValueDictionary()
        self._refused: set[tuple[Any, ...]] = set()

    def of(
        self,
        given: SymbolicPrimitive,
        place: int,
        sizes: Callable[[object], Any],
        network: int,
    ) -> tuple[Block, ...]:
        """Return what computes a primitive for the sizes at hand; empty where it is no blocks.

        Args:
            given: one that `may_be_in_blocks`; the calling thread's number of threads is its own.
            place: what it shares with those that are made of the same.
            sizes: returns the numbers of a layout (shape and strides), a primitive or a claim.
            network: how many products the network has, for the sizes the template was made with.
        """
        source, result = sizes(given.src)[0], sizes(given.arguments[_DST])[0]
        operands = _operands(given)
        for each in (given.src, given.arguments[_DST], *operands.values()):
            shape, steps = sizes(each)
            if not same_steps(shape, steps, channels_last_strides(shape)):
                return ()
        geometry = sizes(given)[_GEOMETRY]
        if not (is_exact(given) or _has_narrow_border(given, geometry)):
            return ()
        found = self._axes(given, result)
        part = LITTLE * network / products(given)
        if not _pays(given, source, result, found, part):
            return ()
        weights = given.arguments[_WEIGHTS]
        assert isinstance(weights, Descriptor)
        along = zip(weights.shape[2:], source[2:], *geometry[:3], strict=True)
        axes = [
            [_part(start, length, window) for start, length in axis]
            for axis, window in zip(found, along, strict=True)
        ]
        sums = _sums(given)
        blocks: list[Block] = []
        for parts in itertools.product(*axes):
            lengths, *slices = zip(*parts, strict=True)
            made = self._primitive(given, place, geometry, lengths, sizes)
            if made is None or (blocks and made.weights != blocks[0].primitive.weights):
                return ()
            read, inside, write = slices
            inside = (slice(None), slice(None), *inside)
            layouts = {at: _part_of(each, made.dst.shape) for at, each in operands.items()}
            for image in range(result[0]):
                one = slice(image, image + 1), slice(None)
                blocks.append(Block(made, (*one, *read), inside, (*one, *write), layouts, sums))
        return tuple(blocks)

    @staticmethod
    def _axes(given: SymbolicPrimitive, result: Shape) -> list[list[tuple[int, int]]]:
        """What each axis of positions is cut into; not at all where its size is always the same."""
        weights, dst = given.arguments[_WEIGHTS], given.arguments[_DST]
        assert isinstance(weights, Descriptor)
        assert isinstance(dst, Descriptor)
        each: float = math.prod(weights.shape) // (BYTES if is_exact(given) else 1)
        if _sums(given):  # what a result has held is gone the second time
            each = math.inf
        positions = math.prod(result[2:])
        return [
            cuts(size, each * (positions // size)) if is_symbolic(formula) else [(0, size)]
            for size, formula in zip(result[2:], dst.shape[2:], strict=True)
        ]

    def _primitive(
        self,
        given: SymbolicPrimitive,
        place: int,
        geometry: tuple[Shape, ...],
        lengths: Shape,
        sizes: Callable[[object], Any],
    ) -> Primitive | None:
        key = place, geometry[:2], lengths
        made = self._made.get(key)
        if made is None and key not in self._refused:
            made = _made(given, geometry, lengths, self._relied_on, sizes)
            if made is None:
                self._refused.add(key)
            else:
                self._made[key] = made
        return made


def _attributes(given: SymbolicPrimitive) -> Attributes:
    attributes = given.arguments[_ATTRIBUTES]
    assert isinstance(attributes, Attributes)
    return attributes


def _has_narrow_border(given: SymbolicPrimitive, geometry: tuple[Shape, ...]) -> bool:
    """Whether no window reaches over the left or right border with half of it, or with gaps.

    Else oneDNN 3.2 may add in another order (470 of 4,000 random convolutions; of others none).
    """
    weights = given.arguments[_WEIGHTS]
    assert isinstance(weights, Descriptor)
    _, gaps, *borders = geometry
    half = 0 if gaps[-1] else (weights.shape[-1] - 1) // 2
    return all(border[-1] <= half for border in borders)


def _sums(given: SymbolicPrimitive) -> bool:
    """Whether it adds to what the result has held."""
    return any(isinstance(each, Sum) for each in _attributes(given).post_ops)


def _operands(given: SymbolicPrimitive) -> dict[int, SymbolicDescriptor]:
    """What else is read of the size of the result, by index on execution."""
    return {
        Arg.ATTR_POST_OP * (number + 1) | Arg.SRC_1: each.operand
        for number, each in enumerate(_attributes(given).post_ops)
        if isinstance(each, Binary) and isinstance(each.operand, SymbolicDescriptor)
    }


def products(given: Primitive) -> int:
    """How many a convolution, or a product with constant weights, has for the numbers there are."""
    if not isinstance(given, SymbolicPrimitive) or not given.has_weights:
        return 0
    places = [number for number, each in enumerate(given.arguments) if isinstance(each, Descriptor)]
    weights, result = given.arguments[places[1]], number_descriptor(given.dst).shape
    assert isinstance(weights, Descriptor)
    if any(map(is_symbolic, weights.shape)):
        return 0
    positions = math.prod(result) // result[-1 if given.kind == "matmul" else 1]
    return math.prod(weights.shape) * positions


def _pays(
    given: SymbolicPrimitive,
    source: Shape,
    result: Shape,
    found: list[list[tuple[int, int]]],
    part: float,
) -> bool:
    """Whether blocks take no more time besides than such a part of what all at once takes."""
    count = result[0] * math.prod(map(len, found))
    weights = given.arguments[_WEIGHTS]
    assert isinstance(weights, Descriptor)
    products_per_us = PRODUCTS_PER_US * (BYTES if is_exact(given) else 1)
    each_us = math.prod(weights.shape) / products_per_us
    once = result[0] * math.prod(result[2:])
    computed = result[0] * math.prod(sum(length for _, length in axis) for axis in found)
    copied = given.src.dtype.itemsize * math.prod(source)
    copied += math.prod(result) * sum(each.dtype.itemsize for each in _operands(given).values())
    more_us = count * BLOCK_US + copied / BYTES_PER_US + (computed - once) * each_us
    most_us = part * once * each_us
    dst = given.arguments[_DST]
    assert isinstance(dst, Descriptor)
    if is_exact(given) and sum(map(is_symbolic, dst.shape[2:])) == 1:
        most_us = max(most_us, BYTES_US)
    return count <= MOST and more_us <= most_us


def _window(weights: Shape, geometry: tuple[Shape, ...], lengths: Sequence[int]) -> Shape:
    """How many positions of each axis are read for so many results."""
    steps, gaps, *_ = geometry
    each = zip(lengths, steps, gaps, weights[2:], strict=True)
    return tuple((n - 1) * step + (k - 1) * (gap + 1) + 1 for n, step, gap, k in each)


def _made(
    given: SymbolicPrimitive,
    geometry: tuple[Shape, ...],
    lengths: Shape,
    relied_on: Container[int],
    sizes: Callable[[object], Any],
) -> Primitive | None:
    """The primitive for so many results; None if that is other code, or is not proved."""

    def created(like: Primitive) -> Primitive | None:
        return _created(like, geometry, lengths)

    made = created(given)
    if made is None:
        return None
    whole = sizes(given.arguments[_DST])[0]

    def shapes(claim: NotedClaim) -> Sequence[Shape]:
        *own, named = sizes(claim)
        return [*(made.dst.shape if each == whole else each for each in own), named]

    def layout(each: Descriptor) -> Descriptor:
        return _part_of(each, made.dst.shape) if isinstance(each, SymbolicDescriptor) else each

    is_good = is_right(made, given, relied_on, shapes, layout, lambda base: built(created(base)))
    return made if is_good else None


def _part_of(operand: Descriptor, shape: Shape) -> Descriptor:
    """How a copy of a part lies."""
    return Descriptor.channels_last(shape, operand.data_type)


def _created(like: Primitive, geometry: tuple[Shape, ...], lengths: Shape) -> Primitive | None:
    assert isinstance(like, SymbolicPrimitive)
    arguments = list(like.arguments)
    src, weights, dst = (arguments[place] for place in (_SRC, _WEIGHTS, _DST))
    assert isinstance(src, Descriptor)
    assert isinstance(weights, Descriptor)
    assert isinstance(dst, Descriptor)
    read = (1, src.shape[1], *_window(weights.shape, geometry, lengths))
    written = (1, dst.shape[1], *lengths)
    layouts = {
        (Query.SRC, 0): Descriptor.channels_last(read, src.data_type),
        (Query.DST, 0): Descriptor.channels_last(written, dst.data_type),
    }
    arguments[_SRC], arguments[_DST] = layouts.values()
    none = (0,) * len(lengths)
    arguments[_GEOMETRY] = *geometry[:2], none, none
    arguments[_ATTRIBUTES] = _attributes(like).of_numbers(
        lambda each: _part_of(each, written) if isinstance(each, SymbolicDescriptor) else each
    )
    made = Primitive.create(like.name, *arguments)
    if made is not None:
        opaque = {place: each for place, each in like.opaque.items() if place not in layouts}
        made.note({**like.layouts, **layouts}, opaque)
    return made


def _part(start: int, length: int, window: Shape) -> tuple[int, slice, slice, slice]:
    """A part of an axis: how long, what it reads, where that lies in the copy, and the result.

    Args:
        start: of the part.
        length: of the part.
        window: its size, the source's, the step from one to the next, the gap between its
            elements, and how far the first one reaches over the beginning.
    """
    kernel, size, step, gap, pad = window
    first = start * step - pad
    reach = (length - 1) * step + (kernel - 1) * (gap + 1) + 1
    inside = max(first, 0), min(first + reach, size)
    place = slice(inside[0] - first, inside[1] - first)
    return length, slice(*inside), place, slice(start, start + length)
