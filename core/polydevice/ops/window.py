"""Window: where a sliding kernel stops on its input; shared by convolution and pooling.

One place for automatic padding, dilation and rounding, so that shape rules and kernels agree.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

from polydevice.dataclass import dataclass
from polydevice.errors import ShapeError
from polydevice.shape import DimLike, bounds, dim
from polydevice.symbolic_size import is_symbolic

MAX_EXTENT = 1 << 31
"""Largest padding, stride, dilation or kernel; anything near it is nonsense in a model file."""


class PadType(enum.Enum):
    """How much is padded.

    EXPLICIT: as the attributes say. VALID: nothing. SAME_UPPER and SAME_LOWER: so much that a
    stride of 1 keeps the size, an odd rest going to the end or to the beginning.
    """

    EXPLICIT = "explicit"
    SAME_UPPER = "same_upper"
    SAME_LOWER = "same_lower"
    VALID = "valid"

    @property
    def is_same(self) -> bool:
        """Whether padding depends on the input's size."""
        return self in (PadType.SAME_UPPER, PadType.SAME_LOWER)


class RoundingType(enum.Enum):
    """What happens to a window that only partly fits.

    FLOOR leaves it out, CEIL takes it, CEIL_TORCH takes it unless it starts in the end padding.
    """

    FLOOR = "floor"
    CEIL = "ceil"
    CEIL_TORCH = "ceil_torch"


@dataclass(frozen=True)
class Window:
    """A kernel sliding over the spatial axes of an input; one item per axis in every tuple.

    Empty strides and dilations mean 1, empty pads 0. Kernel sizes may be unknown (`Dim`).

    Raises:
        ShapeError: for a wrong number of items, a negative padding, or a kernel, stride or
            dilation below 1.
    """

    kernel: tuple[DimLike, ...]
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads_begin: tuple[int, ...] = ()
    pads_end: tuple[int, ...] = ()
    auto_pad: PadType = PadType.EXPLICIT
    rounding: RoundingType = RoundingType.FLOOR

    def __post_init__(self) -> None:
        rank = len(self.kernel)
        for name, default, least in (
            ("strides", 1, 1), ("dilations", 1, 1), ("pads_begin", 0, 0), ("pads_end", 0, 0),
        ):  # fmt: skip
            values = getattr(self, name) or (default,) * rank
            if len(values) != rank:
                raise ShapeError(f"{name} {values} must have {rank} items, one per spatial axis")
            if any(not least <= value < MAX_EXTENT for value in values):
                raise ShapeError(f"{name} {values} must be between {least} and {MAX_EXTENT - 1}")
            object.__setattr__(self, name, values)
        if any(isinstance(k, int) and not 1 <= k < MAX_EXTENT for k in self.kernel):
            raise ShapeError(f"kernel {self.kernel} must be between 1 and {MAX_EXTENT - 1}")

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.kernel)

    @cached_property
    def extent(self) -> tuple[DimLike, ...]:
        """Size of the kernel with its dilation, per axis."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def pads(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return what is really padded at the begin and end of each axis of that size."""
        if self.auto_pad is PadType.VALID:
            return (0,) * self.rank, (0,) * self.rank
        if self.auto_pad is PadType.EXPLICIT:
            return self.pads_begin, self.pads_end
        begin, end = [], []
        for size, stride, extent in zip(sizes, self.strides, self.extent, strict=True):
            if not isinstance(extent, int):
                raise ShapeError("automatic padding needs a kernel of known size")
            total = max((-(-size // stride) - 1) * stride + extent - size, 0)
            small, large = total // 2, total - total // 2
            upper = self.auto_pad is PadType.SAME_UPPER
            begin.append(small if upper else large)
            end.append(large if upper else small)
        return tuple(begin), tuple(end)

    def output(self, sizes: Sequence[DimLike]) -> list[DimLike]:
        """Return the number of places where the window stops, per axis.

        Raises:
            ShapeError: when the window is larger than the padded input.
        """
        if len(sizes) != self.rank:
            raise ShapeError(f"the kernel {self.kernel} does not fit {len(sizes)} spatial axes")
        return [self._stops(axis, size) for axis, size in enumerate(sizes)]

    def _stops(self, axis: int, size: DimLike) -> DimLike:
        stride, extent = self.strides[axis], self.extent[axis]
        if self.auto_pad.is_same:
            return (size + (stride - 1)) // stride
        valid = self.auto_pad is PadType.VALID
        begin, end = (0, 0) if valid else (self.pads_begin[axis], self.pads_end[axis])
        low, high = bounds(size)
        least, most = bounds(extent)
        fewest = 0 if most is None else self._count(low, begin, end, stride, most)
        largest = None if high is None else self._count(high, begin, end, stride, least)
        if largest == 0:
            raise ShapeError(
                f"the window of {extent} (with dilation) is larger than the input of {size} "
                f"padded by {begin} and {end}"
            )
        return dim(fewest, largest)

    def _count(self, size: int, begin: int, end: int, stride: int, extent: int) -> int:
        room = size + begin + end - extent
        if self.rounding is RoundingType.FLOOR:
            return max(room // stride + 1, 0)
        # Taken too is one that overhangs by less than a stride, be it larger than the whole input.
        count = max(-(-room // stride) + 1, 0)
        if self.rounding is RoundingType.CEIL_TORCH and (count - 1) * stride >= size + begin:
            count -= 1
        return count


_kept = lru_cache(maxsize=1024)(Window)


def cached_window(kernel: tuple[DimLike, ...], *rest: Any) -> Window:
    """Return the `Window` of these arguments, which may be shared with others.

    It is kept, since a plan asks three times for each and its checks take some 10 us; not with
    symbolic sizes, which serve the plan that they were made for alone.
    """
    return Window(kernel, *rest) if any(map(is_symbolic, kernel)) else _kept(kernel, *rest)
