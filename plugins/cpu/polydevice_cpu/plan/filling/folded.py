"""Pictures of one or three axes seen as pictures of two, which code for windows reads.

Channels lie next to each other in both. Of three axes, windows are over the last two alone, of as
many pictures as the first one has places; or along the first one, of which all others are columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from polydevice.symbolic_size import Number, is_symbolic
from polydevice_cpu.algorithms.by_machine.windows.covers import Windows
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitive import SymbolicPrimitive

_WEIGHTS, _OF_CONVOLUTIONS, _OF_POOLS = 4, slice(7, 11), slice(5, 10)


class Fold(NamedTuple):
    """How pictures are seen.

    Attributes:
        axes: of them.
        is_along: whether windows are along the first of three axes.
    """

    axes: int
    is_along: bool = False

    def shape(self, shape: Sequence[Number]) -> tuple[int, ...]:
        """Return [N, C, …] as [N, C, H, W]."""
        if self.axes == 1:
            return (*shape, 1)
        if self.axes == 2:
            return tuple(shape)
        pictures, channels, deep, high, wide = shape
        if self.is_along:
            return pictures, channels, deep, high * wide
        return pictures * deep, channels, high, wide

    def each(self, sizes: Sequence[int], other: int) -> tuple[int, ...]:
        """Return what windows have along two axes: as many elements, or steps, gaps or pads.

        Args:
            sizes: by axis of the pictures.
            other: of an axis that is added.
        """
        if self.axes == 1:
            return (*sizes, other)
        if self.axes == 2:
            return tuple(sizes)
        return (sizes[0], other) if self.is_along else tuple(sizes[1:])

    def windows(
        self,
        sizes: Sequence[int],
        geometry: Sequence[Sequence[int]],
        *,
        is_own: bool,
        groups: int = 1,
    ) -> Windows:
        """Return windows along two axes.

        Args:
            sizes: of one, by axis of the pictures.
            geometry: steps, gaps and pads.
            is_own: whether each channel has its own source.
            groups: of channels.
        """
        steps, gaps, pads = geometry
        along = self.each(sizes, 1), self.each(steps, 1), self.each(gaps, 0), self.each(pads, 0)
        return Windows(*along, is_own, groups)


def fold_of(given: SymbolicPrimitive) -> Fold | None:
    """Return how pictures of a convolution or pool are seen; None where they are not."""
    if given.name == "pooling_forward":
        steps, window, _, pads, behind = _geometry(given, _OF_POOLS)
    else:
        steps, _, pads, behind = _geometry(given, _OF_CONVOLUTIONS)
        weights = given.arguments[_WEIGHTS]
        assert isinstance(weights, Descriptor)
        window = weights.shape[-len(steps) :]
    axes = len(steps)
    if axes < 3:
        return Fold(axes)
    if axes > 3:
        return None

    def is_single(axis: int) -> bool:
        """Whether positions of an axis read one element each, all of them."""
        found = window[axis], steps[axis], pads[axis], behind[axis]
        return not any(map(is_symbolic, found)) and found == (1, 1, 0, 0)

    if is_single(0):
        return Fold(axes)
    return Fold(axes, is_along=True) if is_single(1) and is_single(2) else None


def _geometry(given: SymbolicPrimitive, places: slice) -> Sequence[tuple[int, ...]]:
    return cast("Sequence[tuple[int, ...]]", given.arguments[places])
