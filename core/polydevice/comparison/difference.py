"""Difference: how far two values of one tensor are apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from polydevice.dtype import Array

LARGEST_HALF = 65504.0
"""Largest finite number of f16: what was beyond it is infinite, or was held here."""


@dataclass(frozen=True)
class Numbers:
    """What one side's tensor holds.

    Attributes:
        largest: largest finite magnitude; 0 for none.
        nan: number of elements that are no number.
        infinite: number of infinite elements.
        saturated: number of finite elements at or beyond the largest number of f16.
    """

    largest: float
    nan: int
    infinite: int
    saturated: int

    @classmethod
    def of(cls, values: Array) -> Numbers:
        """Count in an array of numbers."""
        finite = np.isfinite(values)
        sizes = np.abs(values[finite])
        return cls(
            largest=float(sizes.max(initial=0)),
            nan=int(np.isnan(values).sum()),
            infinite=int(np.isinf(values).sum()),
            saturated=int((sizes >= LARGEST_HALF).sum()),
        )


@dataclass(frozen=True)
class Difference:
    """One tensor on both sides.

    Attributes:
        shape: of the device's value.
        reference_shape: of the reference's.
        absolute: largest difference of two elements; infinite where one of them is no number.
        relative: that as a part of the reference's largest element; of texts and truth values the
            part of the elements that differ.
        beyond: number of elements that differ by more than the bound.
        index: of the element that differs most; empty when all are equal.
        ours: numbers in the device's value; None for what are no numbers.
        reference: numbers in the reference's value.
        bound: largest `relative` that is no difference.
    """

    shape: tuple[int, ...]
    reference_shape: tuple[int, ...]
    absolute: float
    relative: float
    beyond: int
    index: tuple[int, ...]
    ours: Numbers | None
    reference: Numbers | None
    bound: float

    @property
    def is_beyond(self) -> bool:
        """Whether the values differ by more than the bound, or by shape."""
        return self.beyond > 0 or self.shape != self.reference_shape

    @property
    def text(self) -> str:
        """What differs, in words; empty when nothing does beyond the bound."""
        if self.shape != self.reference_shape:
            return f"shape {list(self.shape)} where the reference has {list(self.reference_shape)}"
        if not self.is_beyond:
            return ""
        count = int(np.prod(self.shape, dtype=np.int64))
        said = [f"{self.beyond} of {count} elements, most at {list(self.index)}"]
        if self.ours is not None and self.reference is not None:
            for what in ("nan", "infinite"):
                ours, reference = getattr(self.ours, what), getattr(self.reference, what)
                if ours != reference:
                    said.append(f"{ours} {what}, {reference} in the reference")
        return "; ".join(said)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, which has no infinity: null stands for it."""
        sides = {"ours": self.ours, "reference": self.reference}
        sizes = {"absolute": self.absolute, "relative": self.relative}
        return {
            "shape": list(self.shape),
            "reference_shape": list(self.reference_shape),
            **{name: value if np.isfinite(value) else None for name, value in sizes.items()},
            **{name: getattr(self, name) for name in ("beyond", "bound")},
            "index": list(self.index),
            **{name: vars(side) if side is not None else None for name, side in sides.items()},
        }


def difference(ours: Array, reference: Array, bound: float, step: float = 0.0) -> Difference:
    """Compare two values of a tensor.

    Args:
        ours: the device's value.
        reference: the other's; elements are compared as f64 (complex128).
        bound: largest difference of an element that counts as equal, as a part of the reference's
            largest element. Integers, texts and truth values differ when they are not equal.
        step: difference that counts as equal in any case: one step of a quantised value, which a
            sum that lies near the middle between two may go either way.
    """
    ours, reference = np.asarray(ours), np.asarray(reference)
    shapes = ours.shape, reference.shape
    if ours.shape != reference.shape:
        return Difference(*shapes, np.inf, np.inf, 0, (), None, None, bound)
    if ours.dtype.kind in "OUSb" or reference.dtype.kind in "OUSb":
        wrong = np.asarray(ours != reference)
        part = float(wrong.mean()) if wrong.size else 0.0
        return Difference(*shapes, part, part, int(wrong.sum()), _most(wrong), None, None, bound)
    exact = ours.dtype.kind in "iu" and reference.dtype.kind in "iu"
    is_complex = "c" in (ours.dtype.kind, reference.dtype.kind)
    wide = np.complex128 if is_complex else np.float64
    a, b = ours.astype(wide), reference.astype(wide)
    numbers, expected = Numbers.of(a), Numbers.of(b)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(a - b)
    same = np.asarray(ours == reference) if exact else (a == b) | (np.isnan(a) & np.isnan(b))
    least = 1.0 if exact else 0.0  # large integers may differ where their f64 do not
    apart = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, np.maximum(apart, least)))
    finite = apart[np.isfinite(apart)]
    absolute = float(finite.max(initial=0))
    scale = expected.largest
    relative = absolute / scale if scale else (np.inf if absolute else 0.0)
    if finite.size < apart.size:  # an infinity or NaN on one side is the largest difference
        absolute = relative = np.inf
    wrong = apart > max(0.0 if exact else bound * scale, step)
    return Difference(
        *shapes, absolute, relative, int(wrong.sum()), _most(apart), numbers, expected, bound
    )


def _most(apart: Array) -> tuple[int, ...]:
    if not apart.size or not apart.any():
        return ()
    return tuple(int(i) for i in np.unravel_index(int(apart.argmax()), apart.shape))
