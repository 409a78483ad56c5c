"""Difference: how far two values of one tensor are apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array

LARGEST_HALF = 65504.0
"""Largest finite number of f16: what was beyond it is infinite, or was held here."""

_PART = 1 << 16
"""Elements that are compared at a time."""


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
        largest, nan, infinite, saturated = 0.0, 0, 0, 0
        for part in _parts(values):
            wide = part.astype(_wide(part))
            finite = np.isfinite(wide)
            sizes = np.abs(wide[finite])
            largest = max(largest, float(sizes.max(initial=0)))
            nan += int(np.isnan(wide).sum())
            infinite += int(np.isinf(wide).sum())
            saturated += int((sizes >= LARGEST_HALF).sum())
        return cls(largest, nan, infinite, saturated)


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
    numbers, expected = Numbers.of(ours), Numbers.of(reference)
    scale = expected.largest
    most, at, finite, count, start = 0.0, -1, 0.0, 0, 0
    for ours_part, reference_part in zip(_parts(ours), _parts(reference), strict=True):
        apart = _apart(ours_part, reference_part, exact=exact)
        largest = float(apart.max(initial=0))
        if largest > most:
            most, at = largest, start + int(apart.argmax())
        finite = max(finite, float(apart[np.isfinite(apart)].max(initial=0)))
        count += int((apart > max(0.0 if exact else bound * scale, step)).sum())
        start += apart.size
    relative = finite / scale if scale else (np.inf if finite else 0.0)
    if np.isinf(most):  # an infinity or NaN on one side is the largest difference
        finite = relative = np.inf
    index = tuple(int(i) for i in np.unravel_index(at, ours.shape)) if at >= 0 else ()
    return Difference(*shapes, finite, relative, count, index, numbers, expected, bound)


def _parts(values: Array) -> Iterator[Array]:
    """Cut into parts that are looked at in turn: f64 copies of a whole tensor may not fit."""
    flat = values.reshape(-1)
    for start in range(0, flat.size, _PART):
        yield flat[start : start + _PART]


def _wide(values: Array) -> type[np.generic]:
    return np.complex128 if values.dtype.kind == "c" else np.float64


def _apart(ours: Array, reference: Array, *, exact: bool) -> Array:
    """Return how far each element is from the reference's; infinite beside what is no number."""
    wide = np.complex128 if "c" in (ours.dtype.kind, reference.dtype.kind) else np.float64
    a, b = ours.astype(wide), reference.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(a - b)
    same = np.asarray(ours == reference) if exact else (a == b) | (np.isnan(a) & np.isnan(b))
    least = 1.0 if exact else 0.0  # large integers may differ where their f64 do not
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, np.maximum(apart, least)))


def _most(apart: Array) -> tuple[int, ...]:
    if not apart.size or not apart.any():
        return ()
    return tuple(int(i) for i in np.unravel_index(int(apart.argmax()), apart.shape))
