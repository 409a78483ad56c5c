"""Cut: makes a strip's primitive, of one that treats every position alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from functools import partial
from typing import TYPE_CHECKING, Any

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.descriptor import Descriptor, SymbolicDescriptor
from polydevice_cpu.onednn.primitive import Argument, Primitive, SymbolicPrimitive, built
from polydevice_cpu.plan.filling.apart import sizes_apart, strides_apart
from polydevice_cpu.plan.filling.parts import is_right
from polydevice_cpu.plan.step import Piece
from polydevice_cpu.proof.claim import NotedClaim

if TYPE_CHECKING:
    from polydevice_cpu.plan.filling.strips import StripForm

SIDES, GEOMETRY = (3, 6), slice(7, 11)
"""Where a convolution's arguments have what it reads and writes; steps, gaps and borders."""

Shape = tuple[int, ...]

Sizes = Callable[[object], Any]


class Cut:
    """Makes pieces of a primitive.

    Args:
        form: what there is to cut.
        axis: the one that is not of positions; None where every element is one.
        wide: which of the form's layouts have all positions.
        sizes: returns the numbers of a layout (shape and strides) or a claim.
    """

    def __init__(
        self,
        form: StripForm,
        axis: int | None,
        wide: tuple[bool, ...],
        sizes: Sizes,
    ) -> None:
        self.form = form
        self._axis = axis
        self._wide = wide
        self._sizes = sizes

    def _shapes(self, length: int, claim: NotedClaim) -> list[tuple[int, ...]]:
        """Sizes of a claim's operands for so many positions, and those that its window names."""
        *own, named = self._sizes(claim)
        return [*(self.shape(shape, length) for shape in own), named]

    def made(self, length: int, relied_on: Container[int]) -> Piece | None:
        """The primitive for so many positions; None if that is other code, or is not proved."""
        given = self.form.given
        made = self.created(given, length)
        if made is None or not is_right(
            made,
            given,
            relied_on,
            partial(self._shapes, length),
            lambda layout: self.layout(layout, length),
            lambda base: built(self.created(base, length)),
        ):
            return None
        parts = {
            index: self.layout(layout, length)
            for (index, layout), has_all in zip(self.form.layouts.items(), self._wide, strict=True)
            if has_all
        }
        sizes = tuple(layout.size_bytes // length for layout in parts.values())
        weights = made.weights if self.form.has_weights else None
        return Piece(made, length, parts, sizes, weights)

    def shape(self, shape: Shape, length: int) -> Shape:
        """Sizes of numbers with so many positions, where they have all."""
        if math.prod(sizes_apart(shape, self._axis)) == 1:
            return shape
        made, last = [1] * len(shape), len(shape) - 1
        if self._axis is not None:
            made[self._axis] = shape[self._axis]
            last -= self._axis == last
        made[last] = length
        return tuple(made)

    def layout(self, layout: Descriptor, length: int) -> Descriptor:
        """A layout with so many positions."""
        if not isinstance(layout, SymbolicDescriptor):
            return layout
        shape = self.shape(self._sizes(layout)[0], length)
        return Descriptor.strided(shape, strides_apart(shape, self._axis), layout.data_type)

    def created(self, like: Primitive, length: int) -> Primitive | None:
        """What oneDNN has for so many positions."""
        if not isinstance(like, SymbolicPrimitive):
            return like
        arguments = [self._argument(each, length) for each in like.arguments]
        if self.form.windows:
            arguments[GEOMETRY] = self.form.windows
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
