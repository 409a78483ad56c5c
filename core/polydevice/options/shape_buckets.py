"""ShapeBuckets: the sizes that inputs are padded up to, as SHAPE_BUCKETS says them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from polydevice.dataclass import dataclass

LEGAL = (
    "sizes joined by commas (128,256,512) or powers (of two), for all axes of unknown size; or, "
    "with the number of an axis in front, for that one: 0:powers;1:128,256,512; empty for none"
)
_POWERS = "powers"
_LARGEST = 1 << 31


@dataclass(frozen=True)
class Ladder:
    """The sizes that one axis is padded up to.

    Attributes:
        sizes: in ascending order; empty for the powers of two.
    """

    sizes: tuple[int, ...] = ()

    def above(self, size: int, most: int | None = None) -> int:
        """Return what a size is padded to: itself where there is nothing to pad it to.

        Args:
            size: of an axis of an input.
            most: the largest size that the network admits there, if it says so.
        """
        if size < 1:
            return size
        if not self.sizes:
            found = 1 << (size - 1).bit_length()
        else:
            found = next((each for each in self.sizes if each >= size), size)
        return size if most is not None and size > most else min(found, most or found)

    def __str__(self) -> str:
        return ",".join(map(str, self.sizes)) or _POWERS


@dataclass(frozen=True)
class ShapeBuckets:
    """What SHAPE_BUCKETS says.

    Attributes:
        axes: number of an axis of the inputs → its sizes.
        others: for the axes that are not among them; None to leave them as they are.
    """

    axes: tuple[tuple[int, Ladder], ...] = ()
    others: Ladder | None = None

    @classmethod
    def parse(cls, value: object) -> ShapeBuckets | None:
        """Return what a text, a number, a list of numbers or a dictionary of axes says.

        Returns:
            None for an empty one.

        Raises:
            ValueError: it is none of the legal ones, with the list of them.
        """
        parts = [part for part in _text(value).split(";") if part.strip()]
        axes: dict[int, Ladder] = {}
        others = None
        for part in parts:
            axis, colon, sizes = part.rpartition(":")
            ladder = _ladder(sizes)
            if not colon:
                if others is not None:
                    raise ValueError(f"it has sizes for all axes twice; legal: {LEGAL}")
                others = ladder
            elif not re.fullmatch(r"\s*[0-9]{1,3}\s*", axis) or int(axis) in axes:
                raise ValueError(f"{axis.strip()!r} is no axis, or named twice; legal: {LEGAL}")
            else:
                axes[int(axis)] = ladder
        return cls(tuple(sorted(axes.items())), others) if parts else None

    def of(self, axis: int) -> Ladder | None:
        """Return the sizes for an axis; None to leave it as it is."""
        return dict(self.axes).get(axis, self.others)

    def __str__(self) -> str:
        texts = [f"{axis}:{ladder}" for axis, ladder in self.axes]
        return ";".join([*texts, *([] if self.others is None else [str(self.others)])])


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ";".join(f"{axis}:{_text(sizes)}" for axis, sizes in value.items())
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def _ladder(text: str) -> Ladder:
    written = text.strip().lower()
    if written == _POWERS:
        return Ladder()
    if not re.fullmatch(r"[0-9]{1,10}(\s*,\s*[0-9]{1,10})*", written):
        raise ValueError(f"legal: {LEGAL}")
    sizes = sorted({int(each) for each in written.split(",")})
    if sizes[0] < 1 or sizes[-1] >= _LARGEST:
        raise ValueError(f"sizes are 1 to {_LARGEST - 1}; legal: {LEGAL}")
    return Ladder(tuple(sizes))
